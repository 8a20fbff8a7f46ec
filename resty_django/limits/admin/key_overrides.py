"""Links from a key of a limit to the form that adds an override of it."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from resty_django.conf import conf

from ..enforcement.client_address import parse_address
from ..enforcement.keys import MISSING
from ..overrides.override_set import identifying_parts
from ..overrides.spec import EVERYWHERE, LONGEST_KEY
from ..statistics import catalog


def add_query(series: str, kind: str, key: str) -> str:
    """Return the query that prefills the form of an override; "" if an override cannot apply."""
    is_policy = catalog.kind_and_name(series)[0] == catalog.POLICY
    if len(key) > LONGEST_KEY or not (is_policy or conf.limits.overrides == EVERYWHERE):
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
