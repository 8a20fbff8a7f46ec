"""Closes stale database connections before and after a job, as Django does around a request. Always active."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries


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


def _close_old() -> None:
    reset_queries()
    close_old_connections()
