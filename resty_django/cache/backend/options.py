"""Validation of LOCATION and OPTIONS of a cache in `CACHES`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import conf
from resty_django.conf.schema import key_text

from ..mlcache.options import is_number

BACKEND: Final = "resty_django.cache.backend.MLCacheBackend"


class Options(NamedTuple):
    """The OPTIONS. `lru_size`: maximum items in L1 (0: no L1). `lru_ttl`: maximum seconds in L1 (0: as in L2)."""

    lru_size: int = 1000
    lru_ttl: float = 1.0


def options_of(location: str, options: Mapping[str, Any]) -> Options:
    """Return the OPTIONS of a cache. Raise `ImproperlyConfigured`."""
    for fault in faults(location, options):
        raise ImproperlyConfigured(f"A cache in CACHES with BACKEND {BACKEND!r}: {fault}")
    return Options(**{name.lower(): value for name, value in options.items()})


def faults(location: object, options: Mapping[str, Any]) -> Iterator[str]:
    """Return descriptions of the faults of a LOCATION and OPTIONS."""
    dictionaries = conf.shared_dicts
    where = f"{key_text(('SHARED_DICTS',))}, which has {', '.join(dictionaries)}"
    if location not in dictionaries:
        yield f"LOCATION is {location!r}, but must be the name of a shared dictionary in {where}."
    else:
        yield from _own_redis(str(location))
    for name, value in options.items():
        if name == "LRU_SIZE":
            if type(value) is not int or value < 0:
                yield f"LRU_SIZE must be an integer of at least 0, not {value!r}."
        elif name == "LRU_TTL":
            if not is_number(value) or value < 0:
                yield f"LRU_TTL must be a number of seconds of at least 0, not {value!r}."
        else:
            yield f"{name} is not an option of this cache. Options: {', '.join(Options._fields).upper()}."


def _own_redis(location: str) -> Iterator[str]:
    """Reject a dictionary whose Redis connection belongs to a cache that uses this backend."""
    dictionary = conf.shared_dicts[location]
    if dictionary.engine == "redis" and settings.CACHES.get(dictionary.alias, {}).get("BACKEND") == BACKEND:
        yield (
            f"{key_text(('SHARED_DICTS', location, 'ALIAS'))} names the cache {dictionary.alias!r}, which "
            "uses this BACKEND itself. Add a cache with django_redis.cache.RedisCache to CACHES, and use its "
            "alias."
        )
