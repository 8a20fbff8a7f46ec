"""The three levels of one cache: L1, the memory of this process; L2, a shared dictionary; L3, the callback.

Methods that may wait are generators of steps (`resty_django.sansio`). To wait, they yield a `Step`: a call, its twin
for asyncio, and their arguments. `run` makes the call, `arun` awaits the twin, and both send the result back into the
generator, or raise the call's error there. So the order of the work and the handling of errors are written once, for
sync code and for asyncio. A generator that is closed (`GeneratorExit`) must not yield any more, because nobody makes
its calls.

Numbers refer to docs/cache.md, "The way of a call":

| number | what | where |
|---|---|---|
| 1 to 3 | L1, L2, no callback | `MLCache.get`, `MLCache.lookup` |
| before 4 | a stale value at once, refreshed in the background | `Levels._load_or_refresh` |
| 4, 5, 8 | take the lock, look into L2 again, release the lock | `Levels._load_locked` |
| 6 | the lock was not free in time | `Levels._timed_out` |
| 7 | call the source, store its value | `Levels._call_source` |
| `error_ttl` | raise the error of an earlier call of the source | `Levels._shared_error` |
| outages | L1, even stale; else 4 to 8 with a lock in this process, and L1 alone | `Levels.load_storeless` |
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from resty_django.callables import acall, call
from resty_django.lock import Lock, LockError, LockTimeout
from resty_django.sansio import Step, Steps
from resty_django.shdict import (
    Change,
    Keep,
    NoMemory,
    Outcome,
    SharedDict,
    SharedDictError,
    Unavailable,
    Unreadable,
)
from resty_django.shdict.base import Entry
from resty_django.text import logger

from ..circuit_breaker.guarded import breaker_behind
from ..circuit_breaker.process_locks import process_locks
from ..errors import BadOption, BadValue, CallbackFailed, LockFailed, RemoteError, SerializerFailed, SourceError
from ..serialization.values import typed, unpack
from ..statistics.reporter import MAX_RUNS, Counter
from ..storage import records
from ..storage.compression import Compressor
from ..storage.lru import FOREVER, LRU
from ..storage.records import Record
from ..storage.shielding import forget_if_interrupted
from ..tags.index import index_of
from ..tags.names import resolved
from ..tags.versions import TagSnapshot, TagVersions, are_uncommitted
from .early import Draw, draw, lead
from .options import Options, seconds_of
from .refresher import Refresher
from .results import L1, L2, L3, STALE, Answer, Fresh, Serializer

log = logger("resty_django.cache")

LOCK: Final = "lua-resty-mlcache:lock:"
ERROR: Final = "mlcache:error:"
JITTER: Final = 0.5
"""Of the pauses between tries for a lock. Callers that tried in step would get it one by one, half a second apart."""

Callback = Callable[..., Any]
Function = Callable[[Any], Any]
KEPT: Final = 1
"""The flags of a value in L1 that was stored while the store was down. It is not served after its expiry."""
R = TypeVar("R")


@dataclass(slots=True)
class LoadRequest:
    """One key to be loaded. Raises `BadOption`.

    `unwrap`: raise the callback's error itself in place of `CallbackFailed`. `stale`: an expired record that may be
    served in place of an answer of the source. `revoked`: one of its tags was invalidated. `replaceable`: records in L2
    that have not expired, but one of whose tags was invalidated, by dictionary; also `early`. `early`: a record in L2
    that is replaced before it expires. `took`: seconds of the callback. `version`: the version of the key in L1 before
    the source is called. `storeless`: the store of L2 is down.
    """

    key: str
    callback: Callback
    args: tuple[Any, ...]
    options: Options
    unwrap: bool = False
    stale: Record | None = None
    version: int | None = None
    storeless: bool = False
    revoked: bool = False
    replaceable: Mapping[SharedDict, bytes] = field(default_factory=dict)
    early: Record | None = None
    took: float = 0.0

    def __post_init__(self) -> None:
        if not callable(self.callback):
            raise BadOption(f"callback must be a function or a coroutine function, not {self.callback!r}.")

    @property
    def uses_stale(self) -> bool:
        """Whether an expired value is of any use."""
        return self.options.resurrect_ttl is not None or self.options.stale_while_revalidate > 0


class L2Records(NamedTuple):
    """The record in L2, fresh or expired. `version`: the key's version in L1 before L2 was read. `moment`: see
    `TagSnapshot`. `revoked`, `replaceable`: see `LoadRequest`."""

    version: int
    moment: int
    fresh: Record | None = None
    stale: Record | None = None
    revoked: bool = False
    replaceable: Mapping[SharedDict, bytes] = {}


class NewValue(NamedTuple):
    """A value to be stored. `ttl`: seconds; `version`: the key's version in L1 before L2 is written, see
    `LRU.versions`."""

    value: Any
    record: bytes
    ttl: float
    version: int


class L2Record(NamedTuple):
    """A record in L2 whose tags are valid. `version`, `moment`: as in `L2Records`."""

    record: Record
    version: int
    moment: int


class Levels:
    """Finds, loads, stores and forgets the values of one cache.

    `name`: prefix of the keys in L2. `miss`: the dictionary for cached None, if separate. `locks`: the dictionary of
    the locks. All three are guarded (`circuit_breaker.guarded`). `compressor`: compresses the values in L2. `clock`:
    seconds, the same in all processes that share the dictionaries.
    """

    def __init__(
        self,
        name: str,
        l1: LRU,
        shm: SharedDict,
        miss: SharedDict | None,
        locks: SharedDict,
        clock: Callable[[], float],
        serializer: Serializer | None,
        counter: Counter,
        compressor: Compressor,
    ) -> None:
        self.l1 = l1
        self.shm = shm
        self.miss = miss
        self.clock = clock
        self.breaker = breaker_behind(shm)
        self.prefix = f"{name}:"
        self.refresher = Refresher()
        self.tags = TagVersions(shm, name)
        self.index = index_of(l1)
        self._locks = locks
        self._serializer = serializer
        self._counter = counter
        self._compressor = compressor
        self.errors = LRU(l1.max_items, l1.clock)
        """Copies of the errors of callbacks in this process, by key, for `error_ttl`."""
        self.draw: Draw = draw
        self.timer = time.perf_counter
        self._one_clock = clock is l1.clock

    def guarded(self) -> list[SharedDict]:
        """Return the guarded dictionaries: for values, for cached None and for locks."""
        return [store for store in (self.shm, self.miss, self._locks) if store is not None]

    # --- from L2 to L1 ---

    def record(self, raw: Any, key: str) -> Record | None:
        """Decode the bytes in L2. If no cache has written them, return None and log it."""
        record = records.decode(raw, unpack, self._compressor.limit)
        if record is None:
            log.warning("The record of the key %r in %r cannot be read; it counts as absent", key, self.shm)
        elif self._serializer is not None and record.value is not None:
            try:
                value = self._serializer.decode(record.value)
            except Exception:
                log.warning("The serializer of %r cannot decode the key %r; it counts as absent", self.prefix, key)
                log.debug("The cause was", exc_info=True)
                return None
            return Record(value, record.stored, record.ttl, record.stale, record.tags, record.took)
        return record

    def unreadable(self, key: str, error: Unreadable) -> None:
        """Log that an item in L2 counts as absent."""
        log.warning("The record of the key %r in %r cannot be read; it counts as absent: %s", key, self.shm, error)

    def remaining(self, record: Record) -> float:
        """Return the seconds until the record expires. Not for records that live forever."""
        return record.ttl - max(0.0, self.clock() - record.stored)

    def is_due(self, key: str, record: Record, beta: float | None) -> bool:
        """Whether this process is to replace the record, although it has not expired."""
        return bool(
            beta
            and record.ttl
            and record.took
            and self._lead(key, record.stored, record.took, beta) >= self.remaining(record)
        )

    def early(self, key: str, record: Record, beta: float | None) -> float:
        """Return the seconds before the record's expiry at which it expires in L1.

        If it is to be replaced now, L1 serves it for as long as the callback took.
        """
        if not beta or not record.ttl or not record.took:
            return 0.0
        seconds, remaining = self._lead(key, record.stored, record.took, beta), self.remaining(record)
        return seconds if seconds < remaining else max(0.0, remaining - record.took)

    def _lead(self, key: str, stored: float, took: float, beta: float) -> float:
        return lead(took, beta, self.draw(key, stored))

    def promote(
        self, key: str, record: Record, serialize: Function | None, version: int, moment: int = 0, early: float = 0.0
    ) -> Any:
        """Store the value in L1 for its remaining time in L2, and return it as stored there.

        `version`: the version of the key in L1 before the record was read. `moment`: the moment of the index before
        the record's tags were found to be valid. `early`: seconds by which the item expires earlier in L1.
        """
        value = record.value if serialize is None else serialized(record.value, serialize)
        ttl = record.ttl
        if ttl:
            now, end = self.clock(), record.stored + ttl
            if end <= now:
                return value
            if not self._one_clock:
                shift = self.l1.clock() - now
                now, end = now + shift, end + shift
            item = (value, (end if end < now + ttl else now + ttl) - early, 0)
        else:
            item = (value, FOREVER, 0)
        if record.tags:
            self.index.put(self.l1, key, item, version, record.tags, moment)
        else:
            self.l1.put(key, item, version)
        return value

    def keep(
        self,
        key: str,
        value: Any,
        ttl: float,
        serialize: Function | None,
        version: int,
        tagged: TagSnapshot | None = None,
        early: float = 0.0,
    ) -> Any:
        """Apply `serialize` to a value, store the result in L1, and return it.

        `version`: the version of the key in L1 before the value was stored in L2. `tagged`: the value's tags from
        before its source was called. `early`: as in `promote`.
        """
        value = serialized(value, serialize)
        item = (value, self.l1.clock() + ttl - early if ttl else FOREVER, 0)
        if tagged is None:
            self.l1.replace(key, item, version)
        else:
            self.index.replace(self.l1, key, item, version, tagged.versions, tagged.moment)
        return value

    def keep_in_outage(
        self, key: str, value: Any, ttl: float, options: Options, version: int | None, tagged: TagSnapshot | None
    ) -> Any:
        """Store a value in L1 for at most `outage_ttl`, and return it as stored there.

        `version`: the version of the key in L1 before the value was read (None: the value replaces what L1 has).
        `tagged`: its tags.
        """
        value = serialized(value, options.l1_serializer)
        seconds = min(ttl, options.outage_ttl) if ttl else options.outage_ttl
        if version is None:
            self.l1.delete(key)
        item = (value, self.l1.clock() + seconds, KEPT)
        if tagged is None:
            self.l1.put(key, item, version)
        else:
            current = self.l1.version(key) if version is None else version
            self.index.put(self.l1, key, item, current, tagged.versions, tagged.moment)
        return value

    def keep_many(
        self, entries: Mapping[str, NewValue], options: Options, tagged: TagSnapshot | None, storeless: bool
    ) -> None:
        """Store values in L1, like `keep`, or `keep_in_outage` if `storeless`.

        Raise `SerializerFailed` after storing all others; its value is deleted in L1.
        """
        errors: list[SerializerFailed] = []
        for key, entry in entries.items():
            try:
                if storeless:
                    self.keep_in_outage(key, entry.value, entry.ttl, options, None, tagged)
                else:
                    self.keep(key, entry.value, entry.ttl, options.l1_serializer, entry.version, tagged)
            except SerializerFailed as error:
                self.l1.delete(key)
                errors.append(error)
        if errors:
            raise errors[0]

    # --- tags ---

    def snapshot(self, tags: Collection[str]) -> Steps[TagSnapshot | None]:
        """Return the tags with their versions, for a value that is read afterwards; None without tags."""
        if not tags:
            return None
        moment = self.index.moment
        return TagSnapshot((yield from self.tags.load(tags)), moment)

    def storeless_snapshot(self, tags: Collection[str]) -> TagSnapshot | None:
        """Return the tags for a value that is only stored in L1; None without tags."""
        return TagSnapshot(dict.fromkeys(tags, 0), self.index.moment) if tags else None

    def invalidate(self, tags: Collection[str], entry: Entry = None) -> Steps[None]:
        """Invalidate tags in L2 and L1."""
        with forget_if_interrupted(partial(self.index.invalidate, self.l1, tags)):
            yield from self.tags.delete(tags, entry)
        self.index.invalidate(self.l1, tags)

    # --- L2 ---

    def look(self, key: str, with_stale: bool) -> Steps[L2Records]:
        """Return the record in L2; of two expired records, the one stored later. A record with an invalidated tag
        counts as expired."""
        name = self.prefix + key
        version, moment = self.l1.version(key), self.index.moment
        stale: list[tuple[Record, bool]] = []
        replaceable: dict[SharedDict, bytes] = {}
        for dictionary in (self.shm, self.miss):
            if dictionary is None:
                continue
            try:
                if with_stale:
                    item = yield Step(dictionary.get_stale, dictionary.aget_stale, (name,))
                    raw, expired = (None, False) if item is None else (item.value, item.stale)
                else:
                    raw, expired = (yield Step(dictionary.get, dictionary.aget, (name,))), False
            except Unreadable as error:
                self.unreadable(key, error)
                raw = None
                yield Step(dictionary.delete, dictionary.adelete, (name,))
            if raw is None:
                continue
            record = self.record(raw, key)
            if record is None:
                yield Step(dictionary.delete_if, dictionary.adelete_if, (name, raw))  # makes way for a new one
                continue
            revoked = bool(record.tags) and not (yield from self.tags.are_current(record.tags or {}))
            if not expired:
                replaceable[dictionary] = raw
            if not expired and not revoked:
                return L2Records(version, moment, fresh=record, replaceable=replaceable)
            if with_stale:
                stale.append((record, revoked))
        latest, revoked = max(stale, key=_stored, default=(None, False))
        return L2Records(version, moment, stale=latest, revoked=revoked, replaceable=replaceable)

    def look_many(self, keys: Iterable[str]) -> Steps[dict[str, L2Record | SharedDictError]]:
        """Return the valid records in L2 by key, or `WrongKind` for a list. Unreadable ones are absent."""
        versions = {key: self.l1.version(key) for key in keys}
        moment = self.index.moment
        raws, errors = yield from self._raw_many(list(versions))
        decoded = {key: self.record(raw, key) for key, raw in raws.items()}
        tags = {key: record.tags for key, record in decoded.items() if record is not None and record.tags}
        revoked = (yield from self.tags.revoked(tags)) if tags else ()
        return errors | {
            key: L2Record(record, versions[key], moment)
            for key, record in decoded.items()
            if record is not None and key not in revoked
        }

    def _raw_many(self, missing: Sequence[str]) -> Steps[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the bytes in L2 by key, and the errors of lists."""
        raws: dict[str, Any] = {}
        errors: dict[str, Any] = {}

        def on_error(name: str, error: SharedDictError) -> None:
            key = name.removeprefix(self.prefix)
            if isinstance(error, Unreadable):
                self.unreadable(key, error)
            else:
                errors[key] = error

        for dictionary in (self.shm, self.miss):
            if dictionary is not None and missing:
                names = [self.prefix + key for key in missing]
                values = yield Step(dictionary.get_many, dictionary.aget_many, (names, on_error))
                raws.update((name.removeprefix(self.prefix), raw) for name, raw in values.items())
                missing = [key for key in missing if key not in raws]
        return raws, errors

    def encoded(
        self, value: Any, ttl: float, stale: bool = False, tagged: TagSnapshot | None = None, took: float = 0.0
    ) -> tuple[Any, bytes]:
        """Return a value as all levels return it, and its record. `took`: seconds of its callback, if it is to be
        replaced early. Raise `BadValue`."""
        if not ttl:
            took = 0.0
        tags = None if tagged is None else tagged.versions
        if self._serializer is None or value is None:
            try:
                stored = value = records.plain(value)
            except BadValue:
                value, stored = typed(value)
            return value, records.encode(stored, self.clock(), ttl, stale, tags, self._compressor, took)
        try:
            data = self._serializer.encode(value)
        except Exception as error:
            raise BadValue(f"The serializer cannot encode a {type(value).__name__}: {error}") from error
        return value, records.encode(records.plain(data), self.clock(), ttl, stale, tags, self._compressor, took)

    def early_of(self, key: str, record: bytes, ttl: float, took: float, beta: float | None) -> float:
        """Return the seconds before its expiry at which a record of this process expires in L1."""
        return self._lead(key, records.stored_at(record), took, beta) if beta and took and ttl else 0.0

    def add(
        self, request: LoadRequest, value: Any, ttl: float, tagged: TagSnapshot | None, stale: bool = False
    ) -> Steps[Any]:
        """Store a value from the source in L2 and L1, and return it as stored in L1.

        A value that another process set while the callback ran is newer and is kept in both levels. If L2 is full after
        `shm_set_tries` attempts, the value is stored only in L1, and a warning is logged. If its store is down, the
        value is stored only in L1, for `outage_ttl`.
        """
        key, options = request.key, request.options
        took = request.took if options.early and not stale else 0.0
        value, record = self.encoded(value, ttl, stale, tagged, took)
        if request.storeless:
            return self.keep_in_outage(key, value, ttl, options, request.version, tagged)
        version = self.l1.version(key)
        dictionary = self._dictionary_for(value)
        step = Step(dictionary.add, dictionary.aadd, (self.prefix + key, record, ttl))
        try:
            for place, raw in request.replaceable.items():
                if place is dictionary:
                    replace = partial(_replaced, raw, record, ttl)
                    step = Step(dictionary.update, dictionary.aupdate, (self.prefix + key, replace))
                else:
                    yield Step(place.delete_if, place.adelete_if, (self.prefix + key, raw))
            outcome = yield from _with_tries(step, options.shm_set_tries)
        except Unavailable:
            if options.on_error == "raise":
                raise
            self._go_storeless(request)
            return self.keep_in_outage(key, value, ttl, options, request.version, tagged)
        except NoMemory as error:
            if not self.breaker.full:  # then the outage is logged
                log.warning("The key %r of %r was not stored in L2: %s", key, self.prefix, error)
        else:
            if outcome is Outcome.EXISTS:
                return serialized(value, options.l1_serializer)
        early = self.early_of(key, record, ttl, took, options.early)
        return self.keep(key, value, ttl, options.l1_serializer, version, tagged, early)

    def set(self, key: str, value: Any, record: bytes, ttl: float, tries: int, entry: Entry = None) -> Steps[None]:
        """Store a value in L2, replacing any existing one. `entry`: the journal entry that invalidates it elsewhere.

        Raise `NoMemory`.
        """
        name, shm, miss = self.prefix + key, self.shm, self.miss
        stored = (name, record, ttl, 0)
        try:
            if value is None and miss is not None:
                yield from _with_tries(Step(miss.set, miss.aset, stored), tries)
                yield Step(shm.delete, shm.adelete, (name, entry))
                return
            if miss is not None:
                yield Step(miss.delete, miss.adelete, (name,))
            step = Step(shm.set, shm.aset, (*stored, entry))
            try:
                yield step
            except NoMemory:
                if tries == 1:
                    raise
                yield from _with_tries(step, tries - 1)
        except Exception:
            raise
        except BaseException:
            self.l1.delete(key)  # as `forget_if_interrupted`
            raise

    def set_many(self, values: Mapping[str, NewValue], entry: Entry) -> Steps[list[str]]:
        """Store values in L2, replacing existing ones. Return the keys for which there is no space. `entry`: as in
        `set`."""
        names = {key: self.prefix + key for key in values}
        failed: list[str] = []
        with forget_if_interrupted(partial(self.l1.delete_many, values)):
            for dictionary in (self.miss, self.shm):
                if dictionary is not None:
                    records = {
                        name: values[key].record if self._dictionary_for(values[key].value) is dictionary else None
                        for key, name in names.items()
                    }
                    ttls = {name: values[key].ttl for key, name in names.items()}
                    carried = entry if dictionary is self.shm else None
                    failed += yield Step(dictionary.set_many, dictionary.aset_many, (records, ttls, 0, carried))
        return [name.removeprefix(self.prefix) for name in failed]

    def delete_many(self, keys: Sequence[str], entry: Entry) -> Steps[None]:
        """Delete keys in both levels."""
        names = [self.prefix + key for key in keys]
        with forget_if_interrupted(partial(self.l1.delete_many, keys)):
            if self.miss is not None:
                yield Step(self.miss.delete_many, self.miss.adelete_many, (names,))
            yield Step(self.shm.delete_many, self.shm.adelete_many, (names, entry))
        self.l1.delete_many(keys)

    def delete(self, key: str, entry: Entry = None) -> Steps[None]:
        """Delete a key in both levels."""
        name = self.prefix + key
        try:
            if self.miss is not None:
                yield Step(self.miss.delete, self.miss.adelete, (name,))
            yield Step(self.shm.delete, self.shm.adelete, (name, entry))
        except Exception:
            raise
        except BaseException:
            self.l1.delete(key)  # as `forget_if_interrupted`
            raise
        self.l1.delete(key)

    def flush(self, free: bool, entry: Entry = None) -> Steps[None]:
        """Expire everything in the dictionaries, and empty L1. `free`: also free the memory."""
        with forget_if_interrupted(self.l1.flush_all):
            if self.miss is not None:
                yield Step(self.miss.flush_all, self.miss.aflush_all)
            yield Step(self.shm.flush_all, self.shm.aflush_all, (entry,))
            for dictionary in (self.shm, self.miss):
                if free and dictionary is not None:
                    yield Step(dictionary.flush_expired, dictionary.aflush_expired)
        self.l1.flush_all()
        self.errors.flush_all()

    def _dictionary_for(self, value: Any) -> SharedDict:
        return self.shm if value is not None or self.miss is None else self.miss

    # --- L3: before the lock ---

    def load(self, request: LoadRequest) -> Steps[Answer]:
        """Return the value from the source, or what another process has stored meanwhile, or a stale one."""
        if self.breaker.reads_down and request.options.on_error == "source":
            steps = self._load_storeless(request)
        elif request.uses_stale:
            steps = self._load_or_refresh(request)
        else:
            steps = self._load_locked(request, self._lock(request))
        return unwrapped(steps) if request.unwrap else steps

    def _load_or_refresh(self, request: LoadRequest) -> Steps[Answer]:
        """Find the stale value before the lock is taken, which may push it out of a full dictionary."""
        try:
            l2_records = yield from self.look(request.key, with_stale=True)
        except Unavailable:
            if request.options.on_error == "raise":
                raise
            return (yield from self._load_storeless(request))
        if l2_records.fresh is not None:
            return self._answer(request, l2_records)
        request.stale, request.revoked = l2_records.stale, l2_records.revoked
        if request.stale is not None and not request.revoked and self._may_serve_stale(request.stale, request.options):
            yield self.refresher.start(request.key, lambda: self._refresh(request))
            return serialized(request.stale.value, request.options.l1_serializer), STALE
        lock = self._lock(request)
        return (yield from self._load_locked(request, lock))

    def _may_serve_stale(self, stale: Record, options: Options) -> bool:
        """Whether a value may be served as it is while it is refreshed. One that was purged may not."""
        overdue = self.clock() - stale.stored - stale.ttl
        return stale.ttl > 0 and 0 <= overdue < options.stale_while_revalidate

    def refresh_early(self, request: LoadRequest) -> Step:
        """Return the step that replaces `request.early` in the background, unless another process does."""
        return self.refresher.start(request.key, lambda: self._refresh(request))

    def _refresh(self, request: LoadRequest) -> Steps[None]:
        lock = self._lock(request, timeout=0)
        try:
            yield from self._load_locked(request, lock)
        except LockTimeout:
            pass  # another process refreshes it
        except Exception as error:
            log.warning("the key %r of %r could not be refreshed: %s", request.key, self.prefix, error)

    # --- 4 to 6 and 8: under the lock ---

    def _lock(self, request: LoadRequest, **options: Any) -> Lock:
        return Lock(self._locks, jitter=JITTER, **{**request.options.lock_options, **options})

    def _load_locked(self, request: LoadRequest, lock: Lock) -> Steps[Answer]:
        if request.stale is None and not request.storeless:
            error = yield from self._shared_error(request)
            if error is not None:
                raise error
        timeout: LockTimeout | None = None
        try:
            yield Step(lock.acquire, lock.aacquire, (LOCK + self.prefix + request.key,))
        except LockTimeout as error:
            timeout = error
        except (LockError, SharedDictError) as error:
            if not isinstance(error, Unavailable | NoMemory) or request.options.on_error == "raise":
                raise LockFailed(f"could not acquire callback lock: {error}") from error
            return (yield from self._load_locked(request, self._process_lock(request)))
        try:
            answer = yield from self._find_or_load(request, timeout)
        except GeneratorExit:  # no further step is possible; the lock is released with its object
            raise
        except BaseException:
            if timeout is None:
                yield from self._release(lock, request.key)
            raise
        if timeout is None:
            yield from self._release(lock, request.key)
        return answer

    def _find_or_load(self, request: LoadRequest, timeout: LockTimeout | None) -> Steps[Answer]:
        """Return what was stored while this call waited for the lock, or call the source. `timeout`: it has no lock."""
        answer = None
        if not request.storeless:
            try:
                l2_records = yield from self.look(request.key, with_stale=request.uses_stale)
            except Unavailable:
                if request.options.on_error == "raise":
                    raise
                self._go_storeless(request)
            else:
                request.stale = l2_records.stale or request.stale
                request.replaceable = l2_records.replaceable
                request.version = l2_records.version
                if l2_records.fresh is not None and not _is_same(l2_records.fresh, request.early):
                    return self._answer(request, l2_records)
        if request.storeless:
            answer = self.from_l1(request.key, request.options)
        if answer is None:
            answer = (
                self._timed_out(request, timeout) if timeout is not None else (yield from self._call_source(request))
            )
        return answer

    # --- without the store ---

    def load_storeless(self, request: LoadRequest) -> Steps[Answer]:
        """Like `load`, after L2 could not be read."""
        steps = self._load_storeless(request)
        return unwrapped(steps) if request.unwrap else steps

    def _load_storeless(self, request: LoadRequest) -> Steps[Answer]:
        self._go_storeless(request)
        answer = self.from_l1(request.key, request.options)
        if answer is None:
            answer = yield from self._load_locked(request, self._process_lock(request))
        return answer

    def _go_storeless(self, request: LoadRequest) -> None:
        if not request.storeless:
            request.storeless = True
            if request.version is None:
                request.version = self.l1.version(request.key)
            self.count_storeless()

    def count_storeless(self) -> None:
        """Count a call that is answered without the store."""
        self.breaker.calls += 1
        self._counter.now.storeless += 1

    def from_l1(self, key: str, options: Options) -> Answer | None:
        """Return the value in L1 if it expired at most `stale_if_outage` ago."""
        item = self.l1.items.get(key)
        if item is None:
            return None
        value, expires, flags = item
        overdue = self.l1.clock() - expires
        if overdue <= 0:
            return value, L1
        return (value, STALE) if not flags and overdue < options.stale_if_outage else None

    def _process_lock(self, request: LoadRequest) -> Lock:
        return Lock(process_locks, jitter=JITTER, **request.options.lock_options)

    def _resurrected(self, request: LoadRequest) -> Any:
        """Return the expired value in L1 as a 1-tuple, after storing it again; None if L1 has none."""
        item = self.l1.items.get(request.key)
        ttl = request.options.resurrect_ttl
        if item is None or ttl is None:
            return None
        seconds = min(ttl, request.options.outage_ttl) if ttl else request.options.outage_ttl
        self.l1.put(request.key, (item[0], self.l1.clock() + seconds, KEPT), request.version)
        return (item[0],)

    # --- the results ---

    def _answer(self, request: LoadRequest, l2_records: L2Records) -> Answer:
        record = l2_records.fresh
        assert record is not None  # noqa: S101
        serialize = request.options.l1_serializer
        early = self.early(request.key, record, request.options.early)
        value = self.promote(request.key, record, serialize, l2_records.version, l2_records.moment, early)
        return value, STALE if record.stale else L2

    def _timed_out(self, request: LoadRequest, timeout: LockTimeout) -> Answer:
        resurrected = self._resurrected(request) if request.storeless else None
        if resurrected is not None:
            return resurrected[0], STALE
        if request.stale is None or request.options.resurrect_ttl is None:
            raise LockTimeout(f"could not acquire callback lock: {timeout}") from timeout
        return serialized(request.stale.value, request.options.l1_serializer), STALE

    def _release(self, lock: Lock, key: str) -> Steps[None]:
        """Release the lock. One whose time was over is not an error: the work is done by then."""
        try:
            yield Step(lock.release, lock.arelease)
        except (LockError, SharedDictError) as error:
            log.info("the lock of the key %r of %r was not released: %s", key, self.prefix, error)

    # --- 7: the source ---

    def _call_source(self, request: LoadRequest) -> Steps[Answer]:
        options, stale = request.options, request.stale
        tags = resolved(options.tags, request.args) if options.tags else ()
        tagged = yield from self._tagged(request, tags)
        try:
            value, ttl = yield from self._fetch_once(request)
        except SourceError as error:
            resurrected = self._resurrected(request) if request.storeless else None
            if resurrected is None and (stale is None or options.resurrect_ttl is None):
                raise
            log.warning(
                "the callback of the key %r of %r failed, its stale value is served: %s",
                request.key,
                self.prefix,
                error,
            )
            if resurrected is not None:
                return resurrected[0], STALE
            assert stale is not None  # noqa: S101
            assert options.resurrect_ttl is not None  # noqa: S101
            if stale.tags:
                tagged = yield from self._tagged(request, {*tags, *stale.tags})
            return (yield from self.add(request, stale.value, options.resurrect_ttl, tagged, True)), STALE
        if ttl < 0 or (tags and are_uncommitted(tags)):
            return value, L3
        return (yield from self.add(request, value, ttl, tagged)), L3

    def _tagged(self, request: LoadRequest, tags: Collection[str]) -> Steps[TagSnapshot | None]:
        """Return the snapshot of the tags of a value; if their versions are unavailable, the value stays in L1."""
        if not request.storeless:
            try:
                return (yield from self.snapshot(tags))
            except (Unavailable, NoMemory):
                if request.options.on_error == "raise":
                    raise
                self._go_storeless(request)
        return self.storeless_snapshot(tags)

    def _fetch_once(self, request: LoadRequest) -> Steps[tuple[Any, float]]:
        """Like `fetch`, but raise the error of an earlier call, and share the error of this one, for `error_ttl`."""
        shared = yield from self._shared_error(request)
        if shared is not None:
            raise shared
        try:
            return (yield from self.fetch(request))
        except (SourceError, CallbackFailed) as error:
            if request.options.error_ttl:
                yield from self._share(request, error.error if isinstance(error, CallbackFailed) else error)
            raise

    def _share(self, request: LoadRequest, error: Exception) -> Steps[None]:
        """Store the error in this process, where callers get copies of it, and as text for other processes."""
        ttl, name = request.options.error_ttl, ERROR + self.prefix + request.key
        copied = _copied(error)
        if copied is not None:
            self.errors.set(request.key, copied, ttl)
        if request.storeless:
            return
        message = str(error)[:1000].encode(errors="replace").decode()
        try:
            text = [isinstance(error, SourceError), type(error).__name__, message]
            yield Step(self._locks.set, self._locks.aset, (name, text, ttl))
        except (Unavailable, NoMemory) as failure:
            log.info("the error of the key %r of %r was not shared: %s", request.key, self.prefix, failure)

    def _shared_error(self, request: LoadRequest) -> Steps[Exception | None]:
        """Return the error that the source raised less than `error_ttl` ago, as `fetch` raises it; None without one."""
        if not request.options.error_ttl:
            return None
        stored = self.errors.get(request.key)
        error = None if stored is None else _copied(stored)
        if error is None and not request.storeless:
            name = ERROR + self.prefix + request.key
            try:
                text = yield Step(self._locks.get, self._locks.aget, (name,))
            except Unavailable:  # the lock, which is taken next, deals with the outage
                text = None
            if text is not None:
                of_source, kind, message = text
                error = SourceError(message) if of_source else RemoteError(f"{kind}: {message}")
        if error is None or isinstance(error, SourceError):
            return error
        failed = CallbackFailed(error)
        failed.__cause__ = error
        return failed

    def fetch(self, request: LoadRequest) -> Steps[tuple[Any, float]]:
        """Call the source. Returns its value, and the seconds that it lives: 0 forever, below 0 not at all.

        Raises `SourceError` where the source says that it cannot answer, and `CallbackFailed` for anything else.
        """
        options, counter = request.options, self._counter
        started = self.timer()
        try:
            value = yield Step(call, acall, (request.callback, *request.args))
        except SourceError:
            counter.now.callback_errors += 1
            raise
        except Exception as error:
            counter.now.callback_errors += 1
            if isinstance(error, options.failures):
                raise SourceError(error) from error
            raise CallbackFailed(error) from error
        finally:
            seconds = request.took = self.timer() - started
            counter.now.callbacks += 1
            counter.now.callback_seconds += seconds
            counter.runs.append((request.key, seconds, counter.wall()))
            if len(counter.runs) > MAX_RUNS:
                counter.fold()
        if type(value) is not Fresh:
            return value, lifetime(value, options)
        value, ttl = value
        life = seconds_of(ttl)
        return value, (lifetime(value, options) if life is None else life)


def unwrapped(steps: Steps[R]) -> Steps[R]:
    """Take the same steps. They raise the callback's error itself, without the cache in its context."""
    try:
        return (yield from steps)
    except CallbackFailed as failed:
        error = failed.error
    raise error


def _copied(error: Exception) -> Exception | None:
    """Return a copy without the traceback, so that threads can raise it and it keeps no frames alive; None if its class
    is not written in Python. It does not call `__init__` of the class, which may take other arguments than `args`."""
    kind = type(error)
    base: Any = next(parent for parent in kind.__mro__ if parent.__module__ == "builtins")
    arguments = base.__reduce__(error)[1]
    try:
        copied: Exception = base.__new__(kind, *arguments)
        base.__init__(copied, *arguments)
    except TypeError:
        return None
    vars(copied).update(vars(error))
    return copied


def lifetime(value: Any, options: Options) -> float:
    """Return the time to live of a value from the source in seconds; 0: forever."""
    ttl = options.neg_ttl if value is None else options.ttl
    return ttl * (1 - options.jitter * random.random()) if options.jitter else ttl  # noqa: S311


def serialized(value: Any, serialize: Function | None) -> Any:
    """Return a value converted for L1. Raise `SerializerFailed`."""
    if serialize is None or value is None:
        return value
    try:
        l1_value = serialize(value)
    except Exception as error:
        raise SerializerFailed(f"l1_serializer threw an error: {error}") from error
    if l1_value is None:
        raise SerializerFailed("l1_serializer returned None; it must return a value.")
    return l1_value


def _with_tries(step: Step, tries: int) -> Steps[Outcome]:
    """Repeat a storing step; each attempt evicts more items. Raise `NoMemory` after the last."""
    for attempt in range(1, tries + 1):
        try:
            outcome: Outcome = yield step
        except NoMemory:
            if attempt == tries:
                raise
        else:
            return outcome
    raise AssertionError("tries is at least 1.")


def _replaced(raw: bytes, record: bytes, ttl: float, stored: Any) -> Change | Keep:
    """Return the change of a key from `raw`, if it still has this value, to `record`."""
    return Change(record, ttl, Outcome.STORED) if stored is None or stored == raw else Keep(Outcome.EXISTS)


def _is_same(record: Record, early: Record | None) -> bool:
    return early is not None and record.stored == early.stored and record.took == early.took


def _stored(candidate: tuple[Record, bool]) -> float:
    return candidate[0].stored
