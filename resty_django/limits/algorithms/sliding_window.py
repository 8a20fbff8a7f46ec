"""Sliding window, computed as a weighted sum of two fixed windows.

Windows begin at whole multiples of their length. The count is the number of requests that passed in the current
window, plus the share of the previous window that a window ending now covers, assuming evenly spread requests
(Cloudflare's "sliding window counter"):

    elapsed = now % window
    allowed = previous * (window - elapsed) / window + current + cost <= limit

computed in requests times milliseconds (`room`), so that all numbers are whole. Refused requests do not count.

If a stored window begins in the future, the clock went back: its requests count in the current window, reduced if
necessary so that the request passes. If the length of windows was changed, the requests of both stored windows count in
the window that contains the start of the stored current one: this window, or the one before.

Example: 10 requests per minute, of which 8 passed in the previous minute and 3 in this one. After 15 seconds of this
minute, they count as 8 * 45 / 60 + 3 = 9, so one more passes.
"""

from __future__ import annotations

import math
import struct

from msgspec import Struct

from ..decision import Decision
from . import FRAME, Outcome, foreign_data


class SlidingWindowConfig(Struct, frozen=True, gc=False):
    """The numbers of a sliding window."""

    limit: int
    """Requests per window."""
    window: int
    """Milliseconds."""


class SlidingWindowState(Struct, gc=False):
    """The stored state of a key."""

    start: int = -1
    """The time in milliseconds at which the current window began; -1: none has begun."""
    previous: int = 0
    """The number of requests that passed in the window before."""
    current: int = 0
    """The number of requests that passed in this window."""

    def move_to(self, start: int, now: int, config: SlidingWindowConfig, cost: int) -> bool:
        """Make the window that begins at `start` the current one. Return whether another one was current.

        `now`, `cost`: of the request. If the clock went back, `current` is reduced so far that the request passes.
        """
        if self.start == start:
            return False
        if self.start > now:  # the clock went back
            self.previous, self.current = 0, min(self.previous + self.current, config.limit - cost)
        elif self.start > start:  # windows were shorter
            self.previous, self.current = 0, self.previous + self.current
        elif self.start > start - config.window:  # windows were longer
            self.previous, self.current = self.previous + self.current, 0
        else:
            follows = self.start == start - config.window
            self.previous, self.current = (self.current if follows else 0), 0
        self.start = start
        return True


def incoming(data: bytes | None, now: int, config: SlidingWindowConfig, cost: int, commit: bool) -> Outcome[Decision]:
    """Decide on a request at `now` (milliseconds), and record it if `commit`.

    `data`: the stored bytes of the key (None: it is new). Return the bytes to store (None: none), the seconds for which
    to keep them (0: indefinitely, None: as before), and the decision.
    """
    state = SlidingWindowState() if data is None else _read(data)
    elapsed = now % config.window
    moved = state.move_to(now - elapsed, now, config, cost)
    decision = decide(config, cost, commit, state.previous, state.current, elapsed)
    if not commit or not decision.allowed:
        return None, None, decision
    state.current += cost
    ttl = decision.reset_after + 1 if moved else None  # may be longer than needed: an old state counts nothing
    return _pack(data or b"", state.start, state.previous, state.current), ttl, decision


def decide(config: SlidingWindowConfig, cost: int, commit: bool, previous: int, current: int, elapsed: int) -> Decision:
    """Return the decision on a request.

    `previous`, `current`: the numbers of requests that passed before it. `elapsed`: milliseconds of the current window.
    """
    window = config.window
    room = _room(config, previous, current + cost, elapsed)
    allowed = room >= 0
    if current or (commit and allowed):
        reset_after = (2 * window - elapsed) / 1000
    else:
        reset_after = (window - elapsed if previous else 0) / 1000
    if allowed:
        after = int(room // window)
        remaining = after if commit else after + cost
        return Decision.passed(state=after, limit=config.limit, remaining=remaining, reset_after=reset_after)
    return Decision.refused(
        limit=config.limit,
        remaining=max(int(_room(config, previous, current, elapsed) // window), 0),
        reset_after=reset_after,
        retry_after=_wait(config, cost, previous, current, elapsed) / 1000,
    )


def uncommit(data: bytes | None, now: int, config: SlidingWindowConfig, cost: int) -> Outcome[int]:
    """Remove up to `cost` requests from this window. The result is the limit minus the count.

    Nothing is written if another window is stored: the request was not in this one. So after a change of the clock or
    of the length, the result may be too high until the next request.
    """
    state = SlidingWindowState() if data is None else _read(data)
    elapsed = now % config.window
    moved = state.move_to(now - elapsed, now, config, 0)
    state.current = max(state.current - cost, 0)
    left = int(_room(config, state.previous, state.current, elapsed) // config.window)
    data = None if moved else _pack(data or b"", state.start, state.previous, state.current)
    return data, None, left


def can_pass(config: SlidingWindowConfig, cost: int) -> bool:
    """Return whether a request of that cost can pass at any time."""
    return cost <= config.limit


def _room(config: SlidingWindowConfig, previous: int, current: int, elapsed: int) -> float:
    """Return the requests that are left, times the milliseconds of a window.

    Computed in floats, which are exact up to 2 ** 53, as in the Lua script.
    """
    window = float(config.window)
    return config.limit * window - (previous * (window - elapsed) + current * window)


def _wait(config: SlidingWindowConfig, cost: int, previous: int, current: int, elapsed: int) -> int:
    """Return milliseconds until a request of a cost up to `limit` would pass, until the next window ends at most.

    It passes in this window as soon as the share of the previous one has decreased to `limit - current - cost`, else in
    the next one, where `current` decreases in the same way.
    """
    window = config.window
    excess = current + cost - config.limit
    if excess <= 0:  # the request was refused because of the previous window, so `previous` is not 0
        return math.ceil((previous * (window - elapsed) + excess * window) / previous)
    return math.ceil(window - elapsed + excess / current * window)  # `current` is not 0, as `cost` is at most `limit`


# The first FRAME bytes of a state belong to the store, which has its header there: `data or b""` copies them.
_pack = struct.Struct(f"<{FRAME}sqqq").pack
_unpack = struct.Struct(f"<{FRAME}xqqq").unpack


def _read(data: bytes) -> SlidingWindowState:
    try:
        return SlidingWindowState(*_unpack(data))
    except (struct.error, TypeError):
        raise foreign_data("sliding window") from None
