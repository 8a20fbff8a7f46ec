"""An in-process LRU cache. Pure.

Reads take no lock. A read is a lookup and a move, each atomic under the GIL as long as no key has a `__hash__` or
`__eq__` written in Python; if a writer comes in between, the move finds nothing. Writers take a lock and drop old
values after releasing it: a destructor written in Python in the middle of an operation would let other threads run
while the order of the items is incomplete.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakSet

from msgspec import Struct

from resty_django.processes.forks import after_fork

FOREVER: Final = math.inf
VERSION_SLOTS: Final = 256
"""Number of version counters of an LRU, which the keys share by their hash."""


Absence = Literal["expired", "invalidated", "replaced", "evicted", "new"]
"""Why a key has no value; "replaced": it was deleted or stored elsewhere, "new": not seen before."""


class LRUItem(Struct):
    """A value with its expiry time, by the clock of the LRU, and its flags."""

    value: Any
    expires: float = FOREVER
    flags: int = 0


class StaleItem(NamedTuple):
    """A value with its flags; `stale`: it has expired."""

    value: Any
    flags: int = 0
    stale: bool = False


class LRU:
    """A thread-safe LRU cache with at most `max_items` values, which are stored without copying.

    An expired item can be read as stale until it is evicted. `clock`: monotonic seconds.

        pages = LRU(1000)
        pages.set("home", "<h1>home</h1>", ttl=60)
        pages.get("home")
    """

    __slots__ = ("__weakref__", "_gone", "_versions", "_writing", "clock", "items", "max_items")

    def __init__(self, max_items: int, clock: Callable[[], float] = time.monotonic) -> None:
        if isinstance(max_items, bool) or not isinstance(max_items, int) or max_items < 1:
            raise ValueError(f"size too small: max_items must be an integer of at least 1, not {max_items!r}.")
        self.max_items = max_items
        self.clock = clock
        self.items: OrderedDict[Hashable, LRUItem] = OrderedDict()
        """By key, most recent last."""
        self._gone: OrderedDict[Hashable, float | None] = OrderedDict()
        """The expiry times of evicted items, 0 for flushed ones, None for deleted keys; most recent last."""
        self._versions = [0] * VERSION_SLOTS
        self._writing = threading.RLock()  # a signal handler may interrupt a writer
        _all.add(self)

    def get(self, key: Hashable, default: object = None) -> Any:
        """Return the value, or `default` if the key is absent or expired. Mark the item as most recent."""
        try:
            item = self.items[key]
            self.items.move_to_end(key)
        except KeyError:
            return default
        return item.value if item.expires >= self.clock() else default

    def get_stale(self, key: Hashable) -> StaleItem | None:
        """Return the value, expired or not, with its flags; None if absent. Mark it as most recent."""
        try:
            item = self.items[key]
            self.items.move_to_end(key)
        except KeyError:
            return None
        return StaleItem(item.value, item.flags, item.expires < self.clock())

    def set(self, key: Hashable, value: object, ttl: float | None = None, flags: int = 0) -> None:
        """Store a value for `ttl` seconds (None: forever). If full, evict the least recently used item."""
        if ttl is not None and not ttl >= 0:
            raise ValueError(f"ttl must be None (forever) or a number of seconds of at least 0, not {ttl!r}.")
        if not 0 <= flags < 2**32:
            raise ValueError(f"flags must be an integer from 0 to {2**32 - 1}, not {flags!r}.")
        self.put(key, LRUItem(value, FOREVER if ttl is None else self.clock() + ttl, flags))

    def absence(self, key: Hashable) -> Absence:
        """Return why a key that was not found has no value, as far as this LRU knows."""
        item = self.items.get(key)
        expires = self._gone.get(key, math.nan) if item is None else item.expires
        if not expires:
            return "replaced" if expires is None else "invalidated"
        if math.isnan(expires):
            return "new"
        return "expired" if expires < self.clock() else "evicted"

    def _note_gone(self, key: Hashable, expires: float | None) -> None:
        self._gone.pop(key, None)
        self._gone[key] = expires
        if len(self._gone) > max(1000, self.max_items):
            self._gone.popitem(last=False)

    def version(self, key: Hashable) -> int:
        """Return a number that increases when this key is deleted, and sometimes when another key is."""
        return self._versions[hash(key) % VERSION_SLOTS]

    def versions(self, keys: Iterable[Hashable]) -> list[int]:
        """Return the versions to pass to `replace` for each of these keys in turn, some of which share a counter."""
        versions = self._versions.copy()
        numbers = []
        for key in keys:
            slot = hash(key) % VERSION_SLOTS
            numbers.append(versions[slot])
            versions[slot] += 1
        return numbers

    def put(self, key: Hashable, item: LRUItem, version: int | None = None) -> None:
        """Store a value without validation.

        `version`: the version of the key before the value was read elsewhere. If it has changed since, the value may be
        outdated, and is not stored.
        """
        items = self.items
        gone: Any = None
        with self._writing:
            if version is not None and version != self._versions[hash(key) % VERSION_SLOTS]:
                return
            if key in items:
                gone = items[key]
                items[key] = item
                items.move_to_end(key)
            else:
                items[key] = item
                if len(items) > self.max_items:
                    evicted_key, gone = items.popitem(last=False)
                    self._note_gone(evicted_key, gone.expires)
        del gone

    def replace(self, key: Hashable, item: LRUItem, version: int) -> None:
        """Replace the item, for a value that was also written elsewhere.

        `version`: the version of the key before it was written there. If another writer has deleted or replaced it
        since, it is unknown which value is the latest, so nothing is stored.
        """
        items, slot = self.items, hash(key) % VERSION_SLOTS
        with self._writing:
            gone: Any = items.pop(key, None)
            versions = self._versions
            versions[slot] += 1
            if versions[slot] == version + 1:
                items[key] = item
                if len(items) > self.max_items:
                    evicted_key, evicted = items.popitem(last=False)
                    self._note_gone(evicted_key, evicted.expires)
                    gone = gone, evicted_key, evicted
        del gone

    def delete(self, key: Hashable) -> bool:
        """Delete a key. Return whether it existed, expired or not."""
        with self._writing:
            self._versions[hash(key) % VERSION_SLOTS] += 1
            gone = self.items.pop(key, None)
            self._note_gone(key, None)
        return gone is not None

    def delete_many(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            self.delete(key)

    def count(self) -> int:
        """Return the number of items, including expired ones."""
        return len(self.items)

    def capacity(self) -> int:
        """Return the maximum number of items."""
        return self.max_items

    def get_keys(self, limit: int = 0) -> list[Any]:
        """Return at most `limit` keys (0: all), most recent first, including expired ones."""
        with self._writing:
            while True:
                try:
                    keys = list(reversed(self.items))
                    break
                except RuntimeError:  # a destructor let a reader run, which moved an item
                    continue
        return keys[:limit] if limit > 0 else keys

    def flush_all(self) -> None:
        """Remove all items."""
        gone = []
        with self._writing:
            self._versions = [version + 1 for version in self._versions]
            while self.items:
                gone.append(self.items.popitem(last=False))
            for key in (*self._gone, *(key for key, _item in gone)):
                self._note_gone(key, 0.0)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<LRU of {len(self.items)} of {self.max_items} items>"


_all: WeakSet[LRU] = WeakSet()


def _after_fork() -> None:
    """Create new locks. Threads that were writing in the parent do not exist in the child; the items are complete."""
    for lru in list(_all):
        lru._writing = threading.RLock()


after_fork(_after_fork)
