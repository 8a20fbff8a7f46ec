"""The overrides of one key in all limits, for the search for a key, and links to the form that adds one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.db import router
from django.http import HttpRequest

from resty_django.admin.statistics import KeyView
from resty_django.admin.tables import listing
from resty_django.conf import conf
from resty_django.text import printable

from ..callers.client_address import parse_address
from ..callers.keys import MISSING
from ..models import LimitOverride
from ..overrides.current import current
from ..overrides.override_set import identifying_parts
from ..specs.override import EVERYWHERE, MAX_KEY_CHARS
from ..statistics import catalog
from .columns import KEY_OVERRIDE_COLUMNS, MAX_KEY_ROWS, MAX_SHOWN_CHARACTERS
from .key_forms import stored_forms


def add_query(series: str, kind: str, key: str) -> str:
    """Return the query that prefills the form of an override; "" if an override cannot apply."""
    is_policy = catalog.kind_and_name(series)[0] == catalog.LimitKind.POLICY
    if len(key) > MAX_KEY_CHARS or not (is_policy or conf.limits.overrides == EVERYWHERE):
        return ""
    return urlencode({"kind": kind, "key": key, "limit": series})


def subject(form: str, roles: Sequence[str]) -> tuple[str, str]:
    """Return the kind and the key of an override for a key of a limit."""
    parts = list(identifying_parts(form, roles))
    if len(parts) != 1 or parts[0][1] == MISSING or parts[0][1].startswith("~"):
        return "key", form
    kind, value = parts[0]
    return ("network" if kind == "address" and "/" in value else kind), value


def subject_of(key: str) -> tuple[str, str]:
    """Return the kind and the key of an override for what was searched for."""
    for prefix, kind in (("user:", "user"), ("ip:", "address")):
        if key.startswith(prefix):
            return kind, key.removeprefix(prefix)
    return ("key" if parse_address(key) is None else "address"), key


def override_rows_context(site: AdminSite, request: HttpRequest, key: str) -> dict[str, Any]:
    """Return the context with the overrides of a key, in force or not yet, if the user may view them.

    They are found in memory; one query by primary keys reads their times and reasons.
    """
    if not key or not site.get_model_admin(LimitOverride).has_view_or_change_permission(request):
        return {}
    active = current.get()
    if active is None:
        return {"key_overrides": []}
    forms = stored_forms(key)
    pks = [override.pk for override in active.of_key(forms)][: MAX_KEY_ROWS + 1]
    rows = LimitOverride.objects.using(router.db_for_write(LimitOverride)).in_bulk(pks)
    listed = [rows[pk] for pk in pks if pk in rows]
    overrides = [
        {
            "row": row,
            "limit": printable(row.limit, MAX_SHOWN_CHARACTERS),
            "key": KeyView.of(row.key).text,
            "reason": printable(row.reason, MAX_SHOWN_CHARACTERS),
        }
        for row in listed[:MAX_KEY_ROWS]
    ]
    return {
        "key_overrides": listing(request, KEY_OVERRIDE_COLUMNS, overrides, name="overrides"),
        "more_key_overrides": len(listed) > MAX_KEY_ROWS,
    }
