"""The keys of recorded lookups: notes the key before each single count, by replacing methods of the caches in use.

Lookups of several keys with one count have no key: `in_l1` of pages, and `get_bulk` beyond L1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from resty_django.conf import on_change
from resty_django.conf.schema import SETTING

from ..backend.store import Store, stores
from ..mlcache.cache import MLCache, live_caches
from .recording import last_key

_REPLACED: Final = ("_count", "decode", "_decode_tagged", "find_many")


def record_keys(on: bool) -> None:
    """Note the keys of all caches in use, or of none. A cache that is created later is covered by the next call."""
    caches: list[MLCache | Store] = [*live_caches(), *stores.values()]
    for cache in caches:
        _switch(cache, on)


def _switch(cache: MLCache | Store, on: bool) -> None:
    find = "find" if isinstance(cache, Store) else "_find"
    is_on = any(name in vars(cache) for name in _REPLACED)
    if on and not is_on:
        setattr(cache, find, _noting(cache.lru.items.get))
        for name in _REPLACED:
            if hasattr(cache, name):
                setattr(cache, name, _NOTING[name](getattr(cache, name)))
    elif is_on and not on:
        for name in _REPLACED:
            vars(cache).pop(name, None)
        setattr(cache, find, cache.lru.items.get)


def _noting(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call, which notes its first argument, the key."""

    def noting(key: Any, *args: Any) -> Any:
        last_key.set(key if type(key) is str else None)
        return call(key, *args)

    return noting


def _noting_second(call: Callable[..., Any]) -> Callable[..., Any]:
    def noting(level: Any, key: str | None = None) -> Any:
        last_key.set(key)
        return call(level, key)

    return noting


def _noting_only(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call, which notes the key if it is about one key only."""

    def noting(raws: Mapping[str, Any], *args: Any) -> Any:
        last_key.set(next(iter(raws)) if len(raws) == 1 else None)
        return call(raws, *args)

    return noting


def _one_by_one(call: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return the call, which counts each of its keys."""

    def one_by_one(keys: Iterable[str]) -> dict[str, Any]:
        return {found: value for key in dict.fromkeys(keys) for found, value in call((key,)).items()}

    return one_by_one


_NOTING: Final = {
    "_count": _noting_second,
    "decode": _noting,
    "_decode_tagged": _noting_only,
    "find_many": _one_by_one,
}


on_change(lambda: record_keys(False), SETTING)
