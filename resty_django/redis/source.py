"""Connection sources: an alias in CACHES, a URL, a redis-py client, or a function that creates a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from .asynchronous import async_connection, async_like
from .clients import AsyncClient, Client, connection
from .timeouts import add_client_timeouts

Origin: TypeAlias = str | Client | AsyncClient | Callable[[], Client | AsyncClient]
"""An alias, a URL (it contains `://`), a client, or a function without arguments that creates a client."""


class ClientSource:
    """The client for sync code, and one client per event loop.

    For asyncio, a client with the settings of the sync client is created, unless `async_origin` provides another one. A
    `redis.asyncio` client that is passed directly works only in its own loop and not in sync code.
    """

    def __init__(self, origin: Origin = "default", async_origin: Origin | None = None) -> None:
        self._origin = origin
        self._alias = origin if isinstance(origin, str) and "://" not in origin else None
        self._other = ClientSource(async_origin) if async_origin is not None else None
        self._created: list[Client | AsyncClient] = []
        """The client in use; more than one if several threads needed it at the same time."""
        self.ready: Client | None = None
        """The client for sync code, once it is known."""

    def sync(self) -> Client:
        """Return the sync client, safe in all threads and after a fork. Raise `ImproperlyConfigured` or `StoreDown`."""
        if self.ready is not None:
            return self.ready
        if self._alias is not None:
            return connection(self._alias)
        client = next(iter(self._created), None) or self._make()
        if isinstance(client, AsyncClient):
            raise ImproperlyConfigured(
                "Only a redis.asyncio client was passed, which sync code cannot use. Also pass an alias in "
                "CACHES, a URL or a redis.Redis."
            )
        self.ready = client
        return client

    def asynchronous(self) -> AsyncClient:
        """Return the client for the running event loop. Raise `ImproperlyConfigured` or `StoreDown`."""
        if self._other is not None:
            return self._other.asynchronous()
        if self._alias is not None:
            return async_connection(self._alias)
        client = next(iter(self._created), None) or self._make()
        return client if isinstance(client, AsyncClient) else async_like(self, client)

    def close(self) -> None:
        """Close sync connections that were created from a URL or by a function. The next call opens new ones."""
        created, self._created, self.ready = self._created, [], None
        for client in created:
            if isinstance(client, Client) and client is not self._origin:
                client.close()

    def _make(self) -> Client | AsyncClient:
        client: Any = self._origin
        if isinstance(client, str):
            client = Redis.from_url(client, retry=Retry(NoBackoff(), 0))
            add_client_timeouts(client)
        elif callable(client):
            client = client()
        if not isinstance(client, Client | AsyncClient):
            raise ImproperlyConfigured(
                f"A {type(client).__module__}.{type(client).__qualname__} is not a Redis client. Pass an "
                "alias in CACHES, a URL, a redis-py client, or a function that creates one."
            )
        if client.get_encoder().decode_responses:
            raise ImproperlyConfigured(
                "The Redis client sets decode_responses. Create it without that option: resty_django reads bytes."
            )
        created = self._created  # another thread may close the source in between
        created.append(client)
        return created[0]  # another thread may have been first
