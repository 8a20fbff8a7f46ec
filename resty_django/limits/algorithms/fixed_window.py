"""Fixed window: a maximum number of requests in a window that begins with the first one.

    remaining = limit - used - cost
    allowed = remaining >= 0
    reset_after = retry_after = end - now

A recorded request counts even if it is refused, as in lua-resty-limit-traffic's `resty.limit.count`, so the number used
may be above the limit; it is negative after an `uncommit` of more. If a window would end later than one that begins
now, its length was changed or the clock went back: it restarts with the number used, which is reduced if necessary so
that the request passes.

Example: 3 requests per minute. If the first one comes at 10:00:40, three pass until 10:01:40; then a new window begins
with the next request.
"""

from __future__ import annotations

import struct

from msgspec import Struct

from ..decision import Decision
from . import FRAME, Outcome, foreign_data


class FixedWindowConfig(Struct, frozen=True, gc=False):
    """The numbers of a fixed window."""

    limit: int
    """Requests per window."""
    window: int
    """Milliseconds."""


class FixedWindowState(Struct, gc=False):
    """The stored state of a key."""

    used: int
    """The number of requests in the window."""
    end: int
    """The time in milliseconds at which the window ends."""


def incoming(data: bytes | None, now: int, config: FixedWindowConfig, cost: int, commit: bool) -> Outcome[Decision]:
    """Decide on a request at `now` (milliseconds), and record it if `commit`.

    `data`: the stored bytes of the key (None: it is new). Return the bytes to store (None: none), the seconds for which
    to keep them (0: indefinitely, None: as before), and the decision.
    """
    state = FixedWindowState(0, now) if data is None else _read(data)
    ttl = None
    if state.end <= now:
        state.used, state.end = 0, now + config.window if commit else now
        ttl = config.window / 1000 + 1  # may be longer than needed: `end` decides
    elif state.end - now > config.window:
        state.used, state.end = min(state.used, config.limit - cost), now + config.window
        ttl = config.window / 1000 + 1
    state.used += cost
    decision = decide(config, cost, commit, config.limit - state.used, state.end - now)
    return (_pack(data or b"", state.used, state.end), ttl, decision) if commit else (None, None, decision)


def decide(config: FixedWindowConfig, cost: int, commit: bool, after: int, until: int) -> Decision:
    """Return the decision on a request.

    `after`: the limit minus the number used, including it. `until`: milliseconds until the window ends (0: it has not
    begun).
    """
    reset_after = until / 1000
    if after >= 0:
        remaining = after if commit else after + cost
        return Decision.passed(state=after, limit=config.limit, remaining=remaining, reset_after=reset_after)
    remaining = 0 if commit else max(after + cost, 0)
    return Decision.refused(limit=config.limit, remaining=remaining, reset_after=reset_after, retry_after=reset_after)


def uncommit(data: bytes | None, now: int, config: FixedWindowConfig, cost: int) -> Outcome[int]:
    """Take back `cost` requests. The result is the limit minus the number used."""
    state = FixedWindowState(0, now) if data is None else _read(data)
    if state.end <= now:
        return None, None, config.limit
    state.used -= cost
    return _pack(data or b"", state.used, state.end), None, config.limit - state.used


def can_pass(config: FixedWindowConfig, cost: int) -> bool:
    """Return whether a request of that cost can pass at any time."""
    return cost <= config.limit


# The first FRAME bytes of a state belong to the store, which has its header there: `data or b""` copies them.
_pack = struct.Struct(f"<{FRAME}sqqx").pack
_unpack = struct.Struct(f"<{FRAME}xqqx").unpack


def _read(data: bytes) -> FixedWindowState:
    try:
        return FixedWindowState(*_unpack(data))
    except (struct.error, TypeError):
        raise foreign_data("fixed window") from None
