"""The settings of shared dictionaries: `RESTY_DJANGO["SHARED_DICTS"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import Needs, at_least, one_of, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDictSettings:
    """One shared dictionary.

    `engine`: "lmdb", one machine and no server, or "redis". For lmdb, `size` is the bytes of memory that it takes and
    `path` the folder of its files (None: memory where there is room, else the folder for temporary files). For redis,
    `alias` is the cache of django-redis whose connection it uses, `prefix` what its keys begin with (None: made
    of its name), and `stale` the seconds that an expired item stays readable for `get_stale`.
    """

    engine: str = setting("lmdb", check=one_of("lmdb", "redis"), needs={"redis": Needs(("redis", "django_redis"))})
    size: int = setting(32 * 1024 * 1024, check=at_least(1024 * 1024))
    path: str | None = setting(None, check=validators.not_blank)
    alias: str = setting("default", check=validators.known_cache)
    prefix: str | None = setting(None, check=validators.not_blank)
    stale: float = setting(60.0, check=at_least(0))
