"""What `CACHES` tells of a cache with our backend, and what can be wrong with that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import conf
from resty_django.schema import key_text

from .options import is_number

BACKEND: Final = "resty_django.cache.backend.MLCacheBackend"


class Options(NamedTuple):
    """`lru_size`: items in L1 (0: there is none). `lru_ttl`: seconds that one stays there at most (0: as long as in
    L2). `ipc_shm`: the dictionary of a channel of its own (None: events)."""

    lru_size: int = 1000
    lru_ttl: float = 1.0
    ipc_shm: str | None = None


def options_of(location: str, given: Mapping[str, Any]) -> Options:
    """Raises `ImproperlyConfigured`."""
    for fault in faults(location, given):
        raise ImproperlyConfigured(f"A cache in CACHES with BACKEND {BACKEND!r}: {fault}")
    return Options(**{name.lower(): value for name, value in given.items()})


def faults(location: object, given: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a LOCATION and OPTIONS."""
    known = conf.shared_dicts
    where = f"{key_text(('SHARED_DICTS',))}, which has {', '.join(known)}"
    if location not in known:
        yield f"LOCATION is {location!r}, and must be the name of a shared dictionary in {where}."
    else:
        yield from _own_redis(str(location))
    for name, value in given.items():
        if name == "LRU_SIZE":
            if type(value) is not int or value < 0:
                yield f"LRU_SIZE must be a whole number of at least 0, not {value!r}."
        elif name == "LRU_TTL":
            if not is_number(value) or value < 0:
                yield f"LRU_TTL must be a number of seconds of at least 0, not {value!r}."
        elif name == "IPC_SHM":
            if value is not None and value not in known:
                yield f"IPC_SHM is {value!r}, and must be None or the name of a shared dictionary in {where}."
            elif value == location:
                yield "IPC_SHM must be another dictionary than LOCATION, which clear() empties."
        else:
            yield f"{name} is no option of this cache. There are {', '.join(Options._fields).upper()}."


def _own_redis(location: str) -> Iterator[str]:
    """A dictionary on the Redis of a cache that is itself kept in a dictionary has no ground."""
    one = conf.shared_dicts[location]
    if one.engine == "redis" and settings.CACHES.get(one.alias, {}).get("BACKEND") == BACKEND:
        yield (
            f"{key_text(('SHARED_DICTS', location, 'ALIAS'))} names the cache {one.alias!r}, whose BACKEND is this "
            "one. Add a cache with django_redis.cache.RedisCache to CACHES, and name that."
        )


__all__ = ["BACKEND", "Options", "faults", "options_of"]
