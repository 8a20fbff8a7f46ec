"""Django's cache API over L1 (process memory) and L2 (a shared dictionary).

    CACHES = {
        "default": {
            "BACKEND": "resty_django.cache.backend.MLCacheBackend",
            "LOCATION": "pages",
            "OPTIONS": {"LRU_SIZE": 1000},
        },
    }

LOCATION: the name of a shared dictionary. OPTIONS: see `backend_options.BackendOptions`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Any, Final, TypeVar, cast
from weakref import WeakSet

from django.core.cache.backends.base import DEFAULT_TIMEOUT, MEMCACHE_MAX_KEY_LENGTH, BaseCache, default_key_func
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from resty_django.callables import acall
from resty_django.conf import on_change
from resty_django.conf.schema import SETTING
from resty_django.sansio import Steps, run, twins
from resty_django.shdict import NoMemory, Unavailable
from resty_django.shdict.patterns import escaped
from resty_django.text.durations import Duration, parse_duration

from ..backend_options import REVERSE_OPTION, default_timeout, options_of
from ..statistics.counts import CacheStats
from ..storage.records import key_text
from ..tags.names import Tags
from .locks import MAX_TIMEOUT_SECONDS, CacheLock
from .reading import BackendReader
from .store import BackendStore, stores

DELETED_KEYS_PER_STEP: Final = 500
"""Number of keys that `delete_pattern` deletes at once."""
R = TypeVar("R")

_ABSENT: Final = object()


def _awrite(cache: MLCacheBackend, steps: Steps[R]) -> Awaitable[R]:
    return cache.store.awrite(steps)


class MLCacheBackend(BaseCache):
    """A backend for `CACHES`. Async calls never block the event loop.

    In addition to Django's contract, `add`, `incr`, `decr` and `touch` are atomic across all processes, and `set_many`
    returns the keys that were not stored. While the store is down, ON_ERROR decides.
    """

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__({**params, "timeout": None})
        with suppress(ImproperlyConfigured):  # raised by `store`
            self.default_timeout = default_timeout(params)
        self._params = params
        self._location = location
        self._options = params.get("OPTIONS") or {}
        self._store: BackendStore | None = None
        self._reader: BackendReader | None = None
        self._own_check = type(self).validate_key is not BaseCache.validate_key
        _all.add(self)

    @property
    def store(self) -> BackendStore:
        """Return the store shared by the caches with this LOCATION. Raise `ImproperlyConfigured`, here rather than in
        `__init__`, because Django's system checks create all caches."""
        if self._store is None:
            default_timeout(self._params)
            self._store = stores.of(self._location, options_of(self._location, self._options))
        return self._store

    @property
    def reader(self) -> BackendReader:
        """Return the reads of the store."""
        if self._reader is None:
            self._reader = BackendReader(self.store)
        return self._reader

    # --- reading ---

    def get(self, key: object, default: object = None, version: int | None = None) -> Any:
        name = self.make_key(key, version)
        store = self._store or self.store
        try:
            item = store.find(name)
            if item is not None and item.expires >= store.now():
                store.to_end(name)
                store.counts.l1 += 1
                return item.value.for_reader()
        except KeyError:  # just deleted by another thread
            pass
        return (self._reader or self.reader).read(self._checked(name), default)

    async def aget(self, key: object, default: object = None, version: int | None = None) -> Any:
        name = self.make_key(key, version)
        store = self._store or self.store
        try:
            item = store.find(name)
            if item is not None and item.expires >= store.now():
                store.to_end(name)
                store.counts.l1 += 1
                return item.value.for_reader()
        except KeyError:
            pass
        return await (self._reader or self.reader).aread(self._checked(name), default)

    def _get_many(self, keys: Iterable[object], version: int | None = None) -> Steps[dict[Any, Any]]:
        names = {key: self.make_key(key, version) for key in keys}
        values = self.reader.find_many(names.values())
        missing = [self._checked(name) for name in dict.fromkeys(names.values()) if name not in values]
        if missing:
            values |= yield from self.store.or_else({}, self.reader.read_many(missing))
        return {key: values[name] for key, name in names.items() if name in values}

    get_many, aget_many = twins(_get_many)

    def get_or_set(
        self, key: object, default: object, timeout: Duration | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """Return the value, or store and return `default`, or the return value of the function `default`.

        Of all processes, one at a time calls the function; the others wait for its value. A process that has waited for
        5 seconds calls the function itself.
        """
        value = self.get(key, _ABSENT, version)
        if value is not _ABSENT or not callable(default):
            return super().get_or_set(key, default, cast("Any", timeout), version) if value is _ABSENT else value
        lock = self.store.loading(self._name(key, version))
        try:
            acquired = lock.acquire()
        except (Unavailable, NoMemory):
            self._may_miss()
            acquired = False
        try:
            return super().get_or_set(key, default, cast("Any", timeout), version)
        finally:
            if acquired:
                lock.__exit__(None, None, None)

    async def aget_or_set(
        self, key: object, default: object, timeout: Duration | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """Do the same as `get_or_set`. The function may be a coroutine function; a sync function runs in a thread."""
        value = await self.aget(key, _ABSENT, version)
        if value is not _ABSENT or not callable(default):
            return await super().aget_or_set(key, default, cast("Any", timeout), version) if value is _ABSENT else value
        lock = self.store.loading(self._name(key, version))
        try:
            acquired = await lock.aacquire()
        except (Unavailable, NoMemory):
            self._may_miss()
            acquired = False
        try:
            value = await self.aget(key, _ABSENT, version)
            if value is _ABSENT:
                value = await acall(default)
                await self.aadd(key, value, timeout, version)
                value = await self.aget(key, value, version)
            return value
        finally:
            if acquired:
                await lock.__aexit__(None, None, None)

    def _may_miss(self) -> None:
        """Reraise the error of the store that is being handled, if ON_ERROR is "raise"."""
        if self.store.options.on_error == "raise":
            raise

    def _ttl(self, key: object, version: int | None = None) -> Steps[int | None]:
        """Return the seconds until the key expires, rounded up; None if it never does, 0 if it does not exist."""
        return _rounded_up((yield from self._remaining(key, version)), 1)

    def _pttl(self, key: object, version: int | None = None) -> Steps[int | None]:
        """Return the same as `ttl`, in milliseconds."""
        return _rounded_up((yield from self._remaining(key, version)), 1000)

    def _remaining(self, key: object, version: int | None) -> Steps[float | None]:
        return self.store.or_else(0.0, self.store.remaining(self._name(key, version)))

    ttl, attl = twins(_ttl)
    pttl, apttl = twins(_pttl)

    def iter_keys(self, search: str, itersize: int | None = None, version: int | None = None) -> Iterator[str]:
        """Yield the keys in L2 of this cache and version that match a pattern, as passed to `set`.

        The pattern has the syntax of `SharedDict.iter_keys`: `*`, `?`, `[a-z]`, `[^a-z]`, and `\\` before a literal. A
        key may be yielded twice. `itersize` is accepted for django-redis and has no effect. Raise
        `ImproperlyConfigured` if the cache has a KEY_FUNCTION, but no REVERSE_KEY_FUNCTION.
        """
        return map(self._reversing(version), self.reader.keys(self._pattern(search, version)))

    async def aiter_keys(
        self, search: str, itersize: int | None = None, version: int | None = None
    ) -> AsyncIterator[str]:
        """Do the same as `iter_keys`."""
        key_of = self._reversing(version)
        async for name in self.reader.akeys(self._pattern(search, version)):
            yield key_of(name)

    def keys(self, search: str, version: int | None = None) -> list[str]:
        """Return the keys that `iter_keys` yields, each once."""
        return list(dict.fromkeys(self.iter_keys(search, version=version)))

    async def akeys(self, search: str, version: int | None = None) -> list[str]:
        """Do the same as `keys`."""
        return list(dict.fromkeys([key async for key in self.aiter_keys(search, version=version)]))

    # --- writing ---

    def _set(
        self,
        key: object,
        value: object,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Tags = (),
    ) -> Steps[None]:
        """Store a value. `tags`: see `invalidate_tags`."""
        return self.store.set(self._name(key, version), value, self._life(timeout), tags)

    def _add(
        self,
        key: object,
        value: object,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Tags = (),
    ) -> Steps[bool]:
        """Store a value if the key does not exist. `tags`: see `invalidate_tags`."""
        return self.store.or_else(False, self.store.add(self._name(key, version), value, self._life(timeout), tags))

    def _touch(
        self, key: object, timeout: Duration | None = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Steps[bool]:
        return self.store.or_else(False, self.store.touch(self._name(key, version), self._life(timeout)))

    def _delete(self, key: object, version: int | None = None) -> Steps[bool]:
        return self.store.delete(self._name(key, version))

    def _expire(self, key: object, timeout: Duration | None, version: int | None = None) -> Steps[bool]:
        """Do the same as `touch`."""
        return self._touch(key, timeout, version)

    def _persist(self, key: object, version: int | None = None) -> Steps[bool]:
        """Remove the time to live. Return whether the key exists."""
        return self._touch(key, None, version)

    def _incr(
        self, key: object, delta: int = 1, version: int | None = None, *, ttl: Duration | None = None
    ) -> Steps[Any]:
        """Add to a number, keeping its time to live, and return the sum.

        `ttl`: if the key does not exist, it starts at 0 and lives for this number of seconds (0: forever). Without it,
        raise `ValueError`. Raise `TypeError` for a value that is not a number or a sum of more than 64 bits.
        """
        return self.store.incr(self._name(key, version), delta, None if ttl is None else parse_duration(ttl))

    def _set_many(
        self,
        data: dict[Any, Any],
        timeout: Duration | None = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Tags = (),
    ) -> Steps[list[Any]]:
        names = {key: self._name(key, version) for key in data}
        values = {names[key]: data[key] for key in data}
        failed = yield from self.store.set_many(values, self._life(timeout), tags)
        return [key for key, name in names.items() if name in failed]

    def _delete_many(self, keys: Iterable[object], version: int | None = None) -> Steps[None]:
        yield from self.store.delete_many(dict.fromkeys(self._name(key, version) for key in keys))

    set, aset = twins(_set, _awrite)
    add, aadd = twins(_add, _awrite)
    touch, atouch = twins(_touch, _awrite)
    delete, adelete = twins(_delete, _awrite)
    expire, aexpire = twins(_expire, _awrite)
    persist, apersist = twins(_persist, _awrite)
    incr, aincr = twins(_incr)
    set_many, aset_many = twins(_set_many, _awrite)
    delete_many, adelete_many = twins(_delete_many, _awrite)

    def delete_pattern(self, pattern: str, version: int | None = None, itersize: int | None = None) -> int:
        """Delete the keys of this cache and version that match a pattern of `iter_keys`. Return their number."""
        deleted = 0
        names = self.reader.keys(self._pattern(pattern, version))
        while part := list(islice(names, DELETED_KEYS_PER_STEP)):
            deleted += run(self.store.delete_many(part))
        return deleted

    async def adelete_pattern(self, pattern: str, version: int | None = None, itersize: int | None = None) -> int:
        """Do the same as `delete_pattern`."""
        deleted = 0
        part: list[str] = []
        async for name in self.reader.akeys(self._pattern(pattern, version)):
            part.append(name)
            if len(part) == DELETED_KEYS_PER_STEP:
                deleted += await self.store.awrite(self.store.delete_many(part))
                part = []
        return deleted + (await self.store.awrite(self.store.delete_many(part)))

    def _clear(self) -> Steps[None]:
        """Empty the whole dictionary of LOCATION, including other programs' items."""
        return self.store.flush(True)

    clear, aclear = twins(_clear, _awrite)

    # --- in addition to Django's ---

    def _invalidate_tags(self, *tags: str) -> Steps[None]:
        """Delete all keys of LOCATION with one of these tags, in all processes; see `MLCache.invalidate_tags`."""
        return self.store.invalidate_tags(tags)

    invalidate_tags, ainvalidate_tags = twins(_invalidate_tags, _awrite)

    def lock(
        self,
        key: object,
        version: int | None = None,
        timeout: Duration | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: Duration | None = None,
    ) -> CacheLock:
        """Return a lock for a key, for `with` and `async with`, in the dictionary of LOCATION.

        It is independent of the cache's value. `timeout`: seconds until it expires (None: never). `sleep`: seconds
        between tries. `blocking`: whether to wait. `blocking_timeout`: maximum wait in seconds (None: no maximum).
        """
        exptime = None if timeout is None else parse_duration(timeout)
        wait = None if blocking_timeout is None else parse_duration(blocking_timeout)
        return self.store.lock(self._name(key, version), exptime, sleep, wait if blocking else 0)

    def _update(self, timeout: float = 0.3) -> Steps[None]:
        """Apply invalidations from other processes to L1. Call it at the start of a request or job.

        Wait at most `timeout` seconds for a missing event. Raise `resty_django.cache.ChannelFailed`.
        """
        return self.store.update(timeout)

    def _stats(self) -> Steps[CacheStats]:
        """Return the counts of `get` calls of all processes, except possibly for the last second."""
        return self.store.counter.total()

    update, aupdate = twins(_update)
    stats, astats = twins(_stats)

    # --- keys and times ---

    def make_key(self, key: object, version: int | None = None) -> str:
        name = self.key_func(key, self.key_prefix, self.version if version is None else version)
        return name if type(name) is str else key_text(name)

    def _name(self, key: object, version: int | None) -> str:
        return self._checked(self.make_key(key, version))

    def _pattern(self, pattern: str, version: int | None) -> str:
        """Return the pattern of the names in L2. Prefix and version match literally."""
        version = self.version if version is None else version
        if not isinstance(pattern, str):
            raise TypeError(f"The pattern must be a str, not {pattern!r}.")
        return str(self.key_func(pattern, escaped(self.key_prefix), escaped(str(version))))

    def _reversing(self, version: int | None) -> Callable[[str], str]:
        """Return the function that converts a name in L2 to the key that the site uses."""
        reverse = self._options.get(REVERSE_OPTION)
        if reverse is not None:
            key_of: Callable[[str], str] = reverse if callable(reverse) else import_string(reverse)
            return key_of
        if self.key_func is not default_key_func:
            raise ImproperlyConfigured(
                f"keys() and iter_keys() of a cache with a KEY_FUNCTION need OPTIONS[{REVERSE_OPTION!r}]. Set it to "
                "the dotted path of a function that takes the result of KEY_FUNCTION and returns the key."
            )
        start = len(self.make_key("", version))
        return lambda name: name[start:]

    def _checked(self, name: str) -> str:
        if self._own_check or len(name) > MEMCACHE_MAX_KEY_LENGTH or " " in name or not name.isprintable():
            self.validate_key(name)
        return name

    def _life(self, timeout: Duration | None) -> float:
        """Return a timeout as seconds: 0 is forever, negative is not stored. Raise `ValueError` or `TypeError`."""
        if timeout is DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        if timeout is None:
            return 0
        if isinstance(timeout, str | timedelta):
            timeout = _seconds(timeout)
        return min(timeout, MAX_TIMEOUT_SECONDS) if timeout > 0 else -1


def _seconds(timeout: str | timedelta) -> float:
    """Return a timeout in seconds. A negative timedelta is allowed, as a negative number is."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else parse_duration(timeout)


def _rounded_up(seconds: float | None, units: int) -> int | None:
    return None if seconds is None else math.ceil(round(seconds * units, 3))


_all: WeakSet[MLCacheBackend] = WeakSet()


def _forget() -> None:
    for cache in list(_all):
        cache._store = cache._reader = None


on_change(_forget, SETTING, "CACHES")

__all__ = ["MLCacheBackend"]
