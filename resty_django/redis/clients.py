"""Clients for cache aliases, created once per process, on the connections of the cache."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from redis import Redis, RedisCluster
from redis import asyncio as aio

from resty_django.address import see
from resty_django.conf import on_change
from resty_django.processes.forks import after_fork

from .faults import FAULTS, translated
from .timeouts import add_client_timeouts

Client: TypeAlias = Redis | RedisCluster
"""Type: a client of redis-py, for one server or a cluster."""
AsyncClient: TypeAlias = aio.Redis | aio.RedisCluster
"""Type: a client of `redis.asyncio`, for one server or a cluster."""

_clients: Final[dict[str, Client]] = {}


def connection(alias: str = "default") -> Client:
    """Return the redis-py client of the cache `alias`. Replies are bytes. Safe in all threads and after a fork.

    Raise `ImproperlyConfigured` if the cache has none, and `StoreDown` if a cluster cannot be reached.
    """
    try:
        return _clients[alias]
    except KeyError:
        return _clients.setdefault(alias, _client_of(alias))


def cache_client(alias: str) -> Any:
    """Return the cache client object of django-redis or Django."""
    cache: Any = caches[alias]
    wrapper = getattr(cache, "client", None) or getattr(cache, "_cache", None)
    if hasattr(wrapper, "get_client"):
        return wrapper
    raise _no_redis(alias, f"its BACKEND is {type(cache).__module__}.{type(cache).__qualname__}")


def _client_of(alias: str) -> Client:
    try:
        client = cache_client(alias).get_client(write=True)
    except FAULTS as error:
        raise translated(error) from error
    except NotImplementedError:
        raise _no_redis(alias, "its CLIENT_CLASS distributes the keys over several servers") from None
    if not isinstance(client, Redis | RedisCluster):
        raise _no_redis(alias, f"its client is a {type(client).__module__}.{type(client).__qualname__}")
    if client.get_encoder().decode_responses:
        raise ImproperlyConfigured(
            f"The cache {alias!r} sets decode_responses. Remove it from OPTIONS: resty_django stores bytes."
        )
    add_client_timeouts(client)
    return client


def _no_redis(alias: str, why: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"The cache {alias!r} in CACHES does not provide a Redis client for resty_django: {why}. "
        f'Set CACHES[{alias!r}]["BACKEND"] to "django_redis.cache.RedisCache" with the LOCATION of one server, '
        f"of Sentinel or of a cluster.{see('docs/production/redis.md')}"
    )


on_change(_clients.clear, "CACHES")
after_fork(_clients.clear)
