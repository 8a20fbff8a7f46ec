"""Redis databases that `cache.clear()` empties, from the settings alone: no connection is made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from redis.connection import parse_url

from .timeouts import is_redis


def cleared_by(origin: str) -> list[str]:
    """Return the aliases in CACHES whose `clear()` empties the database of `origin`, an alias or a URL.

    `origin` itself is left out: a cache that serves only as the connection is not cleared by accident. The alias
    "default" is included, since `django.core.cache.cache` is this cache.
    """
    own = set(_databases({"LOCATION": origin} if "://" in origin else settings.CACHES.get(origin, {})))
    return [
        alias
        for alias, entry in settings.CACHES.items()
        if (alias != origin or alias == "default") and _flushes(entry) and not own.isdisjoint(_databases(entry))
    ]


def _flushes(entry: Mapping[str, Any]) -> bool:
    client_class = (entry.get("OPTIONS") or {}).get("CLIENT_CLASS")
    return is_redis(entry) and client_class != "resty_django.redis.cluster.ClusterClient"


def _databases(entry: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Yield the server and the number of each database in LOCATION."""
    location = entry.get("LOCATION") or ()
    options = entry.get("OPTIONS") or {}
    number = (options.get("CONNECTION_POOL_KWARGS") or options).get("db", 0)
    for url in re.split("[;,]", location) if isinstance(location, str) else location:
        try:
            params = parse_url(url)
        except ValueError:  # reported where the cache is used
            continue
        host = params.get("host", "localhost")
        server = params.get("path") or ("127.0.0.1" if host in ("localhost", "::1") else host, params.get("port", 6379))
        yield server, params.get("db", number)
