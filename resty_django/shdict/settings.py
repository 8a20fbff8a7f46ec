"""Settings for shared dictionaries: `RESTY_DJANGO["SHARED_DICTS"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import Needs, at_least, one_of, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDictSettings:
    """One shared dictionary.

    `engine`: "lmdb" (one machine, no server) or "redis". For lmdb, `size` is the size in bytes and `path` the folder of
    the files (None: memory if there is space, else the folder for temporary files). For redis, `alias` is the cache
    whose connection is used, `prefix` the prefix of the keys (None: derived from the name), and `stale` the seconds
    that an expired item stays readable for `get_stale`.
    """

    engine: str = setting("lmdb", check=one_of("lmdb", "redis"), needs={"redis": Needs(("redis", "django_redis"))})
    size: int = setting(32 * 1024 * 1024, check=at_least(1024 * 1024))
    path: str | None = setting(None, check=validators.not_blank)
    alias: str = setting("default", check=validators.known_cache)
    prefix: str | None = setting(None, check=validators.not_blank)
    stale: float = setting(60.0, check=at_least(0))
