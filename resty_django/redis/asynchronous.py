"""Clients for asyncio, made after those of the caches: one for each alias and running loop.

They are closed when their loop shuts down its asynchronous generators, as `asyncio.run` and the servers do at the
end; that is why each client lives in such a generator.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from typing import Any, Final, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from redis import Redis, RedisCluster
from redis import asyncio as aio
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.connection import SSLConnection, UnixDomainSocketConnection
from redis.sentinel import SentinelConnectionPool as ThreadedSentinelPool

from resty_django.conf import on_change
from resty_django.forks import after_fork

from .clients import AsyncClient, Client, cache_client, connection
from .cluster import ClusterClient

Loop: TypeAlias = asyncio.AbstractEventLoop
Close: TypeAlias = Callable[[], Awaitable[None]]
Keeper: TypeAlias = AsyncGenerator[None, None]

open_clients: Final[dict[tuple[Loop, Hashable], AsyncClient]] = {}
loop_keepers: Final[dict[Loop, list[Keeper]]] = {}
_inherited: Final[list[object]] = []

CALLS_AT_ONCE: Final = 100
"""Calls that one loop has under way on a cluster, unless `max_connections` says otherwise; more wait."""

TAKEN_OVER: Final = frozenset(
    (
        *("host", "port", "path", "db", "username", "password", "credential_provider", "protocol", "ssl"),
        *("client_name", "driver_info", "lib_name", "lib_version", "encoding", "encoding_errors"),
        *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "socket_keepalive_options"),
        *("socket_read_size", "socket_type", "health_check_interval", "retry_on_error", "retry_on_timeout"),
        *("max_connections", "require_full_coverage", "address_remap", "dynamic_startup_nodes", "reinitialize_steps"),
    )
)
"""Arguments of connections and clusters, besides those for TLS, that mean the same for asyncio."""


class SentinelPool(SentinelConnectionPool, aio.BlockingConnectionPool):
    """Of the master that Sentinel names. A call waits while all connections are in use."""


async def _cancellable(call: Awaitable[Any]) -> Any:
    """Return the reply; raises `CancelledError` where the call was cancelled and did not end by that.

    `asyncio.wait_for`, with which redis-py sends, may lose a cancellation before Python 3.12.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    reply = await call
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return reply


class Single(aio.Redis):
    """Of one server, or of the master that Sentinel names."""

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        return await _cancellable(super().execute_command(*args, **kwargs))  # type: ignore[no-untyped-call]


class Cluster(aio.RedisCluster):
    """A call waits while too many are under way, where redis-py would refuse it.

    The nodes are asked for the slots before the first call: redis-py would send calls that come before to any node.
    """

    def __init__(self, *, max_connections: int = CALLS_AT_ONCE, **kwargs: Any) -> None:
        super().__init__(max_connections=max_connections, **kwargs)
        self._gate = asyncio.Semaphore(max_connections)

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        async with self._gate:
            await self.initialize()
            return await _cancellable(super().execute_command(*args, **kwargs))


def async_connection(alias: str = "default") -> AsyncClient:
    """Return the client of `redis.asyncio` for the running loop, with the settings of the cache `alias`.

    Waits for nothing: the connection is made by the first call. Raises `ImproperlyConfigured`.
    """
    loop = asyncio.get_running_loop()
    try:
        return open_clients[loop, alias]
    except KeyError:
        return _open(loop, alias, *_make(alias))


def async_like(key: Hashable, client: Client) -> AsyncClient:
    """Return the client of `redis.asyncio` for the running loop, with the settings of `client`; one for each `key`.

    Waits for nothing. Raises `ImproperlyConfigured`.
    """
    loop = asyncio.get_running_loop()
    try:
        return open_clients[loop, key]
    except KeyError:
        if isinstance(client, RedisCluster):
            raise ImproperlyConfigured(
                "A client of asyncio cannot be made after a RedisCluster. Give one of its own (`async_redis`), "
                "or the alias of a cache that is a cluster."
            ) from None
        return _open(loop, key, *_async_copy(client, "The client of Redis"))


def _open(loop: Loop, key: Hashable, client: AsyncClient, close: Close) -> AsyncClient:
    for closed_loop in [kept_loop for kept_loop in list(loop_keepers) if kept_loop.is_closed()]:
        _forget_loop(closed_loop)
    keeper = _keep(loop, close)
    with contextlib.suppress(StopIteration):  # that is its yield; from here on the loop knows the generator
        keeper.__anext__().send(None)
    loop_keepers.setdefault(loop, []).append(keeper)
    open_clients[loop, key] = client
    return client


async def _keep(loop: Loop, close: Close) -> Keeper:
    try:
        yield
    finally:
        _forget_loop(loop)
        await close()


def _forget_loop(loop: Loop) -> None:
    loop_keepers.pop(loop, None)
    for key in [key for key in list(open_clients) if key[0] is loop]:
        open_clients.pop(key, None)


def _make(alias: str) -> tuple[AsyncClient, Close]:
    wrapper = cache_client(alias)
    if isinstance(wrapper, ClusterClient):
        nodes, kwargs = wrapper.cluster()
        retry = _retry(kwargs.get("retry")) or Retry(NoBackoff(), 0)
        # Of a slot that has moved redis-py notes the new node; every so often it would drop all connections as well,
        # also those that other calls wait on.
        subject = f"The cache {alias!r}"
        options = {"reinitialize_steps": 0, **_async_arguments(subject, kwargs, aio.RedisCluster)}
        startup = [ClusterNode(host, port) for host, port in nodes]
        cluster = Cluster(startup_nodes=startup, retry=retry, **options)
        return cluster, cluster.aclose
    client = connection(alias)
    if isinstance(client, RedisCluster):
        raise ImproperlyConfigured(
            f"The cache {alias!r} is a cluster with a client of its own, which cannot be used in asyncio. "
            f'Set its CLIENT_CLASS to "{ClusterClient.__module__}.ClusterClient".'
        )
    return _async_copy(client, f"The cache {alias!r}")


def _async_copy(client: Redis, subject: str) -> tuple[AsyncClient, Close]:
    threaded = client.connection_pool
    if isinstance(threaded, ThreadedSentinelPool):
        return _make_sentinel(subject, threaded)
    kind: type[aio.Connection] = aio.Connection
    if issubclass(threaded.connection_class, SSLConnection):
        kind = aio.SSLConnection
    elif issubclass(threaded.connection_class, UnixDomainSocketConnection):
        kind = aio.UnixDomainSocketConnection  # type: ignore[assignment]
    pool = aio.BlockingConnectionPool(
        connection_class=kind,
        max_connections=threaded.max_connections,
        retry=_retry(threaded.connection_kwargs.get("retry")),
        **_async_arguments(subject, threaded.connection_kwargs, kind),
    )
    async_client = Single.from_pool(pool)
    return async_client, async_client.aclose


def _make_sentinel(subject: str, threaded: Any) -> tuple[AsyncClient, Close]:
    manager = threaded.sentinel_manager
    addresses = [sentinel_client.connection_pool.connection_kwargs for sentinel_client in manager.sentinels]
    asking = _async_arguments(subject, manager.sentinel_kwargs, aio.Redis)
    asking["retry"] = _retry(manager.sentinel_kwargs.get("retry")) or Retry(NoBackoff(), 0)
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [(address["host"], address["port"]) for address in addresses],
        min_other_sentinels=manager.min_other_sentinels,
        sentinel_kwargs=asking,
    )
    kind = aio.sentinel.SentinelManagedConnection
    if issubclass(threaded.connection_class, SSLConnection):
        kind = aio.sentinel.SentinelManagedSSLConnection
    pool = SentinelPool(  # type: ignore[no-untyped-call]
        threaded.service_name,
        sentinel,
        connection_class=kind,
        max_connections=threaded.max_connections,
        check_connection=threaded.check_connection,
        retry=_retry(threaded.connection_kwargs.get("retry")),
        **_async_arguments(subject, threaded.connection_kwargs, kind),
    )
    async_client = Single.from_pool(pool)

    async def close() -> None:
        await async_client.aclose()
        for sentinel_client in sentinel.sentinels:
            await sentinel_client.aclose()

    return async_client, close


def _retry(retry: Any) -> Retry | None:
    """Return the same policy for asyncio."""
    return None if retry is None else Retry(retry._backoff, retry._retries, retry._supported_errors)


def _async_arguments(subject: str, kwargs: Mapping[str, Any], kind: type[object]) -> dict[str, Any]:
    """Return the arguments that `kind` of asyncio takes. Raises `ImproperlyConfigured` for TLS options it lacks."""
    parameters = {name for cls in kind.__mro__ if cls is not object for name in inspect.signature(cls).parameters}
    for name, value in kwargs.items():
        if name.startswith("ssl_") and value and name not in parameters:
            raise ImproperlyConfigured(
                f"{subject} has the option {name}, which redis-py does not have for asyncio. "
                "Take it out of its OPTIONS, or use no coroutines with it."
            )
    return {
        name: value
        for name, value in kwargs.items()
        if name in parameters and (name in TAKEN_OVER or name.startswith("ssl_"))
    }


def _forget() -> None:
    open_clients.clear()


def _after_fork() -> None:
    # Kept alive: closing one would take the sockets of the parent out of the selector that both now have.
    _inherited.append((open_clients.copy(), loop_keepers.copy()))
    open_clients.clear()
    loop_keepers.clear()


on_change(_forget, "CACHES")
after_fork(_after_fork)
