"""Leaky bucket: a constant rate and a queue of limited length, like nginx's `limit_req`.

A request is 1000 units. The bucket contains `excess` units and drains at `rate` units per second. A request adds its
units, and is refused if the bucket would then contain more than `burst`:

    excess = max(stored - rate * elapsed / 1000 + 1000 * cost, 0)      elapsed in milliseconds
    allowed = excess <= burst
    delay = excess / rate                                              seconds until the units before it have drained
    retry_after = (excess - burst) / rate                              rounded up to a millisecond

The first request of a key finds an empty bucket and adds nothing, as in lua-resty-limit-traffic. The state: excess,
and the time of the last request.

A stored excess above `burst` comes from a limit that was higher; it counts as `burst`. If the clock went back, a
request that would have to wait longer than the bucket takes to drain passes as the last one of the queue, so that later
requests are decided by the current time.
"""

from __future__ import annotations

import math
from struct import Struct, error
from typing import Final, NamedTuple

from ..decision import Decision, decision_from
from ..errors import ForeignData
from . import FRAME, Decided, Outcome

LAYOUT: Final = "qq"
"""Excess in whole units, milliseconds. The length of a state identifies its algorithm."""
SENT: Final = Struct("<10d")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<d")
"""From the script, for a request: the excess including it."""
SLOT: Final = 2**16
"""Milliseconds of a time slot; only the first request in each slot updates how long the store keeps the state."""
FOREIGN: Final = "shdict abused by other users: the key holds no leaky bucket."

_pack = Struct(f"<{FRAME}s{LAYOUT}").pack
_unpack = Struct(f"<{FRAME}x{LAYOUT}").unpack


class Numbers(NamedTuple):
    """`rate` in units per second, `burst` in units, `room`: `burst` without a fraction, `limit` as clients see it.

    `clamp`: treat a clock that went back as stopped. `keep`: seconds for which a state is kept (0: indefinitely).
    `spare`: units that drain in any case before a state expires whose `keep` was set in the same slot, by a limiter
    with any rate.
    """

    rate: float
    burst: float
    room: int
    limit: int
    clamp: bool
    keep: float
    spare: float


def passable(numbers: Numbers, cost: int) -> bool:
    """Return whether a request of that cost can pass at any time: the first one always does."""
    return True


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: int, commit: bool) -> Decided:
    rate, burst, room, limit, _, ttl, spare = numbers
    excess = 0.0
    if state is not None:
        try:
            stored, last = _unpack(state)
        except (error, TypeError):
            raise ForeignData(FOREIGN) from None
        if stored > room:
            stored = room
        elapsed = now - last
        if elapsed >= 0:
            excess = stored - rate * elapsed / 1000 + 1000 * cost
            if excess < 0.0:
                excess = 0.0
        else:
            excess, now = _set_back(numbers, stored, last, now, cost)
    if not commit or excess > burst:
        return None, None, decide(numbers, cost, commit, excess)
    units, full = int(excess), excess + 1000.0
    decision = decision_from(
        (True, excess / rate, excess / 1000.0, limit, (room - units) // 1000, full / rate, 0.0, False, "")
    )
    if state is None:
        return _pack(b"", units, now), ttl, decision
    # Times in one slot differ only in bits below SLOT, a power of two; times across a boundary differ in a higher bit.
    return _pack(state, units, now), None if full <= spare and now ^ last < SLOT else ttl, decision


def _set_back(numbers: Numbers, stored: int, last: int, now: int, cost: int) -> tuple[float, int]:
    """Return the excess including a request from before the last one, and the time to record for it."""
    rate, burst, _, _, clamp, _, _ = numbers
    drained = rate * (last - now) / 1000
    capacity = burst + 1000
    if clamp:
        excess, at = float(stored + 1000 * cost), now if drained > capacity else last
    else:
        excess, at = max(stored - drained + 1000 * cost, 0.0), now
    if excess <= burst:
        return excess, at
    excess = stored + drained + 1000 * cost
    if excess - burst > max(capacity, 1000 * cost):
        return float(burst), now
    return excess, at


def decide(numbers: Numbers, cost: int, commit: bool, excess: float) -> Decision:
    rate, burst, room, limit, _, _, _ = numbers
    if commit and excess <= burst:
        return Decision.delayed(
            delay=excess / rate,
            state=excess / 1000,
            limit=limit,
            remaining=(room - int(excess)) // 1000,
            reset_after=(excess + 1000) / rate,
        )
    before = max(excess - 1000 * (cost - 1), 0.0)  # for a request of cost 1 instead
    remaining = 1 + (room - int(before)) // 1000 if before <= burst else 0
    reset = before / rate
    if excess <= burst:
        return Decision.delayed(
            delay=excess / rate, state=excess / 1000, limit=limit, remaining=remaining, reset_after=reset
        )
    retry = math.ceil((excess - burst) * 1000 / rate) / 1000
    return decision_from((False, 0.0, None, limit, remaining, reset, retry, False, ""))


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[bool | None]:
    """Remove the units that the request added, down to 0. The result is True, or None if the key is new."""
    if state is None:
        return None, None, None
    excess, last = _read(state)
    return _pack(state, max(min(excess, numbers.room) - 1000 * cost, 0), last), None, True


def _read(state: bytes) -> tuple[int, int]:
    try:
        return _unpack(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
