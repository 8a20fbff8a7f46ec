"""Objects that are created again when the version of their source changes, and not because time has passed. Pure.

    patterns = VersionedLRU(100, ttl=60)
    patterns.fetch("routes", version, compile_routes, path)

Ask the source for its version, which is cheap; `fetch` decides whether to create the object, which is not.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from .lru import LRU

T = TypeVar("T")

_ABSENT: Final = object()


class VersionedLRU:
    """At most `max_items` objects, each with a version. `ttl`: seconds that an unused object lives (None: forever).

    An object that has expired is not created again while its version is the same: it gets a new `ttl`.
    """

    def __init__(self, max_items: int, ttl: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.lru = LRU(max_items, clock)
        self.ttl = ttl

    def fetch(self, key: Hashable, version: object, make: Callable[..., T], *args: Any) -> T:
        """Return the object of this version: the stored one, else what `make(*args)` returns.

        What `make` raises goes to the caller, and nothing is stored.
        """
        value = self._find(key, version)
        return self._keep(key, version, make(*args)) if value is _ABSENT else value

    async def afetch(self, key: Hashable, version: object, make: Callable[..., Awaitable[T]], *args: Any) -> T:
        """As `fetch`, with a coroutine function."""
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
