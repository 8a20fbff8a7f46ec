"""Django's cache API over L1 (process memory) and L2 (a shared dictionary).

    CACHES = {
        "default": {
            "BACKEND": "resty_django.cache.backend.MLCacheBackend",
            "LOCATION": "pages",
            "OPTIONS": {"LRU_SIZE": 1000},
        },
    }

LOCATION: the name of a shared dictionary. OPTIONS: see `options.Options`.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakSet

from django.core.cache.backends.base import DEFAULT_TIMEOUT, MEMCACHE_MAX_KEY_LENGTH, BaseCache

from resty_django.conf import on_change
from resty_django.conf.schema import SETTING
from resty_django.sansio import arun, run

from ..mlcache.records import key_text
from ..mlcache.shielding import arun_shielded
from ..statistics.counts import Stats
from .options import options_of
from .store import Store, stores

LONGEST: Final = 1e10
"""Maximum timeout in seconds; longer ones are reduced to it."""


class MLCacheBackend(BaseCache):
    """A backend for `CACHES`. Async calls never block the event loop.

    In addition to Django's contract, `add`, `incr`, `decr` and `touch` are atomic across all processes, and `set_many`
    returns the keys that did not fit. Any call may raise `resty_django.shdict.Unavailable` if L2 cannot be used.
    """

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        self._location = location
        self._options = params.get("OPTIONS") or {}
        self._store: Store | None = None
        self._own_check = type(self).validate_key is not BaseCache.validate_key
        _all.add(self)

    @property
    def store(self) -> Store:
        """Return the store shared by the caches with this LOCATION. Raise `ImproperlyConfigured`, here rather than in
        `__init__`, because Django's system checks create all caches."""
        if self._store is None:
            self._store = stores.of(self._location, options_of(self._location, self._options))
        return self._store

    # --- reading ---

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        name = self.make_key(key, version)
        store = self._store or self.store
        try:
            item = store.find(name)
            if item is not None and item[1] >= store.now():
                store.to_end(name)
                store.counts.l1 += 1
                value, make = item[0]
                return value if make is None else make(value)
        except KeyError:  # just deleted by another thread
            pass
        reply = store.read(self._checked(name))
        return default if reply is None else reply[0]

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        name = self.make_key(key, version)
        store = self._store or self.store
        try:
            item = store.find(name)
            if item is not None and item[1] >= store.now():
                store.to_end(name)
                store.counts.l1 += 1
                value, make = item[0]
                return value if make is None else make(value)
        except KeyError:
            pass
        reply = await store.aread(self._checked(name))
        return default if reply is None else reply[0]

    # --- writing ---

    def set(self, key: Any, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        run(self.store.set(self._name(key, version), value, self._life(timeout)))

    async def aset(
        self, key: Any, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        await arun_shielded(self.store.set(self._name(key, version), value, self._life(timeout)))

    def add(self, key: Any, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return run(self.store.add(self._name(key, version), value, self._life(timeout)))

    async def aadd(
        self, key: Any, value: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        return await arun_shielded(self.store.add(self._name(key, version), value, self._life(timeout)))

    def touch(self, key: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return run(self.store.touch(self._name(key, version), self._life(timeout)))

    async def atouch(self, key: Any, timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return await arun_shielded(self.store.touch(self._name(key, version), self._life(timeout)))

    def delete(self, key: Any, version: int | None = None) -> bool:
        return run(self.store.delete(self._name(key, version)))

    async def adelete(self, key: Any, version: int | None = None) -> bool:
        return await arun_shielded(self.store.delete(self._name(key, version)))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> Any:
        """Add to a number, keeping its time to live. Raise `ValueError` if the key does not exist, and `TypeError` for
        a
        value that is not a number or a sum of more than 64 bits."""
        return run(self.store.incr(self._name(key, version), delta))

    async def aincr(self, key: Any, delta: int = 1, version: int | None = None) -> Any:
        return await arun(self.store.incr(self._name(key, version), delta))

    def set_many(
        self, data: dict[Any, Any], timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        life = self._life(timeout)
        return [key for key, value in data.items() if not run(self.store.set(self._name(key, version), value, life))]

    async def aset_many(
        self, data: dict[Any, Any], timeout: float | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        life = self._life(timeout)
        return [
            key
            for key, value in data.items()
            if not await arun_shielded(self.store.set(self._name(key, version), value, life))
        ]

    def clear(self) -> None:
        """Empty the whole dictionary of LOCATION, including other programs' items."""
        run(self.store.clear())

    async def aclear(self) -> None:
        await arun_shielded(self.store.clear())

    # --- in addition to Django's ---

    def update(self, timeout: float = 0.3) -> None:
        """Apply invalidations from other processes to L1. Call it at the start of a request or job.

        Wait at most `timeout` seconds for a missing event. Raise `resty_django.cache.ChannelFailed`.
        """
        run(self.store.update(timeout))

    async def aupdate(self, timeout: float = 0.3) -> None:
        """Do the same as `update`."""
        await arun(self.store.update(timeout))

    def stats(self) -> Stats:
        """Return the counts of `get` calls of all processes, except possibly for the last second."""
        return run(self.store.counter.total())

    async def astats(self) -> Stats:
        """Do the same as `stats`."""
        return await arun(self.store.counter.total())

    # --- keys and times ---

    def make_key(self, key: Any, version: int | None = None) -> str:
        name = self.key_func(key, self.key_prefix, self.version if version is None else version)
        return name if type(name) is str else key_text(name)

    def _name(self, key: Any, version: int | None) -> str:
        return self._checked(self.make_key(key, version))

    def _checked(self, name: str) -> str:
        if self._own_check or len(name) > MEMCACHE_MAX_KEY_LENGTH or " " in name or not name.isprintable():
            self.validate_key(name)
        return name

    def _life(self, timeout: float | None) -> float:
        """Return a timeout as seconds: 0 is forever, negative is not stored."""
        if timeout is DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        if timeout is None:
            return 0
        return min(timeout, LONGEST) if timeout > 0 else -1


_all: WeakSet[MLCacheBackend] = WeakSet()


def _forget() -> None:
    for cache in list(_all):
        cache._store = None


on_change(_forget, SETTING, "CACHES")

__all__ = ["MLCacheBackend"]
