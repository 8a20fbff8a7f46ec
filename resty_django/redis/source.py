"""Where connections come from: an alias of CACHES, a URL, a client of redis-py, or a function that makes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from redis import Redis, RedisCluster
from redis import asyncio as aio
from redis.backoff import NoBackoff
from redis.retry import Retry

from .asynchronous import async_connection, async_like
from .clients import AsyncClient, Client, connection

Origin: TypeAlias = str | Client | AsyncClient | Callable[[], Client | AsyncClient]
"""An alias, a URL (it has `://`), a client, or a function without arguments that makes a client."""

_SYNC: Final = (Redis, RedisCluster)
_ASYNC: Final = (aio.Redis, aio.RedisCluster)
_CLIENT: Final = "client"


class Source:
    """The client for sync code, and one for each running loop.

    For asyncio, a client is made after the one for sync code, where `async_origin` gives no other. A client of
    `redis.asyncio` that is given itself serves the loop that it is of, and no sync code.
    """

    def __init__(self, origin: Origin = "default", async_origin: Origin | None = None) -> None:
        self._origin = origin
        self._alias = origin if isinstance(origin, str) and "://" not in origin else None
        self._other = Source(async_origin) if async_origin is not None else None
        self._made: dict[str, Client | AsyncClient] = {}
        self._ready: Client | None = None

    def sync(self) -> Client:
        """Usable in all threads and after a fork. Raises `ImproperlyConfigured`, `StoreDown`."""
        if self._ready is not None:
            return self._ready
        if self._alias is not None:
            return connection(self._alias)
        found = self._made.get(_CLIENT) or self._make()
        if isinstance(found, _ASYNC):
            raise ImproperlyConfigured(
                "There is a client of redis.asyncio alone, which sync code cannot use. Give an alias of CACHES, a URL "
                "or a redis.Redis beside it."
            )
        self._ready = found
        return found

    def asynchronous(self) -> AsyncClient:
        """For the running loop. Raises `ImproperlyConfigured`, `StoreDown`."""
        if self._other is not None:
            return self._other.asynchronous()
        if self._alias is not None:
            return async_connection(self._alias)
        found = self._made.get(_CLIENT) or self._make()
        return found if isinstance(found, _ASYNC) else async_like(self, found)

    def close(self) -> None:
        """Close the connections of sync code that were made from a URL or by a function; a next call makes new ones."""
        made, self._ready = self._made.pop(_CLIENT, None), None
        if isinstance(made, _SYNC) and made is not self._origin:
            made.close()

    def _make(self) -> Client | AsyncClient:
        found: Any = self._origin
        if isinstance(found, str):
            found = Redis.from_url(found, retry=Retry(NoBackoff(), 0))
        elif callable(found):
            found = found()
        if not isinstance(found, (*_SYNC, *_ASYNC)):
            raise ImproperlyConfigured(
                f"A {type(found).__module__}.{type(found).__qualname__} is no client of Redis. Give an alias of "
                "CACHES, a URL, a client of redis-py, or a function that makes one."
            )
        if found.get_encoder().decode_responses:
            raise ImproperlyConfigured(
                "The client of Redis has decode_responses set. Make it without: resty_django reads bytes."
            )
        return self._made.setdefault(_CLIENT, found)  # of another thread, if that was first


__all__ = ["Origin", "Source"]
