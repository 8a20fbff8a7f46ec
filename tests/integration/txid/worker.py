"""A process that makes txids, for tests that need more than one. See the functions for what it can do."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable

from resty_django.txid import MonotonicTxid, txid

KEY = 12
"""The character by which ids are put into files: random, so that a file of each process has a 32nd of its ids."""


def heap(folder: str, count: str) -> None:
    """`count` ids into files, one for each character in the place `KEY`."""
    shelves: dict[str, list[str]] = {}
    for _ in range(int(count)):
        latest = txid()
        shelves.setdefault(latest[KEY], []).append(latest)
    for key, ids in shelves.items():
        with open(f"{folder}/{key}", "a") as file:
            write_all(file.fileno(), "".join(f"{new_id}\n" for new_id in ids))


def write_all(descriptor: int, text: str) -> None:
    """All of a text at the end of a file that others append to."""

    fcntl.flock(descriptor, fcntl.LOCK_EX)
    data = text.encode()
    while data:
        data = data[os.write(descriptor, data) :]


def stamped(count: str) -> None:
    """Lines of id and the milliseconds before and after it was made."""
    lines = []
    for number in range(int(count)):
        before = time.time_ns()
        latest = txid()
        lines.append(f"{latest} {before // 1_000_000} {time.time_ns() // 1_000_000}")
        if number % 20 == 0:
            time.sleep(0.0005)
    print("\n".join(lines))


def fork(children: str, count: str) -> None:
    """Lines of ids from the parent and from children that are forked while threads make ids."""
    monotonic = MonotonicTxid()
    stop = threading.Event()
    others: list[list[str]] = [[] for _ in range(3)]

    def keep_making(into: list[str]) -> None:
        while not stop.is_set():
            into += [txid(0), txid(), monotonic()]

    def some() -> list[str]:
        makers: list[Callable[[], str]] = [lambda: txid(0), lambda: txid(1), txid, monotonic]
        return [make() for _ in range(int(count)) for make in makers]

    threads = [threading.Thread(target=keep_making, args=(into,)) for into in others]
    ids = some()
    for thread in threads:
        thread.start()
    pids = []
    for _ in range(int(children)):
        ids += some()
        with warnings.catch_warnings():
            # Python 3.12+ warns of any fork with threads about: that it is safe here is what the test is for.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            write_all(1, "".join(f"{new_id}\n" for new_id in some()))
            os._exit(0)
        pids.append(pid)
    ids += some()
    stop.set()
    for thread in threads:
        thread.join()
    write_all(1, "".join(f"{new_id}\n" for new_id in (*ids, *(new_id for into in others for new_id in into))))
    for pid in pids:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


if __name__ == "__main__":
    {"heap": heap, "stamped": stamped, "fork": fork}[sys.argv[1]](*sys.argv[2:])
