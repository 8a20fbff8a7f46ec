"""Token bucket: a stock of tokens that is refilled in ticks; who comes too early waits for the tokens.

The state: tokens, negative where some are owed, and the time of the last tick. Ticks lie on a grid that begins with the
first stored call of the key. A new bucket is full. Fractions are dropped when stored.
"""

from __future__ import annotations

import math
from struct import Struct, error
from typing import Final, NamedTuple

from ..decision import Decision
from ..errors import ForeignData
from . import FRAME, Decided, Outcome

LAYOUT: Final = "qqxx"
SENT: Final = Struct("<9d")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<dd")
"""Of a request: tokens left with it, milliseconds since the last tick."""

SLOT: Final = 2**16
"""Milliseconds; the first request in each of them tells the store how long to keep the state."""
LONGEST: Final = 1e9
"""Seconds: a state is told to be kept no longer."""

FOREIGN: Final = "shdict abused by other users: the key holds no token bucket."

_pack = Struct(f"<{FRAME}s{LAYOUT}").pack
_unpack = Struct(f"<{FRAME}x{LAYOUT}").unpack
_new = tuple.__new__
_floor = math.floor


class Numbers(NamedTuple):
    """`interval` and `max_wait`, which may be infinite, in milliseconds.

    `clamp`: a clock that went back stands still. `keep`: seconds for which a state is kept that owes no tokens (0: for
    ever). After that the grid begins anew.
    """

    interval: float
    capacity: float
    quantum: float
    max_wait: float
    clamp: bool
    keep: float


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: float, commit: bool) -> Decided:
    """Take `cost` tokens. A recorded call that is refused is refilled all the same."""
    tokens, last, ttl = _refilled(state, now, numbers)
    left = tokens - cost
    decision = decide(numbers, cost, commit, left, now - last)
    if not commit:
        return None, None, decision
    if decision[0]:
        tokens = left
    if tokens < 0 and numbers.keep:
        ttl = _while_owing(numbers, tokens)
    return _pack(state or b"", int(tokens), int(last)), ttl, decision


def decide(numbers: Numbers, cost: float, commit: bool, left: float, since: float) -> Decision:
    interval, capacity, quantum, max_wait, _, _ = numbers
    limit = int(capacity)
    if left >= 0:
        after = left if commit else left + cost
        missing = capacity - after
        reset = (-(-missing // quantum) * interval - since) / 1000 if missing > 0 else 0.0
        return _new(Decision, (True, 0.0, left, limit, int(after), reset, 0.0, False, ""))
    wait = _floor((-left + quantum - 1) / quantum) * interval - since
    before = left + cost
    if wait > max_wait:
        reset = _until_full(numbers, before, since)
        return Decision(False, 0.0, None, limit, max(int(before), 0), reset, math.ceil(wait - max_wait) / 1000)
    after = 0 if commit else max(int(before), 0)
    return Decision(True, wait / 1000, left, limit, after, _until_full(numbers, left if commit else before, since))


def take_available(state: bytes | None, now: int, numbers: Numbers, cost: float) -> Outcome[float]:
    """Take what is there, at most `cost` tokens; the result: how many that are."""
    tokens, last, ttl = _refilled(state, now, numbers)
    got = min(cost, tokens) if tokens > 0 else 0
    tokens -= got
    if tokens < 0 and numbers.keep:
        ttl = _while_owing(numbers, tokens)
    return _pack(state or b"", int(tokens), int(last)), ttl, got


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: float) -> Outcome[bool | None]:
    """Put back `cost` tokens, as far as there is room. The result: None where nothing is known."""
    if state is None:
        return None, None, None
    tokens, last = _read(state)
    return _pack(state, int(min(tokens + cost, numbers.capacity)), last), None, True


def _refilled(state: bytes | None, now: int, numbers: Numbers) -> tuple[float, float, float | None]:
    """Tokens and last tick after the refill, and what becomes of the expiry if no tokens are owed."""
    interval, capacity, quantum, _, clamp, keep = numbers
    if state is None:
        return capacity, now, keep
    tokens: float
    last: float
    tokens, last = _read(state)
    ttl = None if now ^ last < SLOT else keep
    if now - last >= interval or now < last:
        ticks = _floor((now - last) / interval)
        if clamp and ticks < 0:
            return tokens, last, ttl
        last += ticks * interval
        if tokens < capacity:
            tokens = min(tokens + ticks * quantum, capacity)
    return tokens, last, ttl


def _until_full(numbers: Numbers, tokens: float, since: float) -> float:
    missing = numbers.capacity - tokens
    if missing <= 0:
        return 0.0
    return max(math.ceil(missing / numbers.quantum) * numbers.interval - since, 0) / 1000


def _while_owing(numbers: Numbers, tokens: float) -> float:
    """Seconds for which a state is kept that owes tokens."""
    return min(numbers.keep + math.ceil(-tokens / numbers.quantum) * numbers.interval / 1000, LONGEST)


def _read(state: bytes) -> tuple[int, int]:
    try:
        return _unpack(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
