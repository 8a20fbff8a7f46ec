"""Counting of cache calls in the process, with a flush to a shared dictionary about once per second.

Counting is one addition. Calls that use a dictionary anyway flush the counts; an L1 hit never does. Counts belong to
the minute and the hour in which they are flushed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from weakref import WeakSet

from resty_django.minute_series.records import Counts
from resty_django.minute_series.series import FLUSH_SECONDS, FlushPause, MinuteSeries
from resty_django.minute_series.top_keys import FrequentKey, TopKeys, merged
from resty_django.processes.forks import after_fork
from resty_django.sansio import Steps, arun, run
from resty_django.shdict import SharedDict, SharedDictError
from resty_django.text import logger

from ..circuit_breaker.guarded import guarded
from .counts import (
    MAX_LISTED_KEY_LENGTH,
    MAX_MISSED_KEYS,
    MAX_SLOW_KEYS,
    CacheHistory,
    CacheStats,
    Slow,
    added,
    history,
    shortened,
    slowest,
)
from .tag_history import TagHistory

log = logger("resty_django.cache")

MAX_RUNS: Final = 128
"""Number of callbacks that are collected before they are merged."""
STATISTICS_PREFIX: Final = "mlcache:stats"
"""Prefix of statistics keys; also the key of the list of all caches with counts in a dictionary."""


class SlowKeys:
    """The slowest keys of one process in bounded memory: at most eight times `MAX_SLOW_KEYS`.

    Beyond that, all but the slowest are dropped together; a dropped key that returns is counted from zero.
    """

    def __init__(self) -> None:
        self.by_key: dict[str, Slow] = {}
        self._lock = threading.Lock()

    def add(self, slow: Slow) -> None:
        with self._lock:
            known = self.by_key.get(slow.key)
            self.by_key[slow.key] = slow if known is None else known.plus(slow)
            if len(self.by_key) > 8 * MAX_SLOW_KEYS:
                self.by_key = {slow.key: slow for slow in slowest(self.by_key.values())}

    def take(self) -> list[Slow]:
        """Return the slowest keys, slowest first, and restart counting from zero."""
        with self._lock:
            keys, self.by_key = slowest(self.by_key.values()), {}
        return keys


class CacheCounter:
    """The counts of a cache in this process. `dictionary`: stores the totals of all processes. `clock`: monotonic
    seconds; `wall`: epoch seconds."""

    def __init__(
        self,
        name: str,
        dictionary: SharedDict,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.dictionary = dictionary
        self.clock = clock
        self.wall = wall
        self._guarded = guarded(dictionary)
        self._series = _series(self._guarded, lambda: self.wall())
        self.due_at = clock() + FLUSH_SECONDS
        self._pause = FlushPause()
        self.now = CacheStats()
        """The counts up to now, always the same object."""
        self.tags = TagHistory(name, self._guarded, lambda: self.wall())
        self.after_fork()
        _live.add(self)

    def after_fork(self) -> None:
        """Count from zero in a forked child; the parent flushes its own counts."""
        self.now.reset()
        self._series.reset()
        self.tags.after_fork()
        self.runs: deque[Slow] = deque()
        """Callbacks since the last `fold`. At most about `MAX_RUNS`."""
        self._slow = SlowKeys()
        self._missed = TopKeys(MAX_MISSED_KEYS, MAX_LISTED_KEY_LENGTH)
        self._unsent: list[FrequentKey] = []
        """The most missed keys of flushes that failed."""
        self._flushing = threading.Lock()
        self._counting = threading.Lock()

    def fold(self) -> None:
        """Merge the callbacks in `runs` into the slowest and the most missed keys."""
        with contextlib.suppress(IndexError):  # empty, possibly because another thread merges, too
            while True:
                callback = self.runs.popleft()
                key = shortened(callback.key)
                self._slow.add(callback._replace(key=key))
                with self._counting:
                    self._missed.add(key)

    def is_due(self) -> bool:
        """Return whether a flush is due."""
        return self.clock() >= self.due_at

    def flush_due(self) -> None:
        """Flush the counts, if that is due. An unavailable dictionary is not an error."""
        if self.clock() >= self.due_at:
            run(self.flush())

    async def aflush_due(self) -> None:
        """Do the same as `flush_due`."""
        if self.clock() >= self.due_at:
            await arun(self.flush())

    def flush(self) -> Steps[None]:
        """Flush the counts since the last flush. If the dictionary is unavailable, retry later."""
        if not self._flushing.acquire(blocking=False):
            return
        self.due_at = self.clock() + self._pause.seconds
        try:
            sums = tuple(self.now)
            if self._series.unflushed(self.name, sums):
                yield from self._flush(sums)
            yield from self.tags.flush()
            self._pause.after(flushed=True)
        except SharedDictError as error:
            self.due_at = self.clock() + self._pause.after(flushed=False)
            log.debug("The counts of %s could not be flushed: %s", self.name, error)
        finally:
            self._flushing.release()

    def _flush(self, sums: Counts) -> Steps[None]:
        self.fold()
        slow = self._slow.take()
        with self._counting:
            latest, self._missed = self._missed.most(), TopKeys(MAX_MISSED_KEYS, MAX_LISTED_KEY_LENGTH)
        missed, self._unsent = merged(self._unsent, latest, MAX_MISSED_KEYS), []
        try:
            yield from self._series.flush(self.name, sums, partial(added, slow=slow, missed=missed))
        except BaseException:
            if self._series.unflushed(self.name, sums):
                for slow_key in slow:
                    self._slow.add(slow_key)
                self._unsent = missed
            raise

    def invalidated(self, tags: Iterable[str]) -> Steps[None]:
        """Count an invalidation of tags. The first one of a process is flushed at once, the others when that is due."""
        self.tags.add(tags)
        if self.is_due() or not self.tags.flushed:
            yield from self.flush()

    def total(self) -> Steps[CacheStats]:
        """Return the counts of all processes, including this one's up to now. Raise `Unavailable`."""
        return (yield from self.history()).total

    def history(self) -> Steps[CacheHistory]:
        """Return the counts by minute and hour, and the slowest and most missed keys. Raise `Unavailable`."""
        yield from self.flush()
        return history((yield from self._series.load(self.name)), self.wall())


_live: WeakSet[CacheCounter] = WeakSet()


def _after_fork() -> None:
    for counter in list(_live):
        counter.after_fork()


after_fork(_after_fork)


def listed(dictionary: SharedDict) -> list[str]:
    """Return the names of the caches with counts in this dictionary. Raise `SharedDictError`."""
    return _series(dictionary).names()


def _series(dictionary: SharedDict, clock: Callable[[], float] = time.time) -> MinuteSeries:
    return MinuteSeries(STATISTICS_PREFIX, lambda: dictionary, clock, names_key=STATISTICS_PREFIX)
