"""Django's database connections, before and after a job as around a request. Always there, inside of the txid."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries


def database(job: Any) -> Generator[None, None, None]:
    """Closes those that are broken or have reached their greatest age; in DEBUG forgets the queries of the last job."""
    _tidy()
    try:
        yield
    finally:
        close_old_connections()


async def adatabase(job: Any) -> AsyncGenerator[None, None]:
    """The same for async jobs: for the connections of the thread in which their `sync_to_async` runs."""
    await sync_to_async(_tidy)()
    try:
        yield
    finally:
        await sync_to_async(close_old_connections)()


def _tidy() -> None:
    reset_queries()
    close_old_connections()


__all__ = ["adatabase", "database"]
