"""A two-level cache over a source."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Unpack
from weakref import WeakSet, WeakValueDictionary

from resty_django.forks import after_fork
from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import SharedDict, UnknownDict, Unreadable, shdicts

from ..errors import BadOption, ChannelFailed, NoChannel, SerializerFailed
from ..invalidation.channel import INVALIDATIONS, PURGE, Channel, to_broadcast, to_poll
from ..invalidation.events import EventChannel
from ..statistics.counts import Stats
from ..statistics.reporter import Counter
from .bulk import Bulk, Results, check_concurrency, chunks, in_tasks, in_threads
from .levels import Callback, Levels, LoadRequest, lifetime, serialized, unwrapped
from .lru import LRU
from .options import CacheOptions, Options, check
from .records import Record, key_text
from .results import L1, L2, L3, MISS, STALE, Answer, Hit, Level, Peek, Result, Serializer
from .shielding import arun_shielded, as_one_step

SHORTEST: Final = 0.001
"""Smallest remaining time (seconds) that `peek` returns, because 0 means forever."""
_NOTHING: Final[Answer] = (None, MISS)


class MLCache:
    """A cache with L1 in process memory, L2 in a shared dictionary, and callbacks that load missing values.

        products = MLCache("products", "default", ttl=60, resurrect_ttl=30)
        products.get("7", load_product, 7)

    `name`: prefix of the keys in L2; caches with the same name in a process share one L1 with the size of the first.
    `dictionary`: L2, a shared dictionary or its name. `lru_size`: maximum number of items in L1. `lru`: an existing L1
    to use instead. `shm_miss`: a separate dictionary for cached None, so that they do not evict values. `shm_locks`:
    the dictionary for locks (None: L2). `shm_stats`: the dictionary for counts (None: the one for locks). `ipc`: how to
    notify other processes: "events", a custom channel, or None. `serializer`: for values that msgpack does not support.
    `clock`: seconds, the same in all processes; replaced only in tests. `options`: the fields of `Options`.

    Methods with the prefix `a` are for asyncio and never block the event loop. Hot paths are written out for both: L1
    hits in `get`, and the read of L2 in `_get_from_l2`. Everything else is a generator of steps for `run` and `arun`
    (see `levels`).
    """

    def __init__(
        self,
        name: str,
        dictionary: SharedDict | str = "default",
        *,
        lru_size: int = 100,
        lru: LRU | None = None,
        shm_miss: SharedDict | str | None = None,
        shm_locks: SharedDict | str | None = None,
        shm_stats: SharedDict | str | None = None,
        ipc: Channel | Literal["events"] | None = "events",
        serializer: Serializer | None = None,
        clock: Callable[[], float] | None = None,
        **options: Unpack[CacheOptions],
    ) -> None:
        if not isinstance(name, str) or not name or ":" in name:
            raise BadOption(f"name must be a non-empty string without a colon, not {name!r}.")
        self.name = name
        self.options = Options().changed(options)
        self._shm = shm = _dictionary(name, "dictionary", dictionary)
        self._miss = None if shm_miss is None else _dictionary(name, "shm_miss", shm_miss)
        locks = shm if shm_locks is None else _dictionary(name, "shm_locks", shm_locks)
        stats = locks if shm_stats is None else _dictionary(name, "shm_stats", shm_stats)
        if clock is None:  # records in Redis are read on other machines, records in LMDB only on this one
            clock = time.time if shm.engine == "redis" else time.monotonic
        self.locks = locks
        self.clock = clock
        self.serializer = serializer
        self.lru = _shared_lru(name, lru_size) if lru is None else lru
        self.channel = _channel(name, self.lru, ipc)
        self._find = self.lru.items.get
        self._to_end = self.lru.items.move_to_end
        self._now = self.lru.clock
        self._version = self.lru.version
        self.counter = Counter(name, stats)
        self._counts = self.counter.now
        self.levels = Levels(name, self.lru, shm, self._miss, locks, clock, serializer, self.counter)
        self._prefix = self.levels.prefix
        self._record = self.levels.record
        self._promote = self.levels.promote
        self._serialize = self.options.l1_serializer
        _live.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._shm!r}>"

    @property
    def dictionaries(self) -> tuple[SharedDict, ...]:
        """Return the L2 dictionaries: for values, and for cached None if it is a separate one."""
        return (self._shm,) if self._miss is None else (self._shm, self._miss)

    # --- reading ---

    def get(self, key: object, callback: Callback | None = None, /, *args: Any, **options: Unpack[CacheOptions]) -> Any:
        """Return the value of the key from L1, from L2, or from `callback(*args)`, which one process at a time runs.

        Return None if the key is in no level and no callback was passed. The callback may return `Fresh` to set a
        different time to live, and raise `SourceError` so that a stale value is served. `options`: fields of `Options`
        for this call.

        Raise `CallbackFailed`, `SourceError`, `LockTimeout`, `LockFailed`, `SerializerFailed`, `BadKey`, `BadValue`,
        `BadOption`, and `resty_django.shdict.SharedDictError` if L2 fails.
        """
        try:
            item = self._find(key)
            if item is not None and item[1] >= self._now():
                self._to_end(key)
                self._counts.l1 += 1
                return item[0]
        except (KeyError, TypeError):  # just deleted by another thread, or unhashable
            pass
        return self._get_beyond_l1(key, callback, args, options)[0]

    def lookup(
        self, key: object, callback: Callback | None = None, /, *args: Any, **options: Unpack[CacheOptions]
    ) -> Hit:
        """Like `get`, with the level that the value came from."""
        return Hit(*(self._get_from_l1(key_text(key)) or self._get_beyond_l1(key, callback, args, options)))

    async def aget(
        self, key: object, callback: Callback | None = None, /, *args: Any, **options: Unpack[CacheOptions]
    ) -> Any:
        """Do the same as `get`. The callback may be a coroutine function; a sync function runs in a thread."""
        try:
            item = self._find(key)
            if item is not None and item[1] >= self._now():
                self._to_end(key)
                self._counts.l1 += 1
                return item[0]
        except (KeyError, TypeError):
            pass
        return (await self._aget_beyond_l1(key, callback, args, options))[0]

    async def alookup(
        self, key: object, callback: Callback | None = None, /, *args: Any, **options: Unpack[CacheOptions]
    ) -> Hit:
        """Do the same as `lookup`."""
        return Hit(*(self._get_from_l1(key_text(key)) or await self._aget_beyond_l1(key, callback, args, options)))

    def get_with(self, key: str, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """Like `get`, for decorators: the arguments and the options are one object each, and the key is a str. Raise
        the
        callback's own error instead of `CallbackFailed`."""
        item = self._find(key)
        if item is not None and item[1] >= self._now():
            try:
                self._to_end(key)
            except KeyError:
                pass
            else:
                self._counts.l1 += 1
                return item[0]
        return self._get_beyond_l1(key, callback, args, options, unwrap=True)[0]

    async def aget_with(self, key: str, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """Do the same as `get_with`."""
        answer = self._get_from_l1(key) or await self._aget_beyond_l1(key, callback, args, options, unwrap=True)
        return answer[0]

    def peek(self, key: object, stale: bool = False) -> Peek | None:
        """Return the entry in L2, without L1, lock, callback or `l1_serializer`. None if there is none, or if it has
        expired and `stale` is false.
        """
        return run(self._peek(key, stale))

    async def apeek(self, key: object, stale: bool = False) -> Peek | None:
        """Do the same as `peek`."""
        return await arun(self._peek(key, stale))

    # --- reading many keys ---

    def new_bulk(self) -> Bulk:
        """Return an empty list of operations for `get_bulk`: `bulk.add(key, callback, *args, **options)`."""
        return Bulk()

    def get_bulk(self, bulk: Bulk, *, concurrency: int = 3) -> list[Result]:
        """Execute the operations, and return their results in the same order.

        Values that are neither in L1 nor in L2 are fetched by `concurrency` threads, including this one. The result of
        a failed operation contains its error; other operations are not affected. Raise `BadOption`.
        """
        check_concurrency(bulk, concurrency)
        operations = bulk.operations()
        results = Results(len(operations), self._counts, self._count)
        for position, operation in enumerate(operations):
            with results.noting_errors(position):
                answer = self._get_from_l1(operation.key) or self._get_from_l2(operation.key, operation.options)
                results.note(position, answer)

        def work(position: int) -> None:
            with results.noting_errors(position):
                results.note(position, run(self._load(*operations[position])))

        in_threads(chunks(results.missing(), concurrency), work)
        return results.all()

    async def aget_bulk(self, bulk: Bulk, *, concurrency: int = 3) -> list[Result]:
        """Do the same as `get_bulk`, with tasks instead of threads."""
        check_concurrency(bulk, concurrency)
        operations = bulk.operations()
        results = Results(len(operations), self._counts, self._count)
        for position, operation in enumerate(operations):
            with results.noting_errors(position):
                answer = self._get_from_l1(operation.key) or await self._aget_from_l2(operation.key, operation.options)
                results.note(position, answer)

        async def work(position: int) -> None:
            with results.noting_errors(position):
                results.note(position, await arun(self._load(*operations[position])))

        await in_tasks(chunks(results.missing(), concurrency), work)
        return results.all()

    # --- writing ---

    def set(self, key: object, value: Any, /, **options: Unpack[CacheOptions]) -> None:
        """Store a value in L2 and L1, and notify the other processes. `options`: fields of `Options` for this call.

        Raise `NoChannel`, `ChannelFailed`, `SerializerFailed`, `BadKey`, `BadValue`, `BadOption`, and
        `resty_django.shdict.SharedDictError` if L2 fails, for example `NoMemory`.
        """
        run(self._set(key, value, options))

    async def aset(self, key: object, value: Any, /, **options: Unpack[CacheOptions]) -> None:
        """Do the same as `set`. Like all async writes, it is completed even if the task is cancelled."""
        await arun_shielded(self._set(key, value, options))

    def refresh(self, key: object, callback: Callback, /, *args: Any, **options: Unpack[CacheOptions]) -> Any:
        """Call the callback now, regardless of the levels, `set` its result, and return it.

        Takes no lock. If the callback fails, the levels are not changed. Raise the errors of `set`, `CallbackFailed`
        and `SourceError`.
        """
        return run(self._refresh(key, callback, args, options))

    async def arefresh(self, key: object, callback: Callback, /, *args: Any, **options: Unpack[CacheOptions]) -> Any:
        """Do the same as `refresh`."""
        return await arun(self._refresh(key, callback, args, options))

    def refresh_with(self, key: str, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """Like `refresh`, for decorators; see `get_with`."""
        return run(self._refresh(key, callback, args, options, unwrap=True))

    async def arefresh_with(
        self, key: str, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Do the same as `refresh_with`."""
        return await arun(self._refresh(key, callback, args, options, unwrap=True))

    def delete(self, key: object) -> None:
        """Delete a key in L2 and L1, and notify the other processes. Errors as in `set`."""
        run(self._delete(key))

    async def adelete(self, key: object) -> None:
        """Do the same as `delete`."""
        await arun_shielded(self._delete(key))

    def purge(self, flush_expired: bool = False) -> None:
        """Delete all keys, including other caches' keys in the same dictionaries, and notify the other processes.

        Without `flush_expired`, the records remain as stale ones, so a failing callback with `resurrect_ttl` resurrects
        them. Errors as in `set`.
        """
        run(self._purge(flush_expired))

    async def apurge(self, flush_expired: bool = False) -> None:
        """Do the same as `purge`."""
        await arun_shielded(self._purge(flush_expired))

    def update(self, timeout: float = 0.3) -> None:
        """Apply invalidations from other processes to L1. Call it at the start of a request or job.

        Wait at most `timeout` seconds for a missing event. Raise `NoChannel` or `ChannelFailed`.
        """
        run(self._update(timeout))

    async def aupdate(self, timeout: float = 0.3) -> None:
        """Do the same as `update`."""
        await arun(self._update(timeout))

    # --- counting ---

    def stats(self) -> Stats:
        """Return the counts of all processes, except possibly for the last second. Raise `Unavailable`."""
        return run(self.counter.total())

    async def astats(self) -> Stats:
        """Do the same as `stats`."""
        return await arun(self.counter.total())

    def flush_counts(self) -> None:
        """Flush the counts of this process, if that is due. An unavailable dictionary is not an error."""
        if self.counter.is_due():
            run(self.counter.flush())

    async def aflush_counts(self) -> None:
        """Do the same as `flush_counts`."""
        if self.counter.is_due():
            await arun(self.counter.flush())

    # --- L1, L2 and the source in order ---

    def _get_from_l1(self, key: str) -> Answer | None:
        item = self._find(key)
        if item is None or item[1] < self._now():
            return None
        try:
            self._to_end(key)
        except KeyError:  # just deleted by another thread
            return None
        self._counts.l1 += 1
        return item[0], L1

    def _get_beyond_l1(
        self,
        key: object,
        callback: Callback | None,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        unwrap: bool = False,
    ) -> Answer:
        """Return the value from L2 or the callback, after an L1 miss. `unwrap`: as in `LoadRequest`."""
        text = key if type(key) is str and key else key_text(key)
        answer = None if text is key else self._get_from_l1(text)
        if answer is not None:
            return answer
        try:
            answer = self._get_from_l2(text, options)
            if answer is None:
                answer = _NOTHING if callback is None else run(self._load(text, callback, args, options, unwrap))
        except Exception:
            self._counts.errors += 1
            raise
        if self._count(answer[1]):
            run(self.counter.flush())
        return answer

    async def _aget_beyond_l1(
        self,
        key: object,
        callback: Callback | None,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        unwrap: bool = False,
    ) -> Answer:
        text = key if type(key) is str and key else key_text(key)
        answer = None if text is key else self._get_from_l1(text)
        if answer is not None:
            return answer
        try:
            answer = await self._aget_from_l2(text, options)
            if answer is None:
                answer = _NOTHING if callback is None else await arun(self._load(text, callback, args, options, unwrap))
        except Exception:
            self._counts.errors += 1
            raise
        if self._count(answer[1]):
            await arun(self.counter.flush())
        return answer

    def _count(self, level: Level) -> bool:
        """Count a call answered by this level. Return whether a flush of the counts is due."""
        counts = self._counts
        if level is L2:
            counts.l2 += 1
            return False
        if level is L3:
            counts.l3 += 1
        elif level is STALE:
            counts.stale += 1
        else:
            counts.misses += 1
        return self.counter.clock() >= self.counter.due_at

    def _get_from_l2(self, key: str, options: Mapping[str, Any]) -> Answer | None:
        """Return the value in L2, after storing it in L1."""
        if options:
            check(options)
        name = self._prefix + key
        version = self._version(key)
        try:
            raw = self._shm.get(name)
            if raw is None and self._miss is not None:
                raw = self._miss.get(name)
        except Unreadable as error:
            self.levels.unreadable(key, error)
            return None
        return None if raw is None else self._decode(key, raw, options, version)

    async def _aget_from_l2(self, key: str, options: Mapping[str, Any]) -> Answer | None:
        if options:
            check(options)
        name = self._prefix + key
        version = self._version(key)
        try:
            raw = await self._shm.aget(name)
            if raw is None and self._miss is not None:
                raw = await self._miss.aget(name)
        except Unreadable as error:
            self.levels.unreadable(key, error)
            return None
        return None if raw is None else self._decode(key, raw, options, version)

    def _decode(self, key: str, raw: object, options: Mapping[str, Any], version: int) -> Answer | None:
        record = self._record(raw, key)
        if record is None:
            return None
        serialize = options.get("l1_serializer", self._serialize) if options else self._serialize
        return self._promote(key, record, serialize, version), STALE if record.stale else L2

    def _load(
        self, key: str, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any], unwrap: bool = False
    ) -> Steps[Answer]:
        all_options = self.options.changed(options) if options else self.options
        return self.levels.load(LoadRequest(key, callback, args, all_options, unwrap))

    # --- steps of sync and async calls ---

    def _peek(self, key: object, stale: bool) -> Steps[Peek | None]:
        l2_records = yield from self.levels.look(key_text(key), with_stale=stale)
        record = l2_records.fresh or l2_records.stale
        if record is None:
            return None
        expired = l2_records.fresh is None
        return Peek(self._remaining(record, expired), record.value, expired)

    def _remaining(self, record: Record, expired: bool) -> float:
        seconds = self.levels.remaining(record) if record.ttl else 0.0
        if expired:
            return min(seconds, -SHORTEST)
        return (seconds or SHORTEST) if record.ttl else 0.0

    def _refresh(
        self,
        key: object,
        callback: Callback,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        unwrap: bool = False,
    ) -> Steps[Any]:
        self._require_channel("refresh")
        request = LoadRequest(key_text(key), callback, args, self.options.changed(options), unwrap)
        fetch = self.levels.fetch(request)
        value, ttl = yield from unwrapped(fetch) if unwrap else fetch
        if ttl < 0:
            yield as_one_step(self._delete(key))
            return serialized(value, request.options.l1_serializer)
        return (yield as_one_step(self._set(key, value, {**options, "ttl": ttl, "neg_ttl": ttl, "jitter": 0})))

    def _set(self, key: object, value: Any, changes: Mapping[str, Any]) -> Steps[Any]:
        """Return the value as stored in L1."""
        channel = self._require_channel("set")
        text = key_text(key)
        options = self.options.changed(changes)
        ttl = lifetime(value, options)
        value, record = self.levels.encoded(value, ttl)
        version = self.lru.version(text)
        yield from self.levels.set(text, value, record, ttl, options.shm_set_tries)
        try:
            l1_value = self.levels.keep(text, value, ttl, options.l1_serializer, version)
        except SerializerFailed:
            self.lru.delete(text)
            yield from to_broadcast(channel, INVALIDATIONS + self.name, text)
            raise
        yield from to_broadcast(channel, INVALIDATIONS + self.name, text)
        return l1_value

    def _delete(self, key: object) -> Steps[None]:
        channel = self._require_channel("delete")
        text = key_text(key)
        yield from self.levels.delete(text)
        yield from to_broadcast(channel, INVALIDATIONS + self.name, text)

    def _purge(self, flush_expired: bool) -> Steps[None]:
        channel = self._require_channel("purge")
        yield from self.levels.flush(flush_expired)
        yield from to_broadcast(channel, PURGE + self.name, "")

    def _update(self, timeout: float) -> Steps[None]:
        channel = self._require_channel("update")
        if not hasattr(channel, "poll"):
            raise NoChannel(
                f"update() of the cache {self.name!r} needs a channel with poll(), which {channel!r} does not have."
            )
        yield Step(self.flush_counts, self.aflush_counts)
        yield from to_poll(channel, timeout)

    def _require_channel(self, call: str) -> Channel:
        if self.channel is None:
            raise NoChannel(f"{call}() of the cache {self.name!r} needs a channel to other processes. Set ipc.")
        return self.channel

    def after_fork(self) -> None:
        """Drop the parent's state in a forked child."""
        self.counter.after_fork()
        self._counts = self.counter.now
        self.levels.refresher.after_fork()


def _dictionary(cache: str, option: str, dictionary: SharedDict | str) -> SharedDict:
    """Return the dictionary named by an option of a cache. Raise `UnknownDict`."""
    if not isinstance(dictionary, str):
        return dictionary
    try:
        return shdicts[dictionary]
    except UnknownDict as error:
        raise UnknownDict(f"{error} The cache {cache!r} names it as {option}.") from None


_lrus: WeakValueDictionary[str, LRU] = WeakValueDictionary()


def _shared_lru(name: str, size: int) -> LRU:
    """Return the L1 shared by all caches with this name. Raise `BadOption`."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise BadOption(f"lru_size must be an integer of at least 1, not {size!r}.")
    return _lrus.setdefault(name, LRU(size))


def _channel(name: str, lru: LRU, ipc: Channel | Literal["events"] | None) -> Channel | None:
    """Return the channel, connected to this L1. Raise `BadOption` or `ChannelFailed`."""
    if ipc is None:
        return None
    if ipc != "events" and not callable(getattr(ipc, "broadcast", None)):
        raise BadOption(f'ipc must be "events", None, or have register_listeners() and broadcast(), not {ipc!r}.')
    channel = EventChannel() if ipc == "events" else ipc
    try:
        channel.register_listeners({INVALIDATIONS + name: lru.delete, PURGE + name: lambda data: lru.flush_all()})
    except Exception as error:
        raise ChannelFailed(f"could not initialize ipc: {error}") from error
    return channel


_live: WeakSet[MLCache] = WeakSet()


def live_caches() -> list[MLCache]:
    """Return all caches in use in this process."""
    return list(_live)


def _after_fork() -> None:
    for cache in live_caches():
        cache.after_fork()


after_fork(_after_fork)
