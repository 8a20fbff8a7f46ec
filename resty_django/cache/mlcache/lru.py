"""A cache of one process that evicts the least recently used items. Pure.

Reading takes no lock. It is two operations of the interpreter, a look-up and a move, each atomic under its global lock
as long as no key has a `__hash__` or `__eq__` written in Python; if a writer came between, the move finds nothing.
Writers take a lock, and release old values after it: a destructor written in Python in the middle of an operation would
let other threads run while the order of the items is incomplete.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from resty_django.forks import after_fork

FOREVER: Final = math.inf
MOST_FLAGS: Final = 2**32 - 1
SLOTS: Final = 256
"""Versions that an LRU keeps: the keys share them by their hash."""


class Item(NamedTuple):
    """A value with what was stored next to it; `stale`: it has expired."""

    value: Any
    flags: int = 0
    stale: bool = False


class LRU:
    """At most `max_items` values by key, for any thread; values are kept as they are, without a copy.

    An expired item stays, and can be read as stale, until others evict it. `clock`: seconds that never go back.

        pages = LRU(1000)
        pages.set("home", "<h1>home</h1>", ttl=60)
        pages.get("home")
    """

    __slots__ = ("__weakref__", "_versions", "_writing", "clock", "items", "max_items")

    def __init__(self, max_items: int, clock: Callable[[], float] = time.monotonic) -> None:
        if isinstance(max_items, bool) or not isinstance(max_items, int) or max_items < 1:
            raise ValueError(f"size too small: max_items of an LRU is a whole number of at least 1, not {max_items!r}.")
        self.max_items = max_items
        self.clock = clock
        self.items: OrderedDict[Hashable, tuple[Any, float, int]] = OrderedDict()
        """Value, moment of expiry and flags by key, the most recent one last."""
        self._versions = [0] * SLOTS
        self._writing = threading.RLock()  # a signal handler may interrupt a writer
        _all.add(self)

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value, or `default` when the key is absent or expired. Make it the most recent in both cases."""
        try:
            value, expires, _ = self.items[key]
            self.items.move_to_end(key)
        except KeyError:
            return default
        return value if expires >= self.clock() else default

    def get_stale(self, key: Hashable) -> Item | None:
        """Return the value, expired or not, with its flags; None when it is absent. Make it the most recent."""
        try:
            value, expires, flags = self.items[key]
            self.items.move_to_end(key)
        except KeyError:
            return None
        return Item(value, flags, expires < self.clock())

    def set(self, key: Hashable, value: Any, ttl: float | None = None, flags: int = 0) -> None:
        """Store for `ttl` seconds (None: forever), as the most recent. Without room the least recent is
        evicted."""
        if ttl is not None and not ttl >= 0:
            raise ValueError(f"ttl is None (for ever) or a number of seconds of at least 0, not {ttl!r}.")
        if not 0 <= flags <= MOST_FLAGS:
            raise ValueError(f"flags are a whole number from 0 to {MOST_FLAGS}, not {flags!r}.")
        self.put(key, (value, FOREVER if ttl is None else self.clock() + ttl, flags))

    def version(self, key: Hashable) -> int:
        """Return a number that grows whenever this key is deleted, and now and then with another key."""
        return self._versions[hash(key) % SLOTS]

    def put(self, key: Hashable, item: tuple[Any, float, int], version: int | None = None) -> None:
        """Store a value, the moment of its expiry and its flags, without any check.

        `version`: the version of the key before the value was read elsewhere. If it has changed since, the value may be
        outdated, and is not stored.
        """
        items = self.items
        gone: Any = None
        with self._writing:
            if version is not None and version != self._versions[hash(key) % SLOTS]:
                return
            if key in items:
                gone = items[key]
                items[key] = item
                items.move_to_end(key)
            else:
                items[key] = item
                if len(items) > self.max_items:
                    gone = items.popitem(last=False)
        del gone

    def replace(self, key: Hashable, item: tuple[Any, float, int], version: int) -> None:
        """Delete the key and `put` this in its place, for a value that was also written elsewhere.

        `version`: the version of the key before it was written there. If others have deleted or replaced it since, it
        is unknown whose value is the last one there, and nothing is stored.
        """
        self.delete(key)
        self.put(key, item, version + 1)

    def delete(self, key: Hashable) -> bool:
        """Return True if it was there, expired or not."""
        with self._writing:
            self._versions[hash(key) % SLOTS] += 1
            gone = self.items.pop(key, None)
        return gone is not None

    def count(self) -> int:
        """How many there are, the expired ones among them."""
        return len(self.items)

    def capacity(self) -> int:
        """How many there may be."""
        return self.max_items

    def get_keys(self, limit: int = 0) -> list[Any]:
        """Return the keys, most recent first, the expired ones among them; at most `limit` (0: all)."""
        with self._writing:
            while True:
                try:
                    keys = list(reversed(self.items))
                    break
                except RuntimeError:  # a reader has moved one, let in by a destructor that the garbage collector called
                    continue
        return keys[:limit] if limit > 0 else keys

    def flush_all(self) -> None:
        """Forget everything."""
        gone = []
        with self._writing:
            self._versions = [version + 1 for version in self._versions]
            while self.items:
                gone.append(self.items.popitem(last=False))

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<LRU of {len(self.items)} of {self.max_items} items>"


_all: WeakSet[LRU] = WeakSet()


def _after_fork() -> None:
    """Create new locks: a thread that wrote in the parent does not exist in the child, and left complete items."""
    for lru in list(_all):
        lru._writing = threading.RLock()


after_fork(_after_fork)
