"""Socket timeouts: every connection gets one, whatever the default of the installed redis-py is.

redis-py has no default timeout before version 8, so calls to a server that dies silently would hang indefinitely.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from inspect import signature
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from redis import Redis, RedisCluster
from redis.connection import AbstractConnection

TIMEOUT_SECONDS: Final = 5.0
"""Timeout (seconds) for connections without a configured one; the default of redis-py from version 8 on."""
READ_TIMEOUT: Final = "socket_timeout"
CONNECT_TIMEOUT: Final = "socket_connect_timeout"


def add_timeouts(kwargs: MutableMapping[str, Any]) -> bool:
    """Add missing timeouts to connection arguments. Return whether one was missing."""
    if _effective(kwargs, READ_TIMEOUT) is not None:  # redis-py also uses it as the connect timeout, unless one is set
        return False
    kwargs[READ_TIMEOUT] = TIMEOUT_SECONDS
    kwargs[CONNECT_TIMEOUT] = kwargs.get(CONNECT_TIMEOUT) or TIMEOUT_SECONDS
    return True


def add_client_timeouts(client: Redis | RedisCluster) -> None:
    """Add missing timeouts to a client's connections. Idle connections are reconnected.

    Sentinels, and all nodes of a cluster, are included.
    """
    if isinstance(client, RedisCluster):
        manager: Any = client.nodes_manager
        add_timeouts(manager.connection_kwargs)
        pools = [node.redis_connection.connection_pool for node in client.get_nodes() if node.redis_connection]
    else:
        pool: Any = client.connection_pool
        pools = [pool]
        sentinels = getattr(pool, "sentinel_manager", None)
        if sentinels is not None:
            add_timeouts(sentinels.sentinel_kwargs)
            pools += [sentinel.connection_pool for sentinel in sentinels.sentinels]
    for pool in pools:
        if add_timeouts(pool.connection_kwargs):
            for conn in _connections_of(pool):
                conn.socket_timeout = pool.connection_kwargs[READ_TIMEOUT]
                conn.socket_connect_timeout = pool.connection_kwargs[CONNECT_TIMEOUT]
            pool.disconnect(inuse_connections=False)


def _connections_of(pool: Any) -> list[Any]:
    """Return a pool's existing connections, which keep their own timeouts."""
    names = ("_connections", "_available_connections", "_in_use_connections")
    return [conn for name in names for conn in list(getattr(pool, name, ()))]


def aliases_without() -> Iterator[str]:
    """Yield the aliases of Redis caches whose settings lead to connections without a timeout."""
    for alias, entry in settings.CACHES.items():
        if is_redis(entry) and _effective(_kwargs_of(entry), READ_TIMEOUT) is None:
            yield alias


def default() -> float | None:
    """Return redis-py's default timeout."""
    seconds: float | None = signature(AbstractConnection.__init__).parameters[READ_TIMEOUT].default
    return seconds


def _effective(kwargs: Mapping[str, object], name: str) -> object:
    return kwargs[name] if name in kwargs else default()


def is_redis(entry: Mapping[str, Any]) -> bool:
    """Return whether the backend of a cache in CACHES is django-redis or Django's own for Redis."""
    try:
        backend = import_string(entry.get("BACKEND", ""))
    except (ImportError, ImproperlyConfigured):  # a configuration error, reported elsewhere
        return False
    bases = [base.__module__ for base in getattr(backend, "__mro__", ())]
    return any(name in ("django_redis.cache", "django.core.cache.backends.redis") for name in bases)


def _kwargs_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the relevant connection arguments from the OPTIONS of either backend and from the URL."""
    options = dict(entry.get("OPTIONS") or {})
    kwargs: dict[str, Any] = {READ_TIMEOUT: options[READ_TIMEOUT.upper()]} if options.get(READ_TIMEOUT.upper()) else {}
    for named in (options, options.get("CONNECTION_POOL_KWARGS") or {}, options.get("REDIS_CLIENT_KWARGS") or {}):
        kwargs.update({READ_TIMEOUT: named[READ_TIMEOUT]} if READ_TIMEOUT in named else {})
    location = entry.get("LOCATION") or ""
    first = location if isinstance(location, str) else next(iter(location), "")
    query = parse_qs(urlsplit(str(first)).query)
    return {**kwargs, **({READ_TIMEOUT: query[READ_TIMEOUT][0]} if READ_TIMEOUT in query else {})}
