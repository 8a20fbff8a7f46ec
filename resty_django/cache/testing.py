"""For tests of a site: caches that store nothing, and counts of hits and calls.

from resty_django.cache.testing import assert_cache, caches_disabled

with assert_cache(hits=1, calls=1):
    load_product(7)
    load_product(7)

with caches_disabled():
    load_product(7)                     # calls the function
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from operator import sub
from typing import Any, Final
from unittest import mock

from resty_django.minute_series.records import summed
from resty_django.shdict import SharedDict, StoreOutcome

from .backend import MLCacheBackend
from .backend.store import BackendStore, stores
from .circuit_breaker.guarded import GuardedDict
from .mlcache.cache import MLCache, live_caches
from .statistics.counts import CacheStats
from .storage.lru import LRU

__all__ = ["CacheCounts", "assert_cache", "caches_disabled", "count_cache"]

Countable = MLCache | MLCacheBackend


class CacheCounts:
    """The counts since the block began, of one cache or of all caches in this process."""

    def __init__(self, cache: Countable | None) -> None:
        self._cache = cache
        self._before = {counted: tuple(counted.counter.now) for counted in _counted(cache)}

    def stats(self) -> CacheStats:
        """Return all counts."""
        since = (
            CacheStats(*map(sub, counted.counter.now, self._before.get(counted, CacheStats())))
            for counted in _counted(self._cache)
        )
        return summed(since, CacheStats())

    @property
    def hits(self) -> int:
        """Return the number of lookups that L1 or L2 answered."""
        stats = self.stats()
        return stats.l1 + stats.l2 + stats.stale

    @property
    def calls(self) -> int:
        """Return the number of callbacks, cached functions and cached views that ran."""
        return self.stats().callbacks

    @property
    def misses(self) -> int:
        """Return the number of lookups without a value and without a callback, such as `get` of Django's cache."""
        return self.stats().misses

    def __repr__(self) -> str:
        stats = self.stats()
        return (
            f"{self.hits} hits ({stats.l1} in L1, {stats.l2} in L2, {stats.stale} stale), {self.calls} calls, "
            f"{stats.misses} misses, {stats.errors} errors"
        )


@contextmanager
def count_cache(cache: Countable | None = None) -> Iterator[CacheCounts]:
    """Count in a block. `cache`: a cache, or a cache of Django with this package's backend; None: all caches.

    Only lookups of this process count.
    """
    yield CacheCounts(cache)


@contextmanager
def assert_cache(
    *, hits: int | None = None, calls: int | None = None, misses: int | None = None, cache: Countable | None = None
) -> Iterator[CacheCounts]:
    """Raise `AssertionError` at the end of the block if the counts differ. None: any number. `cache`: see
    `count_cache`."""
    counts = CacheCounts(cache)
    yield counts
    wanted = {"hits": hits, "calls": calls, "misses": misses}
    wrong = [
        f"{number} {name}, not {getattr(counts, name)}"
        for name, number in wanted.items()
        if number is not None and getattr(counts, name) != number
    ]
    if wrong:
        raise AssertionError(f"Expected {', '.join(wrong)}. Counted: {counts!r}.")


@contextmanager
def caches_disabled() -> Iterator[None]:
    """Let all caches of this process store nothing and find nothing in a block.

    Callbacks, cached functions and cached views run each time; `get` of Django's cache returns the default. L1 is empty
    after the block, L2 is as it was before. Other processes are not affected. The block applies to all threads.
    """
    create = GuardedDict.__init__

    def init(self: GuardedDict, dictionary: SharedDict) -> None:
        create(self, dictionary)
        _disable(stack, self)

    with ExitStack() as stack:
        for cache in _counted(None):
            if isinstance(cache, MLCache):
                cache.loader.errors.copies.flush_all()
            stack.callback(cache.lru.flush_all)
            cache.lru.flush_all()
            for guarded in [cache.shm] if isinstance(cache, BackendStore) else cache.loader.guarded():
                _disable(stack, guarded)
        stack.enter_context(mock.patch.object(LRU, "put", _store_nothing))
        stack.enter_context(mock.patch.object(LRU, "replace", _only_delete))
        stack.enter_context(mock.patch.object(GuardedDict, "__init__", init))
        yield


def _disable(stack: ExitStack, guarded: Any) -> None:
    stack.enter_context(mock.patch.object(guarded, "dictionary", _NoDict(guarded.dictionary)))


def _store_nothing(self: LRU, *args: object) -> None:
    """Take the place of `LRU.put`."""


def _only_delete(self: LRU, key: Hashable, *args: object) -> None:
    """Take the place of `LRU.replace`."""
    self.delete(key)


def _counted(cache: Countable | None) -> list[MLCache | BackendStore]:
    if cache is None:
        return [*live_caches(), *stores.values()]
    return [cache.store if isinstance(cache, MLCacheBackend) else cache]


class _NoDict:
    """Takes the place of a dictionary that nothing is stored in."""

    def __init__(self, dictionary: SharedDict) -> None:
        self._dictionary = dictionary
        self.name = dictionary.name
        self.engine = dictionary.engine

    def __getattr__(self, name: str) -> Any:
        if name in _REPLIES:
            return _REPLIES[name]
        if name[:1] == "a" and name[1:] in _REPLIES:
            return _twin(_REPLIES[name[1:]])
        return getattr(self._dictionary, name)

    def iter_keys(self, pattern: str = "*") -> Iterator[str]:
        return iter(())

    async def aiter_keys(self, pattern: str = "*") -> Any:
        return
        yield


def _twin(call: Callable[..., Any]) -> Callable[..., Any]:
    async def awaited(*args: object, **options: Any) -> Any:
        return call(*args, **options)

    return awaited


def _update(key: object, function: Callable[[Any], Any], entry: Any = None) -> Any:
    return function(None).result


def _incr(key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
    return by if init is None else init + by


def _reply(value: object) -> Callable[..., Any]:
    return lambda *args, **options: value


_REPLIES: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(("get_item", "get_stale", "ttl", "flush_all"), _reply(None)),
    **dict.fromkeys(("set", "safe_set", "add", "add_or_get", "safe_add"), _reply(StoreOutcome.STORED)),
    **dict.fromkeys(("delete", "expire", "expire_if"), _reply(False)),
    **dict.fromkeys(("delete_many", "flush_expired"), _reply(0)),
    "get": lambda key, default=None: default,
    "get_many": lambda keys, on_error=None: {},
    "set_many": lambda *args: [],
    "delete_if": _reply(True),
    "update": _update,
    "incr": _incr,
}
