"""The response header `Cache-Status` (RFC 9211), which says how a cache handled a request. It contains no keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from django.http import HttpResponseBase

from .cacheability import Rules


class CacheStatus(StrEnum):
    """How the cache handled a request: the parameters of the header, without `ttl`."""

    HIT = "hit"
    STORED = "fwd=miss; stored"
    UNCACHEABLE = "fwd=miss; detail=uncacheable"
    MISS = "fwd=miss"
    STALE = "fwd=stale"
    """The view failed, and an expired page was served."""
    PASSED = "fwd=bypass; detail=uncacheable"
    """The page was found to be uncacheable by an earlier request."""
    UNAVAILABLE = "fwd=bypass; detail=unavailable"
    BYPASS = "fwd=bypass"
    METHOD = "fwd=method"


_WITH_TTL: Final = (CacheStatus.HIT, CacheStatus.STORED)


def add_status(response: HttpResponseBase, cache: str, status: CacheStatus, rules: Rules) -> None:
    """Append the status of a cache to the header.

    Use the private mapping of Django's `ResponseHeaders`: its methods would make a hit slower by a fifth.
    """
    identifier, fields = identifier_of(cache), response.headers._store
    _, previous = fields.get("cache-status", ("", ""))
    if identifier in previous:  # a response object that the view returns again
        previous = ""
    ttl = _ttl(fields, rules) if status in _WITH_TTL else ""
    fields["cache-status"] = "Cache-Status", f"{f'{previous}, ' if previous else ''}{identifier}; {status}{ttl}"


# This function and `_max_age` keep their results: without that, a hit would take a seventh longer.
@lru_cache(maxsize=64)
def identifier_of(cache: str) -> str:
    """Return a token, or a string if the name contains characters that a token must not contain."""
    name = f"resty-{cache}"
    if re.fullmatch(r"[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*", name):
        return name
    printable = "".join(character if " " <= character <= "~" else "?" for character in name)
    return '"' + printable.replace("\\", r"\\").replace('"', r"\"") + '"'


def _ttl(fields: Mapping[str, tuple[str, str]], rules: Rules) -> str:
    """Return the remaining time to live in whole seconds. It is unknown if `max_age` is for browsers only."""
    if rules.max_age is not None:
        return ""
    _, cache_control = fields.get("cache-control", ("", ""))
    _, age = fields.get("age", ("", "0"))
    max_age = _max_age(cache_control)
    return "" if max_age is None else f"; ttl={max_age - int(age)}"


@lru_cache(maxsize=256)
def _max_age(cache_control: str) -> int | None:
    match = re.search(r"(?:^|,)\s*max-age=([0-9]+)\s*(?:,|$)", cache_control, re.IGNORECASE)
    return None if match is None else int(match[1])
