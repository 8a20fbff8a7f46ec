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
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from asgiref.sync import async_to_sync, sync_to_async

from resty_django.events.handlers import is_async
from resty_django.lock import Lock, LockError, LockTimeout
from resty_django.sansio import Step, Steps
from resty_django.shdict import NoMemory, Outcome, SharedDict, SharedDictError, Unreadable
from resty_django.text import logger

from ..errors import BadOption, BadValue, CallbackFailed, LockFailed, SerializerFailed, SourceError
from ..statistics.reporter import MAX_RUNS, Counter
from . import records
from .lru import FOREVER, LRU
from .options import Options, is_number
from .records import Record
from .refresher import Refresher
from .results import L2, L3, STALE, Answer, Fresh, Serializer
from .shielding import forget_if_interrupted

log = logger("resty_django.cache")

LOCK: Final = "lua-resty-mlcache:lock:"
JITTER: Final = 0.5
"""Of the pauses between tries for a lock. Callers that tried in step would get it one by one, half a second apart."""

Callback = Callable[..., Any]
Function = Callable[[Any], Any]
R = TypeVar("R")


@dataclass(slots=True)
class LoadRequest:
    """One key to be loaded. Raises `BadOption`.

    `unwrap`: raise the callback's error itself in place of `CallbackFailed`. `stale`: an expired record that may be
    served in place of an answer of the source.
    """

    key: str
    callback: Callback
    args: tuple[Any, ...]
    options: Options
    unwrap: bool = False
    stale: Record | None = None

    def __post_init__(self) -> None:
        if not callable(self.callback):
            raise BadOption(f"callback must be a function or a coroutine function, not {self.callback!r}.")

    @property
    def uses_stale(self) -> bool:
        """Whether an expired value is of any use."""
        return self.options.resurrect_ttl is not None or self.options.stale_while_revalidate > 0


class L2Records(NamedTuple):
    """The record in L2, fresh or expired. `version`: the key's version in L1 before L2 was read."""

    version: int
    fresh: Record | None = None
    stale: Record | None = None


class Levels:
    """Finds, loads, stores and forgets the values of one cache.

    `name`: prefix of the keys in L2. `miss`: the dictionary for cached None, if separate. `locks`: the dictionary of
    the locks. `clock`: seconds, the same in all processes that share the dictionaries.
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
    ) -> None:
        self.l1 = l1
        self.shm = shm
        self.miss = miss
        self.clock = clock
        self.prefix = f"{name}:"
        self.refresher = Refresher()
        self._locks = locks
        self._serializer = serializer
        self._counter = counter
        self._one_clock = clock is l1.clock

    # --- from L2 to L1 ---

    def record(self, raw: Any, key: str) -> Record | None:
        """Decode the bytes in L2. If no cache has written them, return None and log it."""
        record = records.decode(raw)
        if record is None:
            log.warning("The record of the key %r in %r cannot be read; it counts as absent", key, self.shm)
        elif self._serializer is not None and record.value is not None:
            try:
                value = self._serializer.decode(record.value)
            except Exception:
                log.warning("The serializer of %r cannot decode the key %r; it counts as absent", self.prefix, key)
                log.debug("The cause was", exc_info=True)
                return None
            return Record(value, record.stored, record.ttl, record.stale)
        return record

    def unreadable(self, key: str, error: Unreadable) -> None:
        """Log that an item in L2 counts as absent."""
        log.warning("The record of the key %r in %r cannot be read; it counts as absent: %s", key, self.shm, error)

    def remaining(self, record: Record) -> float:
        """Return the seconds until the record expires. Not for records that live forever."""
        return record.ttl - max(0.0, self.clock() - record.stored)

    def promote(self, key: str, record: Record, serialize: Function | None, version: int) -> Any:
        """Store the value in L1 for its remaining time in L2, and return it as stored there.

        `version`: the version of the key in L1 before the record was read.
        """
        value = record.value if serialize is None else serialized(record.value, serialize)
        ttl = record.ttl
        if not ttl:
            self.l1.put(key, (value, FOREVER, 0), version)
            return value
        now, end = self.clock(), record.stored + ttl
        if end > now:
            if not self._one_clock:
                shift = self.l1.clock() - now
                now, end = now + shift, end + shift
            self.l1.put(key, (value, end if end < now + ttl else now + ttl, 0), version)
        return value

    def keep(self, key: str, value: Any, ttl: float, serialize: Function | None, version: int) -> Any:
        """Apply `serialize` to a value, store the result in L1, and return it.

        `version`: the version of the key in L1 before the value was stored in L2.
        """
        value = serialized(value, serialize)
        self.l1.replace(key, (value, self.l1.clock() + ttl if ttl else FOREVER, 0), version)
        return value

    # --- L2 ---

    def look(self, key: str, with_stale: bool) -> Steps[L2Records]:
        """Return the record in L2; of two expired records, the one stored later."""
        name = self.prefix + key
        version = self.l1.version(key)
        stale: list[Record] = []
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
            elif not expired:
                return L2Records(version, fresh=record)
            else:
                stale.append(record)
        return L2Records(version, stale=max(stale, key=_stored, default=None))

    def encoded(self, value: Any, ttl: float, stale: bool = False) -> tuple[Any, bytes]:
        """Return a value as all levels return it, and its record. Raise `BadValue`."""
        if self._serializer is None or value is None:
            value = records.plain(value)
            return value, records.encode(value, self.clock(), ttl, stale)
        try:
            data = self._serializer.encode(value)
        except Exception as error:
            raise BadValue(f"The serializer cannot encode a {type(value).__name__}: {error}") from error
        return value, records.encode(records.plain(data), self.clock(), ttl, stale)

    def add(self, key: str, value: Any, ttl: float, options: Options, stale: bool = False) -> Steps[Any]:
        """Store a value from the source in L2 and L1, and return it as stored in L1.

        A value that another process set while the callback ran is newer and is kept in both levels. If L2 is full after
        `shm_set_tries` attempts, the value is stored only in L1, and a warning is logged.
        """
        value, record = self.encoded(value, ttl, stale)
        version = self.l1.version(key)
        dictionary = self._dictionary_for(value)
        step = Step(dictionary.add, dictionary.aadd, (self.prefix + key, record, ttl))
        try:
            outcome = yield from _with_tries(step, options.shm_set_tries)
        except NoMemory as error:
            log.warning("The key %r of %r was not stored in L2: %s", key, self.prefix, error)
        else:
            if outcome is Outcome.EXISTS:
                return serialized(value, options.l1_serializer)
        return self.keep(key, value, ttl, options.l1_serializer, version)

    def set(self, key: str, value: Any, record: bytes, ttl: float, tries: int) -> Steps[None]:
        """Store a value in L2, replacing any existing one. Raise `NoMemory`."""
        name, dictionary = self.prefix + key, self._dictionary_for(value)
        with forget_if_interrupted(partial(self.l1.delete, key)):
            if self.miss is not None:
                former = self.shm if dictionary is self.miss else self.miss
                yield Step(former.delete, former.adelete, (name,))
            yield from _with_tries(Step(dictionary.set, dictionary.aset, (name, record, ttl)), tries)

    def delete(self, key: str) -> Steps[None]:
        """Delete a key in both levels."""
        with forget_if_interrupted(partial(self.l1.delete, key)):
            for dictionary in (self.shm, self.miss):
                if dictionary is not None:
                    yield Step(dictionary.delete, dictionary.adelete, (self.prefix + key,))
        self.l1.delete(key)

    def flush(self, free: bool) -> Steps[None]:
        """Expire everything in the dictionaries, and empty L1. `free`: also free the memory."""
        with forget_if_interrupted(self.l1.flush_all):
            for dictionary in (self.shm, self.miss):
                if dictionary is not None:
                    yield Step(dictionary.flush_all, dictionary.aflush_all)
                    if free:
                        yield Step(dictionary.flush_expired, dictionary.aflush_expired)
        self.l1.flush_all()

    def _dictionary_for(self, value: Any) -> SharedDict:
        return self.shm if value is not None or self.miss is None else self.miss

    # --- L3: before the lock ---

    def load(self, request: LoadRequest) -> Steps[Answer]:
        """Return the value from the source, or what another process has stored meanwhile, or a stale one."""
        if request.uses_stale:
            steps = self._load_or_refresh(request)
        else:
            steps = self._load_locked(request, self._lock(request))
        return unwrapped(steps) if request.unwrap else steps

    def _load_or_refresh(self, request: LoadRequest) -> Steps[Answer]:
        """Find the stale value before the lock is taken, which may push it out of a full dictionary."""
        l2_records = yield from self.look(request.key, with_stale=True)
        if l2_records.fresh is not None:
            return self._answer(request, l2_records.fresh, l2_records.version)
        request.stale = l2_records.stale
        if l2_records.stale is not None and self._may_serve_stale(l2_records.stale, request.options):
            yield self.refresher.start(request.key, lambda: self._refresh(request))
            return serialized(l2_records.stale.value, request.options.l1_serializer), STALE
        lock = self._lock(request)
        return (yield from self._load_locked(request, lock))

    def _may_serve_stale(self, stale: Record, options: Options) -> bool:
        """Whether a value may be served as it is while it is refreshed. One that was purged may not."""
        overdue = self.clock() - stale.stored - stale.ttl
        return stale.ttl > 0 and 0 <= overdue < options.stale_while_revalidate

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
        timeout: LockTimeout | None = None
        try:
            yield Step(lock.acquire, lock.aacquire, (LOCK + self.prefix + request.key,))
        except LockTimeout as error:
            timeout = error
        except (LockError, SharedDictError) as error:
            raise LockFailed(f"could not acquire callback lock: {error}") from error
        try:
            l2_records = yield from self.look(request.key, with_stale=request.uses_stale)
            request.stale = l2_records.stale or request.stale
            if l2_records.fresh is not None:
                answer = self._answer(request, l2_records.fresh, l2_records.version)
            elif timeout is not None:
                answer = self._timed_out(request, timeout)
            else:
                answer = yield from self._call_source(request)
        except GeneratorExit:  # no further step is possible; the lock is released with its object
            raise
        except BaseException:
            if timeout is None:
                yield from self._release(lock, request.key)
            raise
        if timeout is None:
            yield from self._release(lock, request.key)
        return answer

    def _answer(self, request: LoadRequest, record: Record, version: int) -> Answer:
        value = self.promote(request.key, record, request.options.l1_serializer, version)
        return value, STALE if record.stale else L2

    def _timed_out(self, request: LoadRequest, timeout: LockTimeout) -> Answer:
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
        try:
            value, ttl = yield from self.fetch(request)
        except SourceError as error:
            if stale is None or options.resurrect_ttl is None:
                raise
            log.warning(
                "the callback of the key %r of %r failed, its stale value is served: %s",
                request.key,
                self.prefix,
                error,
            )
            return (yield from self.add(request.key, stale.value, options.resurrect_ttl, options, True)), STALE
        if ttl < 0:
            return value, L3
        return (yield from self.add(request.key, value, ttl, options)), L3

    def fetch(self, request: LoadRequest) -> Steps[tuple[Any, float]]:
        """Call the source. Returns its value, and the seconds that it lives: 0 forever, below 0 not at all.

        Raises `SourceError` where the source says that it cannot answer, and `CallbackFailed` for anything else.
        """
        options, counter = request.options, self._counter
        started = time.perf_counter()
        try:
            value = yield Step(_call, _acall, (request.callback, request.args))
        except SourceError:
            counter.now.callback_errors += 1
            raise
        except Exception as error:
            counter.now.callback_errors += 1
            if isinstance(error, options.failures):
                raise SourceError(error) from error
            raise CallbackFailed(error) from error
        finally:
            seconds = time.perf_counter() - started
            counter.now.callbacks += 1
            counter.now.callback_seconds += seconds
            counter.runs.append((request.key, seconds, counter.wall()))
            if len(counter.runs) > MAX_RUNS:
                counter.fold()
        if type(value) is not Fresh:
            return value, lifetime(value, options)
        value, ttl = value
        return value, (ttl if is_number(ttl) else lifetime(value, options))


def unwrapped(steps: Steps[R]) -> Steps[R]:
    """Take the same steps. They raise the callback's error itself, without the cache in its context."""
    try:
        return (yield from steps)
    except CallbackFailed as failed:
        error = failed.error
    raise error


def _call(callback: Callback, args: tuple[Any, ...]) -> Any:
    value = callback(*args)
    if not inspect.isawaitable(value):
        return value
    try:
        return async_to_sync(_awaited)(value)
    finally:
        if inspect.iscoroutine(value):
            value.close()  # one that could not start, since a loop runs in this thread


async def _acall(callback: Callback, args: tuple[Any, ...]) -> Any:
    """Call the callback: a plain function may wait, so it runs in the thread that Django has for sync code."""
    if is_async(callback):
        return await callback(*args)
    value, error = await sync_to_async(_caught)(callback, args)
    if error is not None:
        raise error
    return await value if inspect.isawaitable(value) else value


def _caught(callback: Callback, args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """Return the value or the error: a `StopIteration` that leaves a thread would never arrive in the loop."""
    try:
        return callback(*args), None
    except Exception as error:
        return None, error


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


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


def _stored(record: Record) -> float:
    return record.stored
