"""Middleware that is always active: the transaction ID, and Django's database connections, as around a request.

Each thread has its own connections. So threads that an async job uses are covered by `JobThreads`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections

from resty_django.txid import InvalidTxid, bound

from .job import WorkerJob


def transaction(job: WorkerJob) -> Generator[None, None, None]:
    """Run a job under the txid of the code that put it."""
    with bound_to(job):
        yield


def bound_to(job: WorkerJob) -> bound:
    """Return a context manager that runs a block with the IDs of the job; with a new txid if it has no valid one."""
    try:
        return bound(job.txid, request_id=job.request_id)
    except InvalidTxid:
        return bound(request_id=job.request_id)


def database(job: WorkerJob) -> Generator[None, None, None]:
    """Close connections that are broken or have reached their maximum age; with DEBUG, clear the query log."""
    _close_old()
    try:
        yield
    finally:
        close_old_connections()


async def adatabase(job: WorkerJob) -> AsyncGenerator[None, None]:
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
    """Do the same as Django's `reset_queries` and `close_old_connections`, which each look for the connections."""
    for connection in connections.all(initialized_only=True):
        connection.queries_log.clear()
        connection.close_if_unusable_or_obsolete()
