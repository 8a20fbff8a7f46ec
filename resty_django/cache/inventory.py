"""Inventory of caches: configured, created in code, and known only by their counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings

from resty_django.shdict import SharedDict, shdicts

from .backend.store import DJANGO_CACHE_PREFIX, BackendStore, stores
from .backend_options import BACKEND, options_of
from .mlcache.cache import MLCache, live_caches
from .mlcache.registry import mlcaches
from .statistics.reporter import CacheCounter, listed


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """A cache. Without `cache`, either `error` says why it cannot be created, or only other processes use it and
    `counter` reads the counts that they flush."""

    name: str
    cache: MLCache | BackendStore | None = None
    counter: CacheCounter | None = None
    error: Exception | None = None


def all_caches() -> dict[str, CacheInfo]:
    """Return all caches by name. Never raise."""
    caches: dict[str, CacheInfo] = {}
    for name, create in _configured():
        if name not in caches:
            caches[name] = _info(name, create)
    in_use: list[MLCache | BackendStore] = [*live_caches(), *stores.values()]
    for cache in in_use:
        caches.setdefault(cache.name, CacheInfo(cache.name, cache, cache.counter))
    for dictionary in _dictionaries(caches.values()):
        for name in _listed(dictionary):
            caches.setdefault(name, CacheInfo(name, None, CacheCounter(name, dictionary)))
    return dict(sorted(caches.items()))


def _configured() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Return the names in the settings, and functions that return the caches."""
    try:
        names = list(mlcaches)
    except Exception:  # invalid settings are reported by other probes and checks
        return
    for name in names:
        yield name, partial(mlcaches.__getitem__, name)
    for config in settings.CACHES.values():
        if config.get("BACKEND") == BACKEND:
            location = str(config.get("LOCATION", ""))
            yield DJANGO_CACHE_PREFIX + location, partial(_store, location, config.get("OPTIONS") or {})


def _store(location: str, options: Mapping[str, object]) -> BackendStore:
    return stores.of(location, options_of(location, options))


def _info(name: str, create: Callable[[], Any]) -> CacheInfo:
    try:
        cache = create()
    except Exception as error:
        return CacheInfo(name, error=error)
    return CacheInfo(name, cache, cache.counter)


def _dictionaries(caches: Iterable[CacheInfo]) -> list[SharedDict]:
    """Return the dictionaries that may contain counts."""
    dictionaries = {info.counter.dictionary for info in caches if info.counter is not None}
    try:
        names = list(shdicts)
    except Exception:
        names = []
    for name in names:
        try:
            dictionaries.add(shdicts[name])
        except Exception:  # noqa: S112 - a dictionary that cannot be opened has no counts, and its own probe
            continue
    return list(dictionaries)


def _listed(dictionary: SharedDict) -> list[str]:
    try:
        return listed(dictionary)
    except Exception:  # unavailable, or a value of another program
        return []
