"""The overrides of one key, for the search for a key: in all limits, also in those that this process has not loaded."""

from __future__ import annotations

from typing import Any, Final

from django.contrib.admin import AdminSite
from django.db import router
from django.http import HttpRequest

from resty_django.admin.statistics import Key
from resty_django.admin.tables import listing
from resty_django.text import printable

from ..models import LimitOverride
from ..overrides.current import current
from .columns import KEY_OVERRIDES
from .key_forms import stored_forms

SHOWN: Final = 50
"""The maximum number of overrides on the page."""
LONGEST_TEXT: Final = 200


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
    pks = [override.pk for override in active.of_key(forms)][: SHOWN + 1]
    rows = LimitOverride.objects.using(router.db_for_write(LimitOverride)).in_bulk(pks)
    listed = [rows[pk] for pk in pks if pk in rows]
    overrides = [
        {
            "row": row,
            "limit": printable(row.limit, LONGEST_TEXT),
            "key": Key.of(row.key).text,
            "reason": printable(row.reason, LONGEST_TEXT),
        }
        for row in listed[:SHOWN]
    ]
    return {
        "key_overrides": listing(request, KEY_OVERRIDES, overrides, name="overrides"),
        "more_key_overrides": len(listed) > SHOWN,
    }
