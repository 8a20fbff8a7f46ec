"""Fixed window: a maximum number of requests in a window that begins with the first one.

    remaining = limit - used - cost
    allowed = remaining >= 0
    reset_after = retry_after = end - now

A recorded request counts even if it is refused. The state: the number used, which may be above the limit or negative,
and the end of the window. If a window would end later than one that begins now, its length was changed or the clock
went back: it restarts with the number used, which is reduced if necessary so that the request passes.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from ..decision import Decision, decision_from
from ..errors import ForeignData
from . import FRAME, Decided, Outcome

LAYOUT: Final = "qqx"
SENT: Final = Struct("<5d")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<dd")
"""From the script, for a request: the number left after it, milliseconds until the window ends (0: none has begun)."""

SPARE: Final = 1.0
"""Additional seconds for which a store keeps a state after the end of its window, which is in the state."""
FOREIGN: Final = "shdict abused by other users: the key holds no fixed window."

_pack = Struct(f"<{FRAME}s{LAYOUT}").pack
_unpack = Struct(f"<{FRAME}x{LAYOUT}").unpack


class Numbers(NamedTuple):
    """`window` in milliseconds."""

    limit: int
    window: int


def passable(numbers: Numbers, cost: int) -> bool:
    """Return whether a request of that cost can pass at any time."""
    return cost <= numbers.limit


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: int, commit: bool) -> Decided:
    limit, window = numbers
    ttl = None
    end = now
    if state is not None:
        try:
            used, end = _unpack(state)
        except (error, TypeError):
            raise ForeignData(FOREIGN) from None
    if end <= now:
        used, end, ttl = 0, now + window if commit else now, window / 1000 + SPARE
    elif end - now > window:
        used, end, ttl = min(used, limit - cost), now + window, window / 1000 + SPARE
    used += cost
    remaining = limit - used
    if not commit:
        return None, None, decide(numbers, cost, False, remaining, end - now)
    new_state = _pack(state or b"", used, end)
    if remaining < 0:
        return new_state, ttl, decide(numbers, cost, True, remaining, end - now)
    return new_state, ttl, decision_from((True, 0.0, remaining, limit, remaining, (end - now) / 1000, 0.0, False, ""))


def decide(numbers: Numbers, cost: int, commit: bool, after: float, until: float) -> Decision:
    after = int(after)
    reset = until / 1000
    if after >= 0:
        available = after if commit else after + cost
        return Decision.passed(state=after, limit=numbers.limit, remaining=available, reset_after=reset)
    available = 0 if commit else max(after + cost, 0)
    return Decision.refused(limit=numbers.limit, remaining=available, reset_after=reset, retry_after=reset)


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[int]:
    """Take back `cost` requests. The result is the number left, or the limit if no window has begun."""
    if state is None:
        return None, None, numbers.limit
    used, end = _read(state)
    if end <= now:
        return None, None, numbers.limit
    used -= cost
    return _pack(state, used, end), None, numbers.limit - used


def _read(state: bytes) -> tuple[int, int]:
    try:
        return _unpack(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
