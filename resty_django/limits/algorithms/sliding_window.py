"""Sliding window, computed as a weighted sum of two fixed windows.

Windows begin at whole multiples of their length. The count is the number of requests that passed in the current
window, plus the share of the previous window that a window ending now covers, assuming evenly spread requests:

    elapsed = now % window
    previous * (window - elapsed) / window + current + cost <= limit

computed in requests times milliseconds, so that all numbers are whole. Refused requests do not count. The state: the
start of the window, and the numbers that passed in the previous window and in this one. If the start is in the future,
the clock went back: the stored requests count in the current window, reduced if necessary so that the request passes.
Requests that passed in windows of another length count in the window in which the last of them began.
"""

from __future__ import annotations

import math
from struct import Struct, error
from typing import Final

from ..decision import Decision, decision_from
from ..errors import ForeignData
from . import FRAME, Decided, Outcome
from .fixed_window import Numbers

LAYOUT: Final = "qqq"
SENT: Final = Struct("<5d")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<ddd")
"""From the script, for a request: the numbers that passed before it in both windows, elapsed milliseconds."""

SPARE: Final = 1.0
"""Additional seconds for which a store keeps a state; this module decides when it ends."""
FOREIGN: Final = "shdict abused by other users: the key holds no sliding window."

_pack = Struct(f"<{FRAME}s{LAYOUT}").pack
_unpack = Struct(f"<{FRAME}x{LAYOUT}").unpack


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: int, commit: bool) -> Decided:
    limit, window = numbers
    start, previous, current, elapsed, stored = _read(state, now, numbers, cost)
    if not commit:
        return None, None, decide(numbers, cost, False, previous, current, elapsed)
    weight = float(window)
    current += cost
    room = limit * weight - (previous * (weight - elapsed) + current * weight)
    if room < 0:
        return None, None, decide(numbers, cost, True, previous, current - cost, elapsed)
    remaining = int(room // weight)
    reset = (2 * window - elapsed) / 1000
    return (
        _pack(state or b"", start, previous, current),
        None if start == stored else reset + SPARE,
        decision_from((True, 0.0, remaining, limit, remaining, reset, 0.0, False, "")),
    )


def decide(numbers: Numbers, cost: int, commit: bool, previous: float, current: float, elapsed: float) -> Decision:
    # Floats, as in the script: exact up to 2 ** 53.
    limit, window = numbers
    weight = float(window)
    room_before = limit * weight - (previous * (weight - elapsed) + current * weight)
    room = limit * weight - (previous * (weight - elapsed) + (current + cost) * weight)
    if current or (commit and room >= 0):
        reset = (2 * window - elapsed) / 1000
    else:
        reset = (window - elapsed if previous else 0) / 1000
    if room >= 0:
        after = int(room // weight)
        remaining = after if commit else after + cost
        return Decision.passed(state=after, limit=limit, remaining=remaining, reset_after=reset)
    return Decision.refused(
        limit=limit,
        remaining=max(int(room_before // weight), 0),
        reset_after=reset,
        retry_after=_wait(limit, window, cost, previous, current, elapsed) / 1000,
    )


def _wait(limit: int, window: int, cost: int, previous: float, current: float, elapsed: float) -> int:
    """Return milliseconds until a request of a cost up to `limit` would pass, until the next window ends at most."""
    # It passes in this window as soon as the share of the previous one has decreased to `limit - current - cost`, else
    # in the next one, where `current` decreases in the same way.
    if current + cost <= limit:
        return math.ceil((previous * (window - elapsed) + (current + cost - limit) * window) / previous)
    return math.ceil(window - elapsed + (current + cost - limit) / current * window)


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[int]:
    """Remove up to `cost` requests from this window. The result is the number left."""
    limit, window = numbers
    start, previous, current, elapsed, stored = _read(state, now, numbers, 0)
    current = max(current - cost, 0)
    weight = float(window)
    remaining = int((limit * weight - (previous * (weight - elapsed) + current * weight)) // weight)
    if state is None or start != stored:
        return None, None, remaining
    return _pack(state, start, previous, current), None, remaining


def _read(state: bytes | None, now: int, numbers: Numbers, cost: int) -> tuple[int, int, int, int, int]:
    """Return the state at the time `now`.

    It consists of the start of the window, the numbers that passed in the previous window and in this one, the elapsed
    milliseconds of this one, and the start in the state (-1: the key is new).

    Raise `ForeignData` if the state has another layout.
    """
    window = numbers.window
    elapsed = now % window
    start = now - elapsed
    if state is None:
        return start, 0, 0, elapsed, -1
    try:
        stored, previous, current = _unpack(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
    if stored == start:
        return start, previous, current, elapsed, stored
    if stored > now:
        return start, 0, min(previous + current, numbers.limit - cost), elapsed, stored
    if stored > start:  # windows were shorter
        return start, 0, previous + current, elapsed, stored
    if stored <= start - window:
        return start, current if stored == start - window else 0, 0, elapsed, stored
    return start, previous + current, 0, elapsed, stored
