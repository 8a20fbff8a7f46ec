"""The response header `Cache-Status` (RFC 9211), which says how a cache handled a request. It contains no keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from django.http import HttpResponseBase

from .cacheability import Rules

HEADER: Final = "Cache-Status"

HIT: Final = "hit"
STORED: Final = "fwd=miss; stored"
UNCACHEABLE: Final = "fwd=miss; detail=uncacheable"
FAILED: Final = "fwd=stale"
PASSED: Final = "fwd=bypass; detail=uncacheable"
UNAVAILABLE: Final = "fwd=bypass; detail=unavailable"
MISS: Final = "fwd=miss"
METHOD: Final = "fwd=method"
BYPASS: Final = "fwd=bypass"

_MAX_AGE: Final = re.compile(r"(?:^|,)\s*max-age=([0-9]+)\s*(?:,|$)", re.IGNORECASE)
_TOKEN: Final = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*")


def add_status(response: HttpResponseBase, cache: str, status: str, rules: Rules) -> None:
    """Append the status of a cache to the header. `status`: the parameters of RFC 9211, without `ttl`.

    Write to the private mapping of Django's `ResponseHeaders`: the public method would check the text again.
    """
    identifier, fields = identifier_of(cache), response.headers._store
    _, previous = fields.get("cache-status", (HEADER, ""))
    if identifier in previous:  # a response object that the view returns again
        previous = ""
    ttl = _ttl(fields, rules) if status in (HIT, STORED) else ""
    fields["cache-status"] = HEADER, f"{f'{previous}, ' if previous else ''}{identifier}; {status}{ttl}"


@lru_cache(maxsize=64)
def identifier_of(cache: str) -> str:
    """Return a token, or a string if the name contains characters that a token must not contain."""
    name = f"resty-{cache}"
    if _TOKEN.fullmatch(name):
        return name
    printable = "".join(character if " " <= character <= "~" else "?" for character in name)
    return '"' + printable.replace("\\", r"\\").replace('"', r"\"") + '"'


def _ttl(fields: Mapping[str, tuple[str, str]], rules: Rules) -> str:
    """Return the remaining time to live in whole seconds. It is unknown if `max_age` is for browsers only."""
    if rules.max_age is not None:
        return ""
    seconds = _max_age(fields.get("cache-control", ("", ""))[1])
    return "" if seconds is None else f"; ttl={seconds - int(fields.get('age', ('', '0'))[1])}"


@lru_cache(maxsize=256)
def _max_age(cache_control: str) -> int | None:
    match = _MAX_AGE.search(cache_control)
    return None if match is None else int(match[1])
