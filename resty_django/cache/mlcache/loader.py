"""Loads values that are in neither level: lock the key, read L2 again, call the callback, store the value.

A load is a generator of steps (`resty_django.sansio`). Wherever it has to wait it yields a `Step`: a call, its twin for
asyncio, and their arguments. `run` makes the call, `arun` awaits the twin, and both send the result back into the
generator, or raise there what the call raised. So the order of the work and the handling of each error are written
once, for sync code and for asyncio. A generator that is closed (`GeneratorExit`) has no caller left that could make its
calls, and must not yield any more.

The steps are numbered as in docs/cache.md, "Lookup order":

| number | step | code |
|---|---|---|
| 1 to 3 | L1, L2, no callback | `MLCache.get`, `MLCache.lookup` |
| before 4 | serve a stale value at once and refresh it in the background | `Loader._load_or_refresh` |
| 4, 5, 8 | acquire the lock, read L2 again, release the lock | `Loader._load_locked` |
| 6 | handle a lock that was not free in time | `Loader._timed_out` |
| 7 | call the callback, store its value | `Loader._call_source` |
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.db import close_old_connections

from resty_django.events.handlers import is_async
from resty_django.lock import Lock, LockError, LockTimeout
from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import SharedDict, SharedDictError
from resty_django.text import logger

from ..errors import BadOption, CallbackFailed, LockFailed, SourceError
from ..statistics.reporter import MAX_RUNS, Counter
from .levels import Levels, lifetime, serialized
from .options import Options, is_number
from .records import Record
from .results import L2, L3, STALE, Answer, Fresh

log = logger("resty_django.cache")

LOCK: Final = "lua-resty-mlcache:lock:"
JITTER: Final = 0.5
"""Jitter of the pauses between tries for a lock. Without it, callers acquire it one by one, half a second apart."""
MAX_REFRESHES: Final = 16
"""Maximum number of concurrent refreshes per cache and process. Further keys are refreshed by later calls."""

Callback = Callable[..., Any]
R = TypeVar("R")


@dataclass(slots=True)
class LoadRequest:
    """A key to be loaded. Raises `BadOption`.

    `unwrap`: raise the callback's own error instead of `CallbackFailed`. `stale`: an expired record that may be served
    instead of a new value.
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
        """Return whether an expired value may be served."""
        return self.options.resurrect_ttl is not None or self.options.stale_while_revalidate > 0


class Loader:
    """Loads values that a cache's levels do not have. `locks`: the dictionary for locks."""

    def __init__(self, levels: Levels, locks: SharedDict, counter: Counter) -> None:
        self.levels = levels
        self.refresher = Refresher()
        self._locks = locks
        self._counter = counter

    def load(self, request: LoadRequest) -> Steps[Answer]:
        """Return the value from the callback, a value that another process stored meanwhile, or a stale one."""
        if request.uses_stale:
            steps = self._load_or_refresh(request)
        else:
            steps = self._load_locked(request, self._lock(request))
        return unwrapped(steps) if request.unwrap else steps

    def _load_or_refresh(self, request: LoadRequest) -> Steps[Answer]:
        """Read the stale value before acquiring the lock, which may evict it from a full dictionary."""
        l2_records = yield from self.levels.look(request.key, with_stale=True)
        if l2_records.fresh is not None:
            return self._promote(request, l2_records.fresh, l2_records.version)
        request.stale = l2_records.stale
        if l2_records.stale is not None and self._may_serve_stale(l2_records.stale, request.options):
            yield self.refresher.start(request.key, lambda: self._refresh(request))
            return serialized(l2_records.stale.value, request.options.l1_serializer), STALE
        lock = self._lock(request)
        return (yield from self._load_locked(request, lock))

    def _may_serve_stale(self, stale: Record, options: Options) -> bool:
        """Return whether a stale value may be served while it is refreshed. Purged values may not."""
        overdue = self.levels.clock() - stale.stored - stale.ttl
        return stale.ttl > 0 and 0 <= overdue < options.stale_while_revalidate

    def _refresh(self, request: LoadRequest) -> Steps[None]:
        lock = self._lock(request, timeout=0)
        try:
            yield from self._load_locked(request, lock)
        except LockTimeout:
            pass  # another process is refreshing it
        except Exception as error:
            log.warning("The key %r of %r could not be refreshed: %s", request.key, self.levels.prefix, error)

    # --- 4 to 6 and 8: under the lock ---

    def _lock(self, request: LoadRequest, **options: Any) -> Lock:
        return Lock(self._locks, jitter=JITTER, **{**request.options.lock_options, **options})

    def _load_locked(self, request: LoadRequest, lock: Lock) -> Steps[Answer]:
        timeout: LockTimeout | None = None
        try:
            yield Step(lock.acquire, lock.aacquire, (LOCK + self.levels.prefix + request.key,))
        except LockTimeout as error:
            timeout = error
        except (LockError, SharedDictError) as error:
            raise LockFailed(f"could not acquire callback lock: {error}") from error
        try:
            l2_records = yield from self.levels.look(request.key, with_stale=request.uses_stale)
            request.stale = l2_records.stale or request.stale
            if l2_records.fresh is not None:
                answer = self._promote(request, l2_records.fresh, l2_records.version)
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

    def _promote(self, request: LoadRequest, record: Record, version: int) -> Answer:
        value = self.levels.promote(request.key, record, request.options.l1_serializer, version)
        return value, STALE if record.stale else L2

    def _timed_out(self, request: LoadRequest, timeout: LockTimeout) -> Answer:
        if request.stale is None or request.options.resurrect_ttl is None:
            raise LockTimeout(f"could not acquire callback lock: {timeout}") from timeout
        return serialized(request.stale.value, request.options.l1_serializer), STALE

    def _release(self, lock: Lock, key: str) -> Steps[None]:
        """Release the lock. An expired lock is not an error, because the work is already done."""
        try:
            yield Step(lock.release, lock.arelease)
        except (LockError, SharedDictError) as error:
            log.info("The lock of the key %r of %r was not released: %s", key, self.levels.prefix, error)

    # --- 7: the source ---

    def _call_source(self, request: LoadRequest) -> Steps[Answer]:
        options, stale = request.options, request.stale
        try:
            value, ttl = yield from self.fetch(request)
        except SourceError as error:
            if stale is None or options.resurrect_ttl is None:
                raise
            log.warning(
                "The callback for the key %r of %r failed; serving the stale value: %s",
                request.key,
                self.levels.prefix,
                error,
            )
            return (yield from self.levels.add(request.key, stale.value, options.resurrect_ttl, options, True)), STALE
        if ttl < 0:
            return value, L3
        return (yield from self.levels.add(request.key, value, ttl, options)), L3

    def fetch(self, request: LoadRequest) -> Steps[tuple[Any, float]]:
        """Call the callback. Return its value and time to live in seconds (0: forever, negative: not stored).

        Raise `SourceError` if the source is unavailable, and `CallbackFailed` for other errors.
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
    """Run the same steps, but raise the callback's own error, without the cache in its context."""
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
            value.close()  # it could not start, because a loop runs in this thread


async def _acall(callback: Callback, args: tuple[Any, ...]) -> Any:
    """Call the callback. A sync function may block, so it runs in Django's thread for sync code."""
    if is_async(callback):
        return await callback(*args)
    value, error = await sync_to_async(_caught)(callback, args)
    if error is not None:
        raise error
    return await value if inspect.isawaitable(value) else value


def _caught(callback: Callback, args: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """Return the value or the error, because a `StopIteration` raised in a thread would never reach the loop."""
    try:
        return callback(*args), None
    except Exception as error:
        return None, error


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


Work = Callable[[], Steps[None]]


class Refresher:
    """Background refreshes, one per key: in daemon threads for sync code, in tasks for asyncio.

    The work handles its own errors.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Drop the parent's work in a forked child, where its threads do not exist."""
        self.keys: set[str] = set()
        """The keys that are being refreshed."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, key: str, work: Work) -> Step:
        """Return the step that starts the work in the background, unless this key is already being refreshed."""
        return Step(self._start, self._astart, (key, work))

    def _start(self, key: str, work: Work) -> None:
        if self._reserve(key):
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run, args=(self._run, key, work), name="resty-cache-refresh", daemon=True
            ).start()

    async def _astart(self, key: str, work: Work) -> None:
        if self._reserve(key):
            task = asyncio.get_running_loop().create_task(self._arun(key, work), name="resty-cache-refresh")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _reserve(self, key: str) -> bool:
        if key in self.keys or len(self.keys) >= MAX_REFRESHES:
            return False
        self.keys.add(key)
        return True

    def _run(self, key: str, work: Work) -> None:
        try:
            run(work())
        finally:
            self.keys.discard(key)
            close_old_connections()

    async def _arun(self, key: str, work: Work) -> None:
        try:
            await arun(work())
        finally:
            self.keys.discard(key)
