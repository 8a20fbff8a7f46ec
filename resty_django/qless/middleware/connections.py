"""Connections around a job: to Django's databases, as around a request (always active), and to other servers.

Each thread has its own connections to databases. So threads that an async job uses are covered by `JobThreads`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries

from resty_django.text import logger

log = logger("resty_django.qless.worker")


def database(job: Any) -> Generator[None, None, None]:
    """Close connections that are broken or have reached their maximum age; with DEBUG, clear the query log."""
    _close_old()
    try:
        yield
    finally:
        close_old_connections()


async def adatabase(job: Any) -> AsyncGenerator[None, None]:
    """Do the same for async jobs, in the thread in which their `sync_to_async` runs."""
    await sync_to_async(_close_old)()
    try:
        yield
    finally:
        await sync_to_async(close_old_connections)()


class JobThreads(ThreadPoolExecutor):
    """The default executor of a loop that runs jobs, for `to_thread` and `sync_to_async(thread_sensitive=False)`.

    Stale database connections of its threads are closed before and after each function.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(_between_checks, fn, *args, **kwargs)


def _between_checks(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    _close_old()
    try:
        return function(*args, **kwargs)
    finally:
        close_old_connections()


def _close_old() -> None:
    reset_queries()
    close_old_connections()


class Reconnect:
    """Calls `alive(connection)` for each connection before a job; if it raises or is false, calls `renew(connection)`.

    The defaults call `connection.ping()` and `connection.close()`. They suit redis-py and similar clients, which
    reconnect on their next call. For sync jobs.
    """

    def __init__(
        self,
        *connections: Any,
        alive: Callable[[Any], object] = lambda connection: connection.ping(),
        renew: Callable[[Any], object] = lambda connection: connection.close(),
    ) -> None:
        self.connections = connections
        self.alive, self.renew = alive, renew

    def __call__(self, job: Any) -> Generator[None, None, None]:
        for connection in self.connections:
            try:
                is_alive = self.alive(connection)
            except Exception as error:
                log.info("renewing a connection before job %s: %s", job.jid, error)
                is_alive = False
            if not is_alive:
                self.renew(connection)
        yield
