"""The header fields that report limits to clients: names and policies. `check.add_headers` writes the fields.

`RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-11: `"req-ip";r=99;t=1` (99 more pass
now; t is in seconds) and `"req-ip";q=101;w=1` (101 in a window of one second). They list every limit of the response.
`X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now) report only the tightest limit. The setting HEADERS
selects the fields.
"""

from __future__ import annotations

import functools
import string
from math import ceil
from typing import Any, Final
from urllib.parse import quote

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
        self.config: Any = None  # until the first response: they may depend on settings
        self.policy = ""

    def refresh(self) -> None:
        """Read the numbers of the limiter again."""
        self.config = self.limiter.config
        self.policy = self.name + policy_parameters(self.limiter)
