"""A cache in two levels over a source."""

from __future__ import annotations

from typing import Any, Final

from resty_django.events.steps import Step, Steps, arun, run

from .bulk import Bulk, Results, check_concurrency, chunks, in_tasks, in_threads
from .channel import INVALIDATIONS, PURGE, Channel, to_broadcast, to_poll
from .counts import Stats
from .errors import NoChannel, SerializerFailed
from .levels import shown
from .reading import Reading
from .records import Record, key_text
from .results import Peek, Result
from .source import Callback, ask, check_callback
from .whole import arun_whole, whole

SHORTEST: Final = 0.001
"""Seconds: what `peek` tells in place of 0, which is for ever."""


class MLCache(Reading):
    """L1, the memory of this process; L2, a shared dictionary; and behind them a callback, which asks the source.

        products = MLCache("products", "default", ttl=60, resurrect_ttl=30)
        products.get("7", load_product, 7)

    `name`: begins the keys in L2; caches of one name in a process share one L1, of the size of the first.
    `dictionary`: L2, a shared dictionary or its name. `lru_size`: items in L1. `lru`: a ready L1 in place of that.
    `shm_miss`: another dictionary for cached None, so that these cannot push out values. `shm_locks`: the dictionary
    of the locks (None: L2). `shm_stats`: that of the counts (None: that of the locks). `ipc`: how other processes are
    told: "events", a channel, or None; `ipc_shm`: a dictionary for a channel of its own in place of that.
    `serializer`: for values that msgpack does not know. `clock`: seconds, the same in all processes; another one is
    for tests. All others: those of `Options`.

    Calls with an `a` before the name are for asyncio, and never block the loop.
    """

    def new_bulk(self) -> Bulk:
        """An empty list of operations for `get_bulk`: `bulk.add(key, callback, *args, **options)`."""
        return Bulk()

    def get_bulk(self, bulk: Bulk, *, concurrency: int = 3) -> list[Result]:
        """Do the operations, and return what became of each, in their order.

        What is neither in L1 nor in L2 is fetched by `concurrency` threads, this one among them. An operation that
        fails has its error in its result, and leaves the others alone. Raises `BadOption`.
        """
        check_concurrency(bulk, concurrency)
        operations = bulk.operations()
        results = Results(len(operations), self._counts)
        for at, one in enumerate(operations):
            with results.of(at):
                results.found(at, self._from_l1(one.key) or self._look(one.key, one.options))

        def work(at: int) -> None:
            one = operations[at]
            with results.of(at):
                results.found(at, run(self._fill(one.key, one.callback, one.args, one.options)))

        in_threads(chunks(results.missing(), concurrency), work)
        return results.all()

    async def aget_bulk(self, bulk: Bulk, *, concurrency: int = 3) -> list[Result]:
        """As `get_bulk`, with tasks in place of threads."""
        check_concurrency(bulk, concurrency)
        operations = bulk.operations()
        results = Results(len(operations), self._counts)
        for at, one in enumerate(operations):
            with results.of(at):
                results.found(at, self._from_l1(one.key) or await self._alook(one.key, one.options))

        async def work(at: int) -> None:
            one = operations[at]
            with results.of(at):
                results.found(at, await arun(self._fill(one.key, one.callback, one.args, one.options)))

        await in_tasks(chunks(results.missing(), concurrency), work)
        return results.all()

    def peek(self, key: object, stale: bool = False) -> Peek | None:
        """What L2 has: no L1, no lock, no callback, no serializer of L1. None where it has nothing, or only an expired
        value and `stale` is false."""
        return run(self._peek(key, stale))

    async def apeek(self, key: object, stale: bool = False) -> Peek | None:
        """As `peek`."""
        return await arun(self._peek(key, stale))

    def set(self, key: object, value: Any, /, **options: Any) -> None:
        """Store in L2 and L1, and tell the other processes. `options`: those of `Options`, for this call.

        Raises `NoChannel`, `ChannelFailed`, `SerializerFailed`, `BadKey`, `BadValue`, `BadOption`, and
        `resty_django.shdict.SharedDictError` where L2 fails, `NoMemory` among them.
        """
        run(self._set(key, value, options))

    async def aset(self, key: object, value: Any, /, **options: Any) -> None:
        """As `set`. A task that is cancelled meanwhile does not stop what was begun; the same with all that write."""
        await arun_whole(self._set(key, value, options))

    def refresh(self, key: object, callback: Callback, /, *args: Any, **options: Any) -> Any:
        """Ask the source now, whatever the levels have, `set` what it returns, and return that.

        Takes no lock. Where the callback fails the levels stay as they are. Raises as `set`, and `CallbackFailed` and
        `SourceError`.
        """
        return run(self._refresh(key, callback, args, options))

    async def arefresh(self, key: object, callback: Callback, /, *args: Any, **options: Any) -> Any:
        """As `refresh`."""
        return await arun(self._refresh(key, callback, args, options))

    def delete(self, key: object) -> None:
        """Forget a key in L2 and L1, and tell the other processes. Raises as `set`."""
        run(self._delete(key))

    async def adelete(self, key: object) -> None:
        """As `delete`."""
        await arun_whole(self._delete(key))

    def purge(self, flush_expired: bool = False) -> None:
        """Forget all keys, those of other caches in the same dictionaries too, and tell the other processes.

        Without `flush_expired` the records stay to be read as stale ones, so a failing callback with `resurrect_ttl`
        brings them back. Raises as `set`.
        """
        run(self._purge(flush_expired))

    async def apurge(self, flush_expired: bool = False) -> None:
        """As `purge`."""
        await arun_whole(self._purge(flush_expired))

    def update(self, timeout: float = 0.3) -> None:
        """Hear what other processes have told until now, and forget that in L1: for the start of a request or job.

        Waits at most `timeout` seconds for an event that is missing. Raises `NoChannel`, `ChannelFailed`.
        """
        run(self._update(timeout))

    async def aupdate(self, timeout: float = 0.3) -> None:
        """As `update`."""
        await arun(self._update(timeout))

    def stats(self) -> Stats:
        """What all processes have counted, those of the last second perhaps not. Raises `Unavailable`."""
        return run(self.counter.total())

    async def astats(self) -> Stats:
        """As `stats`."""
        return await arun(self.counter.total())

    # --- the steps of both ---

    def _peek(self, key: object, stale: bool) -> Steps[Peek | None]:
        found = yield from self._levels.look(key_text(key), with_stale=stale)
        record = found.fresh or found.stale
        if record is None:
            return None
        return Peek(self._left(record, over=found.fresh is None), record.value, record.stale or found.fresh is None)

    def _left(self, record: Record, over: bool) -> float:
        left = self._levels.remaining(record) if record.ttl else 0.0
        if over:
            return min(left, -SHORTEST)
        return (left or SHORTEST) if record.ttl else 0.0

    def _refresh(self, key: object, callback: Callback, args: tuple[Any, ...], given: dict[str, Any]) -> Steps[Any]:
        self._told("refresh")
        check_callback(callback)
        options = self.options.changed(given)
        value, ttl = yield from ask(key_text(key), callback, args, options, self.counter)
        if ttl < 0:
            yield whole(self._delete(key))
            return shown(value, options.l1_serializer)
        return (yield whole(self._set(key, value, {**given, "ttl": ttl, "neg_ttl": ttl, "jitter": 0})))

    def _set(self, key: object, value: Any, given: dict[str, Any]) -> Steps[Any]:
        """The value as L1 has it."""
        channel = self._told("set")
        text = key_text(key)
        options = self.options.changed(given)
        ttl = options.life(value)
        value, record = self._levels.encoded(value, ttl)
        version = self.lru.version(text)
        yield from self._levels.set(text, value, record, ttl, options.shm_set_tries)
        try:
            kept = self._levels.keep(text, value, ttl, options.l1_serializer, version)
        except SerializerFailed:
            self.lru.delete(text)
            yield from to_broadcast(channel, INVALIDATIONS + self.name, text)
            raise
        yield from to_broadcast(channel, INVALIDATIONS + self.name, text)
        return kept

    def _delete(self, key: object) -> Steps[None]:
        channel = self._told("delete")
        text = key_text(key)
        yield from self._levels.delete(text)
        yield from to_broadcast(channel, INVALIDATIONS + self.name, text)

    def _purge(self, flush_expired: bool) -> Steps[None]:
        channel = self._told("purge")
        yield from self._levels.flush(flush_expired)
        yield from to_broadcast(channel, PURGE + self.name, "")

    def _update(self, timeout: float) -> Steps[None]:
        channel = self._told("update")
        if not hasattr(channel, "poll"):
            raise NoChannel(
                f"update() of the cache {self.name!r} needs a channel with poll(), which {channel!r} has not."
            )
        yield Step(self.hand_in, self.ahand_in)
        yield from to_poll(channel, timeout)

    def _told(self, call: str) -> Channel:
        if self.channel is None:
            raise NoChannel(
                f"{call}() of the cache {self.name!r} needs a channel to the other processes: give it ipc or ipc_shm."
            )
        return self.channel


__all__ = ["MLCache"]
