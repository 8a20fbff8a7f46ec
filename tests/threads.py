"""Calls of several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


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
