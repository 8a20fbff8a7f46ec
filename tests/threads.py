"""Calls of several threads at once, a server in a thread, and the loss of a thread's database connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from django.db import DatabaseError, connection


def together(*works: Callable[[], object]) -> None:
    """Run each in a thread; raises what the first of them raised."""
    failed: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if failed:
        raise failed[0]


class Server(Protocol):
    def serve(self) -> None: ...

    def stop(self) -> None: ...


@contextmanager
def serving(server: Server) -> Iterator[None]:
    """Let it serve in a thread; in the end it stops, in less than 20 seconds."""
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def lose_connection() -> None:
    """Break this thread's connection to the database, which it has used, as when the database restarts."""
    raw: Any = connection.connection
    if connection.vendor == "sqlite":
        raw.close()
        return
    end = (
        "SELECT pg_terminate_backend(pg_backend_pid())" if connection.vendor == "postgresql" else "KILL CONNECTION_ID()"
    )
    with suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute(end)
