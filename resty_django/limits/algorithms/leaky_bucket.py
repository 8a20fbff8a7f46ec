"""Leaky bucket: a constant rate and a queue of limited length, like nginx's `limit_req`.

A request is 1000 units. The bucket contains `excess` units and drains at `rate` units per second. A request adds its
units, and is refused if the bucket would then contain more than `burst`:

    excess = max(stored - rate * elapsed / 1000 + 1000 * cost, 0)      elapsed in milliseconds
    allowed = excess <= burst
    delay = excess / rate                                              seconds until the units before it have drained
    retry_after = (excess - burst) / rate                              rounded up to a millisecond

These are the formulas of nginx's `ngx_http_limit_req_module`. The first request of a key finds an empty bucket and adds
nothing, as in lua-resty-limit-traffic.

A stored excess above `burst` comes from a limit that was higher; it counts as `burst`. If the clock went back, a
request that would have to wait longer than the bucket takes to drain passes as the last one of the queue, so that later
requests are decided by the current time.

Example: 2 requests per second and a burst of 3. Of five requests at once, four pass: after 0, 0.5, 1 and 1.5 s. The
last one is refused, with a `retry_after` of 0.5 s.
"""

from __future__ import annotations

import math
import struct

from msgspec import Struct

from ..decision import Decision
from . import FRAME, KEEP_SLOT_MS, Outcome, foreign_data


class LeakyBucketConfig(Struct, frozen=True, gc=False):
    """The numbers of a leaky bucket."""

    rate: float
    """Units per second."""
    burst: float
    """Units."""
    whole_burst: int
    """`burst` without a fraction."""
    limit: int
    """The limit as clients see it, in requests."""
    clamp: bool
    """Whether a clock that went back counts as stopped."""
    keep: float
    """Seconds for which a state is kept (0: indefinitely)."""
    keep_units: float
    """With a higher excess than this, a request sets the expiry even if another one in the same `KEEP_SLOT_MS` has set
    it: that may have been a request to a limiter with another rate."""


class LeakyBucketState(Struct, gc=False):
    """The stored state of a key."""

    excess: int
    """Units in the bucket after the last request."""
    last: int
    """The time of the last request in milliseconds."""


def incoming(data: bytes | None, now: int, config: LeakyBucketConfig, cost: int, commit: bool) -> Outcome[Decision]:
    """Decide on a request at `now` (milliseconds), and record it if `commit`.

    `data`: the stored bytes of the key (None: it is new). Return the bytes to store (None: none), the seconds for which
    to keep them (0: indefinitely, None: as before), and the decision.
    """
    if data is None:
        decision = decide(config, cost, commit, 0.0)
        return (_pack(b"", 0, now), config.keep, decision) if commit else (None, None, decision)
    state = _read(data)
    if state.excess > config.whole_burst:
        state.excess = config.whole_burst
    last = now
    elapsed = now - state.last
    if elapsed >= 0:
        excess = state.excess - config.rate * elapsed / 1000 + 1000 * cost
        if excess < 0.0:
            excess = 0.0
    else:
        excess, last = _after_set_back(state, now, config, cost)
    decision = decide(config, cost, commit, excess)
    if not commit or not decision.allowed:
        return None, None, decision
    expires_in_time = excess + 1000 <= config.keep_units and last // KEEP_SLOT_MS == state.last // KEEP_SLOT_MS
    return _pack(data, int(excess), last), None if expires_in_time else config.keep, decision


def decide(config: LeakyBucketConfig, cost: int, commit: bool, excess: float) -> Decision:
    """Return the decision on a request; `excess`: units including it."""
    allowed = excess <= config.burst
    if commit and allowed:
        remaining = (config.whole_burst - int(excess)) // 1000
        reset_after = (excess + 1000) / config.rate
    else:  # nothing is recorded: report what a request of cost 1 would find
        before = max(excess - 1000 * (cost - 1), 0.0)
        remaining = 1 + (config.whole_burst - int(before)) // 1000 if before <= config.burst else 0
        reset_after = before / config.rate
    if allowed:
        return Decision.delayed(
            delay=excess / config.rate,
            state=excess / 1000,
            limit=config.limit,
            remaining=remaining,
            reset_after=reset_after,
        )
    return Decision.refused(
        limit=config.limit,
        remaining=remaining,
        reset_after=reset_after,
        retry_after=math.ceil((excess - config.burst) * 1000 / config.rate) / 1000,
    )


def uncommit(data: bytes | None, now: int, config: LeakyBucketConfig, cost: int) -> Outcome[bool | None]:
    """Remove the units that the request added, down to 0. The result is True, or None if the key is new."""
    if data is None:
        return None, None, None
    state = _read(data)
    excess = max(min(state.excess, config.whole_burst) - 1000 * cost, 0)
    return _pack(data, excess, state.last), None, True


def can_pass(config: LeakyBucketConfig, cost: int) -> bool:
    """Return True: the first request of a key always passes."""
    return True


def _after_set_back(state: LeakyBucketState, now: int, config: LeakyBucketConfig, cost: int) -> tuple[float, int]:
    """Return the excess including a request from before the last one, and the time to record for it."""
    drained = config.rate * (state.last - now) / 1000
    capacity = config.burst + 1000
    if config.clamp:
        excess, last = float(state.excess + 1000 * cost), now if drained > capacity else state.last
    else:
        excess, last = max(state.excess - drained + 1000 * cost, 0.0), now
    if excess <= config.burst:
        return excess, last
    excess = state.excess + drained + 1000 * cost
    if excess - config.burst > max(capacity, 1000 * cost):
        return float(config.burst), now
    return excess, last


# The first FRAME bytes of a state belong to the store, which has its header there: packing `data` copies them.
_pack = struct.Struct(f"<{FRAME}sqq").pack
_unpack = struct.Struct(f"<{FRAME}xqq").unpack


def _read(data: bytes) -> LeakyBucketState:
    try:
        return LeakyBucketState(*_unpack(data))
    except (struct.error, TypeError):
        raise foreign_data("leaky bucket") from None
