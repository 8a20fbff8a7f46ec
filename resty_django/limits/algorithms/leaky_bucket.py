"""Leaky bucket: a constant rate, and a queue of some requests before it. nginx's `limit_req`.

A request is 1000 units. The bucket holds `excess` units and loses `rate` of them a second; a request pours in its own
and is refused where the bucket would hold more than `burst`. The state: excess, and the time of the last request.
"""

from __future__ import annotations

import math
from struct import Struct, error
from typing import Final, NamedTuple

from ..decision import Decision
from ..errors import ForeignData
from . import FRAME, Decided, Outcome

LAYOUT: Final = "qq"
"""Excess in whole units, milliseconds. The states of the algorithms differ in their lengths, which tells them apart."""
SENT: Final = Struct("<9d")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<d")
"""Of a request: the excess with it."""
SLOT: Final = 2**16
"""Milliseconds; the first request in each of them tells the store how long to keep the state."""
FOREIGN: Final = "shdict abused by other users: the key holds no leaky bucket."

_pack = Struct(f"<{FRAME}s{LAYOUT}").pack
_unpack = Struct(f"<{FRAME}x{LAYOUT}").unpack
_new = tuple.__new__


class Numbers(NamedTuple):
    """`rate` in units a second, `burst` in units, `room` the same without a fraction, `limit` as it is shown.

    `clamp`: a clock that went back stands still. `keep`: seconds for which a state is kept (0: for ever).
    """

    rate: float
    burst: float
    room: int
    limit: int
    clamp: bool
    keep: float


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: int, commit: bool) -> Decided:
    rate, burst, room, limit, clamp, ttl = numbers
    excess = 0.0
    if state is not None:
        try:
            stored, last = _unpack(state)
        except (error, TypeError):
            raise ForeignData(FOREIGN) from None
        passed = now - last
        if passed < 0:
            if clamp:
                now, passed = last, 0
            else:
                passed = -passed
        excess = stored - rate * passed / 1000 + 1000 * cost
        if excess < 0:
            excess = 0.0
    if not commit or excess > burst:
        return None, None, decide(numbers, cost, commit, excess)
    whole = int(excess)
    decision = _new(
        Decision,
        (True, excess / rate, excess / 1000, limit, (room - whole) // 1000, (excess + 1000) / rate, 0.0, False, ""),
    )
    if state is None:
        return _pack(b"", whole, now), ttl, decision
    return _pack(state, whole, now), None if now ^ last < SLOT else ttl, decision


def decide(numbers: Numbers, cost: int, commit: bool, excess: float) -> Decision:
    rate, burst, room, limit, _, _ = numbers
    if commit and excess <= burst:
        left = (room - int(excess)) // 1000
        reset = (excess + 1000) / rate
        return _new(Decision, (True, excess / rate, excess / 1000, limit, left, reset, 0.0, False, ""))
    before = excess - 1000 * (cost - 1)
    left = max(int((burst - excess) // 1000) + cost, 0)
    reset = before / rate if before > 0 else 0.0
    if excess <= burst:
        return Decision(True, excess / rate, excess / 1000, limit, left, reset)
    return Decision(False, 0.0, None, limit, left, reset, math.ceil((excess - burst) * 1000 / rate) / 1000)


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[bool | None]:
    """Take out what the request has poured in, as far as it is there. The result: None where nothing is known."""
    if state is None:
        return None, None, None
    try:
        excess, last = _unpack(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
    return _pack(state, max(excess - 1000 * cost, 0), last), None, True
