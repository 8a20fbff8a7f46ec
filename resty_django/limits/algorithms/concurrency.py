"""Concurrency: so many requests at a time, and some more that are delayed.

The state: the number in progress, the time until which the store keeps it (0: for ever), how many leases there are, and
the leases, each the token of a slot and the time at which it is over, the earliest first; behind them room for more, so
that the length of the state changes rarely. A lease that is over gives its slot back when the key is next asked. The
number is not made of the leases: who leaves without having come makes it negative.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from ..decision import Decision
from ..errors import ForeignData
from . import Decided, Outcome

HEAD: Final = Struct("<qqi")
LEASE: Final = Struct("<8sq")
SENT: Final = Struct("<7d8s")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<d")
"""Of a request: the number in progress with it."""
SIZE: Final = HEAD.size
EACH: Final = LEASE.size
LEAST: Final = 4
"""Leases that there is room for as soon as there is one; then it is doubled."""
AFTER: Final = 60_000
"""Milliseconds for which a state is kept at least when no slot is in use."""
SPARE: Final = 60_000
"""Milliseconds for which it is kept beyond need, so that the store is not told of each lease."""
FOREIGN: Final = "shdict abused by other users: the key holds no number of requests in progress."

_new = tuple.__new__
_end = Struct("<q").unpack_from
_head = HEAD.unpack_from
_pack = HEAD.pack
_lease = LEASE.pack


class Numbers(NamedTuple):
    """`unit`: seconds of delay. `lease`: milliseconds (0: slots have no end). `token`: 8 bytes that name a slot."""

    max: int
    burst: int
    unit: float
    lease: int
    token: bytes


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: int, commit: bool) -> Decided:
    most, burst, unit, lease, token = numbers
    count, kept, leases = (0, -1, b"") if state is None else _at(state, now)
    total = count + cost
    limit = most + burst
    if not commit or total > limit:
        return None, None, decide(numbers, cost, commit, total)
    delay = unit * ((total - 1) // most) if total > most else 0.0
    name = token.hex() if lease else ""
    decision = _new(Decision, (True, delay, total, limit, limit - total, 0.0, 0.0, False, name))
    if lease:
        end = now + lease
        if cost == 1 and (not leases or _end(leases, len(leases) - 8)[0] <= end):
            leases += _lease(token, end)
        else:
            leases = _with(leases, token, end, cost)
    return (*_stored(state, now, lease, total, kept, leases), decision)


def decide(numbers: Numbers, cost: int, commit: bool, count: float) -> Decision:
    most, burst, unit, lease, token = numbers
    count = int(count)
    limit = most + burst
    if count > limit:
        return Decision(False, 0.0, None, limit, max(limit - count + cost, 0), 0.0, unit)
    delay = unit * ((count - 1) // most) if count > most else 0.0
    if commit:
        name = token.hex() if lease else ""
        return _new(Decision, (True, delay, count, limit, limit - count, 0.0, 0.0, False, name))
    return Decision(True, delay, count, limit, limit - count + cost)


def leaving(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[int | None]:
    """Give back the slot named by the token; one whose lease is over was given back before, and nothing changes.

    Without a token the longest held slot is given back. The result: the number in progress, None where none is known.
    """
    return _less(state, now, numbers, cost, oldest=True)


def uncommit(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[int | None]:
    """As `leaving`, but without a token it is the slot taken last that is given back."""
    return _less(state, now, numbers, cost, oldest=False)


def renew(state: bytes | None, now: int, numbers: Numbers, cost: int) -> Outcome[bool]:
    """Let the lease of the token begin anew. The result: whether there was one."""
    if state is None:
        return None, None, False
    count, kept, leases = _at(state, now)
    rest, removed = _without(leases, numbers.token)
    if not removed:
        return None, None, False
    leases = _with(rest, numbers.token, now + numbers.lease, removed)
    return (*_stored(state, now, numbers.lease, count, kept, leases), True)


def _less(state: bytes | None, now: int, numbers: Numbers, cost: int, oldest: bool) -> Outcome[int | None]:
    if state is None:
        return None, None, None
    count, kept, leases = _at(state, now)
    if numbers.token:
        leases, cost = _without(leases, numbers.token)
    else:
        size = EACH * cost
        leases = leases[size:] if oldest else leases[: max(len(leases) - size, 0)]
    count -= cost
    return (*_stored(state, now, numbers.lease, count, kept, leases), count)


def _at(state: bytes, now: int) -> tuple[int, int, bytes]:
    """The number in progress, the time until which it is kept, and the leases that are not over.

    Raises `ForeignData`.
    """
    try:
        count, kept, held = _head(state)
    except (error, TypeError):
        raise ForeignData(FOREIGN) from None
    stop = SIZE + held * EACH
    if not SIZE <= stop <= len(state) or (len(state) - SIZE) % (LEAST * EACH):
        raise ForeignData(FOREIGN)
    at = SIZE
    while at < stop and _end(state, at + 8)[0] <= now:
        at += EACH
        count -= 1
    return count, kept, state[at:stop]


def _with(leases: bytes, token: bytes, end: int, times: int) -> bytes:
    """The leases and new ones, by their ends."""
    at = len(leases)
    while at and _end(leases, at - 8)[0] > end:
        at -= EACH
    return leases[:at] + _lease(token, end) * times + leases[at:]


def _without(leases: bytes, token: bytes) -> tuple[bytes, int]:
    """The leases without those of the token, and how many these were."""
    removed = 0
    at = leases.find(token)
    while at >= 0:
        if at % EACH:
            at = leases.find(token, at + 1)
        else:
            leases = leases[:at] + leases[at + EACH :]
            removed += 1
            at = leases.find(token, at)
    return leases, removed


def _stored(
    state: bytes | None, now: int, lease: int, count: int, kept: int, leases: bytes
) -> tuple[bytes, float | None]:
    """The new state, and how long to keep it (None: as before).

    For ever if slots are in use that no lease gives back, or may be; `kept` is -1 where there was no state.
    """
    used = len(leases)
    ttl: float | None = None
    if not lease or count * EACH != used:
        if kept:
            kept, ttl = 0, 0
    else:
        least = (_end(leases, used - 8)[0] if used else now) + AFTER
        if not least <= kept <= least + lease + SPARE:
            kept = least + SPARE
            ttl = (kept - now) / 1000
    room = 0 if state is None else len(state) - SIZE
    if used > room:
        room = max(room, LEAST * EACH)
        while used > room:
            room *= 2
    elif 4 * used < room > LEAST * EACH:
        room //= 2
    return _pack(count, kept, used // EACH) + leases.ljust(room, b"\0"), ttl
