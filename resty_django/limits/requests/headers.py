"""The header fields that report limits to clients.

`RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-11: `"req-ip";r=99;t=1` (99 more pass
now; t is in seconds) and `"req-ip";q=101;w=1` (101 in a window of one second). They list every limit of the response.
`X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now) report only the tightest limit. The setting HEADERS
selects the fields.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Mapping
from math import ceil, inf
from typing import Any, Final
from urllib.parse import quote

from django.http.response import ResponseHeaders

from ..callers.request_settings import DRAFT, LEGACY
from ..decision import Decision
from ..limiters.concurrency import Concurrency
from ..limiters.rate import FixedWindow, LeakyBucket, SlidingWindow, TokenBucket

MAX_FIELD_INTEGER: Final = 999_999_999_999_999
"""The largest integer of RFC 9651; larger numbers are reported as this one."""


class AdvertisedLimit:
    """A limiter with the name that clients see. `policy`: its item in `RateLimit-Policy`. `name`: quoted."""

    __slots__ = ("config", "limiter", "name", "policy")

    def __init__(self, name: str, limiter: Any) -> None:
        self.name = quoted(name)
        self.limiter = limiter
        self.config: object = None  # until the first response: they may depend on settings
        self.policy = ""

    def refresh(self) -> None:
        """Read the numbers of the limiter again."""
        self.config = self.limiter.config
        self.policy = self.name + policy_parameters(self.limiter)


def add_headers(
    headers: ResponseHeaders, advertised: AdvertisedLimit, decision: Decision, fields: int = DRAFT | LEGACY
) -> None:
    """Add a limit to the headers of a response. `fields`: flags of the fields, see `RequestSettings`.

    Write to the private mapping of Django's `ResponseHeaders`: its public methods validate each value, which would take
    17 % of a decorated call. These values are ASCII without line breaks.
    """
    store: dict[str, tuple[str, str]] = headers._store
    if decision.allowed:
        units_left, seconds = decision.remaining, decision.reset_after
    else:  # no request of this cost passes before `retry_after`, if ever
        units_left, seconds = 0, decision.retry_after if decision.retry_after < inf else decision.reset_after
    remaining, reset = str(min(units_left, MAX_FIELD_INTEGER)), str(ceil(seconds))
    if fields & DRAFT:
        if advertised.config != advertised.limiter.config:
            advertised.refresh()
        item = f"{advertised.name};r={remaining};t={reset}"
        policy = advertised.policy
        if "ratelimit" in store:
            item = f"{item}, {store['ratelimit'][1]}"
        if "ratelimit-policy" in store:
            policy = f"{policy}, {store['ratelimit-policy'][1]}"
        store["ratelimit"] = ("RateLimit", item)
        store["ratelimit-policy"] = ("RateLimit-Policy", policy)
    if fields & LEGACY and ("x-ratelimit-remaining" not in store or _is_tighter(units_left, int(reset), store)):
        store["x-ratelimit-limit"] = ("X-RateLimit-Limit", str(decision.limit))
        store["x-ratelimit-remaining"] = ("X-RateLimit-Remaining", remaining)
        store["x-ratelimit-reset"] = ("X-RateLimit-Reset", reset)


def _is_tighter(remaining: int, reset: int, store: Mapping[str, tuple[str, str]]) -> bool:
    """Return whether this limit is tighter than the reported one: fewer remaining, or as few for longer."""
    try:
        tightest = int(store["x-ratelimit-remaining"][1]), -int(store["x-ratelimit-reset"][1])
    except (KeyError, ValueError):
        return True
    return (remaining, -reset) < tightest


@functools.lru_cache(1024)
def shown_name(name: str) -> str:
    """Return the name of a limit in printable ASCII, as clients see it; other characters and "%" become "%XX"."""
    unescaped = f" {string.ascii_letters}{string.digits}{string.punctuation}".replace("%", "")
    return quote(name, safe=unescaped, errors="surrogatepass")


def quoted(name: str) -> str:
    """Return the name of a limit as a string of RFC 9651."""
    return '"' + shown_name(name).replace("\\", "\\\\").replace('"', '\\"') + '"'


def policy_parameters(limiter: Any) -> str:
    """Return `q` and `w` of a limiter, or `q` and its unit for a concurrency limiter."""
    if isinstance(limiter, LeakyBucket):
        quota = int(limiter.burst) + 1
        return f";q={min(quota, MAX_FIELD_INTEGER)};w={_whole((limiter.burst + 1) / limiter.rate)}"
    if isinstance(limiter, FixedWindow | SlidingWindow):
        return f";q={min(int(limiter.limit), MAX_FIELD_INTEGER)};w={_whole(limiter.window)}"
    if isinstance(limiter, TokenBucket):
        seconds = round(limiter.capacity * limiter.interval_ms / limiter.quantum / 1000, 6)
        return f";q={min(int(limiter.capacity), MAX_FIELD_INTEGER)};w={_whole(seconds)}"
    if isinstance(limiter, Concurrency):
        return f';q={min(int(limiter.max + limiter.burst), MAX_FIELD_INTEGER)};qu="concurrent-requests"'
    return str(limiter.policy_parameters())  # a quota


def _whole(seconds: float) -> int:
    """Return the seconds rounded up, at least 1."""
    return max(1, min(ceil(seconds), MAX_FIELD_INTEGER))
