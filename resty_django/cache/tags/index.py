"""Index of the tags in an L1: an invalidation removes only the keys that carry the tag."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import Final
from weakref import WeakKeyDictionary

from resty_django.processes.forks import after_fork

from ..storage.lru import LRU, LRUItem

TAG_SLOTS: Final = 256
"""Number of moments that are remembered, which the tags share by their hash."""


class TagIndex:
    """The keys in an L1 by tag. Methods take this L1 as their first argument.

    Keys that have left L1 stay listed until the index has twice as many keys as L1; then all of them are removed
    together.
    """

    def __init__(self) -> None:
        self.moment = 0
        """The number of invalidations up to now."""
        self._last = [0] * TAG_SLOTS
        self._keys: dict[str, set[str]] = {}
        self._tags: dict[str, tuple[str, ...]] = {}
        self._writing = threading.RLock()  # a signal handler may interrupt a writer

    def __len__(self) -> int:
        return len(self._tags)

    def put(self, lru: LRU, key: str, item: LRUItem, version: int, tags: Collection[str], moment: int) -> None:
        """Do the same as `LRU.put`, for a value with tags.

        `moment`: the `moment` before the tags' versions were read in L2. If a tag was invalidated after it, nothing is
        stored.
        """
        with self._writing:
            if self._is_current(tags, moment):
                self._list(lru, key, tags)
                lru.put(key, item, version)

    def replace(self, lru: LRU, key: str, item: LRUItem, version: int, tags: Collection[str], moment: int) -> None:
        """Do the same as `LRU.replace`, for a value with tags. See `put`."""
        with self._writing:
            if self._is_current(tags, moment):
                self._list(lru, key, tags)
                lru.replace(key, item, version)
            else:
                lru.delete(key)

    def invalidate(self, lru: LRU, tags: Iterable[str]) -> None:
        """Delete all keys with one of these tags."""
        with self._writing:
            self.moment += 1
            keys: set[str] = set()
            for tag in tags:
                self._last[hash(tag) % TAG_SLOTS] = self.moment
                keys |= self._keys.get(tag, set())
            for key in keys:
                self._unlist(key)
                lru.delete(key)

    def after_fork(self, lru: LRU) -> None:
        """Create a new lock. If a thread of the parent was writing, empty L1."""
        if not self._writing.acquire(blocking=False):
            self._keys, self._tags = {}, {}
            lru.flush_all()
        self._writing = threading.RLock()

    def _is_current(self, tags: Iterable[str], moment: int) -> bool:
        return moment == self.moment or all(self._last[hash(tag) % TAG_SLOTS] <= moment for tag in tags)

    def _list(self, lru: LRU, key: str, tags: Collection[str]) -> None:
        if key in self._tags:
            self._unlist(key)
        elif len(self._tags) >= 2 * lru.max_items + 64:
            for listed in [listed for listed in self._tags if listed not in lru.items]:
                self._unlist(listed)
        for tag in tags:
            self._keys.setdefault(tag, set()).add(key)
        self._tags[key] = tuple(tags)

    def _unlist(self, key: str) -> None:
        for tag in self._tags.pop(key, ()):
            keys = self._keys.get(tag)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._keys[tag]


_indexes: WeakKeyDictionary[LRU, TagIndex] = WeakKeyDictionary()


def index_of(lru: LRU) -> TagIndex:
    """Return the index of an L1."""
    return _indexes.setdefault(lru, TagIndex())


def _after_fork() -> None:
    for lru, index in list(_indexes.items()):
        index.after_fork(lru)


after_fork(_after_fork)
