"""All caches that this process knows of: those of the settings, those made in code, and those whose counts it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings

from resty_django.shdict import SharedDict, shdicts

from .backend_options import BACKEND, options_of
from .handler import mlcaches
from .mlcache import MLCache
from .reading import made
from .stats import Counter, listed
from .store import NAME, Store, stores


@dataclass(frozen=True, slots=True)
class Known:
    """A cache. Without `cache` either `error` says why it cannot be made, or `counter` has what other processes, which
    alone have made it, hand in."""

    name: str
    cache: MLCache | Store | None = None
    counter: Counter | None = None
    error: Exception | None = None


def known() -> dict[str, Known]:
    """All of them by name; never raises."""
    found: dict[str, Known] = {}
    for name, make in _named():
        if name not in found:
            found[name] = _made(name, make)
    for cache in (*made(), *stores.values()):
        found.setdefault(cache.name, Known(cache.name, cache, cache.counter))
    for dictionary in _dictionaries(found):
        for name in _listed(dictionary):
            found.setdefault(name, Known(name, None, Counter(name, dictionary)))
    return dict(sorted(found.items()))


def _named() -> Iterator[tuple[str, Callable[[], Any]]]:
    """The names in the settings, and what makes a cache of each."""
    try:
        names = list(mlcaches.names())
    except Exception:  # settings that are wrong, which other probes and checks tell
        return
    for name in names:
        yield name, partial(mlcaches.__getitem__, name)
    for one in settings.CACHES.values():
        if one.get("BACKEND") == BACKEND:
            location = str(one.get("LOCATION", ""))
            yield NAME + location, partial(_store, location, one.get("OPTIONS") or {})


def _store(location: str, given: Mapping[str, Any]) -> Store:
    return stores.of(location, options_of(location, given))


def _made(name: str, make: Callable[[], Any]) -> Known:
    try:
        cache = make()
    except Exception as error:
        return Known(name, error=error)
    return Known(name, cache, cache.counter)


def _dictionaries(found: dict[str, Known]) -> list[SharedDict]:
    """Where counts may be."""
    there = {one.counter.dictionary for one in found.values() if one.counter is not None}
    try:
        names = list(shdicts.names())
    except Exception:
        names = []
    for name in names:
        try:
            there.add(shdicts[name])
        except Exception:  # noqa: S112 - a dictionary that cannot be had has no counts, and a probe of its own
            continue
    return list(there)


def _listed(dictionary: SharedDict) -> list[str]:
    try:
        return listed(dictionary)
    except Exception:  # down, or not ours
        return []


__all__ = ["Known", "known"]
