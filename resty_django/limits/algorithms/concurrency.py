"""Concurrency: a maximum number of concurrent requests, and some more that are delayed, like nginx's `limit_conn`.

    total = in_progress + cost
    allowed = total <= max + burst
    delay = unit * floor((total - 1) / max)                            where total > max

The formulas of lua-resty-limit-traffic's `resty.limit.conn`.

A request holds its slot until it leaves or its lease ends. The slot of an ended lease is released on the next use of
the key. If a lease ends later than one that begins now, its length was changed or the clock went back: the next
recorded request, even a refused one, shortens it.

Example: `max` 2 and `burst` 1. Of four requests at once, two pass at once, the third after `unit` seconds, and the
fourth is refused until one of them leaves.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from ..decision import Decision
from . import FRAME, Outcome, foreign_data

KEEP_MS: Final = 60_000
"""The time for which a state is kept after its last lease, at least. It is set to twice that, so that most requests do
not set it again."""
LEASE_BYTES: Final = 16
MIN_LEASES_BYTES: Final = 4 * LEASE_BYTES
"""The bytes for leases in a state as soon as there is one; doubled if necessary."""


class ConcurrencyConfig(Struct, frozen=True, gc=False):
    """The numbers of a concurrency limit, and the token of the slot that a call takes or releases."""

    max: int
    """The number of slots."""
    burst: int
    """The number of additional requests that may wait."""
    unit: float
    """Seconds: the assumed duration of a request."""
    lease: int
    """Milliseconds after which a slot is released (0: never)."""
    token: bytes = b""
    """8 bytes that name a slot, or empty."""


class ConcurrencyState(Struct, gc=False):
    """The stored state of a key."""

    in_progress: int = 0
    """The number of slots in use. Negative after more `leaving` than `incoming`."""
    keep_until: int = -1
    """The time until which the store keeps the state (0: indefinitely, -1: the state is new)."""
    leases: bytes = b""
    """For each slot with a lease, the earliest first: the token, and the time at which the lease ends."""
    room: int = 0
    """Bytes for leases in the stored state, so that its size rarely changes; spare ones follow the leases."""

    def shorten_leases(self, end: int) -> bool:
        """Let all leases end at `end` at the latest. Return whether one would have ended later."""
        size = self._ending_by(end)
        late = self.leases[size:]
        if late:
            tokens = [late[at : at + 8] for at in range(0, len(late), LEASE_BYTES)]
            self.leases = self.leases[:size] + b"".join([_lease(token, end) for token in tokens])
        return late != b""

    def add_leases(self, token: bytes, end: int, count: int) -> None:
        """Add leases for the slots of a request."""
        size = self._ending_by(end)
        self.leases = self.leases[:size] + _lease(token, end) * count + self.leases[size:]

    def remove_leases(self, token: bytes) -> int:
        """Remove the leases of a token. Return their number."""
        count = 0
        at = self.leases.find(token)
        while at >= 0:
            if at % LEASE_BYTES:  # other bytes of leases that happen to be the same
                at = self.leases.find(token, at + 1)
            else:
                self.leases = self.leases[:at] + self.leases[at + LEASE_BYTES :]
                count += 1
                at = self.leases.find(token, at)
        return count

    def _ending_by(self, end: int) -> int:
        """Return the size in bytes of the leases that end at `end` or earlier."""
        size = len(self.leases)
        while size and _end(self.leases, size - 8)[0] > end:
            size -= LEASE_BYTES
        return size


def incoming(data: bytes | None, now: int, config: ConcurrencyConfig, cost: int, commit: bool) -> Outcome[Decision]:
    """Decide on a request at `now` (milliseconds), and record it if `commit`.

    `data`: the stored bytes of the key (None: it is new). Return the bytes to store (None: none), the seconds for which
    to keep them (0: indefinitely, None: as before), and the decision.
    """
    state = ConcurrencyState() if data is None else _read(data, now)
    end = now + config.lease
    shortened = commit and config.lease > 0 and state.shorten_leases(end)
    decision = decide(config, cost, commit, state.in_progress + cost)
    if commit and decision.allowed:
        state.in_progress += cost
        if config.lease:
            state.leases += _lease(config.token, end) * cost  # no other ends later
    elif not shortened:
        return None, None, decision
    new_data, ttl = _write(data, state, now, config.lease)
    return new_data, ttl, decision


def decide(config: ConcurrencyConfig, cost: int, commit: bool, total: int) -> Decision:
    """Return the decision on a request; `total`: the number in progress including it."""
    limit = config.max + config.burst
    if total > limit:
        return Decision.refused(limit=limit, remaining=max(limit - total + cost, 0), retry_after=config.unit)
    return Decision.delayed(
        delay=config.unit * ((total - 1) // config.max) if total > config.max else 0.0,
        state=total,
        limit=limit,
        remaining=limit - total if commit else limit - total + cost,
        token=config.token.hex() if commit and config.lease else "",
    )


def uncommit(data: bytes | None, now: int, config: ConcurrencyConfig, cost: int) -> Outcome[int | None]:
    """Release a slot like `leaving`, but without a token release the slot taken last."""
    return leaving(data, now, config, cost, oldest=False)


def leaving(
    data: bytes | None, now: int, config: ConcurrencyConfig, cost: int, oldest: bool = True
) -> Outcome[int | None]:
    """Release the slot with the token; if its lease has ended, the slot is already released and nothing changes.

    Without a token, release the slot held longest, or if not `oldest`, the one taken last. The result is the number in
    progress, None if the key is new.
    """
    if data is None:
        return None, None, None
    state = _read(data, now)
    if config.token:
        cost = state.remove_leases(config.token)
    elif oldest:
        state.leases = state.leases[LEASE_BYTES * cost :]
    else:
        state.leases = state.leases[: max(len(state.leases) - LEASE_BYTES * cost, 0)]
    state.in_progress -= cost
    new_data, ttl = _write(data, state, now, config.lease)
    return new_data, ttl, state.in_progress


def renew(data: bytes | None, now: int, config: ConcurrencyConfig, cost: int) -> Outcome[bool]:
    """Restart the lease of the token. The result is whether the lease existed."""
    if data is None:
        return None, None, False
    state = _read(data, now)
    count = state.remove_leases(config.token)
    if not count:
        return None, None, False
    state.add_leases(config.token, now + config.lease, count)
    new_data, ttl = _write(data, state, now, config.lease)
    return new_data, ttl, True


def can_pass(config: ConcurrencyConfig, cost: int) -> bool:
    """Return whether a request of that cost can pass at any time."""
    return cost <= config.max + config.burst


# The first FRAME bytes of a state belong to the store, which has its header there: `data or b""` copies them.
_HEAD: Final = struct.Struct(f"<{FRAME}sqqi")
_START: Final = _HEAD.size
_pack = _HEAD.pack
_unpack = struct.Struct(f"<{FRAME}xqqi").unpack_from
_lease = struct.Struct("<8sq").pack
_end = struct.Struct("<q").unpack_from


def _read(data: bytes, now: int) -> ConcurrencyState:
    """Return a state without the leases that have ended."""
    try:
        in_progress, keep_until, count = _unpack(data)
    except (struct.error, TypeError):
        raise foreign_data("number of requests in progress") from None
    room = len(data) - _START
    if room % MIN_LEASES_BYTES or not 0 <= count * LEASE_BYTES <= room:
        raise foreign_data("number of requests in progress")
    if not count:
        return ConcurrencyState(in_progress, keep_until, b"", room)
    start, stop = _START, _START + count * LEASE_BYTES
    while start < stop and _end(data, start + 8)[0] <= now:
        start += LEASE_BYTES
        in_progress -= 1
    return ConcurrencyState(in_progress, keep_until, data[start:stop], room)


def _write(data: bytes | None, state: ConcurrencyState, now: int, lease: int) -> tuple[bytes, float | None]:
    """Return the bytes of the state, and seconds for which to keep them (0: indefinitely, None: as before)."""
    leases = state.leases
    size = len(leases)
    ttl = None
    if lease and size == state.in_progress * LEASE_BYTES:
        needed = (_end(leases, size - 8)[0] if size else now) + KEEP_MS
        if not needed <= state.keep_until <= needed + lease + KEEP_MS:
            state.keep_until = needed + KEEP_MS
            ttl = (state.keep_until - now) / 1000
    elif state.keep_until:  # slots without a lease are, or may be, in use
        state.keep_until = ttl = 0
    head = _pack(data or b"", state.in_progress, state.keep_until, size // LEASE_BYTES)
    room = state.room
    if not room and not size:
        return head, ttl
    while size > room:
        room = max(2 * room, MIN_LEASES_BYTES)
    if 4 * size < room > MIN_LEASES_BYTES:
        room //= 2
    return head + leases.ljust(room, b"\0"), ttl
