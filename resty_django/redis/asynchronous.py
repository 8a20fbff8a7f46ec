"""Clients for asyncio with the settings of the sync clients: one for each cache alias and event loop.

Each client lives in an asynchronous generator. So it is closed when its loop shuts down its generators, as
`asyncio.run` and ASGI servers do at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import select
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, TypeVar

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
from resty_django.processes.forks import after_fork

from .clients import AsyncClient, Client, cache_client, connection
from .cluster import ClusterClient

Loop: TypeAlias = asyncio.AbstractEventLoop
Close: TypeAlias = Callable[[], Awaitable[None]]
Keeper: TypeAlias = AsyncGenerator[None, None]

R = TypeVar("R")

open_clients: Final[dict[tuple[Loop, Hashable], AsyncClient]] = {}
loop_keepers: Final[dict[Loop, list[Keeper]]] = {}
_inherited: Final[list[object]] = []


def _is_closed(connection: aio.connection.AbstractConnection) -> bool:
    """Return whether a connection was closed while it was idle: after a timeout, a restart, CLIENT KILL.

    redis-py's check of idle connections sees that only once the loop has read the end, and, with maintenance
    notifications, not at all.
    """
    writer = connection._writer
    if writer is None:
        return False
    if writer.is_closing():  # the loop has noticed it, and its socket may be closed already
        return True
    poll = select.poll()
    poll.register(writer.get_extra_info("socket"), select.POLLRDHUP)
    return bool(poll.poll(0))


class CheckedPool(aio.BlockingConnectionPool):
    """A connection pool that reopens connections closed by the server. A call waits while all are in use."""

    async def ensure_connection(self, connection: aio.connection.AbstractConnection) -> None:
        if _is_closed(connection):
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)


class SentinelPool(SentinelConnectionPool, CheckedPool):
    """A `CheckedPool` for the master that Sentinel reports."""


async def _cancellable(call: Awaitable[R]) -> R:
    """Return the reply. Raise `CancelledError` if the call was cancelled but completed anyway.

    `asyncio.wait_for`, with which redis-py sends, can lose a cancellation before Python 3.12.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    reply = await call
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return reply


class Single(aio.Redis):
    """A client for one server, or for the master that Sentinel reports."""

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        execute: Callable[..., Awaitable[Any]] = super().execute_command
        return await _cancellable(execute(*args, **kwargs))


_begins_call: Final = ContextVar("_begins_call", default=False)


@contextlib.contextmanager
def beginning_call() -> Iterator[None]:
    """Have the first command in the block reopen its connection to a cluster node if the server has closed it.

    Later commands may depend on the state of their connection, as EXEC after WATCH does.
    """
    token = _begins_call.set(True)
    try:
        yield
    finally:
        _begins_call.reset(token)


class _CheckedConnection:
    """A connection to a node of a cluster, with the check of `CheckedPool`."""

    async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
        connection: Any = self
        if _begins_call.get():
            _begins_call.set(False)
            if _is_closed(connection):
                await connection.disconnect(nowait=True)
        parent: Any = super()
        await parent.send_packed_command(*args, **kwargs)


class Cluster(aio.RedisCluster):
    """A cluster client whose calls wait while `max_connections` are in flight; redis-py would reject them.

    It loads the slot table before the first call; otherwise redis-py would send early calls to arbitrary nodes.
    """

    def __init__(self, *, max_connections: int = 100, **kwargs: Any) -> None:
        super().__init__(max_connections=max_connections, **kwargs)
        self._gate = asyncio.Semaphore(max_connections)
        kind: Any = self.connection_kwargs["connection_class"]
        self.connection_kwargs["connection_class"] = checked = type(kind.__name__, (_CheckedConnection, kind), {})
        for node in self.nodes_manager.startup_nodes.values():
            node.connection_class = checked

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        async with self._gate:
            await self.initialize()
            with beginning_call():
                return await _cancellable(super().execute_command(*args, **kwargs))


def async_connection(alias: str = "default") -> AsyncClient:
    """Return the client of `redis.asyncio` for the running loop, with the settings of the cache `alias`.

    Does not block: the first call opens the connection. Raise `ImproperlyConfigured`.
    """
    loop = asyncio.get_running_loop()
    try:
        return open_clients[loop, alias]
    except KeyError:
        return _open(loop, alias, *_make(alias))


def async_like(key: Hashable, client: Client) -> AsyncClient:
    """Return the client of `redis.asyncio` for the running loop, with the settings of `client`; one for each `key`.

    Does not block. Raise `ImproperlyConfigured`.
    """
    loop = asyncio.get_running_loop()
    try:
        return open_clients[loop, key]
    except KeyError:
        if isinstance(client, RedisCluster):
            raise ImproperlyConfigured(
                "An asyncio client cannot be derived from a RedisCluster. Pass one as `async_redis`, or use "
                "the alias of a cache on a cluster."
            ) from None
        return _open(loop, key, *_async_copy(client, "The client of Redis"))


def _open(loop: Loop, key: Hashable, client: AsyncClient, close: Close) -> AsyncClient:
    for closed_loop in [kept_loop for kept_loop in list(loop_keepers) if kept_loop.is_closed()]:
        _forget_loop(closed_loop)
    keeper = _keep(loop, close)
    with contextlib.suppress(StopIteration):  # stop at its yield; from here on the loop tracks the generator
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
        # redis-py records the new node of a moved slot. After a number of moves it would also drop all connections,
        # including connections that other calls are waiting on.
        subject = f"The cache {alias!r}"
        options = {"reinitialize_steps": 0, **_async_arguments(subject, kwargs, aio.RedisCluster)}
        startup = [ClusterNode(host, port) for host, port in nodes]
        cluster = Cluster(startup_nodes=startup, retry=retry, **options)
        return cluster, cluster.aclose
    client = connection(alias)
    if isinstance(client, RedisCluster):
        raise ImproperlyConfigured(
            f"The cache {alias!r} uses a custom cluster client, which does not support asyncio. "
            f'Set its CLIENT_CLASS to "{ClusterClient.__module__}.ClusterClient".'
        )
    return _async_copy(client, f"The cache {alias!r}")


def _async_copy(client: Redis, subject: str) -> tuple[AsyncClient, Close]:
    threaded = client.connection_pool
    if isinstance(threaded, ThreadedSentinelPool):
        return _make_sentinel(subject, threaded)
    kind: type[aio.connection.AbstractConnection] = aio.Connection
    if issubclass(threaded.connection_class, SSLConnection):
        kind = aio.SSLConnection
    elif issubclass(threaded.connection_class, UnixDomainSocketConnection):
        kind = aio.UnixDomainSocketConnection
    pool = CheckedPool(
        connection_class=kind,
        max_connections=threaded.max_connections,
        retry=_retry(threaded.connection_kwargs.get("retry")),
        **_async_arguments(subject, threaded.connection_kwargs, kind),
    )
    async_client = Single.from_pool(pool)
    return async_client, async_client.aclose


def _make_sentinel(subject: str, threaded: ThreadedSentinelPool) -> tuple[AsyncClient, Close]:
    manager = threaded.sentinel_manager
    addresses = [sentinel_client.connection_pool.connection_kwargs for sentinel_client in manager.sentinels]
    sentinel_kwargs = _async_arguments(subject, manager.sentinel_kwargs, aio.Redis)
    sentinel_kwargs["retry"] = _retry(manager.sentinel_kwargs.get("retry")) or Retry(NoBackoff(), 0)
    sentinel = Sentinel(
        [(address["host"], address["port"]) for address in addresses],
        min_other_sentinels=manager.min_other_sentinels,
        sentinel_kwargs=sentinel_kwargs,
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
    """Return the asyncio equivalent of a retry policy."""
    return None if retry is None else Retry(retry._backoff, retry._retries, retry._supported_errors)


def _async_arguments(subject: str, kwargs: Mapping[str, Any], kind: type[object]) -> dict[str, Any]:
    """Return the arguments for the asyncio class `kind`. Raise `ImproperlyConfigured` for TLS options that it lacks."""
    parameters = {name for cls in kind.__mro__ if cls is not object for name in inspect.signature(cls).parameters}
    for name, value in kwargs.items():
        if name.startswith("ssl_") and value and name not in parameters:
            raise ImproperlyConfigured(
                f"{subject} has the option {name}, which redis-py does not support for asyncio. Remove it "
                "from OPTIONS, or use only sync calls."
            )
    shared = {  # arguments that have the same meaning for asyncio, besides TLS options
        *("host", "port", "path", "db", "username", "password", "credential_provider", "protocol", "ssl"),
        *("client_name", "driver_info", "lib_name", "lib_version", "encoding", "encoding_errors"),
        *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "socket_keepalive_options"),
        *("socket_read_size", "socket_type", "health_check_interval", "retry_on_error", "retry_on_timeout"),
        *("max_connections", "require_full_coverage", "address_remap", "dynamic_startup_nodes", "reinitialize_steps"),
    }
    return {
        name: value
        for name, value in kwargs.items()
        if name in parameters and (name in shared or name.startswith("ssl_"))
    }


def _forget() -> None:
    open_clients.clear()


def _after_fork() -> None:
    # Kept alive: closing a client would remove the parent's sockets from the selector, which both share.
    _inherited.append((open_clients.copy(), loop_keepers.copy()))
    open_clients.clear()
    loop_keepers.clear()


on_change(_forget, "CACHES")
after_fork(_after_fork)
