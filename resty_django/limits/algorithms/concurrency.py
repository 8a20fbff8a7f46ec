"""Concurrency: a maximum number of concurrent requests, and some more that are delayed.

    total = in progress + cost
    allowed = total <= max + burst
    delay = unit * floor((total - 1) / max)                            where total > max

The state: the number in progress, the time until which the store keeps it (0: indefinitely), the number of leases, and
the leases. Each lease is the token of a slot and the time at which it ends, the earliest first. Spare bytes follow, so
that the length of the state rarely changes. The slot of an expired lease is released on the next use of the key. The
number in progress is stored in addition to the leases: leaving more often than entering makes it negative. If a lease
ends later than one that begins now, its length was changed or the clock went back: the next recorded request, even a
refused one, shortens it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from types import MethodType
from typing import Any, Final, NamedTuple

from ..decision import Decision, decision_from
from ..errors import ForeignData
from . import FRAME, Decided, Outcome

HEAD: Final = Struct(f"<{FRAME}xqqi")
LEASE: Final = Struct("<8sq")
SENT: Final = Struct("<7d8s")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<d")
"""From the script, for a request: the number in progress including it."""
START: Final = HEAD.size
"""The position of the first lease."""
LEASE_SIZE: Final = LEASE.size
MIN_ROOM: Final = 4 * LEASE_SIZE
"""Bytes reserved for leases as soon as one exists; doubled if necessary."""
MIN_KEEP: Final = 60_000
"""Milliseconds: the minimum time for which a state without used slots is kept."""
SPARE_KEEP: Final = 60_000
"""Additional milliseconds for which a state is kept, so that most leases do not change its time to live."""
FOREIGN: Final = "shdict abused by other users: the key holds no number of requests in progress."

_end = Struct("<q").unpack_from
_head = HEAD.unpack_from
_pack = Struct(f"<{FRAME}sqqi").pack
_lease = LEASE.pack
_nothing = bytes(LEASE_SIZE)


class Numbers(NamedTuple):
    """`unit`: seconds of delay. `lease`: milliseconds (0: indefinite). `token`: 8 bytes that name a slot."""

    max: int
    burst: int
    unit: float
    lease: int
    token: bytes


numbers_from: Final[Callable[[tuple[Any, ...]], Numbers]] = MethodType(tuple.__new__, Numbers)
"""Create numbers from their fields, as `decision_from`."""


def passable(numbers: Numbers, cost: int) -> bool:
    """Return whether a request of that cost can pass at any time."""
    return cost <= numbers.max + numbers.burst


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: int, commit: bool) -> Decided:
    most, burst, unit, lease, token = numbers
    if state is not None and commit and cost == 1:
        outcome = take_slot(state, now, numbers)
        if outcome is not None:
            return outcome
    count, keep_until, leases = (0, -1, b"") if state is None else _read(state, now)
    total = count + cost
    limit = most + burst
    end = now + lease
    late = commit and lease > 0 and len(leases) > 0 and _end(leases, len(leases) - 8)[0] > end
    if late:
        leases = _shortened(leases, end)
    if not commit or total > limit:
        decision = decide(numbers, cost, commit, total)
        return (*_stored(state, now, lease, count, keep_until, leases), decision) if late else (None, None, decision)
    delay = unit * ((total - 1) // most) if total > most else 0.0
    decision = Decision.delayed(
        delay=delay, state=total, limit=limit, remaining=limit - total, token=token.hex() if lease else ""
    )
    if lease:
        if cost == 1 and (not leases or _end(leases, len(leases) - 8)[0] <= end):
            leases += _lease(token, end)
        else:
            leases = _with(leases, token, end, cost)
    return (*_stored(state, now, lease, total, keep_until, leases), decision)


def take_slot(state: bytes, now: int, numbers: Numbers) -> Decided | None:
    """Decide on a recorded request of cost 1 by the fast path, if the state allows it; else return None.

    The state allows it if no lease has ended, the new lease ends last and it fits into the spare bytes, or if the
    limiter has no leases. Most requests take this path; its result must be the same as in `incoming`.
    """
    most, burst, unit, lease, token = numbers
    try:
        count, keep_until, lease_count = _head(state)
    except (error, TypeError):
        return None
    limit = most + burst
    total = count + 1
    delay = unit * (count // most) if count >= most else 0.0
    if not lease:
        if lease_count or keep_until or total > limit or len(state) != START:
            return None
        new_state = _pack(state, total, 0, 0)
        name = ""
    else:
        stop = START + lease_count * LEASE_SIZE
        size = len(state)
        end = now + lease
        if (
            count != lease_count
            or not 0 <= count < limit
            or not stop < size
            or (size - START) % MIN_ROOM
            or not MIN_KEEP <= keep_until - end <= MIN_KEEP + lease + SPARE_KEEP
            or (count and (_end(state, START + 8)[0] <= now or _end(state, stop - 8)[0] > end))
        ):
            return None
        new_lease = _lease(token, end)
        new_state = _pack(state, total, keep_until, total) + state[START:stop] + new_lease + state[stop + LEASE_SIZE :]
        name = token.hex()
    return new_state, None, decision_from((True, delay, total, limit, limit - total, 0.0, 0.0, False, name))


def give_back_slot(state: bytes, now: int, numbers: Numbers) -> Outcome[int | None] | None:
    """Release the slot of a token with one lease by a fast path, if the state allows it; else return None."""
    try:
        count, keep_until, lease_count = _head(state)
    except (error, TypeError):
        return None
    token = numbers.token
    stop = START + lease_count * LEASE_SIZE
    size = len(state)
    at = state.find(token, START, stop)
    if (
        count != lease_count
        or at < 0
        or (at - START) % LEASE_SIZE
        or (size - START) % MIN_ROOM
        or MIN_ROOM != size - START > 4 * (stop - LEASE_SIZE - START)
        or _end(state, START + 8)[0] <= now
    ):
        return None
    least = now + MIN_KEEP
    if count > 1:
        if state.find(token, at + 1, stop) >= 0:
            return None
        (end,) = _end(state, stop - 8 if at + LEASE_SIZE < stop else stop - 8 - LEASE_SIZE)
        least = end + MIN_KEEP
    if not least <= keep_until <= least + numbers.lease + SPARE_KEEP:
        return None
    count -= 1
    return _pack(state, count, keep_until, count) + state[START:at] + state[at + LEASE_SIZE :] + _nothing, None, count


def decide(numbers: Numbers, cost: int, commit: bool, count: float) -> Decision:
    most, burst, unit, lease, token = numbers
    count = int(count)
    limit = most + burst
    if count > limit:
        return Decision.refused(limit=limit, remaining=max(limit - count + cost, 0), retry_after=unit)
    return Decision.delayed(
        delay=unit * ((count - 1) // most) if count > most else 0.0,
        state=count,
        limit=limit,
        remaining=limit - count if commit else limit - count + cost,
        token=token.hex() if commit and lease else "",
    )


def leaving(state: bytes | None, now: int, numbers: Numbers, cost: int, oldest: bool = True) -> Outcome[int | None]:
    """Release the slot with the token; if its lease has ended, the slot is already released and nothing changes.

    Without a token, release the slot held longest, or if not `oldest`, the one taken last. The result is the number in
    progress, None if the key is new.
    """
    if state is None:
        return None, None, None
    if numbers.token and numbers.lease:
        outcome = give_back_slot(state, now, numbers)
        if outcome is not None:
            return outcome
    count, keep_until, leases = _read(state, now)
    if numbers.token:
        leases, cost = _without(leases, numbers.token)
    else:
        size = LEASE_SIZE * cost
        leases = leases[size:] if oldest else leases[: max(len(leases) - size, 0)]
    count -= cost
    return (*_stored(state, now, numbers.lease, count, keep_until, leases), count)


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[int | None]:
    """Release a slot like `leaving`, but without a token release the slot taken last."""
    return leaving(state, now, numbers, cost, oldest=False)


def renew(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[bool]:
    """Restart the lease of the token. The result is whether the lease existed."""
    if state is None:
        return None, None, False
    count, keep_until, leases = _read(state, now)
    others, removed = _without(leases, numbers.token)
    if not removed:
        return None, None, False
    leases = _with(others, numbers.token, now + numbers.lease, removed)
    return (*_stored(state, now, numbers.lease, count, keep_until, leases), True)


def _read(state: bytes, now: int) -> tuple[int, int, bytes]:
    """Return the number in progress, the time until which the state is kept, and the leases that have not ended.

    Raise `ForeignData` if the state has another layout.
    """
    try:
        count, keep_until, lease_count = _head(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
    stop = START + lease_count * LEASE_SIZE
    if not START <= stop <= len(state) or (len(state) - START) % MIN_ROOM:
        raise ForeignData(FOREIGN)
    at = START
    while at < stop and _end(state, at + 8)[0] <= now:
        at += LEASE_SIZE
        count -= 1
    return count, keep_until, state[at:stop]


def _with(leases: bytes, token: bytes, end: int, times: int) -> bytes:
    """Return the leases with `times` new ones, ordered by their ends."""
    at = len(leases)
    while at and _end(leases, at - 8)[0] > end:
        at -= LEASE_SIZE
    return leases[:at] + _lease(token, end) * times + leases[at:]


def _shortened(leases: bytes, end: int) -> bytes:
    """Return the leases, shortened so that none ends later than `end`."""
    at = len(leases)
    while at and _end(leases, at - 8)[0] > end:
        at -= LEASE_SIZE
    late = leases[at:]
    return leases[:at] + b"".join(_lease(late[start : start + 8], end) for start in range(0, len(late), LEASE_SIZE))


def _without(leases: bytes, token: bytes) -> tuple[bytes, int]:
    """Return the leases without the token's, and the number of the token's leases."""
    removed = 0
    at = leases.find(token)
    while at >= 0:
        if at % LEASE_SIZE:
            at = leases.find(token, at + 1)
        else:
            leases = leases[:at] + leases[at + LEASE_SIZE :]
            removed += 1
            at = leases.find(token, at)
    return leases, removed


def _stored(
    state: bytes | None, now: int, lease: int, count: int, keep_until: int, leases: bytes
) -> tuple[bytes, float | None]:
    """Return the new state, and seconds for which to keep it (0: indefinitely, None: as before).

    It is kept indefinitely if slots without a lease are, or may be, in use. `keep_until` is -1 if the key is new.
    """
    used = len(leases)
    ttl: float | None = None
    if not lease or count * LEASE_SIZE != used:
        if keep_until:
            keep_until, ttl = 0, 0
    else:
        least = (_end(leases, used - 8)[0] if used else now) + MIN_KEEP
        if not least <= keep_until <= least + lease + SPARE_KEEP:
            keep_until = least + SPARE_KEEP
            ttl = (keep_until - now) / 1000
    room = 0 if state is None else len(state) - START
    if used > room:
        room = max(room, MIN_ROOM)
        while used > room:
            room *= 2
    elif 4 * used < room > MIN_ROOM:
        room //= 2
    return _pack(state or b"", count, keep_until, used // LEASE_SIZE) + leases.ljust(room, b"\0"), ttl
