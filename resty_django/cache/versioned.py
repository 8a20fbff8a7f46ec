"""Objects that are made anew when the version of what they are made of has changed, and not because time has passed.
Pure.

    patterns = VersionedLRU(100, ttl=60)
    patterns.fetch("routes", version, compile_routes, path)

Ask the source for its version, which is cheap, and leave it to `fetch` whether to make the object, which is not.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from .lru import LRU

T = TypeVar("T")

_ABSENT: Final = object()


class VersionedLRU:
    """At most `max_items` objects, each with a version; `ttl`: seconds that one lives which nobody asks for (None: for
    ever).

    An object that has expired is not made again while its version is the same: it gets a new `ttl`.
    """

    def __init__(self, max_items: int, ttl: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.lru = LRU(max_items, clock)
        self.ttl = ttl

    def fetch(self, key: Hashable, version: object, make: Callable[..., T], *args: Any) -> T:
        """The object of this version: the one that is there, else what `make(*args)` returns.

        What `make` raises goes to the caller, and nothing is stored.
        """
        found = self._find(key, version)
        return self._keep(key, version, make(*args)) if found is _ABSENT else found

    async def afetch(self, key: Hashable, version: object, make: Callable[..., Awaitable[T]], *args: Any) -> T:
        """As `fetch`, with a coroutine function."""
        found = self._find(key, version)
        return self._keep(key, version, await make(*args)) if found is _ABSENT else found

    def _find(self, key: Hashable, version: object) -> Any:
        item = self.lru.get_stale(key)
        if item is None:
            return _ABSENT
        of_version, found = item.value
        if of_version != version:
            return _ABSENT
        if item.stale:
            self._keep(key, version, found)
        return found

    def _keep(self, key: Hashable, version: object, made: T) -> T:
        self.lru.set(key, (version, made), self.ttl)
        return made


__all__ = ["VersionedLRU"]
