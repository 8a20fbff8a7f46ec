"""Token bucket: a stock of tokens that is refilled in ticks; a request that comes too early waits for its tokens.

    ticks = floor((now - last) / interval)
    tokens = min(tokens + ticks * quantum, capacity) - cost
    delay = ceil(-tokens / quantum) * interval - (now - last tick)         where tokens < 0
    allowed = delay <= max_wait

The state: tokens, negative where some are owed, and the time of the last tick. Ticks lie on a grid that begins with the
first stored call of the key. A new bucket is full. Fractions are dropped when stored.

A stored number of tokens that these numbers could not have come to is from other ones, and counts as the nearest that
they could. Where the clock went back, tokens are taken away as ticks were before; but if it went back by more than a
bucket takes to fill (`fill_time`), or a request would have to wait that much longer, ticks begin anew at the present
time, and the request passes.
"""

from __future__ import annotations

import math
from struct import Struct, error
from typing import Final, NamedTuple

from ..errors import ForeignData
from . import FRAME, Decided, Outcome
from .decision import Decision, decision_from

LAYOUT: Final = "qqxx"
SENT: Final = Struct("<12d")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<dd")
"""Of a request: tokens left with it, milliseconds since the last tick."""

SLOT: Final = 2**16
"""Milliseconds; only the first request in each slot sets anew how long the store keeps the state."""
LONGEST: Final = 1e9
"""Seconds: the longest time for which a state is kept."""

FOREIGN: Final = "shdict abused by other users: the key holds no token bucket."

_pack = Struct(f"<{FRAME}s{LAYOUT}").pack
_unpack = Struct(f"<{FRAME}x{LAYOUT}").unpack
_floor = math.floor


class Numbers(NamedTuple):
    """`interval` and `max_wait`, which may be infinite, in milliseconds.

    `clamp`: a clock that went back stands still. `keep`: seconds for which a state is kept that owes no tokens (0:
    indefinitely). After that the grid begins anew. `least`: the fewest tokens that a request may leave. `fill_time`:
    milliseconds in which an empty bucket fills. `low`: tokens below which it is not full before a state is forgotten
    whose `keep` was set within the same slot, by a limiter of any numbers.
    """

    interval: float
    capacity: float
    quantum: float
    max_wait: float
    clamp: bool
    keep: float
    least: float
    fill_time: float
    low: float


def least_tokens(interval: float, quantum: float, max_wait: float) -> float:
    """Return the fewest tokens that a request which waits at most `max_wait` leaves, as they are stored."""
    if math.isinf(max_wait):
        return -math.inf
    return 1 - math.ceil(quantum * math.ceil(max_wait / interval) + 1)


def passable(numbers: Numbers, cost: float) -> bool:
    """Whether a request of that cost can pass at any time: with a full bucket, just before a tick."""
    owed = cost - numbers.capacity
    ticks = _floor((owed + numbers.quantum - 1) / numbers.quantum)
    return owed <= 0 or (ticks - 1) * numbers.interval < numbers.max_wait


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: float, commit: bool) -> Decided:
    """Take `cost` tokens. A recorded call that is refused is refilled all the same, unless the clock went back."""
    tokens, last, ttl, store_refill = _refilled(state, now, numbers, cost)
    tokens_after = tokens - cost
    decision = decide(numbers, cost, commit, tokens_after, now - last)
    if not commit or not (store_refill or decision[0]):
        return None, None, decision
    if decision[0]:
        tokens = tokens_after
        if tokens < numbers.low:
            ttl = numbers.keep
    if tokens < 0 and numbers.keep:
        ttl = _while_owing(numbers, tokens)
    return _pack(state or b"", int(tokens), int(last)), ttl, decision


def decide(numbers: Numbers, cost: float, commit: bool, tokens_after: float, since: float) -> Decision:
    interval, capacity, quantum, max_wait, _, _, _, _, _ = numbers
    limit = int(capacity)
    if tokens_after >= 0:
        available = tokens_after if commit else tokens_after + cost
        missing = capacity - available
        # -(-a // b) is ceil(a / b) by whole division, which rounds no large number.
        reset = (-(-missing // quantum) * interval - since) / 1000 if missing > 0 else 0.0
        return decision_from((True, 0.0, tokens_after, limit, int(available), reset, 0.0, False, ""))
    wait = _floor((-tokens_after + quantum - 1) / quantum) * interval - since  # `_wait`, without the call
    before = tokens_after + cost
    if wait > max_wait:
        return Decision.refused(
            limit=limit,
            remaining=max(int(before), 0),
            reset_after=_until_full(numbers, before, since),
            retry_after=math.ceil(wait - max_wait) / 1000,
        )
    return Decision.delayed(
        delay=wait / 1000,
        state=tokens_after,
        limit=limit,
        remaining=0 if commit else max(int(before), 0),
        reset_after=_until_full(numbers, tokens_after if commit else before, since),
    )


def take_available(state: bytes | None, now: int, numbers: Numbers, cost: float) -> Outcome[float]:
    """Take the tokens that are there, at most `cost`. The result: the number taken."""
    tokens, last, ttl, _ = _refilled(state, now, numbers, 0)
    count = min(cost, tokens) if tokens > 0 else 0
    tokens -= count
    if count and tokens < numbers.low:
        ttl = numbers.keep
    if tokens < 0 and numbers.keep:
        ttl = _while_owing(numbers, tokens)
    return _pack(state or b"", int(tokens), int(last)), ttl, count


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: float) -> Outcome[bool | None]:
    """Put back `cost` tokens, as far as the capacity allows. The result: None where the key is new."""
    if state is None:
        return None, None, None
    tokens, last = _read(state)
    return _pack(state, int(min(tokens + cost, numbers.capacity)), last), None, True


def _refilled(state: bytes | None, now: int, numbers: Numbers, cost: float) -> tuple[float, float, float | None, bool]:
    """Refill the bucket for a request of that cost.

    Returns the tokens, the last tick, the time to live if no tokens are owed (None: as before), and whether to store
    this for a refused request too.
    """
    interval, capacity, quantum, _, _, keep, least, _, _ = numbers
    if state is None:
        return capacity, now, keep, True
    tokens: float
    last: float
    tokens, last = _read(state)
    # Times in one slot differ only in bits below SLOT, a power of two; times across a boundary differ in a higher bit.
    ttl = None if now ^ last < SLOT else keep
    if tokens > capacity:
        tokens = capacity
    elif tokens < least:
        tokens = least
    if now - last >= interval:
        ticks = _floor((now - last) / interval)
        last += ticks * interval
        if tokens < capacity:
            tokens = min(tokens + ticks * quantum, capacity)
    elif now < last:
        tokens, last, restarted = _set_back(numbers, tokens, last, now, cost)
        return tokens, last, ttl, restarted
    return tokens, last, ttl, True


def _set_back(numbers: Numbers, tokens: float, last: float, now: int, cost: float) -> tuple[float, float, bool]:
    """Return the tokens and the last tick for a request before the last tick, and whether ticks begin anew."""
    interval, capacity, quantum, max_wait, clamp, _, _, fill_time, _ = numbers
    if last - now <= fill_time:
        ticks = 0 if clamp else _floor((now - last) / interval)
        before = tokens + ticks * quantum if tokens < capacity else tokens
        at = last + ticks * interval
        if before >= cost or _wait(numbers, before - cost, now - at) <= max_wait + fill_time:
            return before, at, False
    if tokens < cost and _wait(numbers, tokens - cost, 0) > max_wait:
        tokens = min(cost, capacity)
    return tokens, now, True


def _wait(numbers: Numbers, tokens_after: float, since: float) -> float:
    """Milliseconds until the tokens that are owed have come: ceil(-tokens_after / quantum) ticks."""
    return _floor((-tokens_after + numbers.quantum - 1) / numbers.quantum) * numbers.interval - since


def _until_full(numbers: Numbers, tokens: float, since: float) -> float:
    missing = numbers.capacity - tokens
    if missing <= 0:
        return 0.0
    return max(math.ceil(missing / numbers.quantum) * numbers.interval - since, 0) / 1000


def _while_owing(numbers: Numbers, tokens: float) -> float:
    """Seconds for which a state that owes tokens is kept."""
    return min(numbers.keep + math.ceil(-tokens / numbers.quantum) * numbers.interval / 1000, LONGEST)


def _read(state: bytes) -> tuple[int, int]:
    try:
        return _unpack(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
