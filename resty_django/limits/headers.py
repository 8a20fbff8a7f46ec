"""The header fields that tell a client about its limits.

`RateLimit` and `RateLimit-Policy` are those of draft-ietf-httpapi-ratelimit-headers-11: `"req-ip";r=99;t=1` (99 more
pass now; t seconds) and `"req-ip";q=101;w=1` (101 in a window of one second). They list every limit of the response.
`X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now) tell of the tightest one alone.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from .decision import Decision
from .limiters import FixedWindow, LeakyBucket, SlidingWindow, TokenBucket


def quoted(text: str) -> str:
    """A string of RFC 9651: what is not ASCII or not printable becomes "?"."""
    plain = "".join(char if " " <= char <= "~" else "?" for char in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def policy_parameters(limiter: Any) -> str:
    """`q` and `w` of a limiter; of one of concurrency `q` and its unit."""
    if isinstance(limiter, LeakyBucket):
        quota = int(limiter.burst) + 1
        return f";q={quota};w={_whole((limiter.burst + 1) / limiter.rate)}"
    if isinstance(limiter, FixedWindow | SlidingWindow):
        return f";q={int(limiter.limit)};w={_whole(limiter.window)}"
    if isinstance(limiter, TokenBucket):
        refill = limiter.interval / limiter.quantum / 1000
        return f";q={int(limiter.capacity)};w={_whole(limiter.capacity * refill)}"
    return f';q={int(limiter.max + limiter.burst)};qu="concurrent-requests"'


def _whole(seconds: float) -> int:
    """Seconds, rounded up; at least 1."""
    return max(1, ceil(seconds))


class Shown:
    """A limiter under the name that clients see. `policy` is its item of `RateLimit-Policy`, `name` is quoted."""

    __slots__ = ("limiter", "name", "numbers", "policy")

    def __init__(self, name: str, limiter: Any) -> None:
        self.name = quoted(name)
        self.limiter = limiter
        self.renew()

    def renew(self) -> None:
        """The limiter got other numbers."""
        self.numbers = self.limiter.numbers
        self.policy = self.name + policy_parameters(self.limiter)


def show(headers: Any, shown: Shown, decision: Decision) -> None:
    """Tell of one more limit in `headers`, a mapping of a response.

    The headers of Django's responses are written where they are kept: its own way checks each text again, and takes
    longer than the decision. These texts are ASCII, and have no line ends.
    """
    if shown.numbers is not shown.limiter.numbers:
        shown.renew()
    left = decision.remaining
    remaining = str(left)
    reset = str(ceil(decision.reset_after if decision.allowed else decision.retry_after))
    item = f"{shown.name};r={remaining};t={reset}"
    policy = shown.policy
    store = getattr(headers, "_store", None)
    tightest = True
    if "RateLimit" in headers if store is None else "ratelimit" in store:
        item = f"{item}, {headers['RateLimit']}"
        policy = f"{policy}, {headers['RateLimit-Policy']}"
        tightest = _tighter(left, int(reset), headers)
    if store is None:
        headers["RateLimit"] = item
        headers["RateLimit-Policy"] = policy
        if tightest:
            headers["X-RateLimit-Limit"] = str(decision.limit)
            headers["X-RateLimit-Remaining"] = remaining
            headers["X-RateLimit-Reset"] = reset
        return
    store["ratelimit"] = ("RateLimit", item)
    store["ratelimit-policy"] = ("RateLimit-Policy", policy)
    if tightest:
        store["x-ratelimit-limit"] = ("X-RateLimit-Limit", str(decision.limit))
        store["x-ratelimit-remaining"] = ("X-RateLimit-Remaining", remaining)
        store["x-ratelimit-reset"] = ("X-RateLimit-Reset", reset)


def _tighter(remaining: int, reset: int, headers: Any) -> bool:
    """Whether fewer requests pass than the headers tell, or as few for longer."""
    try:
        told = int(headers["X-RateLimit-Remaining"]), -int(headers["X-RateLimit-Reset"])
    except (KeyError, ValueError):
        return True
    return (remaining, -reset) < told


def retry_after(decision: Decision) -> int:
    """`Retry-After` of a refusal: whole seconds, rounded up, at least 1."""
    return _whole(decision.retry_after)


__all__ = ["Shown", "policy_parameters", "quoted", "retry_after", "show"]
