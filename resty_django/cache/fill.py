"""The way of a call that found nothing in L1 and L2: the lock, another look, the callback, storing.

The steps have the numbers of the original's description.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from resty_django.events.steps import Step, Steps
from resty_django.lock import Lock, LockError
from resty_django.lock import LockTimeout as Held
from resty_django.shdict import SharedDict, SharedDictError

from .errors import LockFailed, LockTimeout, SourceError
from .levels import Levels, shown
from .options import Options
from .records import Record
from .refresh import Refresher
from .results import L2, L3, STALE, Answer
from .source import Callback, ask
from .stats import Counter

log = logging.getLogger("resty_django.cache")

LOCK: Final = "lua-resty-mlcache:lock:"


class Filler:
    """Asks the source for what the levels of one cache do not have."""

    def __init__(self, levels: Levels, locks: SharedDict, counter: Counter) -> None:
        self.levels = levels
        self.refresher = Refresher()
        self._locks = locks
        self._counter = counter

    def fill(self, key: str, callback: Callback, args: tuple[Any, ...], options: Options) -> Steps[Answer]:
        """The value from the source, or what another has stored meanwhile, or a stale one."""
        stale = None
        if options.uses_stale:  # before the lock, which may push it out of a full dictionary
            found = yield from self.levels.look(key, with_stale=True)
            if found.fresh is not None:
                return self.promoted(key, found.fresh, found.version, options)
            stale = found.stale
            if stale is not None and self._may_wait(stale, options):
                old = stale
                yield self.refresher.start(key, lambda: self._refresh(key, callback, args, options, old))
                return shown(stale.value, options.l1_serializer), STALE
        return (yield from self._locked(key, callback, args, options, stale, Lock(self._locks, **options.lock_options)))

    def promoted(self, key: str, record: Record, version: int, options: Options) -> Answer:
        value = self.levels.promote(key, record, options.l1_serializer, version)
        return value, STALE if record.stale else L2

    def _may_wait(self, stale: Record, options: Options) -> bool:
        """Whether a value may be served as it is while it is refreshed. One that was purged may not."""
        overdue = self.levels.clock() - stale.stored - stale.ttl
        return stale.ttl > 0 and 0 <= overdue < options.stale_while_revalidate

    def _refresh(
        self, key: str, callback: Callback, args: tuple[Any, ...], options: Options, stale: Record
    ) -> Steps[None]:
        lock = Lock(self._locks, **{**options.lock_options, "timeout": 0})
        try:
            yield from self._locked(key, callback, args, options, stale, lock)
        except LockTimeout:
            pass  # another process refreshes it
        except Exception as error:
            log.warning("the key %r of %r could not be refreshed: %s", key, self.levels.prefix, error)

    # --- steps 4 to 6 and 8 ---

    def _locked(
        self,
        key: str,
        callback: Callback,
        args: tuple[Any, ...],
        options: Options,
        stale: Record | None,
        lock: Lock,
    ) -> Steps[Answer]:
        timeout: Held | None = None
        try:
            yield Step(lock.acquire, lock.aacquire, (LOCK + self.levels.prefix + key,))
        except Held as error:
            timeout = error
        except (LockError, SharedDictError) as error:
            raise LockFailed(f"could not acquire callback lock: {error}") from error
        try:
            found = yield from self.levels.look(key, with_stale=options.uses_stale)
            if found.fresh is not None:
                answer = self.promoted(key, found.fresh, found.version, options)
            elif timeout is not None:
                answer = self._timed_out(found.stale or stale, options, timeout)
            else:
                answer = yield from self._ask(key, callback, args, options, found.stale or stale)
        except GeneratorExit:  # nobody is left to take a step: the lock goes with its object
            raise
        except BaseException:
            if timeout is None:
                yield from self._release(lock, key)
            raise
        if timeout is None:
            yield from self._release(lock, key)
        return answer

    def _release(self, lock: Lock, key: str) -> Steps[None]:
        """A lock whose time was over is no error: the work is done by then."""
        try:
            yield Step(lock.release, lock.arelease)
        except (LockError, SharedDictError) as error:
            log.info("the lock of the key %r of %r was not released: %s", key, self.levels.prefix, error)

    def _timed_out(self, stale: Record | None, options: Options, timeout: Held) -> Answer:
        if stale is None or options.resurrect_ttl is None:
            raise LockTimeout(f"could not acquire callback lock: {timeout}") from timeout
        return shown(stale.value, options.l1_serializer), STALE

    # --- step 7 ---

    def _ask(
        self, key: str, callback: Callback, args: tuple[Any, ...], options: Options, stale: Record | None
    ) -> Steps[Answer]:
        try:
            value, ttl = yield from ask(key, callback, args, options, self._counter)
        except SourceError as error:
            if stale is None or options.resurrect_ttl is None:
                raise
            log.warning(
                "the callback of the key %r of %r failed, its stale value is served: %s", key, self.levels.prefix, error
            )
            value = yield from self._store(key, stale.value, options.resurrect_ttl, options, stale=True)
            return value, STALE
        if ttl < 0:
            return value, L3
        return (yield from self._store(key, value, ttl, options)), L3

    def _store(self, key: str, value: Any, ttl: float, options: Options, stale: bool = False) -> Steps[Any]:
        """Put a value into L2 and L1, and return it as L1 has it.

        Where another process has set one while the callback ran, that is newer, and both levels are left alone.
        """
        value, record = self.levels.encoded(value, ttl, stale)
        version = self.levels.l1.version(key)
        if (yield from self.levels.add(key, value, record, ttl, options.shm_set_tries)):
            return self.levels.keep(key, value, ttl, options.l1_serializer, version)
        return shown(value, options.l1_serializer)


__all__ = ["Filler"]
