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
from . import FRAME, Decided, Outcome

HEAD: Final = Struct(f"<{FRAME}xqqi")
LEASE: Final = Struct("<8sq")
SENT: Final = Struct("<7d8s")
"""To the script: the time (0: the server's), whether to record, the cost, the numbers."""
MEASURED: Final = Struct("<d")
"""Of a request: the number in progress with it."""
START: Final = HEAD.size
"""Where the leases begin."""
EACH: Final = LEASE.size
LEAST: Final = 4 * EACH
"""Bytes of room for leases as soon as there is one; then it is doubled."""
AFTER: Final = 60_000
"""Milliseconds for which a state is kept at least when no slot is in use."""
SPARE: Final = 60_000
"""Milliseconds for which it is kept beyond need, so that the store is not told of each lease."""
FOREIGN: Final = "shdict abused by other users: the key holds no number of requests in progress."

_new = tuple.__new__
_end = Struct("<q").unpack_from
_head = HEAD.unpack_from
_pack = Struct(f"<{FRAME}sqqi").pack
_lease = LEASE.pack
_nothing = bytes(EACH)


class Numbers(NamedTuple):
    """`unit`: seconds of delay. `lease`: milliseconds (0: slots have no end). `token`: 8 bytes that name a slot."""

    max: int
    burst: int
    unit: float
    lease: int
    token: bytes


def incoming(state: bytes | None, now: int, numbers: Numbers, cost: int, commit: bool) -> Decided:
    most, burst, unit, lease, token = numbers
    if state is not None and commit and cost == 1:
        quick = _taken(state, now, numbers)
        if quick is not None:
            return quick
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


def _taken(state: bytes, now: int, numbers: Numbers) -> Decided | None:
    """`incoming` where there are no leases, or room for one more that is the last to end, and none is over; else None.

    The quick way that most requests go; it must come to what the long one comes to.
    """
    most, burst, unit, lease, token = numbers
    try:
        count, kept, held = _head(state)
    except (error, TypeError):
        return None
    limit = most + burst
    total = count + 1
    delay = unit * (count // most) if count >= most else 0.0
    if not lease:
        if held or kept or total > limit or len(state) != START:
            return None
        decision = _new(Decision, (True, delay, total, limit, limit - total, 0.0, 0.0, False, ""))
        return _pack(state, total, 0, 0), None, decision
    stop = START + held * EACH
    size = len(state)
    end = now + lease
    if (
        count != held
        or not 0 <= count < limit
        or not stop < size
        or (size - START) % LEAST
        or not end + AFTER <= kept <= end + AFTER + lease + SPARE
        or (count and (_end(state, START + 8)[0] <= now or _end(state, stop - 8)[0] > end))
    ):
        return None
    return (
        _pack(state, total, kept, total) + state[START:stop] + _lease(token, end) + state[stop + EACH :],
        None,
        _new(Decision, (True, delay, total, limit, limit - total, 0.0, 0.0, False, token.hex())),
    )


def _returned(state: bytes, now: int, numbers: Numbers) -> Outcome[int | None] | None:
    """`leaving` of a token that has one lease, where none is over; else None. The quick way, as `_taken`."""
    try:
        count, kept, held = _head(state)
    except (error, TypeError):
        return None
    token = numbers.token
    stop = START + held * EACH
    size = len(state)
    at = state.find(token, START, stop)
    if (
        count != held
        or at < 0
        or (at - START) % EACH
        or (size - START) % LEAST
        or LEAST != size - START > 4 * (stop - EACH - START)
        or _end(state, START + 8)[0] <= now
    ):
        return None
    least = now + AFTER
    if count > 1:
        if state.find(token, at + 1, stop) >= 0:
            return None
        (end,) = _end(state, stop - 8 if at + EACH < stop else stop - 8 - EACH)
        least = end + AFTER
    if not least <= kept <= least + numbers.lease + SPARE:
        return None
    count -= 1
    return _pack(state, count, kept, count) + state[START:at] + state[at + EACH :] + _nothing, None, count


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
    if numbers.token and numbers.lease:
        quick = _returned(state, now, numbers)
        if quick is not None:
            return quick
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
    stop = START + held * EACH
    if not START <= stop <= len(state) or (len(state) - START) % LEAST:
        raise ForeignData(FOREIGN)
    at = START
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
    room = 0 if state is None else len(state) - START
    if used > room:
        room = max(room, LEAST)
        while used > room:
            room *= 2
    elif 4 * used < room > LEAST:
        room //= 2
    return _pack(state or b"", count, kept, used // EACH) + leases.ljust(room, b"\0"), ttl
