"""Fixed window: so many requests from the first one until the window is over.

A refused request that is recorded counts as well. The state: the number left, which may be negative, and the end of
the window.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from ..decision import Decision
from ..errors import ForeignData
from . import FRAME, Decided, Outcome

LAYOUT: Final = "qqx"
SENT: Final = Struct("<5d")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<dd")
"""Of a request: the number left with it, milliseconds until the window ends (0: there is none)."""

FOREIGN: Final = "shdict abused by other users: the key holds no fixed window."

_pack = Struct(f"<{FRAME}s{LAYOUT}").pack
_unpack = Struct(f"<{FRAME}x{LAYOUT}").unpack
_new = tuple.__new__


class Numbers(NamedTuple):
    """`window` in milliseconds."""

    limit: int
    window: int


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: int, commit: bool) -> Decided:
    limit, window = numbers
    ttl = None
    end = now
    if state is not None:
        try:
            left, end = _unpack(state)
        except (error, TypeError):
            raise ForeignData(FOREIGN) from None
    if end <= now:
        left, end, ttl = limit, now + window if commit else now, window / 1000
    left -= cost
    if not commit:
        return None, None, decide(numbers, cost, False, left, end - now)
    state = _pack(state or b"", left, end)
    if left < 0:
        return state, ttl, decide(numbers, cost, True, left, end - now)
    return state, ttl, _new(Decision, (True, 0.0, left, limit, left, (end - now) / 1000, 0.0, False, ""))


def decide(numbers: Numbers, cost: int, commit: bool, left: float, until: float) -> Decision:
    left = int(left)
    reset = until / 1000
    if left >= 0:
        shown = left if commit else left + cost
        return _new(Decision, (True, 0.0, left, numbers.limit, shown, reset, 0.0, False, ""))
    return Decision(False, 0.0, None, numbers.limit, 0 if commit else max(left + cost, 0), reset, reset)


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[int]:
    """The number left with `cost` more; where there is no window, the limit."""
    if state is None:
        return None, None, numbers.limit
    try:
        left, end = _unpack(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
    if end <= now:
        return None, None, numbers.limit
    return _pack(state, left + cost, end), None, left + cost
