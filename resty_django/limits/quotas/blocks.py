"""The state of a quota's key in the shared store: units of the current block that nobody has used yet. Pure.

A block is reserved in the database and consumed here. Times are in milliseconds.
"""

from __future__ import annotations

from math import inf
from struct import Struct
from typing import Final, NamedTuple

from ..decision import Decision
from ..errors import ForeignData
from .periods import Period

REFUSAL_MS: Final = 10_000
"""Milliseconds for which a refusal of the database is remembered, unless units are returned or granted."""
CHECK_MS: Final = 60_000
"""Milliseconds after which a block in use is compared with its row, which another machine may have reset."""

_LAYOUT: Final = Struct("<4s9q")
_MARK: Final = b"quo2"


class Block(NamedTuple):
    """`available`: units reserved and not used. `used`: units counted in the row, which include them. `granted`: extra
    units of the row. `refill_until`: when another caller may reserve the next block. `refused_until`: until when a
    request of `refused_cost` or more with a limit of at most `refused_limit` is refused. `resets`: how often the row
    had been reset when the units were reserved. `checked_until`: until when the row is not read again.
    """

    available: int = 0
    used: int = 0
    granted: int = 0
    refill_until: int = 0
    refused_until: int = 0
    refused_cost: int = 0
    refused_limit: int = 0
    resets: int = 0
    checked_until: int = 0


class RowCounts(NamedTuple):
    """The counts in the row of a key: used units, granted units, and the number of resets."""

    used: int = 0
    granted: int = 0
    resets: int = 0


class Reservation(NamedTuple):
    """The units that a call has reserved (None: the limit does not allow them), and the counts of the row after it."""

    units: int | None
    row: RowCounts


class Taken(NamedTuple):
    """The result of `take`. `allowed`: True, False, or None if the database has to decide, with `held` units taken
    from the block. `refill`: whether the caller reserves the next block. `check`: whether the caller reads the row,
    and passes its counts to `sync`.
    """

    block: Block
    allowed: bool | None
    held: int = 0
    refill: bool = False
    check: bool = False


def block_size(limit: int, left: int, most: int) -> int:
    """Return the units to reserve: at most `most`, 1/100 of the limit and 1/10 of the units left; at least 1.

    So blocks shrink to 1 near the limit.
    """
    return max(1, min(most, limit // 100, left // 10))


def pack(block: Block) -> bytes:
    return _LAYOUT.pack(_MARK, *block)


def unpack(state: object) -> Block:
    """Return the block. Raise `ForeignData`."""
    if state is None:
        return Block()
    if isinstance(state, bytes | memoryview) and len(state) == _LAYOUT.size:
        mark, *numbers = _LAYOUT.unpack(state)
        if mark == _MARK:
            return Block(*numbers)
    raise ForeignData("shdict abused by other users: the key holds no block of a quota.")


def take(block: Block, now: int, cost: int, limit: int) -> Taken:
    """Take `cost` units."""
    left = limit + block.granted - (block.used - block.available)
    if cost <= block.available and cost <= left:
        check = now >= block.checked_until
        until = now + CHECK_MS if check else block.checked_until
        after = block._replace(available=block.available - cost, checked_until=until)
        return Taken(after, True, check=check)
    if now < block.refused_until and cost >= block.refused_cost and limit <= block.refused_limit:
        return Taken(block, False)
    held = min(block.available, cost) if cost <= left else 0
    refill = now >= block.refill_until
    after = block._replace(
        available=block.available - held,
        refill_until=now + 5_000 if refill else block.refill_until,  # until then, others reserve only what they use
        checked_until=now + CHECK_MS,
    )
    return Taken(after, None, held, refill)


def reserved(block: Block, resets: int) -> int:
    """Return the units of the block that a row counts which was reset `resets` times."""
    return block.available if block.resets == resets else 0


def sync(block: Block, row: RowCounts) -> Block:
    """Take over the counts of the row. Drop the units that were reserved before it was reset.

    Counts that are older than the last reset are ignored.
    """
    if row.resets < block.resets:
        return block
    if row.resets > block.resets:
        return Block(0, row.used, row.granted, resets=row.resets, checked_until=block.checked_until)
    unchanged = (row.used, row.granted) == (block.used, block.granted)
    return block._replace(used=row.used, granted=row.granted, refused_until=block.refused_until if unchanged else 0)


def deposit(block: Block, units: int, row: RowCounts, refill: bool) -> Block:
    """Add reserved units, and the counts of the row. `refill`: whether the caller was to reserve the next block.

    Units that were reserved before the row was reset are dropped, because the row no longer counts them.
    """
    refill_until = 0 if refill else block.refill_until
    if row.resets < block.resets:
        return block._replace(refill_until=refill_until)
    if row.resets > block.resets:
        block = sync(block, row)
    available = block.available + units
    return block._replace(
        available=available,
        used=row.used if refill else max(row.used, block.used),
        granted=row.granted,
        refill_until=refill_until,
        refused_until=0 if available >= block.refused_cost else block.refused_until,
    )


def refuse(block: Block, now: int, cost: int, limit: int, taken: Taken, row: RowCounts) -> Block:
    """Return the units held, and remember that the database has refused `cost` more."""
    refill_until = 0 if taken.refill else block.refill_until
    if row.resets < block.resets:
        return block._replace(refill_until=refill_until)
    if row.resets > block.resets:
        block = sync(block, row)
    available = block.available + (taken.held if taken.block.resets == row.resets else 0)
    return block._replace(
        available=available,
        used=row.used,
        granted=row.granted,
        refill_until=refill_until,
        refused_until=now + REFUSAL_MS if available < cost else 0,
        refused_cost=cost,
        refused_limit=limit,
    )


def decision_of(allowed: bool, block: Block, cost: int, limit: int, period: Period, now: int) -> Decision:
    """Return the decision on a request of a key with this block. `now`: milliseconds."""
    total = limit + block.granted
    left = max(total - max(block.used - block.available, 0), 0)
    seconds = max(period.end - now / 1000, 0.0)
    if allowed:
        return Decision.passed(limit=total, remaining=left, state=left, reset_after=seconds)
    return Decision.refused(
        limit=total, remaining=left, reset_after=seconds, retry_after=inf if cost > total else max(seconds, 0.001)
    )
