"""The lookups of one request, for the header `Cache-Status`.

While recording is on, the counts of each cache have a class whose attributes report each addition to the request that
it belongs to. While it is off, they are plain `Stats`, and lookups run the same code as without this module.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakSet

from resty_django.conf import on_change
from resty_django.conf.schema import SETTING
from resty_django.forks import after_fork

from .counts import Stats

if TYPE_CHECKING:
    from .reporter import Counter

LEVELS: Final = ("l1", "l2", "stale", "l3", "misses", "errors")
"""The counts of a lookup."""
MAX_LOOKUPS: Final = 20
"""Number of caches or keys of a request that are recorded one by one; the others are recorded together."""
OTHERS: Final = ("", None)
"""Stands for the caches and keys beyond `MAX_LOOKUPS`. No cache has an empty name."""

Place = tuple[str, str | None]
"""The name of a cache and the key; None: unknown, or not recorded."""


class Lookups:
    """The lookups of one request, by cache and key, in the order of the first lookups."""

    def __init__(self) -> None:
        self.counts: dict[Place, dict[str, int]] = {}
        self._lock = threading.Lock()

    def note(self, name: str, key: str | None, level: str, count: int) -> None:
        """Add lookups. Threads of the request may call it at the same time."""
        with self._lock:
            place = (name, key)
            if place not in self.counts and len(self.counts) >= MAX_LOOKUPS:
                place = OTHERS
            levels = self.counts.setdefault(place, {})
            levels[level] = levels.get(level, 0) + count

    def all(self) -> dict[Place, dict[str, int]]:
        """Return a copy; a refresh in the background may still add lookups."""
        with self._lock:
            return {place: dict(levels) for place, levels in self.counts.items()}


current: Final[ContextVar[Lookups | None]] = ContextVar("resty_cache_lookups", default=None)
"""The lookups of the request that runs; tasks and threads of the request inherit it."""
last_key: Final[ContextVar[str | None]] = ContextVar("resty_cache_key", default=None)
"""The key of the next single count, if keys are recorded."""
_counters: Final[WeakSet[Counter]] = WeakSet()
_reading: Final = threading.local()
_switching = threading.Lock()
_is_on = False


@contextmanager
def recorded_lookups() -> Iterator[Lookups]:
    """Record the lookups of the block, its tasks and its threads, if recording is on."""
    lookups = Lookups()
    token = current.set(lookups)
    try:
        yield lookups
    finally:
        current.reset(token)


def switch(on: bool) -> None:
    """Switch recording on or off, for all caches of this process."""
    global _is_on
    if on is _is_on:
        return
    with _switching:
        for counter in list(_counters):
            _apply(counter, on)
        _is_on = on


def track(counter: Counter) -> None:
    """Have the counts of a cache recorded while recording is on."""
    with _switching:
        _counters.add(counter)
        if _is_on:
            _apply(counter, True)


def _apply(counter: Counter, on: bool) -> None:
    counter.now.__class__ = (
        type("RecordedStats", (RecordedStats,), {"__slots__": (), "name": counter.name}) if on else Stats
    )


def _reported(level: str) -> Any:
    """Return a property in place of a count. Its setter reports the difference to what this thread has read last, so
    additions of other threads in between are not taken for this one's."""
    slot = vars(Stats)[level]

    def read(stats: RecordedStats) -> int:
        value: int = slot.__get__(stats)
        _reading.value = value
        return value

    def write(stats: RecordedStats, value: int) -> None:
        slot.__set__(stats, value)
        lookups = current.get()
        count = value - _reading.value
        if lookups is not None and count > 0:
            key = last_key.get() if count == 1 and level != "errors" else None
            lookups.note(stats.name, key, level, count)
        last_key.set(None)

    return property(read, write)


class RecordedStats(Stats):
    """Counts that report each addition to the request that it belongs to."""

    __slots__ = ()
    name: ClassVar[str]


for _level in LEVELS:
    setattr(RecordedStats, _level, _reported(_level))


def _after_fork() -> None:
    global _switching
    _switching = threading.Lock()


after_fork(_after_fork)
on_change(lambda: switch(False), SETTING)
