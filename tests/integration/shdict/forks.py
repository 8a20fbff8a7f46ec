"""Use of a dictionary by a process that forks. Started with the name of an act and the folder.

Each act ends the process with an error when something is not as it should be.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from resty_django.shdict import Keep, Unavailable, Update
from resty_django.shdict.lmdb import LmdbDict, environment
from tests.integration.shdict.structure import after_fork, is_open, reader_pids

MIB = 1024 * 1024
CHILDREN = 30
EACH = 50


def forked(act: Callable[[], None]) -> int:
    """Run `act` in a child, and return its pid."""
    pid = os.fork()
    if pid:
        return pid
    end_with(act)


def end_with(act: Callable[[], None]) -> Any:
    try:
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def succeeded(*pids: int) -> None:
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0


def count(dictionary: LmdbDict, times: int = EACH) -> None:
    """Add to the counter and look at other things."""
    for _ in range(times):
        before = dictionary.get("n", 0)
        assert dictionary.incr("n", 1, init=0) > before
        assert dictionary.get("text") == "as it was"


def plain(dictionary: LmdbDict) -> None:
    """Fork with an open dictionary; parent and children continue to use it."""
    pids = [forked(lambda: count(dictionary)) for _ in range(CHILDREN)]
    count(dictionary)
    succeeded(*pids)
    assert dictionary.get("n") == (CHILDREN + 1) * EACH


def generations(dictionary: LmdbDict) -> None:
    """Children fork children."""

    def child(depth: int) -> None:
        count(dictionary, 10)
        if depth:
            pids = [forked(lambda: child(depth - 1)) for _ in range(2)]
            count(dictionary, 10)
            succeeded(*pids)

    succeeded(forked(lambda: child(4)))
    assert dictionary.get("n") == 31 * 10 + 15 * 10


def threads(dictionary: LmdbDict) -> None:
    """Fork while other threads read and write; none of their calls fails or is lost."""
    stop = threading.Event()
    counts = [0] * 2
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            while not stop.is_set():
                counts[number] += 1
                assert dictionary.incr(f"thread{number}", 1, init=0) == counts[number]
                assert dictionary.update("n", lambda old: Update((old or 0) + 1, result="added")) == "added"
                dictionary.set("large", b"x" * 5000)
        except BaseException as error:
            errors.append(error)

    def read() -> None:
        try:
            while not stop.is_set():
                assert dictionary.get("text") == "as it was"
                assert dictionary.get("large", b"x" * 5000) == b"x" * 5000
                assert len(dictionary.get_keys()) >= 1
                dictionary.stats()
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    running += [threading.Thread(target=read)]
    for thread in running:
        thread.start()
    for _ in range(20):
        succeeded(forked(lambda: count(dictionary, 5)))
    stop.set()
    for thread in running:
        thread.join()
    assert not errors, errors
    assert min(counts) > 5
    assert dictionary.get("n") == sum(counts) + 20 * 5


def pools(dictionary: LmdbDict) -> None:
    """multiprocessing, by fork."""
    context = multiprocessing.get_context("fork")
    global shared
    shared = dictionary
    with context.Pool(4) as pool:
        assert sorted(pool.map(add, range(200))) == list(range(1, 201))
        assert dictionary.get("n") == 200
        pool.close()
        pool.join()
    process = context.Process(target=count, args=(dictionary,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert dictionary.get("n") == 200 + EACH


def add(number: int) -> int:
    total: int = shared.incr("n", 1, init=0)
    return total


def inside(dictionary: LmdbDict) -> None:
    """Fork in the function of update: an error in the parent and in the child, and nothing is changed or locked."""
    parent = os.getpid()
    pids: list[int] = []

    def function(old: Any) -> Update:
        pids.append(os.fork())
        return Update("changed")

    try:
        dictionary.update("text", function)
    except RuntimeError as error:
        assert "forked or closed it" in str(error)  # noqa: PT017
    else:
        raise AssertionError
    if os.getpid() != parent:
        end_with(lambda: count(dictionary))
    assert len(pids) == 1
    succeeded(*pids)
    assert dictionary.get("text") == "as it was"
    assert dictionary.get("n") == EACH
    pids.clear()

    def starts(old: Any) -> Keep:
        pids.append(forked(lambda: count(dictionary)))
        return Keep("kept")

    assert dictionary.update("text", starts) == "kept"
    succeeded(*pids)
    assert dictionary.get("n") == 2 * EACH


def other(dictionary: LmdbDict) -> None:
    """Use another dictionary in the function of update while another thread forks: an error, and no deadlock."""
    two = LmdbDict("two", MIB, dictionary.path)
    environment.OPEN_SECONDS = 0.5
    entered = threading.Event()
    errors: list[BaseException] = []

    def function(old: Any) -> Update:
        entered.set()
        while is_open(dictionary):
            time.sleep(0.001)
        return Update(two.get("k", "changed"))

    def update() -> None:
        try:
            dictionary.update("text", function)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=update)
    thread.start()
    assert entered.wait(5)
    succeeded(forked(lambda: count(dictionary)))
    thread.join(5)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [Unavailable]
    assert "Do not use other dictionaries in the function passed to update()" in str(errors[0])
    assert dictionary.get("text") == "as it was"
    assert two.get("k") is None


def behind(dictionary: LmdbDict) -> None:
    """Fork without the hooks that run in the parent: an error in the child, and no harm to the parent."""
    libc = ctypes.PyDLL(None)
    pids = []

    def refused() -> None:
        for call in (dictionary.get, dictionary.incr, dictionary.delete, dictionary.ttl, dictionary.llen):
            try:
                call("n")
            except Unavailable as error:
                assert "py-call-uwsgi-fork-hooks" in str(error)  # noqa: PT017
            else:
                raise AssertionError
            dictionary.close()
        assert LmdbDict("two", MIB, dictionary.path).incr("n", 1, init=0) > 0

    for _ in range(10):
        dictionary.get("text")  # leaves a transaction to be used again
        pid = libc.fork()
        if not pid:
            after_fork()
            end_with(refused)
        pids.append(pid)
        assert os.getpid() in reader_pids(dictionary)
        count(dictionary)
    succeeded(*pids)
    assert dictionary.get("n") == 10 * EACH


def signals(dictionary: LmdbDict) -> None:
    """Write in signal handlers: sometimes a clear error, never a deadlock."""
    counts: dict[str, int] = {}

    def handler(*args: Any) -> None:
        try:
            dictionary.incr("handled", 1, init=0)
            counts["stored"] = counts.get("stored", 0) + 1
        except RuntimeError as error:
            assert "signal handlers" in str(error)  # noqa: PT017
            counts["refused"] = counts.get("refused", 0) + 1
        dictionary.get("text")

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    end = time.monotonic() + 20
    number = 0
    while len(counts) < 2 and time.monotonic() < end:
        number += 1
        assert dictionary.incr("n", 1, init=0) == number
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert counts["refused"]
    assert dictionary.get("handled", 0) == counts.get("stored", 0)


ACTS = {act.__name__: act for act in (plain, generations, threads, pools, inside, other, behind, signals)}


def main(act: str, folder: str) -> None:
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # it is, on purpose
    dictionary = LmdbDict("one", MIB, folder)
    dictionary.set("text", "as it was")
    ACTS[act](dictionary)


if __name__ == "__main__":
    main(*sys.argv[1:])
