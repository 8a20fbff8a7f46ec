"""Changes of blocks in the shared store, atomic across processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from resty_django.shdict import Change, Keep

from ..algorithms import FRAME
from . import blocks
from .blocks import Block, Taken
from .periods import Period

BLANK: Final = bytes(FRAME)

Numbers: TypeAlias = tuple[int, int, int]
"""The numbers of a row: used and granted units, and the number of resets."""

BlockChange: TypeAlias = Callable[[Block], tuple[Block, Any]]
"""Takes a block, and returns the new one and the result. It may be called again, so it has no side effects."""


def block_key(quota: str, key: str, period: Period) -> str:
    """Return the key of a block in the store."""
    return f"quota:{quota}:{period.start}:{key}"


def change(store: Any, key: str, function: BlockChange, ttl: float) -> Any:
    """Change the block of a key; a new one expires after `ttl` seconds. Return the result of the function.

    Raise `ForeignData`, `SharedDictError`.
    """
    if store.revise is None:
        return store.dictionary.update(key, _update(function, ttl))
    return store.revise(key, _revision(function, ttl))


async def achange(store: Any, key: str, function: BlockChange, ttl: float) -> Any:
    """Run `change` without blocking the event loop."""
    if store.revise is None:
        return await store.dictionary.aupdate(key, _update(function, ttl))
    return store.revise(key, _revision(function, ttl))


def _revision(function: BlockChange, ttl: float) -> Callable[[Any], tuple[bytes | None, float | None, Any]]:
    """Return the function for `revise`, whose states begin with a frame that belongs to the dictionary."""

    def revise(state: Any) -> tuple[bytes | None, float | None, Any]:
        framed = isinstance(state, bytes | memoryview)
        before = blocks.unpack(state[FRAME:] if framed else state)
        after, result = function(before)
        if after == before:
            return None, None, result
        frame = bytes(state[:FRAME]) if framed else BLANK
        return frame + blocks.pack(after), None if framed else ttl, result

    return revise


def _update(function: BlockChange, ttl: float) -> Callable[[Any], Change | Keep]:
    def update(state: Any) -> Change | Keep:
        before = blocks.unpack(state)
        after, result = function(before)
        return Keep(result) if after == before else Change(blocks.pack(after), ttl if state is None else None, result)

    return update


def looking(block: Block) -> tuple[Block, Block]:
    """Return the block."""
    return block, block


def taking(now: int, cost: int, limit: int) -> BlockChange:
    """Take units; the result is `Taken`."""

    def function(block: Block) -> tuple[Block, Taken]:
        taken = blocks.take(block, now, cost, limit)
        return taken.block, taken

    return function


def taking_locally(now: int, cost: int, limit: int) -> BlockChange:
    """Take units of a process that counts alone: its block is the whole limit."""

    def function(block: Block) -> tuple[Block, Taken]:
        before = Block(limit, limit) if block == Block() else block
        taken = blocks.take(before, now, cost, limit)
        return (taken.block, taken) if taken.allowed else (before, Taken(before, False))

    return function


def depositing(units: int, numbers: Numbers, refill: bool) -> BlockChange:
    """Add reserved units; the result is the block."""

    def function(block: Block) -> tuple[Block, Block]:
        after = blocks.deposit(block, units, *numbers, refill)
        return after, after

    return function


def refusing(now: int, cost: int, limit: int, taken: Taken, numbers: Numbers) -> BlockChange:
    """Remember a refusal of the database, and return the units held; the result is the block."""

    def function(block: Block) -> tuple[Block, Block]:
        after = blocks.refuse(block, now, cost, limit, taken, *numbers)
        return after, after

    return function


def returning(taken: Taken) -> BlockChange:
    """Return the units held, because the database does not answer."""

    def function(block: Block) -> tuple[Block, None]:
        until = 0 if taken.refill else block.refill_until
        held = taken.held if taken.block.resets == block.resets else 0
        return block._replace(available=block.available + held, refill_until=until), None

    return function


def syncing(numbers: Numbers) -> BlockChange:
    """Take over the numbers of the row; the result is the block."""

    def function(block: Block) -> tuple[Block, Block]:
        after = blocks.sync(block, *numbers)
        return after, after

    return function


def allowing(block: Block) -> tuple[Block, None]:
    """Forget a remembered refusal."""
    return block._replace(refused_until=0), None


def refunding(units: int, most: int) -> BlockChange:
    """Return used units to the block, up to `most`; the result is whether it has them."""

    def function(block: Block) -> tuple[Block, bool]:
        if block.available + units > most or block.used - block.available < units:
            return block, False
        return block._replace(available=block.available + units, refused_until=0), True

    return function


def refunded(units: int) -> BlockChange:
    """Note that used units were returned to the row."""

    def function(block: Block) -> tuple[Block, None]:
        return block._replace(used=max(block.used - units, block.available), refused_until=0), None

    return function
