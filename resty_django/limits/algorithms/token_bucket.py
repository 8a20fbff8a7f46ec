"""Token bucket: tokens that are refilled in ticks; a request waits if not enough tokens are available.

    ticks = floor((now - last_tick) / interval)
    tokens = min(tokens + ticks * quantum, capacity) - cost
    delay = ceil(-tokens / quantum) * interval - (now - last_tick)     where tokens < 0
    allowed = delay <= max_wait

These are the formulas of Juju's `ratelimit`, which lua-resty-limit-traffic follows, too. Tokens are negative if some
are owed. Ticks are on a grid that begins with the first stored call of the key. A new bucket is full. Fractions of
tokens are dropped when stored.

If a stored number of tokens is impossible with the current numbers, the numbers were changed, and the nearest possible
number is used. If the clock went back, the tokens of those ticks are removed. But if it went back by more than the
bucket takes to fill (`fill_time`), or a request would have to wait that much longer, ticks restart at the current time,
and the request passes as the last one that may wait.

Example: one token every 500 ms, a capacity of 3 and a `max_wait` of 1 s. Of six requests at once, three pass at once,
two after 0.5 and 1 s, and the last one is refused.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from msgspec import Struct

from ..decision import Decision
from . import FRAME, KEEP_SLOT_MS, Outcome, foreign_data

PARTS_PER_MS: Final = 2**12
"""An interval is a multiple of 1/4096 millisecond, so times of ticks are exact in floats for centuries."""


class TokenBucketConfig(Struct, frozen=True, gc=False):
    """The numbers of a token bucket."""

    interval: float
    """Milliseconds between two ticks, a multiple of 1 / `PARTS_PER_MS`."""
    capacity: float
    """The maximum number of tokens."""
    quantum: float
    """The number of tokens that a tick adds."""
    max_wait: float
    """The maximum delay in milliseconds; may be infinite."""
    clamp: bool
    """Whether a clock that went back counts as stopped."""
    keep: float
    """Seconds for which a state without owed tokens is kept (0: indefinitely); afterwards the grid restarts."""
    min_tokens: float
    """The minimum number of tokens after a request."""
    fill_time: float
    """Milliseconds in which an empty bucket fills."""
    keep_tokens: float
    """With fewer tokens than this, a request sets the expiry even if another one in the same `KEEP_SLOT_MS` has set it:
    that may have been a request to a limiter with other numbers."""


class TokenBucketState(Struct, gc=False):
    """The stored state of a key."""

    tokens: float
    """The number of tokens after the last request, negative if some are owed."""
    last_tick: float
    """The time of the last tick in milliseconds. The fraction is stored separately, in 1 / `PARTS_PER_MS`."""


def incoming(data: bytes | None, now: int, config: TokenBucketConfig, cost: int, commit: bool) -> Outcome[Decision]:
    """Decide on a request at `now` (milliseconds), and record it if `commit`.

    `data`: the stored bytes of the key (None: it is new). Return the bytes to store (None: none), the seconds for which
    to keep them (0: indefinitely, None: as before), and the decision. A recorded request refills the bucket even if it
    is refused, unless the clock went back.
    """
    state, ttl, store_refill = _refilled(data, now, config, cost)
    decision = decide(config, cost, commit, state.tokens - cost, now - state.last_tick)
    if not commit or not (decision.allowed or store_refill):
        return None, None, decision
    if decision.allowed:
        state.tokens -= cost
        if state.tokens < config.keep_tokens:
            ttl = config.keep
    return _write(data, state), _while_owing(config, state.tokens, ttl), decision


def decide(config: TokenBucketConfig, cost: int, commit: bool, tokens: float, since_tick: float) -> Decision:
    """Return the decision on a request.

    `tokens`: the number after it, negative if some are owed. `since_tick`: milliseconds since the last tick.
    """
    limit = int(config.capacity)
    before = tokens + cost
    if tokens >= 0:
        left = tokens if commit else before
        reset_after = _until_full(config, left, since_tick)
        return Decision.passed(state=tokens, limit=limit, remaining=int(left), reset_after=reset_after)
    wait = _wait(config, -tokens, since_tick)
    if wait > config.max_wait:
        return Decision.refused(
            limit=limit,
            remaining=max(int(before), 0),
            reset_after=_until_full(config, before, since_tick),
            retry_after=math.ceil(wait - config.max_wait) / 1000,
        )
    return Decision.delayed(
        delay=wait / 1000,
        state=tokens,
        limit=limit,
        remaining=0 if commit else max(int(before), 0),
        reset_after=_until_full(config, tokens if commit else before, since_tick),
    )


def uncommit(data: bytes | None, now: int, config: TokenBucketConfig, cost: int) -> Outcome[bool | None]:
    """Return `cost` tokens to the bucket, up to its capacity. The result is True, or None if the key is new."""
    if data is None:
        return None, None, None
    state = _read(data)
    state.tokens = min(state.tokens + cost, config.capacity)
    return _write(data, state), None, True


def take_available(data: bytes | None, now: int, config: TokenBucketConfig, cost: int) -> Outcome[float]:
    """Take the available tokens, at most `cost`. The result is the number taken."""
    state, ttl, _ = _refilled(data, now, config, 0)
    count = min(cost, state.tokens) if state.tokens > 0 else 0
    state.tokens -= count
    if count and state.tokens < config.keep_tokens:
        ttl = config.keep
    return _write(data, state), _while_owing(config, state.tokens, ttl), count


def min_tokens(interval: float, quantum: float, max_wait: float) -> float:
    """Return the minimum number of stored tokens after a request that waits at most `max_wait`."""
    if math.isinf(max_wait):
        return -math.inf
    return 1 - math.ceil(quantum * math.ceil(max_wait / interval) + 1)


def can_pass(config: TokenBucketConfig, cost: int) -> bool:
    """Return whether a request of that cost can pass at any time: with a full bucket, just before a tick."""
    owed = cost - config.capacity
    return owed <= 0 or _wait(config, owed, since_tick=config.interval) < config.max_wait


def _refilled(
    data: bytes | None, now: int, config: TokenBucketConfig, cost: int
) -> tuple[TokenBucketState, float | None, bool]:
    """Refill the bucket for a request of that cost.

    Return the state, the seconds for which to keep it if no tokens are owed (None: as before), and whether to store the
    refill even if the request is refused.
    """
    if data is None:
        return TokenBucketState(config.capacity, now), config.keep, True
    state = _read(data)
    ttl = None if now // KEEP_SLOT_MS == state.last_tick // KEEP_SLOT_MS else config.keep
    if state.tokens > config.capacity:
        state.tokens = config.capacity
    elif state.tokens < config.min_tokens:
        state.tokens = config.min_tokens
    since_tick = now - state.last_tick
    if since_tick < 0:
        return state, ttl, _set_back(state, now, config, cost)
    if since_tick >= config.interval:
        ticks = math.floor(since_tick / config.interval)
        state.last_tick += ticks * config.interval
        if state.tokens < config.capacity:
            state.tokens = min(state.tokens + ticks * config.quantum, config.capacity)
    return state, ttl, True


def _set_back(state: TokenBucketState, now: int, config: TokenBucketConfig, cost: int) -> bool:
    """Remove the tokens of the ticks after `now`, for a request before the last tick; or restart ticks.

    Return whether ticks restart.
    """
    interval, quantum = config.interval, config.quantum
    if state.last_tick - now <= config.fill_time:
        ticks = 0 if config.clamp else math.floor((now - state.last_tick) / interval)
        tokens = state.tokens + ticks * quantum if state.tokens < config.capacity else state.tokens
        last_tick = state.last_tick + ticks * interval
        if tokens >= cost or _wait(config, cost - tokens, now - last_tick) <= config.max_wait + config.fill_time:
            state.tokens, state.last_tick = tokens, last_tick
            return False
    if state.tokens < cost and _wait(config, cost - state.tokens, 0) > config.max_wait:
        state.tokens = min(cost - math.floor(config.max_wait / interval) * quantum, config.capacity)
    state.last_tick = now
    return True


def _wait(config: TokenBucketConfig, owed: float, since_tick: float) -> float:
    """Return the milliseconds until all owed tokens are refilled: ceil(owed / quantum) ticks."""
    return math.floor((owed + config.quantum - 1) / config.quantum) * config.interval - since_tick


def _until_full(config: TokenBucketConfig, tokens: float, since_tick: float) -> float:
    """Return the seconds until the bucket is full."""
    missing = config.capacity - tokens
    if missing <= 0:
        return 0.0
    return max(math.ceil(missing / config.quantum) * config.interval - since_tick, 0) / 1000


def _while_owing(config: TokenBucketConfig, tokens: float, ttl: float | None) -> float | None:
    """Return the seconds for which to keep a state: while tokens are owed, the time of their refill is added."""
    if tokens >= 0 or not config.keep:
        return ttl
    return min(config.keep + math.ceil(-tokens / config.quantum) * config.interval / 1000, 1e9)


# The first FRAME bytes of a state belong to the store, which has its header there: `data or b""` copies them.
_pack = struct.Struct(f"<{FRAME}sqqH").pack
_unpack = struct.Struct(f"<{FRAME}xqqH").unpack


def _read(data: bytes) -> TokenBucketState:
    try:
        tokens, milliseconds, parts = _unpack(data)
    except (struct.error, TypeError):
        raise foreign_data("token bucket") from None
    return TokenBucketState(tokens, milliseconds + parts / PARTS_PER_MS)


def _write(data: bytes | None, state: TokenBucketState) -> bytes:
    milliseconds = math.floor(state.last_tick)
    return _pack(data or b"", int(state.tokens), milliseconds, int((state.last_tick - milliseconds) * PARTS_PER_MS))
