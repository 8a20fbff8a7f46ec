"""The state of the shared dictionaries, for the tile, the metrics, the health probe and the pages of the admin."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .base import DictStats, SharedDict
from .handler import shdicts


@dataclass(frozen=True, slots=True)
class DictFacts:
    """A dictionary: its `stats` and its response time in seconds, or the `error` that made them unavailable."""

    name: str
    dictionary: SharedDict | None = None
    stats: DictStats | None = None
    error: Exception | None = None
    seconds: float = 0.0

    @property
    def used(self) -> float | None:
        """The used share of the capacity, 0 to 1; None if it is unknown."""
        stats = self.stats
        return 1 - min(1.0, stats.free_space / stats.capacity) if stats and stats.capacity else None


def facts() -> list[DictFacts]:
    """Return the state of all dictionaries. Never raise, unless the settings are invalid."""
    return [facts_of(name) for name in shdicts]


def facts_of(name: str, *, count: bool = False) -> DictFacts:
    """Return the state of a dictionary. Never raise.

    Counting the keys of a dictionary in Redis scans all keys of the server, so it is only done with `count`.
    """
    start, dictionary = time.perf_counter(), None
    try:
        dictionary = shdicts[name]
        stats = dictionary.stats() if count else dictionary.quick_stats()
    except Exception as error:  # a dictionary that cannot be used must not hide the others
        return DictFacts(name, dictionary, error=error)
    return DictFacts(name, dictionary, stats, seconds=time.perf_counter() - start)
