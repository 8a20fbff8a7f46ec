"""Token bucket: tokens that are refilled in ticks; a request waits if not enough tokens are available.

    ticks = floor((now - last) / interval)
    tokens = min(tokens + ticks * quantum, capacity) - cost
    delay = ceil(-tokens / quantum) * interval - (now - last tick)         where tokens < 0
    allowed = delay <= max_wait

The state: tokens, negative if some are owed, and the time of the last tick in whole milliseconds and `PARTS` of one.
Ticks are on a grid that begins with the first stored call of the key. A new bucket is full. Fractions of tokens are
dropped when stored.

If a stored number of tokens is impossible with the current numbers, the numbers were changed, and the nearest possible
number is used. If the clock went back, the tokens of those ticks are removed. But if it went back by more than the
bucket takes to fill (`fill_time`), or a request would have to wait that much longer, ticks restart at the current time,
and the request passes as the last one that may wait.
"""

from __future__ import annotations

import math
from struct import Struct, error
from typing import Final, NamedTuple

from ..decision import Decision, decision_from
from ..errors import ForeignData
from . import FRAME, Decided, Outcome

LAYOUT: Final = "qqH"
SENT: Final = Struct("<12d")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<dd")
"""From the script, for a request: tokens left after it, milliseconds since the last tick."""

PARTS: Final = 2**12
"""An interval is a multiple of 1/4096 millisecond, so times of ticks are exact in floats for centuries."""
SLOT: Final = 2**16
"""Milliseconds of a time slot; only the first request in each slot updates how long the store keeps the state."""
LONGEST: Final = 1e9
"""The maximum number of seconds for which a state is kept."""

FOREIGN: Final = "shdict abused by other users: the key holds no token bucket."

_pack = Struct(f"<{FRAME}s{LAYOUT}").pack
_unpack = Struct(f"<{FRAME}x{LAYOUT}").unpack
_floor = math.floor


class Numbers(NamedTuple):
    """`interval`, a multiple of 1 / `PARTS`, and `max_wait`, which may be infinite, in milliseconds.

    `clamp`: treat a clock that went back as stopped. `keep`: seconds for which a state without owed tokens is kept (0:
    indefinitely); afterwards the grid restarts. `least`: the minimum number of tokens after a request. `fill_time`:
    milliseconds in which an empty bucket fills. `low`: tokens below which the bucket does not become full before a
    state expires whose `keep` was set in the same slot, by a limiter with any numbers.
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
    """Return the minimum number of stored tokens after a request that waits at most `max_wait`."""
    if math.isinf(max_wait):
        return -math.inf
    return 1 - math.ceil(quantum * math.ceil(max_wait / interval) + 1)


def passable(numbers: Numbers, cost: float) -> bool:
    """Return whether a request of that cost can pass at any time: with a full bucket, just before a tick."""
    owed = cost - numbers.capacity
    ticks = _floor((owed + numbers.quantum - 1) / numbers.quantum)
    return owed <= 0 or (ticks - 1) * numbers.interval < numbers.max_wait


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: float, commit: bool) -> Decided:
    """Take `cost` tokens. A recorded call refills the bucket even if it is refused, unless the clock went back."""
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
    return _packed(state, tokens, last), ttl, decision


def decide(numbers: Numbers, cost: float, commit: bool, tokens_after: float, since: float) -> Decision:
    interval, capacity, quantum, max_wait, _, _, _, _, _ = numbers
    limit = int(capacity)
    if tokens_after >= 0:
        available = tokens_after if commit else tokens_after + cost
        missing = capacity - available
        # -(-a // b) is ceil(a / b) in integer division, which is exact for large numbers.
        reset = (-(-missing // quantum) * interval - since) / 1000 if missing > 0 else 0.0
        return decision_from((True, 0.0, tokens_after, limit, int(available), reset, 0.0, False, ""))
    wait = _floor((-tokens_after + quantum - 1) / quantum) * interval - since  # `_wait`, inlined
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
    """Take the available tokens, at most `cost`. The result is the number taken."""
    tokens, last, ttl, _ = _refilled(state, now, numbers, 0)
    count = min(cost, tokens) if tokens > 0 else 0
    tokens -= count
    if count and tokens < numbers.low:
        ttl = numbers.keep
    if tokens < 0 and numbers.keep:
        ttl = _while_owing(numbers, tokens)
    return _packed(state, tokens, last), ttl, count


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: float) -> Outcome[bool | None]:
    """Return `cost` tokens to the bucket, up to its capacity. The result is True, or None if the key is new."""
    if state is None:
        return None, None, None
    tokens, last = _read(state)
    return _packed(state, min(tokens + cost, numbers.capacity), last), None, True


def _refilled(state: bytes | None, now: int, numbers: Numbers, cost: float) -> tuple[float, float, float | None, bool]:
    """Refill the bucket for a request of that cost.

    Return the tokens, the last tick, the time to live if no tokens are owed (None: as before), and whether to store the
    refill even if the request is refused.
    """
    interval, capacity, quantum, _, _, keep, least, _, _ = numbers
    if state is None:
        return capacity, now, keep, True
    tokens, last = _read(state)
    # Times in one slot differ only in bits below SLOT, a power of two; times across a boundary differ in a higher bit.
    ttl = None if now ^ _floor(last) < SLOT else keep
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
    """Return the tokens and the last tick for a request before the last tick, and whether ticks restart."""
    interval, capacity, quantum, max_wait, clamp, _, _, fill_time, _ = numbers
    if last - now <= fill_time:
        ticks = 0 if clamp else _floor((now - last) / interval)
        before = tokens + ticks * quantum if tokens < capacity else tokens
        at = last + ticks * interval
        if before >= cost or _wait(numbers, before - cost, now - at) <= max_wait + fill_time:
            return before, at, False
    if tokens < cost and _wait(numbers, tokens - cost, 0) > max_wait:
        tokens = min(cost - _floor(max_wait / interval) * quantum, capacity)
    return tokens, now, True


def _wait(numbers: Numbers, tokens_after: float, since: float) -> float:
    """Return the milliseconds until all owed tokens are refilled: ceil(-tokens_after / quantum) ticks."""
    return _floor((-tokens_after + numbers.quantum - 1) / numbers.quantum) * numbers.interval - since


def _until_full(numbers: Numbers, tokens: float, since: float) -> float:
    missing = numbers.capacity - tokens
    if missing <= 0:
        return 0.0
    return max(math.ceil(missing / numbers.quantum) * numbers.interval - since, 0) / 1000


def _while_owing(numbers: Numbers, tokens: float) -> float:
    """Return the seconds for which a state with owed tokens is kept."""
    return min(numbers.keep + math.ceil(-tokens / numbers.quantum) * numbers.interval / 1000, LONGEST)


def _packed(state: bytes | None, tokens: float, last: float) -> bytes:
    whole = _floor(last)
    return _pack(state or b"", int(tokens), whole, int((last - whole) * PARTS))


def _read(state: bytes) -> tuple[float, float]:
    """Return the tokens, and the time of the last tick in milliseconds."""
    try:
        tokens, last, parts = _unpack(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
    return tokens, last + parts / PARTS
