"""Loads missing values from their source into the levels, with one callback at a time per key.

A method that may wait is a generator of steps (`resty_django.sansio`): it yields a `Step`, which is a call, its async
twin, and their arguments. `run` makes the call, `arun` awaits the twin, and both send the result back into the
generator, or raise the call's error there. So the order of the work and the handling of errors are written once, for
sync code and for asyncio. A generator that is being closed (`GeneratorExit`) must not yield: no runner makes its calls.

Numbers refer to docs/explanation/algorithms.md, "Lookup":

| number | what | where |
|---|---|---|
| 1 to 3 | L1, L2, no callback | `MLCache.get`, `MLCache.lookup` |
| before 4 | return a stale value, and refresh it in the background | `Loader._load_or_refresh` |
| 4, 5, 8 | acquire the lock, read L2 again, release the lock | `Loader._load_locked` |
| 6 | the lock was not free in time | `Loader._timed_out` |
| 7 | call the source, store its value | `Loader._call_source` |
| `error_ttl` | raise the error of an earlier call of the source | `SharedErrors` |
| outages | the value in L1, even if stale; else 4 to 8 with a lock of the process | `Loader.load_storeless` |
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from resty_django.callables import acall, call
from resty_django.lock import Lock, LockError, LockTimeout
from resty_django.sansio import Step, Steps
from resty_django.shdict import NoMemory, SharedDict, SharedDictError, StoreOutcome, Unavailable
from resty_django.text import logger
from resty_django.text.durations import seconds_of

from ..circuit_breaker.process_locks import process_locks
from ..errors import BadOption, CallbackFailed, LockFailed, SourceError
from ..statistics.counts import Slow
from ..statistics.reporter import MAX_RUNS
from ..storage.records import Record
from ..tags.names import resolved
from ..tags.versions import TagSnapshot, are_uncommitted
from .levels import L2Records, RecordLevels, serialized
from .options import CacheOptions
from .refresher import Refresher
from .results import L2, L3, STALE, Callback, Fresh, GetCall, Hit
from .shared_errors import SharedErrors

log = logger("resty_django.cache")

R = TypeVar("R")


@dataclass(slots=True)
class LoadRequest:
    """A key to be loaded.

    `unwrap`: see `GetCall`. `stale`: an expired record, which may be served if the source fails. `revoked`: one of its
    tags was invalidated. `version`: the version of the key in L1 before the source is called. `storeless`: the store of
    L2 is down. `replaceable`: by dictionary, unexpired records that the new one may replace, because a tag was
    invalidated, or because they are `early`. `early`: a record that is replaced before it expires. `took`: seconds of
    the callback. `uses_stale`: the options allow stale values. `background`: no caller waits for the value.
    """

    key: str
    callback: Callback
    args: tuple[object, ...]
    options: CacheOptions
    unwrap: bool = False
    stale: Record | None = None
    version: int | None = None
    storeless: bool = False
    revoked: bool = False
    replaceable: Mapping[SharedDict, bytes] = field(default_factory=dict)
    early: Record | None = None
    took: float = 0.0
    uses_stale: bool = False
    background: bool = False


class Fetched(NamedTuple):
    """A value from the source. `ttl`: its time to live in seconds; 0: forever, negative: not stored."""

    value: object
    ttl: float


class Loader:
    """Loads values that are neither in L1 nor in L2. `locks`: the dictionary of the locks, guarded. `options`: of the
    cache."""

    lock_jitter = 0.5
    """Random share of the pauses between tries for a lock, so that callers do not try in step."""

    def __init__(self, levels: RecordLevels, locks: SharedDict, options: CacheOptions) -> None:
        self.refresher = Refresher()
        self.errors = SharedErrors(levels.prefix, locks, levels.lru)
        self.timer = time.perf_counter
        self._levels = levels
        self._locks = locks
        self._options = options

    def guarded(self) -> list[SharedDict]:
        """Return the guarded dictionaries: for values, for cached None and for locks."""
        return [store for store in (self._levels.shm, self._levels.miss, self._locks) if store is not None]

    def request(self, call: GetCall, early: Record | None = None) -> LoadRequest:
        """Return the request of a call. Raise `BadOption`."""
        if not callable(call.callback):
            raise BadOption(f"callback must be a function or a coroutine function, not {call.callback!r}.")
        options = self._options.changed(call.options)
        uses_stale = options.resurrect_ttl is not None or options.stale_while_revalidate > 0
        return LoadRequest(call.key, call.callback, call.args, options, call.unwrap, early=early, uses_stale=uses_stale)

    def load(self, request: LoadRequest) -> Steps[Hit]:
        """Return the value from the source, or what another process has stored meanwhile, or a stale one."""
        if self._levels.breaker.reads_down and request.options.on_error == "source":
            steps = self._load_storeless(request)
        elif request.uses_stale:
            steps = self._load_or_refresh(request)
        else:
            steps = self._load_locked(request, self._locks)
        return unwrapped(steps) if request.unwrap else steps

    def load_storeless(self, request: LoadRequest) -> Steps[Hit]:
        """Do the same as `load`, after L2 could not be read."""
        steps = self._load_storeless(request)
        return unwrapped(steps) if request.unwrap else steps

    # --- before the lock ---

    def _load_or_refresh(self, request: LoadRequest) -> Steps[Hit]:
        """Find the stale value before the lock is taken, which may push it out of a full dictionary."""
        try:
            l2_records = yield from self._levels.look(request.key, with_stale=True)
        except Unavailable:
            if request.options.on_error == "raise":
                raise
            return (yield from self._load_storeless(request))
        if l2_records.fresh is not None:
            return self._answer(request, l2_records)
        request.stale, request.revoked = l2_records.stale, l2_records.revoked
        if request.stale is not None and not request.revoked and self._may_serve_stale(request.stale, request.options):
            yield self.refresher.start(request.key, lambda: self._refresh(request))
            return Hit(serialized(request.stale.value, request.options.l1_serializer), STALE)
        return (yield from self._load_locked(request, self._locks))

    def _may_serve_stale(self, stale: Record, options: CacheOptions) -> bool:
        """Return whether an expired value may be served while it is refreshed. A purged value may not."""
        overdue = self._levels.clock() - stale.stored - stale.ttl
        return stale.ttl > 0 and 0 <= overdue < options.stale_while_revalidate

    def refresh_early(self, request: LoadRequest) -> Step:
        """Return the step that replaces `request.early` in the background, unless another process does."""
        return self.refresher.start(request.key, lambda: self._refresh(request))

    def _refresh(self, request: LoadRequest) -> Steps[None]:
        request.background = True
        try:
            yield from self._load_locked(request, self._locks, timeout=0)
        except LockTimeout:
            pass  # another process refreshes it
        except Exception as error:
            log.warning("the key %r of %r could not be refreshed: %s", request.key, self._levels.prefix, error)

    # --- 4 to 6 and 8: under the lock ---

    def _load_locked(self, request: LoadRequest, locks: SharedDict, **changes: float) -> Steps[Hit]:
        """Load the value under a lock in this dictionary. `changes`: of the lock's options."""
        lock = Lock(locks, jitter=self.lock_jitter, **{**request.options.lock_options, **changes})
        if request.options.error_ttl and request.stale is None and not request.storeless:
            error = yield from self.errors.find(request.key, request.options.error_ttl, request.storeless)
            if error is not None:
                raise error
        timeout: LockTimeout | None = None
        try:
            yield Step(lock.acquire, lock.aacquire, (f"lua-resty-mlcache:lock:{self._levels.prefix}{request.key}",))
        except LockTimeout as error:
            timeout = error
        except (LockError, SharedDictError) as error:
            if not isinstance(error, Unavailable | NoMemory) or request.options.on_error == "raise":
                raise LockFailed(f"could not acquire callback lock: {error}") from error
            return (yield from self._load_locked(request, process_locks))
        try:
            hit = yield from self._find_or_load(request, timeout)
        except GeneratorExit:  # no further step is possible; the lock is released with its object
            raise
        except BaseException:
            if timeout is None:
                yield from self._release(lock, request.key)
            raise
        if timeout is None:
            yield from self._release(lock, request.key)
        return hit

    def _find_or_load(self, request: LoadRequest, timeout: LockTimeout | None) -> Steps[Hit]:
        """Return what was stored while this call waited for the lock, or call the source. `timeout`: it has no lock."""
        if not request.storeless:
            try:
                l2_records = yield from self._levels.look(request.key, with_stale=True)
            except Unavailable:
                if request.options.on_error == "raise":
                    raise
                self._go_storeless(request)
            else:
                request.stale, request.revoked = (
                    l2_records.stale or request.stale,
                    request.revoked or l2_records.revoked,
                )
                request.replaceable = l2_records.replaceable
                request.version = l2_records.version
                if l2_records.fresh is not None and not _is_same(l2_records.fresh, request.early):
                    return self._answer(request, l2_records)
        hit = self._levels.from_l1(request.key, request.options) if request.storeless else None
        if hit is not None:
            return hit
        return self._timed_out(request, timeout) if timeout is not None else (yield from self._call_source(request))

    def _release(self, lock: Lock, key: str) -> Steps[None]:
        """Release the lock. One whose time was over is not an error: the work is done by then."""
        try:
            yield Step(lock.release, lock.arelease)
        except (LockError, SharedDictError) as error:
            log.info("the lock of the key %r of %r was not released: %s", key, self._levels.prefix, error)

    # --- without the store ---

    def _load_storeless(self, request: LoadRequest) -> Steps[Hit]:
        self._go_storeless(request)
        hit = self._levels.from_l1(request.key, request.options)
        return hit or (yield from self._load_locked(request, process_locks))

    def _go_storeless(self, request: LoadRequest) -> None:
        if not request.storeless:
            request.storeless = True
            if request.version is None:
                request.version = self._levels.lru.version(request.key)
            self._levels.count_storeless()

    def _resurrected(self, request: LoadRequest) -> Hit | None:
        if not request.storeless:
            return None
        return self._levels.resurrected(request.key, request.options, request.version)

    # --- the results ---

    def _answer(self, request: LoadRequest, l2_records: L2Records) -> Hit:
        record = l2_records.fresh
        assert record is not None  # noqa: S101
        serialize = request.options.l1_serializer
        early = self._levels.early.seconds(request.key, record, request.options.early)
        value = self._levels.promote(request.key, record, serialize, l2_records.version, l2_records.moment, early)
        return Hit(value, STALE if record.stale else L2)

    def _timed_out(self, request: LoadRequest, timeout: LockTimeout) -> Hit:
        resurrected = self._resurrected(request)
        if resurrected is not None:
            return resurrected
        if request.stale is None or request.options.resurrect_ttl is None:
            raise LockTimeout(f"could not acquire callback lock: {timeout}") from timeout
        return Hit(serialized(request.stale.value, request.options.l1_serializer), STALE)

    # --- 7: the source ---

    def _call_source(self, request: LoadRequest) -> Steps[Hit]:
        options, stale = request.options, request.stale
        tags = resolved(options.tags, request.args) if options.tags else ()
        tagged = (yield from self._tagged(request, tags)) if tags else None
        try:
            fetched = yield from self._fetch_once(request) if options.error_ttl else self.fetch(request)
        except SourceError as error:
            resurrected = self._resurrected(request)
            if resurrected is None and (stale is None or options.resurrect_ttl is None):
                raise
            log.warning(
                "the callback of the key %r of %r failed, its stale value is served: %s",
                request.key,
                self._levels.prefix,
                error,
            )
            if resurrected is not None:
                return resurrected
            assert stale is not None  # noqa: S101
            assert options.resurrect_ttl is not None  # noqa: S101
            if stale.tags:
                tagged = yield from self._tagged(request, {*tags, *stale.tags})
            value = yield from self._add(request, stale.value, options.resurrect_ttl, tagged, True)
            return Hit(value, STALE)
        if not request.background and not request.storeless:
            yield from self._levels.count_miss(request.key, revoked=self._is_purged(request), expired=stale is not None)
        if fetched.ttl < 0 or (tags and are_uncommitted(tags)):
            return Hit(fetched.value, L3)
        return Hit((yield from self._add(request, fetched.value, fetched.ttl, tagged)), L3)

    def _is_purged(self, request: LoadRequest) -> bool:
        """Return whether the record in L2 was invalidated, by a tag or by a purge, before it expired."""
        stale = request.stale
        return stale is not None and (request.revoked or not stale.ttl or stale.remaining(self._levels.clock()) > 0)

    def _tagged(self, request: LoadRequest, tags: Collection[str]) -> Steps[TagSnapshot | None]:
        """Return the snapshot of the tags of a value; if their versions are unavailable, the value stays in L1."""
        if not request.storeless:
            try:
                return (yield from self._levels.snapshot(tags))
            except (Unavailable, NoMemory):
                if request.options.on_error == "raise":
                    raise
                self._go_storeless(request)
        return self._levels.storeless_snapshot(tags)

    def _fetch_once(self, request: LoadRequest) -> Steps[Fetched]:
        """Do the same as `fetch`, but raise the error of an earlier call, and share a new error, for `error_ttl`."""
        shared = yield from self.errors.find(request.key, request.options.error_ttl, request.storeless)
        if shared is not None:
            raise shared
        try:
            return (yield from self.fetch(request))
        except (SourceError, CallbackFailed) as error:
            if request.options.error_ttl:
                failure = error.error if isinstance(error, CallbackFailed) else error
                yield from self.errors.share(request.key, request.options.error_ttl, request.storeless, failure)
            raise

    def fetch(self, request: LoadRequest) -> Steps[Fetched]:
        """Call the source, and return its value.

        Raise `SourceError` if the source is unavailable, and `CallbackFailed` for any other error.
        """
        options, counter = request.options, self._levels.counter
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
            counter.runs.append(Slow(request.key, seconds, counter.wall()))
            if len(counter.runs) > MAX_RUNS:
                counter.fold()
        if type(value) is not Fresh:
            return Fetched(value, lifetime(value, options))
        ttl = seconds_of(value.ttl)
        return Fetched(value.value, lifetime(value.value, options) if ttl is None else ttl)

    def _add(
        self, request: LoadRequest, value: object, ttl: float, tagged: TagSnapshot | None, stale: bool = False
    ) -> Steps[Any]:
        """Store a value from the source in L2 and L1, and return it as stored in L1.

        A value that another process set while the callback ran is newer and is kept in both levels. If L2 is full after
        `shm_set_tries` attempts, the value is stored only in L1, and a warning is logged. If its store is down, the
        value is stored only in L1, for `outage_ttl`.
        """
        levels, key, options = self._levels, request.key, request.options
        took = request.took if options.early and not stale else 0.0
        value, record = levels.encoded(value, ttl, stale, tagged, took)
        if request.storeless:
            return levels.keep_in_outage(key, value, ttl, options, request.version, tagged)
        version = levels.lru.version(key)
        try:
            outcome = yield from levels.add(key, value, record, ttl, request.replaceable, options.shm_set_tries)
        except Unavailable:
            if options.on_error == "raise":
                raise
            self._go_storeless(request)
            return levels.keep_in_outage(key, value, ttl, options, request.version, tagged)
        except NoMemory as error:
            levels.log_full(key, error)
        else:
            if outcome is StoreOutcome.EXISTS:
                return serialized(value, options.l1_serializer)
        early = levels.early.seconds_of_new(key, record, ttl, took, options.early) if took else 0.0
        return levels.keep(key, value, ttl, options.l1_serializer, version, tagged, early)


def unwrapped(steps: Steps[R]) -> Steps[R]:
    """Take the same steps. They raise the callback's error itself, without the cache in its context."""
    try:
        return (yield from steps)
    except CallbackFailed as failed:
        error = failed.error
    raise error


def lifetime(value: object, options: CacheOptions) -> float:
    """Return the time to live of a value from the source in seconds; 0: forever."""
    ttl = options.neg_ttl if value is None else options.ttl
    return ttl * (1 - options.jitter * random.random()) if options.jitter else ttl  # noqa: S311


def _is_same(record: Record, early: Record | None) -> bool:
    return early is not None and record.stored == early.stored and record.took == early.took
