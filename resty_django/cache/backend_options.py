"""Validation of LOCATION and OPTIONS of a cache in `CACHES`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from resty_django import extras
from resty_django.conf import conf
from resty_django.conf.schema import key_text
from resty_django.conf.validators import dotted_path
from resty_django.text.durations import DURATION, is_number, parse_duration, seconds_of
from resty_django.text.suggestions import did_you_mean

from .storage.compression import ALGORITHMS, COMPRESS_ABOVE_BYTES, MAX_DECOMPRESSED_BYTES, option_faults

BACKEND: Final = "resty_django.cache.backend.MLCacheBackend"


REVERSE_OPTION: Final = "REVERSE_KEY_FUNCTION"
"""The option with a function that undoes `KEY_FUNCTION`. Each cache has its own."""


class BackendOptions(NamedTuple):
    """The OPTIONS. `lru_size`: maximum items in L1 (0: no L1). `lru_ttl`: maximum seconds in L1 (0: as in L2).

    `on_error`: while the store is down, "miss": reads find nothing, and writes return False; "raise": both raise
    `resty_django.shdict.Unavailable`. `compress`, `compress_above`, `decompress_limit`: as for `MLCache`.
    """

    lru_size: int = 1000
    lru_ttl: float = 1.0
    on_error: str = "miss"
    compress: str | None = None
    compress_above: int = COMPRESS_ABOVE_BYTES
    decompress_limit: int = MAX_DECOMPRESSED_BYTES


def options_of(location: str, options: Mapping[str, Any]) -> BackendOptions:
    """Return the OPTIONS of a cache. Raise `ImproperlyConfigured`."""
    for fault in faults(location, options):
        raise ImproperlyConfigured(f"A cache in CACHES with BACKEND {BACKEND!r}: {fault}")
    return common_options(options)


def common_options(options: Mapping[str, Any]) -> BackendOptions:
    """Return the valid OPTIONS that all caches with the same LOCATION share."""
    shared = {name.lower(): value for name, value in options.items() if name != REVERSE_OPTION}
    if "lru_ttl" in shared:
        shared["lru_ttl"] = parse_duration(shared["lru_ttl"])
    return BackendOptions(**shared)


def default_timeout(params: Mapping[str, Any]) -> float | None:
    """Return the TIMEOUT of a cache in seconds; None: forever. Raise `ImproperlyConfigured`."""
    timeout = params.get("timeout", params.get("TIMEOUT", 300))
    for fault in timeout_faults(timeout):
        raise ImproperlyConfigured(f"A cache in CACHES with BACKEND {BACKEND!r}: {fault}")
    return timeout if timeout is None or isinstance(timeout, int | float) else _seconds(timeout)


def timeout_faults(timeout: object) -> Iterator[str]:
    """Yield a description of the fault of a TIMEOUT."""
    if timeout is not None and not is_number(timeout) and _seconds(timeout) is None:
        yield f"TIMEOUT must be None, or {DURATION} not {timeout!r}."


def _seconds(timeout: object) -> float | None:
    """Return the seconds of a text or a timedelta. As in Django, a text may also be a whole number ("300")."""
    return float(timeout) if isinstance(timeout, str) and timeout.strip().isdecimal() else seconds_of(timeout)


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
            seconds = seconds_of(value)
            if seconds is None or seconds < 0:
                yield f"LRU_TTL must be {DURATION} of at least 0, not {value!r}."
        elif name == "ON_ERROR":
            if value not in ("miss", "raise"):
                yield f"ON_ERROR must be 'miss' or 'raise', not {value!r}."
        elif name in ("COMPRESS", "COMPRESS_ABOVE", "DECOMPRESS_LIMIT"):
            yield from option_faults({name: value})
            if name == "COMPRESS":
                yield from _missing_packages(value)
        elif name == REVERSE_OPTION:
            if not callable(value) and dotted_path(value):
                yield f"{REVERSE_OPTION} {dotted_path(value)}."
        else:
            names = (*map(str.upper, BackendOptions._fields), REVERSE_OPTION)
            hint = did_you_mean(name, names, f"Options: {', '.join(names)}.", quote="")
            yield f"{name} is not an option of this cache. {hint}"


def _missing_packages(algorithm: object) -> Iterator[str]:
    if isinstance(algorithm, str) and algorithm in ALGORITHMS:
        try:
            extras.require(f"COMPRESS {algorithm!r} needs", *ALGORITHMS[algorithm].modules)
        except extras.MissingExtra as error:
            yield str(error)


def _own_redis(location: str) -> Iterator[str]:
    """Reject a dictionary whose Redis connection belongs to a cache that uses this backend."""
    dictionary = conf.shared_dicts[location]
    if dictionary.engine == "redis" and settings.CACHES.get(dictionary.alias, {}).get("BACKEND") == BACKEND:
        yield (
            f"{key_text(('SHARED_DICTS', location, 'ALIAS'))} names the cache {dictionary.alias!r}, which "
            "uses this BACKEND itself. Add a cache with django_redis.cache.RedisCache to CACHES, and use its "
            "alias."
        )
