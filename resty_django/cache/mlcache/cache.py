"""A two-level cache over a source."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Unpack
from weakref import WeakSet, WeakValueDictionary

from resty_django import extras
from resty_django.forks import after_fork
from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import (
    NoMemory,
    SharedDict,
    SharedDictError,
    Unavailable,
    UnknownDict,
    Unreadable,
    shdicts,
)
from resty_django.text import logger

from ..broadcasts.announce import announce, is_outage
from ..broadcasts.channel import (
    INVALIDATIONS,
    MANY,
    PURGE,
    TAGS,
    Channel,
    carried,
    keys_text,
    parts_of,
    to_poll,
)
from ..broadcasts.events import EventChannel
from ..circuit_breaker.breaker import breaker_of
from ..circuit_breaker.guarded import guarded
from ..errors import BadOption, ChannelFailed, NoChannel, SerializerFailed
from ..statistics.counts import Stats
from ..statistics.reporter import Counter
from ..storage.compression import ABOVE, ALGORITHMS, LIMIT, Compressor, option_faults
from ..storage.lru import LRU
from ..storage.records import Record, key_text
from ..storage.shielding import arun_shielded, as_one_step
from ..tags.index import index_of
from ..tags.names import invalidated, resolved
from ..tags.versions import TagSnapshot, TagVersions, are_uncommitted
from .bulk import Bulk, Operation, Results, check_concurrency, chunks, in_tasks, in_threads
from .levels import Callback, L2Record, Levels, LoadRequest, NewValue, lifetime, serialized, unwrapped
from .options import CacheOptions, Options, check
from .results import L1, L2, L3, MISS, STALE, Answer, Hit, Level, Peek, Result, Serializer

log = logger("resty_django.cache")

SHORTEST: Final = 0.001
"""Smallest remaining time (seconds) that `peek` returns, because 0 means forever."""
_NOTHING: Final[Answer] = (None, MISS)
_DOWN: Final[Answer] = (None, MISS)
"""The store is down: the value is unknown."""


class MLCache:
    """A cache with L1 in process memory, L2 in a shared dictionary, and callbacks that load missing values.

        products = MLCache("products", "default", ttl=60, resurrect_ttl=30)
        products.get("7", load_product, 7)

    `name`: prefix of the keys in L2; caches with the same name in a process share one L1 with the size of the first.
    `dictionary`: L2, a shared dictionary or its name. `lru_size`: maximum number of items in L1. `lru`: an existing L1
    to use instead. `shm_miss`: a separate dictionary for cached None, so that they do not evict values. `shm_locks`:
    the dictionary for locks (None: L2). `shm_stats`: the dictionary for counts (None: the one for locks). `ipc`: how to
    notify other processes: "events", a custom channel, or None. `serializer`: for values that msgpack does not support.
    `compress`: "zlib" or "zstd": compress values of more than `compress_above` bytes in L2. `decompress_limit`: a value
    that is larger than this number of bytes is not compressed, and counts as absent if it was.
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
        compress: Literal["zlib", "zstd"] | None = None,
        compress_above: int = ABOVE,
        decompress_limit: int = LIMIT,
        clock: Callable[[], float] | None = None,
        **options: Unpack[CacheOptions],
    ) -> None:
        if not isinstance(name, str) or not name or ":" in name:
            raise BadOption(f"name must be a non-empty string without a colon, not {name!r}.")
        if serializer is not None and not (hasattr(serializer, "encode") and hasattr(serializer, "decode")):
            raise BadOption(f"serializer must be an object with encode() and decode(), not {serializer!r}.")
        compression = {"compress": compress, "compress_above": compress_above, "decompress_limit": decompress_limit}
        for fault in option_faults(compression):
            raise BadOption(fault)
        if compress is not None:
            extras.require(f'compress="{compress}" needs', *ALGORITHMS[compress].modules)
        self.name = name
        self.compression = compression
        self.decompress_limit = decompress_limit
        self.options = Options().changed(options)
        shm = _dictionary(name, "dictionary", dictionary)
        miss = None if shm_miss is None else _dictionary(name, "shm_miss", shm_miss)
        self.dictionaries = (shm,) if miss is None else (shm, miss)
        """The L2 dictionaries: for values, and for cached None if it is a separate one."""
        locks = shm if shm_locks is None else _dictionary(name, "shm_locks", shm_locks)
        stats = locks if shm_stats is None else _dictionary(name, "shm_stats", shm_stats)
        if clock is None:  # records in Redis are read on other machines, records in LMDB only on this one
            clock = time.time if shm.engine == "redis" else time.monotonic
        self.locks = locks
        self.clock = clock
        self.serializer = serializer
        self.lru = _shared_lru(name, lru_size) if lru is None else lru
        self.channel = _channel(name, self.lru, ipc, shm)
        self._invalidations = INVALIDATIONS + name
        self._many = MANY + name
        self._find = self.lru.items.get
        self._to_end = self.lru.items.move_to_end
        self._now = self.lru.clock
        self._version = self.lru.version
        self.counter = Counter(name, stats)
        self._counts = self.counter.now
        self._shm = guarded(shm)
        self._miss = None if miss is None else guarded(miss)
        compressor = Compressor(compress, compress_above, decompress_limit, lambda: self.counter.now)
        self.levels = Levels(
            name, self.lru, self._shm, self._miss, guarded(locks), clock, serializer, self.counter, compressor
        )
        self._breaker = self.levels.breaker
        self._prefix = self.levels.prefix
        self._record = self.levels.record
        self._promote = self.levels.promote
        self._serialize = self.options.l1_serializer
        _live.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._shm!r}>"

    # --- reading ---

    def get(self, key: object, callback: Callback | None = None, /, *args: Any, **options: Unpack[CacheOptions]) -> Any:
        """Return the value of the key from L1, from L2, or from `callback(*args)`, which one process at a time runs.

        Return None if the key is in no level and no callback was passed. The callback may return `Fresh` to set a
        different time to live, and raise `SourceError` so that a stale value is served. `options`: fields of `Options`
        for this call; `on_error` decides what happens while the store of L2 is down.

        Raise `CallbackFailed`, `SourceError`, `LockTimeout`, `LockFailed`, `SerializerFailed`, `BadKey`, `BadValue`,
        `BadOption`, and `resty_django.shdict.SharedDictError` if L2 fails and `on_error` is "raise".
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
        """Like `get`, for decorators: the arguments and the options are one object each, and the key is a str.

        Raise the callback's own error instead of `CallbackFailed`.
        """
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

    def in_l1(self, key: str) -> Any:
        """Return the value in L1, without counting the call; None if L1 does not have it."""
        item = self._find(key)
        if item is None or item[1] < self._now():
            return None
        try:
            self._to_end(key)
        except KeyError:  # just deleted by another thread
            return None
        return item[0]

    def count_l1(self, hits: int) -> None:
        """Count values that `in_l1` has returned."""
        self._counts.l1 += hits

    def peek(self, key: object, stale: bool = False) -> Peek | None:
        """Return the entry in L2, without L1, lock, callback or `l1_serializer`. None if there is none, or if it has
        expired and `stale` is false, or if the store is down and `on_error` is "source".
        """
        return run(self._peek(key, stale))

    async def apeek(self, key: object, stale: bool = False) -> Peek | None:
        """Do the same as `peek`."""
        return await arun(self._peek(key, stale))

    # --- reading many keys ---

    def get_many(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return the values of the keys that are in L1 or L2, by key as passed; one call reads all others from L2.

        Raise `SerializerFailed`, `BadKey`, and `resty_django.shdict.SharedDictError` if L2 fails.
        """
        return run(self._get_many(keys))

    async def aget_many(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Do the same as `get_many`."""
        return await arun(self._get_many(keys))

    def new_bulk(self) -> Bulk:
        """Return an empty list of operations for `get_bulk`: `bulk.add(key, callback, *args, **options)`."""
        return Bulk()

    def get_bulk(self, bulk: Bulk, *, concurrency: int = 3) -> list[Result]:
        """Execute the operations, and return their results in the same order.

        One call reads all values that are not in L1 from L2. Values that are in neither are fetched by `concurrency`
        threads, including this one. The result of a failed operation contains its error; other operations are not
        affected. Raise `BadOption`.
        """
        check_concurrency(bulk, concurrency)
        operations = bulk.operations()
        results = Results(len(operations), self._counts, self._count)
        run(self._note_hits(operations, results))

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
        await arun(self._note_hits(operations, results))

        async def work(position: int) -> None:
            with results.noting_errors(position):
                results.note(position, await arun(self._load(*operations[position])))

        await in_tasks(chunks(results.missing(), concurrency), work)
        return results.all()

    # --- writing ---

    def set(self, key: object, value: Any, /, **options: Unpack[CacheOptions]) -> None:
        """Store a value in L2 and L1, and notify the other processes. `options`: fields of `Options` for this call.

        If L2 cannot store it and `on_error` is "source", store it only in L1, for `outage_ttl`, and delete the key in
        L2 as soon as possible.

        Raise `NoChannel`, `ChannelFailed`, `SerializerFailed`, `BadKey`, `BadValue`, `BadOption`, and
        `resty_django.shdict.SharedDictError` if L2 fails and `on_error` is "raise", for example `NoMemory`.
        """
        run(self._set(key, value, options))

    async def aset(self, key: object, value: Any, /, **options: Unpack[CacheOptions]) -> None:
        """Do the same as `set`. Like all async writes, it is completed even if the task is cancelled."""
        await arun_shielded(self._set(key, value, options))

    def set_many(self, values: Mapping[Any, Any], /, **options: Unpack[CacheOptions]) -> list[Any]:
        """Store values in L2 and L1, with one call and one event for all. Return the keys for which L2 has no space.

        Those keep their old values. Errors as in `set`, except for `NoMemory`.
        """
        return run(self._set_many(values, options))

    async def aset_many(self, values: Mapping[Any, Any], /, **options: Unpack[CacheOptions]) -> list[Any]:
        """Do the same as `set_many`."""
        return await arun_shielded(self._set_many(values, options))

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

    def delete(self, key: object, *, on_error: str | None = None) -> None:
        """Delete a key in L2 and L1, and notify the other processes. Errors as in `set`.

        While the store is down and `on_error` (None: the cache's) is "source", delete the key in L1, and in L2 when the
        store answers again, before this process reads it.
        """
        run(self._delete(key, on_error))

    async def adelete(self, key: object, *, on_error: str | None = None) -> None:
        """Do the same as `delete`."""
        await arun_shielded(self._delete(key, on_error))

    def delete_many(self, keys: Iterable[Any], *, on_error: str | None = None) -> None:
        """Delete keys in L2 and L1, with one call and one event for all. Errors and `on_error` as in `delete`."""
        run(self._delete_many(keys, on_error))

    async def adelete_many(self, keys: Iterable[Any], *, on_error: str | None = None) -> None:
        """Do the same as `delete_many`."""
        await arun_shielded(self._delete_many(keys, on_error))

    def purge(self, flush_expired: bool = False, *, on_error: str | None = None) -> None:
        """Delete all keys, including other caches' keys in the same dictionaries, and notify the other processes.

        Without `flush_expired`, the records remain as stale ones, so a failing callback with `resurrect_ttl` resurrects
        them. `on_error` and errors as in `delete`.
        """
        run(self._purge(flush_expired, on_error))

    async def apurge(self, flush_expired: bool = False, *, on_error: str | None = None) -> None:
        """Do the same as `purge`."""
        await arun_shielded(self._purge(flush_expired, on_error))

    def invalidate_tags(self, *tags: str, on_error: str | None = None) -> None:
        """Delete all keys of this cache with one of these tags, and notify the other processes.

        The cost does not depend on the number of keys. A value whose callback started before this call is not served
        after it. The records remain as stale ones, as after `purge`. `on_error` and errors as in `delete`.
        """
        run(self._invalidate_tags(tags, on_error))

    async def ainvalidate_tags(self, *tags: str, on_error: str | None = None) -> None:
        """Do the same as `invalidate_tags`."""
        await arun_shielded(self._invalidate_tags(tags, on_error))

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
            answer = self._get_from_l2(text, options, callback, args)
            if answer is _DOWN:
                answer = run(self._get_storeless(text, callback, args, options, unwrap))
            elif answer is None:
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
            answer = await self._aget_from_l2(text, options, callback, args)
            if answer is _DOWN:
                answer = await arun(self._get_storeless(text, callback, args, options, unwrap))
            elif answer is None:
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
        elif level is L1:  # stored by another call while this one waited for it
            counts.l1 += 1
        else:
            counts.misses += 1
        return self.counter.clock() >= self.counter.due_at and not self._breaker.down

    def _get_storeless(
        self, key: str, callback: Callback | None, args: tuple[Any, ...], options: Mapping[str, Any], unwrap: bool
    ) -> Steps[Answer]:
        all_options = self.options.changed(options) if options else self.options
        if callback is None:
            self.levels.count_storeless()
            return self.levels.from_l1(key, all_options) or _NOTHING
        return (yield from self.levels.load_storeless(LoadRequest(key, callback, args, all_options, unwrap)))

    def _get_from_l2(
        self, key: str, options: Mapping[str, Any], callback: Callback | None, args: tuple[Any, ...]
    ) -> Answer | None:
        """Return the value in L2, after storing it in L1; `_DOWN` if the store is down, unless that is to be raised."""
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
        except Unavailable:
            return self._down(options)
        record = None if raw is None else self._record(raw, key)
        if record is None:
            return None
        if record.tags or record.took:
            return run(self._promote_checked(key, record, options, version, callback, args))
        return self._promote_record(key, record, options, version)

    async def _aget_from_l2(
        self, key: str, options: Mapping[str, Any], callback: Callback | None, args: tuple[Any, ...]
    ) -> Answer | None:
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
        except Unavailable:
            return self._down(options)
        record = None if raw is None else self._record(raw, key)
        if record is None:
            return None
        if record.tags or record.took:
            return await arun(self._promote_checked(key, record, options, version, callback, args))
        return self._promote_record(key, record, options, version)

    def _down(self, options: Mapping[str, Any]) -> Answer:
        """Return `_DOWN` while an error of L2 is handled, or reraise it."""
        if self._raises(options):
            raise
        return _DOWN

    def _raises(self, options: Mapping[str, Any]) -> bool:
        """Return whether an outage of L2 is to be raised."""
        return bool(options.get("on_error", self.options.on_error) == "raise")

    def _promote_record(
        self, key: str, record: Record, options: Mapping[str, Any], version: int, moment: int = 0
    ) -> Answer:
        serialize = options.get("l1_serializer", self._serialize) if options else self._serialize
        if record.took:
            early = self.levels.early(key, record, options.get("early", self.options.early))
            return self._promote(key, record, serialize, version, moment, early), STALE if record.stale else L2
        return self._promote(key, record, serialize, version, moment), STALE if record.stale else L2

    def _promote_checked(
        self,
        key: str,
        record: Record,
        options: Mapping[str, Any],
        version: int,
        callback: Callback | None,
        args: tuple[Any, ...],
    ) -> Steps[Answer | None]:
        """Do the same for a record with tags, or one that may be replaced early; return None if a tag was
        invalidated."""
        moment = self.levels.index.moment
        if record.tags:
            try:
                if not (yield from self.levels.tags.are_current(record.tags)):
                    return None
            except Unavailable:
                return self._down(options)
        answer = self._promote_record(key, record, options, version, moment)
        if callback is not None:
            yield from self._replace_early(key, record, callback, args, options)
        return answer

    def _replace_early(
        self, key: str, record: Record, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Steps[None]:
        """Start the callback in the background, if the record is due. L1 has it before, so as not to replace the new
        one."""
        if record.took and self.levels.is_due(key, record, options.get("early", self.options.early)):
            request = LoadRequest(key, callback, args, self.options.changed(options), early=record)
            yield self.levels.refresh_early(request)

    def _load(
        self, key: str, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any], unwrap: bool = False
    ) -> Steps[Answer]:
        all_options = self.options.changed(options) if options else self.options
        return self.levels.load(LoadRequest(key, callback, args, all_options, unwrap))

    # --- steps of sync and async calls ---

    def _note_hits(self, operations: Sequence[Operation], results: Results) -> Steps[None]:
        """Note the answers from L1 and L2."""
        missing: dict[str, list[int]] = {}
        for position, operation in enumerate(operations):
            answer = self._get_from_l1(operation.key)
            results.note(position, answer)
            if answer is None:
                missing.setdefault(operation.key, []).append(position)
        try:
            l2_records = (yield from self.levels.look_many(missing)) if missing else {}
        except SharedDictError as error:
            l2_records = dict.fromkeys(missing, error)
        for key, l2_record in l2_records.items():
            for position in missing[key]:
                with results.noting_errors(position):
                    options = operations[position].options
                    if not isinstance(l2_record, Unavailable) or self._raises(options):
                        results.note(position, self._promote_one(key, l2_record, options))
                    if isinstance(l2_record, L2Record):
                        operation = operations[position]
                        record = l2_record.record
                        yield from self._replace_early(key, record, operation.callback, operation.args, options)

    def _get_many(self, keys: Iterable[Any]) -> Steps[dict[Any, Any]]:
        texts = {key: key_text(key) for key in keys}
        answers = {text: self._get_from_l1(text) for text in texts.values()}
        missing = [text for text, answer in answers.items() if answer is None]
        try:
            l2_records = yield from self._look_many(missing, answers)
            for text in missing:
                if text in l2_records:
                    answers[text] = self._promote_one(text, l2_records[text], {})
                answer = answers[text]
                self._count(MISS if answer is None else answer[1])
        except Exception:
            self._counts.errors += 1
            raise
        if missing and not self._breaker.down:
            yield Step(self.flush_counts, self.aflush_counts)
        by_key = ((key, answers[text]) for key, text in texts.items())
        return {key: answer[0] for key, answer in by_key if answer is not None}

    def _look_many(
        self, missing: Sequence[str], answers: dict[str, Answer | None]
    ) -> Steps[Mapping[str, L2Record | SharedDictError]]:
        """Return the records in L2. While the store is down, replace missing answers by what L1 has, unless the outage
        is to be raised."""
        try:
            return (yield from self.levels.look_many(missing)) if missing else {}
        except Unavailable:
            if self._raises({}):
                raise
            for text in missing:
                self.levels.count_storeless()
                answers[text] = self.levels.from_l1(text, self.options)
            return {}

    def _promote_one(self, key: str, l2_record: L2Record | SharedDictError, options: Mapping[str, Any]) -> Answer:
        if isinstance(l2_record, SharedDictError):
            raise l2_record
        return self._promote_record(key, l2_record.record, options, l2_record.version, l2_record.moment)

    def _peek(self, key: object, stale: bool) -> Steps[Peek | None]:
        try:
            l2_records = yield from self.levels.look(key_text(key), with_stale=stale)
        except Unavailable:
            if self.options.on_error == "raise":
                raise
            return None
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
        tagged = yield from self._snapshot(resolved(request.options.tags, args), request.options)
        fetch = self.levels.fetch(request)
        value, ttl = yield from unwrapped(fetch) if unwrap else fetch
        if ttl < 0:
            yield as_one_step(self._delete(key, request.options.on_error))
            return serialized(value, request.options.l1_serializer)
        if tagged is not None and are_uncommitted(tagged.versions):
            return serialized(value, request.options.l1_serializer)
        changes = {**options, "ttl": ttl, "neg_ttl": ttl, "jitter": 0, "tags": ()}
        return (yield as_one_step(self._set(key, value, changes, tagged, request.took)))

    def _set(
        self,
        key: object,
        value: Any,
        changes: Mapping[str, Any],
        tagged: TagSnapshot | None = None,
        took: float = 0.0,
    ) -> Steps[Any]:
        """Return the value as stored in L1. `tagged`: its tags from before its source was called; else from the
        options. `took`: seconds of its callback."""
        channel = self._require_channel("set")
        text = key_text(key)
        options = self.options.changed(changes) if changes else self.options
        if options.tags:
            tagged = yield from self._snapshot(resolved(options.tags, ()), options)
        ttl = lifetime(value, options)
        took = took if options.early else 0.0
        value, record = self.levels.encoded(value, ttl, tagged=tagged, took=took)
        early = self.levels.early_of(text, record, ttl, took, options.early)
        version = self.lru.version(text)
        entry, broadcasts = carried(channel, self._invalidations, text)
        try:
            yield from self.levels.set(text, value, record, ttl, options.shm_set_tries, entry)
        except (Unavailable, NoMemory) as error:
            if options.on_error == "raise":
                raise
            broadcasts = True
            yield from self._forget_storeless(text, error)
            keep = partial(self.levels.keep_in_outage, text, value, ttl, options, None, tagged)
        else:
            keep = partial(self.levels.keep, text, value, ttl, options.l1_serializer, version, tagged, early)
        try:
            l1_value = keep()
        except SerializerFailed:
            self.lru.delete(text)
            if broadcasts:
                yield from announce(channel, self._invalidations, text, options.on_error)
            raise
        if broadcasts:
            yield from announce(channel, self._invalidations, text, options.on_error)
        return l1_value

    def _set_many(self, values: Mapping[Any, Any], changes: Mapping[str, Any]) -> Steps[list[Any]]:
        channel = self._require_channel("set_many")
        options = self.options.changed(changes)
        texts = {key: key_text(key) for key in values}
        tagged = (yield from self._snapshot(resolved(options.tags, ()), options)) if options.tags else None
        entries: dict[str, NewValue] = {}
        for key, version in zip(values, self.lru.versions(texts.values()), strict=True):
            ttl = lifetime(values[key], options)
            value, record = self.levels.encoded(values[key], ttl, tagged=tagged)
            entries[texts[key]] = NewValue(value, record, ttl, version)
        failed: list[str] = []
        error: SerializerFailed | None = None
        for part in parts_of(entries):
            try:
                failed += yield from self._set_part(channel, {text: entries[text] for text in part}, options, tagged)
            except SerializerFailed as failure:
                error = error or failure
        if error is not None:
            raise error
        return [key for key, text in texts.items() if text in failed]

    def _set_part(
        self, channel: Channel, values: dict[str, NewValue], options: Options, tagged: TagSnapshot | None
    ) -> Steps[Sequence[str]]:
        """Store values with one broadcast. Return the keys for which L2 has no space."""
        data = keys_text(values)
        entry, broadcasts = carried(channel, self._many, data)
        failed: Sequence[str] = ()
        storeless = False
        try:
            failed = yield from self.levels.set_many(values, entry)
        except (Unavailable, NoMemory) as error:
            if options.on_error == "raise":
                raise
            broadcasts = storeless = True
            for text in values:
                yield from self._forget_storeless(text, error)
        for text in failed:
            del values[text]
        try:
            self.levels.keep_many(values, options, tagged, storeless)
        finally:
            if broadcasts:
                yield from announce(channel, self._many, data, options.on_error)
        return failed

    def _delete_many(self, keys: Iterable[Any], on_error: str | None) -> Steps[None]:
        channel, mode = self._require_channel("delete_many"), self._on_error(on_error)
        for texts in parts_of(dict.fromkeys(map(key_text, keys))):
            data = keys_text(texts)
            entry, broadcasts = carried(channel, self._many, data)
            try:
                yield from self.levels.delete_many(texts, entry)
            except Unavailable as error:
                if mode == "raise":
                    raise
                broadcasts = True
                for text in texts:
                    yield from self._forget_storeless(text, error)
            if broadcasts:
                yield from announce(channel, self._many, data, mode)

    def _snapshot(self, tags: Collection[str], options: Options) -> Steps[TagSnapshot | None]:
        try:
            return (yield from self.levels.snapshot(tags))
        except (Unavailable, NoMemory):
            if options.on_error == "raise":
                raise
            return self.levels.storeless_snapshot(tags)

    def _delete(self, key: object, on_error: str | None = None) -> Steps[None]:
        channel, text = self._require_channel("delete"), key_text(key)
        mode = self._on_error(on_error)
        entry, broadcasts = carried(channel, self._invalidations, text)
        try:
            yield from self.levels.delete(text, entry)
        except Unavailable as error:
            if mode == "raise":
                raise
            broadcasts = True
            yield from self._forget_storeless(text, error)
        if broadcasts:
            yield from announce(channel, self._invalidations, text, mode)

    def _purge(self, flush_expired: bool, on_error: str | None = None) -> Steps[None]:
        channel = self._require_channel("purge")
        mode = self._on_error(on_error)
        name = PURGE + self.name
        entry, broadcasts = carried(channel, name, "")
        try:
            yield from self.levels.flush(flush_expired, entry)
        except Unavailable as error:
            if mode == "raise":
                raise
            broadcasts = True
            self.lru.flush_all()
            self._remember(error, PURGE, partial(_flush, free=flush_expired), (name, ""))
        if broadcasts:
            yield from announce(channel, name, "", mode)

    def _on_error(self, on_error: str | None) -> str:
        if on_error is None:
            return self.options.on_error
        check({"on_error": on_error})
        return on_error

    def _forget_storeless(self, key: str, error: Exception) -> Steps[None]:
        """Delete a key in L1, and in L2 as soon as possible, so that the store does not return an old value later."""
        self.levels.count_storeless()
        if isinstance(error, NoMemory) or self._breaker.full:
            if not self._breaker.full:  # then the outage is logged
                log.warning("The key %r of %r was not stored in L2: %s", key, self._prefix, error)
            try:
                yield from self.levels.delete(key)
                return
            except Unavailable as unavailable:
                error = unavailable
        self.lru.delete(key)
        name = self._prefix + key
        self._remember(error, name, lambda dictionary: dictionary.delete(name), (self._invalidations, key))

    def _remember(
        self, error: Exception, key: str, write: Callable[[SharedDict], object], event: tuple[str, str]
    ) -> None:
        """Have each dictionary that is down written, and the event broadcast, when its store answers again."""
        for dictionary in self.dictionaries:
            breaker = breaker_of(dictionary)
            if breaker.down:
                breaker.remember(error, (self.name, key), partial(self._write_later, write, dictionary, event))

    def _write_later(
        self, write: Callable[[SharedDict], object], dictionary: SharedDict, event: tuple[str, str]
    ) -> None:
        write(dictionary)
        if self.channel is not None:
            run(announce(self.channel, *event, "source"))

    def _invalidate_tags(self, tags: tuple[object, ...], on_error: str | None = None) -> Steps[None]:
        names = invalidated(tags)
        channel = self._require_channel("invalidate_tags")
        if names:
            mode, event = self._on_error(on_error), (TAGS + self.name, json.dumps(names))
            entry, broadcasts = carried(channel, *event)
            try:
                yield from self.levels.invalidate(names, entry)
            except Unavailable as error:
                if mode == "raise":
                    raise
                broadcasts = True
                self.levels.count_storeless()
                self.levels.index.invalidate(self.lru, names)
                self._remember(error, event[1], partial(_delete_versions, name=self.name, tags=names), event)
            if broadcasts:
                yield from announce(channel, *event, mode)
            yield from self.counter.invalidated(names)

    def _update(self, timeout: float) -> Steps[None]:
        channel = self._require_channel("update")
        if not hasattr(channel, "poll"):
            raise NoChannel(
                f"update() of the cache {self.name!r} needs a channel with poll(), which {channel!r} does not have."
            )
        yield Step(self.flush_counts, self.aflush_counts)
        try:
            yield from to_poll(channel, timeout)
        except ChannelFailed as failed:
            if self.options.on_error == "raise" or not is_outage(failed):
                raise

    def _require_channel(self, call: str) -> Channel:
        if self.channel is None:
            raise NoChannel(f"{call}() of the cache {self.name!r} needs a channel to other processes. Set ipc.")
        return self.channel

    def after_fork(self) -> None:
        """Drop the parent's state in a forked child."""
        self.counter.after_fork()
        self._counts = self.counter.now
        self.levels.refresher.after_fork()


def _flush(dictionary: SharedDict, free: bool) -> None:
    dictionary.flush_all()
    if free:
        dictionary.flush_expired()


def _delete_versions(dictionary: SharedDict, name: str, tags: Collection[str]) -> None:
    run(TagVersions(dictionary, name).delete(tags))


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


def _channel(name: str, lru: LRU, ipc: Channel | Literal["events"] | None, shm: SharedDict) -> Channel | None:
    """Return the channel, connected to this L1. Raise `BadOption` or `ChannelFailed`."""
    if ipc is None:
        return None
    if ipc != "events" and not callable(getattr(ipc, "broadcast", None)):
        raise BadOption(f'ipc must be "events", None, or have register_listeners() and broadcast(), not {ipc!r}.')
    channel = EventChannel(shm) if ipc == "events" else ipc
    try:
        channel.register_listeners(
            {
                INVALIDATIONS + name: lru.delete,
                MANY + name: lambda data: lru.delete_many(json.loads(data)),
                PURGE + name: lambda data: lru.flush_all(),
                TAGS + name: lambda data: index_of(lru).invalidate(lru, json.loads(data)),
            }
        )
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
