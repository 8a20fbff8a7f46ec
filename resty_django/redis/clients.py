"""The client of a cache alias. It is made once in a process, and its connections are those of the cache."""

from __future__ import annotations

import os
from typing import Any, Final, TypeAlias

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from redis import Redis, RedisCluster
from redis import asyncio as aio

from .errors import FAULTS, translated

Client: TypeAlias = Redis | RedisCluster
AsyncClient: TypeAlias = aio.Redis | aio.RedisCluster

_clients: Final[dict[str, Client]] = {}


def connection(alias: str = "default") -> Client:
    """The client of redis-py behind the cache `alias`; replies are bytes. Usable in all threads and after a fork.

    Raises `ImproperlyConfigured` where that cache has none, and `StoreDown` where a cluster cannot be reached.
    """
    try:
        return _clients[alias]
    except KeyError:
        return _clients.setdefault(alias, _client_of(alias))


def cache_client(alias: str) -> Any:
    """What django-redis calls the client of a cache, or Django's own such object."""
    cache: Any = caches[alias]
    found = getattr(cache, "client", None) or getattr(cache, "_cache", None)
    if hasattr(found, "get_client"):
        return found
    raise _no_redis(alias, f"its BACKEND is {type(cache).__module__}.{type(cache).__qualname__}")


def _client_of(alias: str) -> Client:
    try:
        client = cache_client(alias).get_client(write=True)
    except FAULTS as error:
        raise translated(error) from error
    except NotImplementedError:
        raise _no_redis(alias, "its CLIENT_CLASS spreads the keys over several servers by itself") from None
    if not isinstance(client, Redis | RedisCluster):
        raise _no_redis(alias, f"its client is a {type(client).__module__}.{type(client).__qualname__}")
    if client.get_encoder().decode_responses:
        raise ImproperlyConfigured(
            f"The cache {alias!r} has decode_responses set. Take it out of its OPTIONS: resty_django stores bytes."
        )
    return client


def _no_redis(alias: str, why: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"The cache {alias!r} in CACHES has no Redis that resty_django can use: {why}. "
        f'Set CACHES[{alias!r}]["BACKEND"] to "django_redis.cache.RedisCache" with the LOCATION of one server, '
        "of Sentinel or of a cluster (docs/redis.md)."
    )


def _forget(**kwargs: Any) -> None:
    if kwargs.get("setting", "CACHES") == "CACHES":
        _clients.clear()


setting_changed.connect(_forget, dispatch_uid="resty_django.redis")
os.register_at_fork(after_in_child=_clients.clear)

__all__ = ["AsyncClient", "Client", "cache_client", "connection"]
