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
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import quote

from ..callers.request_settings import DRAFT, LEGACY
from ..decision import Decision
from ..limiters.concurrency import Concurrency
from ..limiters.rate import FixedWindow, LeakyBucket, SlidingWindow, TokenBucket

LARGEST: Final = 999_999_999_999_999
"""The largest integer of RFC 9651; larger numbers are reported as this one."""
_UNESCAPED: Final = " " + "".join(sorted({*string.ascii_letters, *string.digits, *string.punctuation} - {"%"}))


@functools.lru_cache(1024)
def shown_name(name: str) -> str:
    """Return the name of a limit in printable ASCII, as clients see it; other characters and "%" become "%XX"."""
    return quote(name, safe=_UNESCAPED, errors="surrogatepass")


def quoted(name: str) -> str:
    """Return the name of a limit as a string of RFC 9651."""
    return '"' + shown_name(name).replace("\\", "\\\\").replace('"', '\\"') + '"'


def policy_parameters(limiter: Any) -> str:
    """Return `q` and `w` of a limiter, or `q` and its unit for a concurrency limiter."""
    if isinstance(limiter, LeakyBucket):
        quota = int(limiter.burst) + 1
        return f";q={min(quota, LARGEST)};w={_whole((limiter.burst + 1) / limiter.rate)}"
    if isinstance(limiter, FixedWindow | SlidingWindow):
        return f";q={min(int(limiter.limit), LARGEST)};w={_whole(limiter.window)}"
    if isinstance(limiter, TokenBucket):
        seconds = round(limiter.capacity * limiter.interval_ms / limiter.quantum / 1000, 6)
        return f";q={min(int(limiter.capacity), LARGEST)};w={_whole(seconds)}"
    if isinstance(limiter, Concurrency):
        return f';q={min(int(limiter.max + limiter.burst), LARGEST)};qu="concurrent-requests"'
    return str(limiter.policy_parameters())  # a quota


def _whole(seconds: float) -> int:
    """Return the seconds rounded up, at least 1."""
    return max(1, min(ceil(seconds), LARGEST))


class AdvertisedLimit:
    """A limiter with the name that clients see. `policy`: its item in `RateLimit-Policy`. `name`: quoted."""

    __slots__ = ("limiter", "name", "numbers", "policy")

    def __init__(self, name: str, limiter: Any) -> None:
        self.name = quoted(name)
        self.limiter = limiter
        self.numbers: Any = None  # until the first response: they may depend on settings
        self.policy = ""

    def refresh(self) -> None:
        """Read the numbers of the limiter again."""
        self.numbers = self.limiter.numbers
        self.policy = self.name + policy_parameters(self.limiter)


def add_headers(headers: Any, advertised: AdvertisedLimit, decision: Decision, fields: int = DRAFT | LEGACY) -> None:
    """Add a limit to the `headers` of a response. `fields`: flags of the fields, see `SELECTIONS`.

    Write to the private mapping of Django's `ResponseHeaders`: the public method checks each value and takes longer
    than the decision. These values are ASCII without line breaks.
    """
    allowed, _, _, total, quota_left, seconds, wait, _, _ = decision
    if not allowed:  # no request of this cost passes before `retry_after`, if ever
        quota_left, seconds = 0, wait if wait < inf else seconds
    remaining = str(quota_left if quota_left < LARGEST else LARGEST)
    reset = str(ceil(seconds))
    store = getattr(headers, "_store", None)
    if store is None:  # not Django's mapping
        copy = SimpleNamespace(_store={name.lower(): (name, value) for name, value in headers.items()})
        add_headers(copy, advertised, decision, fields)
        headers.update(copy._store.values())
        return
    if fields & DRAFT:
        if advertised.numbers is not advertised.limiter.numbers:
            advertised.refresh()
        item = f"{advertised.name};r={remaining};t={reset}"
        policy = advertised.policy
        if "ratelimit" in store:
            item = f"{item}, {store['ratelimit'][1]}"
        if "ratelimit-policy" in store:
            policy = f"{policy}, {store['ratelimit-policy'][1]}"
        store["ratelimit"] = ("RateLimit", item)
        store["ratelimit-policy"] = ("RateLimit-Policy", policy)
    if not fields & LEGACY or ("x-ratelimit-remaining" in store and not _tighter(quota_left, int(reset), store)):
        return
    store["x-ratelimit-limit"] = ("X-RateLimit-Limit", str(total))
    store["x-ratelimit-remaining"] = ("X-RateLimit-Remaining", remaining)
    store["x-ratelimit-reset"] = ("X-RateLimit-Reset", reset)


def _tighter(remaining: int, reset: int, store: Mapping[str, tuple[str, str]]) -> bool:
    """Return whether this limit is tighter than the reported one: fewer remaining, or as few for longer."""
    try:
        tightest = int(store["x-ratelimit-remaining"][1]), -int(store["x-ratelimit-reset"][1])
    except (KeyError, ValueError):
        return True
    return (remaining, -reset) < tightest


def retry_after(decision: Decision) -> int | None:
    """Return the `Retry-After` of a refusal in seconds, rounded up, at least 1; None if it can never pass."""
    seconds = decision.retry_after
    return max(1, min(ceil(seconds), LARGEST)) if seconds < inf else None
