"""The header fields that report limits to clients.

`RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-11: `"req-ip";r=99;t=1` (99 more pass
now; t is in seconds) and `"req-ip";q=101;w=1` (101 in a window of one second). They list every limit of the response.
`X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now) report only the tightest limit.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Any

from ..algorithms.decision import Decision
from ..limiters.concurrency import Concurrency
from ..limiters.rate import FixedWindow, LeakyBucket, SlidingWindow, TokenBucket


def quoted(text: str) -> str:
    """Return a string as in RFC 9651; characters that are not printable ASCII become "?"."""
    plain = "".join(char if " " <= char <= "~" else "?" for char in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def policy_parameters(limiter: Any) -> str:
    """Return `q` and `w` of a limiter, or `q` and its unit for a concurrency limiter."""
    if isinstance(limiter, LeakyBucket):
        quota = int(limiter.burst) + 1
        return f";q={quota};w={_whole((limiter.burst + 1) / limiter.rate)}"
    if isinstance(limiter, FixedWindow | SlidingWindow):
        return f";q={int(limiter.limit)};w={_whole(limiter.window)}"
    if isinstance(limiter, TokenBucket):
        refill = limiter.interval_ms / limiter.quantum / 1000
        return f";q={int(limiter.capacity)};w={_whole(limiter.capacity * refill)}"
    if isinstance(limiter, Concurrency):
        return f';q={int(limiter.max + limiter.burst)};qu="concurrent-requests"'
    return str(limiter.policy_parameters())  # a quota


def _whole(seconds: float) -> int:
    """Return the seconds rounded up, at least 1."""
    return max(1, ceil(seconds))


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


def add_headers(headers: Any, advertised: AdvertisedLimit, decision: Decision) -> None:
    """Add a limit to the `headers` of a response.

    Write to the private mapping of Django's `ResponseHeaders`: the public method checks each value and takes longer
    than the decision. These values are ASCII without line breaks.
    """
    if advertised.numbers is not advertised.limiter.numbers:
        advertised.refresh()
    allowed, _, _, total, quota_left, seconds, wait, _, _ = decision
    if not allowed:  # no request of this cost passes before `retry_after`, if ever
        quota_left, seconds = 0, wait if wait < inf else seconds
    remaining = str(quota_left)
    reset = str(ceil(seconds))
    item = f"{advertised.name};r={remaining};t={reset}"
    policy = advertised.policy
    store = getattr(headers, "_store", None)
    tightest = True
    if "RateLimit" in headers if store is None else "ratelimit" in store:
        item = f"{item}, {headers['RateLimit']}"
        policy = f"{policy}, {headers['RateLimit-Policy']}"
        tightest = _tighter(quota_left, int(reset), headers)
    if store is None:
        headers["RateLimit"] = item
        headers["RateLimit-Policy"] = policy
        if tightest:
            headers["X-RateLimit-Limit"] = str(total)
            headers["X-RateLimit-Remaining"] = remaining
            headers["X-RateLimit-Reset"] = reset
        return
    store["ratelimit"] = ("RateLimit", item)
    store["ratelimit-policy"] = ("RateLimit-Policy", policy)
    if tightest:
        store["x-ratelimit-limit"] = ("X-RateLimit-Limit", str(total))
        store["x-ratelimit-remaining"] = ("X-RateLimit-Remaining", remaining)
        store["x-ratelimit-reset"] = ("X-RateLimit-Reset", reset)


def _tighter(remaining: int, reset: int, headers: Any) -> bool:
    """Return whether this limit is tighter than the headers: fewer remaining, or as few for longer."""
    try:
        tightest = int(headers["X-RateLimit-Remaining"]), -int(headers["X-RateLimit-Reset"])
    except (KeyError, ValueError):
        return True
    return (remaining, -reset) < tightest


def retry_after(decision: Decision) -> int | None:
    """Return the `Retry-After` of a refusal in seconds, rounded up, at least 1; None if it can never pass."""
    return _whole(decision.retry_after) if decision.retry_after < inf else None
