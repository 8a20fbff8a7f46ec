"""A cache of objects that are recreated when their source's version changes, not when time has passed. Pure.

    patterns = VersionedLRU(100, ttl=60)
    patterns.fetch("routes", version, compile_routes, path)

Use it if querying the version is cheap and creating the object is not.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from .lru import LRU

T = TypeVar("T")

_ABSENT: Final = object()


class VersionedLRU:
    """An LRU cache of at most `max_items` versioned objects. `ttl`: seconds that an unused one lives (None: forever).

    An expired object whose version is unchanged is not recreated; its `ttl` is renewed.
    """

    def __init__(self, max_items: int, ttl: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.lru = LRU(max_items, clock)
        self.ttl = ttl

    def fetch(self, key: Hashable, version: object, make: Callable[..., T], *args: object) -> T:
        """Return the stored object of this version, or store and return the result of `make(*args)`.

        Exceptions of `make` reach the caller, and nothing is stored.
        """
        value = self._find(key, version)
        return self._keep(key, version, make(*args)) if value is _ABSENT else value

    async def afetch(self, key: Hashable, version: object, make: Callable[..., Awaitable[T]], *args: object) -> T:
        """Do the same as `fetch`, with a coroutine function."""
        value = self._find(key, version)
        return self._keep(key, version, await make(*args)) if value is _ABSENT else value

    def _find(self, key: Hashable, version: object) -> Any:
        item = self.lru.get_stale(key)
        if item is None:
            return _ABSENT
        stored_version, value = item.value
        if stored_version != version:
            return _ABSENT
        if item.stale:
            self._keep(key, version, value)
        return value

    def _keep(self, key: Hashable, version: object, value: T) -> T:
        self.lru.set(key, (version, value), self.ttl)
        return value
