"""A two-level cache over a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Unpack
from weakref import WeakSet, WeakValueDictionary

from resty_django.processes.forks import after_fork
from resty_django.sansio import Steps, arun, run
from resty_django.shdict import (
    SharedDict,
    UnknownDict,
    shdicts,
)
from resty_django.text import logger

from ..broadcasts.channel import InvalidationChannel, listen
from ..broadcasts.events import EventChannel
from ..circuit_breaker.guarded import guarded
from ..errors import BadOption, ChannelFailed, NoChannel
from ..statistics.counts import CacheStats
from ..statistics.reporter import CacheCounter
from ..storage.lru import LRU
from ..storage.records import key_text
from .bulk import Bulk, BulkResults, check_concurrency, chunks, in_tasks, in_threads
from .levels import RecordLevels
from .loading import Loader
from .options import CacheOptions, CacheSetup, CallOptions, MLCacheOptions
from .reading import CacheReader
from .results import Callback, GetResult, Hit, Peek
from .writing import CacheWriter

log = logger("resty_django.cache")


class MLCache:
    """A cache with L1 in process memory, L2 in a shared dictionary, and callbacks that load missing values.

        products = MLCache("products", "default", ttl=60, resurrect_ttl=30)
        products.get("7", load_product, 7)

    `name`: prefix of the keys in L2; caches with the same name in a process share one L1 with the size of the first.
    `dictionary`: L2, a shared dictionary or its name. `lru`: an existing L1 to use instead of a new one. `clock`:
    seconds, the same in all processes; replaced only in tests.

    `options`: the fields of `CacheOptions`, which a call may override, and those that are fixed: `lru_size`: maximum
    number of items in L1 (100). `shm_miss`: a separate dictionary for cached None, so that they do not evict values.
    `shm_locks`: the dictionary for locks (None: L2). `shm_stats`: the dictionary for counts (None: the one for locks).
    `ipc`: how to notify other processes: "events" (default), a custom channel, or None. `serializer`: for values that
    msgpack does not support. `compress`: "zlib" or "zstd": compress values of more than `compress_above` bytes in L2.
    `decompress_limit`: a value that is larger than this number of bytes is not compressed, and counts as absent if it
    was.

    Methods with the prefix `a` are for asyncio and never block the event loop. An L1 hit in `get` and `aget` makes no
    further call, which would double its time; the read of L2 in `CacheReader` is written out for both,
    too. Everything else is a generator of steps for `run` and `arun` (see `loading`).
    """

    def __init__(
        self,
        name: str,
        dictionary: SharedDict | str = "default",
        *,
        lru: LRU | None = None,
        clock: Callable[[], float] | None = None,
        **options: Unpack[MLCacheOptions],
    ) -> None:
        changes: dict[str, Any] = {**options}
        fixed = {field.name: changes.pop(field.name) for field in fields(CacheSetup) if field.name in changes}
        self.name = name
        self.setup = setup = CacheSetup(name=name, **fixed)
        self.options = CacheOptions().changed(changes)
        shm = _dictionary(name, "dictionary", dictionary)
        self.dictionaries: tuple[SharedDict, ...] = (shm,)
        """The L2 dictionaries: for values, and for cached None if it is a separate one."""
        if setup.shm_miss is not None:
            self.dictionaries = (shm, _dictionary(name, "shm_miss", setup.shm_miss))
        self.locks = shm if setup.shm_locks is None else _dictionary(name, "shm_locks", setup.shm_locks)
        stats = self.locks if setup.shm_stats is None else _dictionary(name, "shm_stats", setup.shm_stats)
        self.lru = _shared_lru(name, setup.lru_size) if lru is None else lru
        self.channel = _channel(setup, self.lru, shm)
        self.counter = CacheCounter(name, stats)
        self.levels = RecordLevels(
            setup, self.lru, self.dictionaries, self.channel, self.counter, self.options.on_error, clock
        )
        self.clock = self.levels.clock
        self.loader = Loader(self.levels, guarded(self.locks), self.options)
        self._writer = CacheWriter(self.levels, self.loader, self.options)
        self._reader = CacheReader(self.levels, self.loader, self.options)
        self._get_from_l1 = self._reader.get_from_l1
        self._get_beyond_l1 = self._reader.get_beyond_l1
        self._aget_beyond_l1 = self._reader.aget_beyond_l1
        self._counts = self.counter.now
        self._find = self.lru.items.get
        self._to_end = self.lru.items.move_to_end
        self._now = self.lru.clock
        self.in_l1 = self.lru.get
        """Returns the value in L1, without counting the call; None if L1 does not have it."""
        _live.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self.levels.shm!r}>"

    # --- reading ---

    def get(
        self, key: object, callback: Callback | None = None, /, *args: object, **options: Unpack[CallOptions]
    ) -> Any:
        """Return the value of the key from L1, from L2, or from `callback(*args)`, which one process at a time runs.

        Return None if the key is in no level and no callback was passed. The callback may return `Fresh` to set a
        different time to live, and raise `SourceError` so that a stale value is served. `options`: fields of
        `CacheOptions` for this call; `on_error` decides what happens while the store of L2 is down.

        Raise `CallbackFailed`, `SourceError`, `LockTimeout`, `LockFailed`, `SerializerFailed`, `BadKey`, `BadValue`,
        `BadOption`, and `resty_django.shdict.SharedDictError` if L2 fails and `on_error` is "raise".
        """
        try:
            item = self._find(key)
            if item is not None and item.expires >= self._now():
                self._to_end(key)
                self._counts.l1 += 1
                return item.value
        except (KeyError, TypeError):  # just deleted by another thread, or unhashable
            pass
        return self._get_beyond_l1(key, callback, args, options).value

    def lookup(
        self, key: object, callback: Callback | None = None, /, *args: object, **options: Unpack[CallOptions]
    ) -> Hit:
        """Do the same as `get`, and return a `Hit`: the value and the `Level` that it came from.

        The levels are `L1`, `L2`, `L3`, `STALE` (expired, or resurrected), and `MISS` (not found, and no callback; the
        value is None).
        """
        return self._get_from_l1(key_text(key)) or self._get_beyond_l1(key, callback, args, options)

    async def aget(
        self, key: object, callback: Callback | None = None, /, *args: object, **options: Unpack[CallOptions]
    ) -> Any:
        """Do the same as `get`. The callback may be a coroutine function; a sync function runs in a thread."""
        try:
            item = self._find(key)
            if item is not None and item.expires >= self._now():
                self._to_end(key)
                self._counts.l1 += 1
                return item.value
        except (KeyError, TypeError):
            pass
        return (await self._aget_beyond_l1(key, callback, args, options)).value

    async def alookup(
        self, key: object, callback: Callback | None = None, /, *args: object, **options: Unpack[CallOptions]
    ) -> Hit:
        """Do the same as `lookup`."""
        return self._get_from_l1(key_text(key)) or await self._aget_beyond_l1(key, callback, args, options)

    def get_with(self, key: str, callback: Callback, args: tuple[object, ...], options: Mapping[str, object]) -> Any:
        """Do the same as `get` for decorators: the arguments and the options are one object each, and the key is a str.

        Raise the callback's own error instead of `CallbackFailed`.
        """
        item = self._find(key)
        if item is not None and item.expires >= self._now():
            try:
                self._to_end(key)
            except KeyError:
                pass
            else:
                self._counts.l1 += 1
                return item.value
        return self._get_beyond_l1(key, callback, args, options, unwrap=True).value

    async def aget_with(
        self, key: str, callback: Callback, args: tuple[object, ...], options: Mapping[str, object]
    ) -> Any:
        """Do the same as `get_with`."""
        hit = self._get_from_l1(key) or await self._aget_beyond_l1(key, callback, args, options, unwrap=True)
        return hit.value

    def count_l1(self, hits: int) -> None:
        """Count values that `in_l1` has returned."""
        self._counts.l1 += hits

    def peek(self, key: object, stale: bool = False) -> Peek | None:
        """Return the entry in L2, without L1, lock, callback or `l1_serializer`, as a `Peek`: the remaining seconds
        `ttl`, the `value`, and whether it is `stale`.

        Return None if L2 has no entry, or if it has expired and `stale` is false, or if the store is down and
        `on_error` is "source".
        """
        return run(self._reader.peek(key, stale))

    async def apeek(self, key: object, stale: bool = False) -> Peek | None:
        """Do the same as `peek`."""
        return await arun(self._reader.peek(key, stale))

    # --- reading many keys ---

    def get_many(self, keys: Iterable[object]) -> dict[Any, Any]:
        """Return a dict with the values of the keys that are in L1 or L2.

        Raise `SerializerFailed`, `BadKey`, and `resty_django.shdict.SharedDictError` if L2 fails.
        """
        return run(self._reader.get_many(keys))

    async def aget_many(self, keys: Iterable[object]) -> dict[Any, Any]:
        """Do the same as `get_many`."""
        return await arun(self._reader.get_many(keys))

    def new_bulk(self) -> Bulk:
        """Return an empty list of operations for `get_bulk`: `bulk.add(key, callback, *args, **options)`."""
        return Bulk()

    def get_bulk(self, bulk: Bulk, *, concurrency: int = 3) -> list[GetResult]:
        """Execute the operations, and return their results in the same order.

        Values that are in neither L1 nor L2 are fetched by `concurrency` threads, including this one; by tasks with
        `aget_bulk`. Each `GetResult` contains a `value` and a `level`, or the operation's `error`. Raise `BadOption`.
        """
        check_concurrency(bulk, concurrency)
        operations = bulk.operations()
        results = BulkResults(len(operations), self._counts, self._reader.count)
        run(self._reader.note_hits(operations, results))

        def work(position: int) -> None:
            with results.noting_errors(position):
                results.note(position, run(self.loader.load(self.loader.request(operations[position]))))

        in_threads(chunks(results.missing(), concurrency), work)
        return results.all()

    async def aget_bulk(self, bulk: Bulk, *, concurrency: int = 3) -> list[GetResult]:
        """Do the same as `get_bulk`, with tasks instead of threads."""
        check_concurrency(bulk, concurrency)
        operations = bulk.operations()
        results = BulkResults(len(operations), self._counts, self._reader.count)
        await arun(self._reader.note_hits(operations, results))

        async def work(position: int) -> None:
            with results.noting_errors(position):
                results.note(position, await arun(self.loader.load(self.loader.request(operations[position]))))

        await in_tasks(chunks(results.missing(), concurrency), work)
        return results.all()

    # --- writing ---

    def set(self, key: object, value: object, /, **options: Unpack[CallOptions]) -> None:
        """Store a value in L2 and L1, and notify the other processes.

        `options`: fields of `CacheOptions` for this call. If L2 cannot store it and `on_error` is "source", store it
        only in L1, for `outage_ttl`, and delete the key in L2 as soon as possible.

        Raise `NoChannel`, `ChannelFailed`, `SerializerFailed`, `BadKey`, `BadValue`, `BadOption`, and
        `resty_django.shdict.SharedDictError` if L2 fails and `on_error` is "raise", for example `NoMemory`.
        """
        run(self._writer.set(key, value, options))

    async def aset(self, key: object, value: object, /, **options: Unpack[CallOptions]) -> None:
        """Do the same as `set`. Like all async writes, it is completed even if the task is cancelled."""
        await self.levels.awrite(self._writer.set(key, value, options))

    def set_many(self, values: Mapping[Any, Any], /, **options: Unpack[CallOptions]) -> list[Any]:
        """Store a dict of values in L2 and L1. Return the keys for which L2 has no space; those keep their old values.

        Errors as in `set`, except for `NoMemory`.
        """
        return run(self._writer.set_many(values, options))

    async def aset_many(self, values: Mapping[Any, Any], /, **options: Unpack[CallOptions]) -> list[Any]:
        """Do the same as `set_many`."""
        return await self.levels.awrite(self._writer.set_many(values, options))

    def refresh(self, key: object, callback: Callback, /, *args: object, **options: Unpack[CallOptions]) -> Any:
        """Call the callback now, without a lock, `set` its result, and return it.

        If the callback fails, nothing is stored. Raise the errors of `set`, `CallbackFailed`
        and `SourceError`.
        """
        return run(self._writer.refresh(key, callback, args, options))

    async def arefresh(self, key: object, callback: Callback, /, *args: object, **options: Unpack[CallOptions]) -> Any:
        """Do the same as `refresh`."""
        return await arun(self._writer.refresh(key, callback, args, options))

    def refresh_with(
        self, key: str, callback: Callback, args: tuple[object, ...], options: Mapping[str, object]
    ) -> Any:
        """Do the same as `refresh` for decorators; see `get_with`."""
        return run(self._writer.refresh(key, callback, args, options, unwrap=True))

    async def arefresh_with(
        self, key: str, callback: Callback, args: tuple[object, ...], options: Mapping[str, object]
    ) -> Any:
        """Do the same as `refresh_with`."""
        return await arun(self._writer.refresh(key, callback, args, options, unwrap=True))

    def delete(self, key: object, *, on_error: str | None = None) -> None:
        """Delete a key in L2 and L1, and notify the other processes. Errors as in `set`.

        While the store is down and `on_error` (None: the cache's) is "source", delete the key in L1, and in L2 when the
        store answers again, before this process reads it.
        """
        run(self._writer.delete(key, on_error))

    async def adelete(self, key: object, *, on_error: str | None = None) -> None:
        """Do the same as `delete`."""
        await self.levels.awrite(self._writer.delete(key, on_error))

    def delete_many(self, keys: Iterable[object], *, on_error: str | None = None) -> None:
        """Delete keys in L2 and L1. Errors and `on_error` as in `delete`."""
        run(self._writer.delete_many(keys, on_error))

    async def adelete_many(self, keys: Iterable[object], *, on_error: str | None = None) -> None:
        """Do the same as `delete_many`."""
        await self.levels.awrite(self._writer.delete_many(keys, on_error))

    def purge(self, flush_expired: bool = False, *, on_error: str | None = None) -> None:
        """Delete all keys, including other caches' keys in the same dictionaries, and notify the other processes.

        Without `flush_expired`, the records remain as stale ones, so a failing callback with `resurrect_ttl` resurrects
        them. `on_error` and errors as in `delete`.
        """
        run(self._writer.purge(flush_expired, on_error))

    async def apurge(self, flush_expired: bool = False, *, on_error: str | None = None) -> None:
        """Do the same as `purge`."""
        await self.levels.awrite(self._writer.purge(flush_expired, on_error))

    def invalidate_tags(self, *tags: str, on_error: str | None = None) -> None:
        """Delete all keys of this cache with one of these tags, and notify the other processes.

        The cost does not depend on the number of keys. A value whose callback started before this call is not served
        after it. The records remain as stale ones, as after `purge`. `on_error` and errors as in `delete`.
        """
        run(self._writer.invalidate_tags(tags, on_error))

    async def ainvalidate_tags(self, *tags: str, on_error: str | None = None) -> None:
        """Do the same as `invalidate_tags`."""
        await self.levels.awrite(self._writer.invalidate_tags(tags, on_error))

    def update(self, timeout: float = 0.3) -> None:
        """Apply invalidations from other processes to L1. Call it at the start of a request or job.

        Wait at most `timeout` seconds for a missing event. Raise `NoChannel` or `ChannelFailed`.
        """
        run(self._update(timeout))

    async def aupdate(self, timeout: float = 0.3) -> None:
        """Do the same as `update`."""
        await arun(self._update(timeout))

    # --- counting ---

    def stats(self) -> CacheStats:
        """Return the counts of all processes, except possibly for the last second. Raise `Unavailable`."""
        return run(self.counter.total())

    async def astats(self) -> CacheStats:
        """Do the same as `stats`."""
        return await arun(self.counter.total())

    def _update(self, timeout: float) -> Steps[None]:
        channel = self._writer.require_channel("update")
        if not hasattr(channel, "poll"):
            raise NoChannel(
                f"update() of the cache {self.name!r} needs a channel with poll(), which {channel!r} does not have."
            )
        if self.counter.is_due():
            yield from self.counter.flush()
        yield from self.levels.update(timeout)


def _dictionary(cache: str, option: str, dictionary: SharedDict | str) -> SharedDict:
    """Return the dictionary named by an option of a cache. Raise `UnknownDict`."""
    if not isinstance(dictionary, str):
        return dictionary
    try:
        return shdicts[dictionary]
    except UnknownDict as error:
        raise UnknownDict(f"{error} The cache {cache!r} names it as {option}.") from None


_lrus: WeakValueDictionary[str, LRU] = WeakValueDictionary()
"""L1 by the name of its caches."""


def _shared_lru(name: str, size: int) -> LRU:
    """Return the L1 of all caches with this name. Raise `BadOption`."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise BadOption(f"lru_size must be an integer of at least 1, not {size!r}.")
    return _lrus.setdefault(name, LRU(size))


def _channel(setup: CacheSetup, lru: LRU, shm: SharedDict) -> InvalidationChannel | None:
    """Return the channel, connected to this L1. Raise `ChannelFailed`."""
    if setup.ipc is None:
        return None
    channel = EventChannel(shm) if setup.ipc == "events" else setup.ipc
    try:
        listen(channel, setup.name, lru)
    except Exception as error:
        raise ChannelFailed(f"could not initialize ipc: {error}") from error
    return channel


_live: WeakSet[MLCache] = WeakSet()


def live_caches() -> list[MLCache]:
    """Return all caches in use in this process."""
    return list(_live)


def _after_fork() -> None:
    for cache in live_caches():
        cache.loader.refresher.after_fork()


after_fork(_after_fork)
