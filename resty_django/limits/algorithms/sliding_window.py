"""Sliding window, as a weighted sum of two fixed ones.

Windows begin at whole multiples of their length. What counts is what has passed in the present one, and of the one
before the share that a window ending now would still cover: previous * overlap + current + cost <= limit. So requests
are taken as spread evenly over the window before. A refused request does not count. The state: the number of the
window, and what has passed in the one before and in it.
"""

from __future__ import annotations

import math
from struct import Struct, error
from typing import Final, NamedTuple

from ..decision import Decision
from ..errors import ForeignData
from . import FRAME, Decided, Outcome

LAYOUT: Final = "qqq"
SENT: Final = Struct("<5d")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<ddd")
"""Of a request: what has passed in the window before and in this one without it, milliseconds of this one that are
over."""

FOREIGN: Final = "shdict abused by other users: the key holds no sliding window."

_pack = Struct(f"<{FRAME}s{LAYOUT}").pack
_unpack = Struct(f"<{FRAME}x{LAYOUT}").unpack
_new = tuple.__new__


class Numbers(NamedTuple):
    """`window` in milliseconds."""

    limit: int
    window: int


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: int, commit: bool) -> Decided:
    limit, window = numbers
    number, previous, current, over, stored = _at(state, now, window)
    if not commit:
        return None, None, decide(numbers, cost, False, previous, current, over)
    weight = float(window)
    current += cost
    left = limit * weight - (previous * (weight - over) + current * weight)
    if left < 0:
        return None, None, decide(numbers, cost, True, previous, current - cost, over)
    after = int(left // weight)
    reset = (2 * window - over) / 1000
    return (
        _pack(state or b"", number, previous, current),
        None if number == stored else reset,
        _new(Decision, (True, 0.0, after, limit, after, reset, 0.0, False, "")),
    )


def decide(numbers: Numbers, cost: int, commit: bool, previous: float, current: float, over: float) -> Decision:
    # Sums of requests times milliseconds, as floats like the script's: exact up to 2 ** 53.
    limit, window = numbers
    weight = float(window)
    room = limit * weight - (previous * (weight - over) + current * weight)
    left = limit * weight - (previous * (weight - over) + (current + cost) * weight)
    reset = (2 * window - over if current or (commit and left >= 0) else window - over if previous else 0) / 1000
    if left >= 0:
        after = int(left // weight)
        shown = after if commit else after + cost
        return _new(Decision, (True, 0.0, after, limit, shown, reset, 0.0, False, ""))
    retry = _wait(limit, window, cost, previous, current, over) / 1000
    return Decision(False, 0.0, None, limit, max(int(room // weight), 0), reset, retry)


def _wait(limit: int, window: int, cost: int, previous: float, current: float, over: float) -> int:
    """Milliseconds until the request would pass, at most until the window after this one ends."""
    if current + cost <= limit:
        return math.ceil((previous * (window - over) + (current + cost - limit) * window) / previous)
    if current:
        return math.ceil(window - over + min((current + cost - limit) / current, 1) * window)
    return int(window - over)


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[int]:
    """The number left with `cost` fewer passed in this window, as far as so many have."""
    limit, window = numbers
    number, previous, current, over, stored = _at(state, now, window)
    current = max(current - cost, 0)
    weight = float(window)
    left = int((limit * weight - (previous * (weight - over) + current * weight)) // weight)
    if state is None or number != stored:
        return None, None, left
    return _pack(state, number, previous, current), None, left


def _at(state: bytes | None, now: int, window: int) -> tuple[int, int, int, int, int]:
    """Number of the window, what has passed in the one before and in it, milliseconds of it that are over, and the
    number in the state (-1: none).

    A clock that went back to a window before stands at the start of the known one. Raises `ForeignData`.
    """
    number = now // window
    over = now - number * window
    if state is None:
        return number, 0, 0, over, -1
    try:
        stored, previous, current = _unpack(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
    if stored == number:
        return number, previous, current, over, stored
    if stored > number:
        return stored, previous, current, 0, stored
    return number, current if stored == number - 1 else 0, 0, over, stored
