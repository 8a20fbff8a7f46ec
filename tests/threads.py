"""Calls of several threads at once, and a server in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


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
