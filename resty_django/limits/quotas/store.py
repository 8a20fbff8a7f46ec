"""The blocks of quotas in the shared store, and their changes, which are atomic across processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from resty_django.sansio import Step, Steps
from resty_django.shdict import Keep, SharedDict, Update
from resty_django.shdict.codec import decode_key
from resty_django.text import logger

from ..algorithms import FRAME
from ..callers.keys import hashed
from ..limiters.base import STORE_ERRORS, is_foreign
from ..stores import STORES, LocalStore, Store, store_of
from . import blocks
from .blocks import Block, RowCounts, Taken
from .periods import Period

log = logger("resty_django.limits")

T = TypeVar("T")

BlockChange: TypeAlias = Callable[[Block], tuple[Block, T]]
"""Takes a block, and returns the new one and the result. It may be called again, so it has no side effects."""


def row_key(key: object) -> str:
    """Return the key in rows and blocks; a long one, or one that is not printable, is replaced by a hash.

    Raise `ValueError` for None.
    """
    if key is None:
        raise ValueError("key of a quota must not be None. Pass a string.")
    text = decode_key(key) if isinstance(key, bytes) else str(key)
    if text and len(text) <= 200 and text.isprintable():
        return text
    return hashed(text)


def block_key(quota: str, key: str, period: Period) -> str:
    """Return the key of a block in the store."""
    return f"quota:{quota}:{period.start}:{key}"


class BlockStore:
    """The blocks of the quota with this name.

    `store`: as in the limiters. `now`: returns epoch seconds. `owner`: what log lines name.
    """

    def __init__(
        self,
        quota: str,
        store: str | SharedDict | LocalStore | None,
        now: Callable[[], float],
        *,
        owner: object,
    ) -> None:
        self._quota = quota
        self._store_name = store if store is None or isinstance(store, str) else ""
        self._own_store = None if store is None or isinstance(store, str) else store_of(store)
        self._now = now
        self._owner = owner
        self._foreign = False
        self._local = store_of(LocalStore(name="quotas"))

    @property
    def store(self) -> Store:
        """The store of the blocks. Raise `UnknownDict` if the settings do not define it."""
        return STORES[self._store_name] if self._own_store is None else self._own_store

    def changing(self, key: str, period: Period, change_of: BlockChange[T]) -> Steps[T | None]:
        """Change the block of a key in the store. Return the result; None if the store cannot be used."""
        store = self.store
        if store.breaker.down and store.breaker.is_open():
            return None
        ttl = max(period.end - self._now(), 0) + 60.0  # kept for a minute after its period
        try:
            result: T = yield Step(change, achange, (store, block_key(self._quota, key, period), change_of, ttl))
        except STORE_ERRORS as error:
            if not is_foreign(error):
                store.breaker.record_failure(error)
            elif not self._foreign:
                self._foreign = True
                log.error("%r counts without blocks in the store %r: %s", self._owner, store.breaker.name, error)
            return None
        if store.breaker.down:
            store.breaker.reset()
        return result

    def change_locally(self, key: str, period: Period, change_of: BlockChange[T], now: int) -> T:
        """Change the block of a key in this process. `now`: milliseconds."""
        return change(self._local, block_key(self._quota, key, period), change_of, period.end - now / 1000)


def change(store: Any, key: str, function: BlockChange[T], ttl: float) -> T:
    """Change the block of a key; a new one expires after `ttl` seconds. Return the result of the function.

    Raise `ForeignData`, `SharedDictError`.
    """
    if store.revise is None:
        result: T = store.dictionary.update(key, _update(function, ttl))
    else:
        result = store.revise(key, _revision(function, ttl))
    return result


async def achange(store: Any, key: str, function: BlockChange[T], ttl: float) -> T:
    """Run `change` without blocking the event loop."""
    if store.revise is None:
        result: T = await store.dictionary.aupdate(key, _update(function, ttl))
    else:
        result = store.revise(key, _revision(function, ttl))
    return result


def _revision(function: BlockChange[T], ttl: float) -> Callable[[object], tuple[bytes | None, float | None, T]]:
    """Return the function for `revise`, whose states begin with a frame that belongs to the dictionary."""

    def revise(state: object) -> tuple[bytes | None, float | None, T]:
        framed = state if isinstance(state, bytes | memoryview) else None
        before = blocks.unpack(state if framed is None else framed[FRAME:])
        after, result = function(before)
        if after == before:
            return None, None, result
        frame = bytes(FRAME) if framed is None else bytes(framed[:FRAME])
        return frame + blocks.pack(after), ttl if framed is None else None, result

    return revise


def _update(function: BlockChange[Any], ttl: float) -> Callable[[object], Update | Keep]:
    def update(state: object) -> Update | Keep:
        before = blocks.unpack(state)
        after, result = function(before)
        return Keep(result) if after == before else Update(blocks.pack(after), ttl if state is None else None, result)

    return update


def looking(block: Block) -> tuple[Block, Block]:
    """Return the block."""
    return block, block


def taking(now: int, cost: int, limit: int) -> BlockChange[Taken]:
    """Take units; the result is `Taken`."""

    def function(block: Block) -> tuple[Block, Taken]:
        taken = blocks.take(block, now, cost, limit)
        return taken.block, taken

    return function


def taking_locally(now: int, cost: int, limit: int) -> BlockChange[Taken]:
    """Take units of a process that counts alone: its block is the whole limit."""

    def function(block: Block) -> tuple[Block, Taken]:
        before = Block(limit, limit) if block == Block() else block
        taken = blocks.take(before, now, cost, limit)
        return (taken.block, taken) if taken.allowed else (before, Taken(before, False))

    return function


def depositing(units: int, row: RowCounts, refill: bool) -> BlockChange[Block]:
    """Add reserved units; the result is the block."""
    return _returned(lambda block: blocks.deposit(block, units, row, refill))


def refusing(now: int, cost: int, limit: int, taken: Taken, row: RowCounts) -> BlockChange[Block]:
    """Remember a refusal of the database, and return the units held; the result is the block."""
    return _returned(lambda block: blocks.refuse(block, now, cost, limit, taken, row))


def returning(taken: Taken) -> BlockChange[None]:
    """Return the units held, because the database does not answer."""

    def function(block: Block) -> tuple[Block, None]:
        until = 0 if taken.refill else block.refill_until
        held = taken.held if taken.block.resets == block.resets else 0
        return block._replace(available=block.available + held, refill_until=until), None

    return function


def syncing(row: RowCounts) -> BlockChange[Block]:
    """Take over the counts of the row; the result is the block."""
    return _returned(lambda block: blocks.sync(block, row))


def _returned(change: Callable[[Block], Block]) -> BlockChange[Block]:
    """Return a change whose result is the changed block."""

    def function(block: Block) -> tuple[Block, Block]:
        after = change(block)
        return after, after

    return function


def allowing(block: Block) -> tuple[Block, None]:
    """Forget a remembered refusal."""
    return block._replace(refused_until=0), None


def refunding(units: int, most: int) -> BlockChange[bool]:
    """Return used units to the block, up to `most`; the result is whether it has them."""

    def function(block: Block) -> tuple[Block, bool]:
        if block.available + units > most or block.used - block.available < units:
            return block, False
        return block._replace(available=block.available + units, refused_until=0), True

    return function


def refunded(units: int) -> BlockChange[Block]:
    """Note that used units were returned to the row."""
    return _returned(lambda block: block._replace(used=max(block.used - units, block.available), refused_until=0))
