"""Bells: a ring wakes all that wait, in any order of calls and processes; bells that cannot be watched."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from resty_django.shdict.bell import Bell, Watch
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.lmdb.files import remove
from tests.dictionaries import MIB

Make = Callable[[str], LmdbDict]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make an open dictionary."""
    dictionaries: list[LmdbDict] = []

    def make(name: str = "one") -> LmdbDict:
        dictionaries.append(LmdbDict(name, MIB, str(tmp_path / "dicts")))
        dictionaries[-1].append(b"first")
        return dictionaries[-1]

    yield make
    for dictionary in dictionaries:
        dictionary.close()


@pytest.fixture
def watches() -> Iterator[list[Watch]]:
    watches = [Watch() for _ in range(3)]
    yield watches
    for watch in watches:
        watch.close()


def bell_of(dictionary: LmdbDict) -> Bell:
    assert dictionary.bell is not None
    return dictionary.bell


def test_an_entry_wakes_all_that_wait(make: Make, watches: list[Watch]) -> None:
    dictionary = make("one")
    for _ in range(3):
        assert [watch.arm([bell_of(dictionary)]) for watch in watches] == [0.1] * 3
        dictionary.append(b"news")
        assert [watch.wait(10) for watch in watches] == [True] * 3
        assert [watch.wait(0) for watch in watches] == [False] * 3, "one ring was heard twice"


def test_an_entry_rings_only_where_somebody_waits(make: Make, watches: list[Watch]) -> None:
    dictionary = make("one")
    watch, other, _ = watches
    watch.arm([bell_of(dictionary)])
    other.arm([bell_of(dictionary)])
    dictionary.append(b"news")
    assert watch.wait(10)
    dictionary.append(b"nobody has asked since")
    assert not watch.wait(0)
    assert watch.arm([bell_of(dictionary)]) == 0.1
    assert watch.arm([bell_of(dictionary)]) == 0
    assert not watch.wait(0.01)
    assert watch.arm([bell_of(dictionary)]) == 0, "a wait that ended without a ring needs no new look"


def test_a_write_without_an_entry_wakes_nobody(make: Make, watches: list[Watch]) -> None:
    dictionary = make("one")
    watches[0].arm([bell_of(dictionary)])
    dictionary.set("k", "v")
    dictionary.delete("k")
    assert not watches[0].wait(0)
    dictionary.set("k", "v", entry=b"news")
    assert watches[0].wait(10)


def test_either_of_two_dictionaries_wakes(make: Make, watches: list[Watch]) -> None:
    one, two = make("one"), make("two")
    for dictionary in (one, two, one):
        watches[0].arm([bell_of(one), bell_of(two)])
        dictionary.append(b"news")
        assert watches[0].wait(10)


def test_another_process_wakes_a_thread_that_waits(make: Make, watches: list[Watch], tmp_path: Path) -> None:
    dictionary = make("one")
    watches[0].arm([bell_of(dictionary)])
    outcomes: list[bool] = []
    thread = threading.Thread(target=lambda: outcomes.append(watches[0].wait(60)))
    thread.start()
    code = f"LmdbDict('one', {MIB}, {str(tmp_path / 'dicts')!r}).append(b'news')"
    subprocess.run([sys.executable, "-c", f"from resty_django.shdict.lmdb import LmdbDict\n{code}"], check=True)
    thread.join(20)
    assert outcomes == [True]


def test_a_process_that_was_killed_while_it_waited_keeps_nobody_from_ringing(make: Make, watches: list[Watch]) -> None:
    dictionary = make("one")
    watches[0].arm([bell_of(dictionary)])
    pid = os.fork()
    if not pid:
        try:
            dictionary.journal_end()  # which opens it again
            other = Watch()
            other.arm([bell_of(dictionary)])
            other.wait(60)
        finally:
            os._exit(1)
    time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    dictionary.journal_end()
    for _ in range(3):
        watches[0].arm([bell_of(dictionary)])
        dictionary.append(b"news")
        assert watches[0].wait(10)


def test_many_rings_neither_block_nor_get_lost(make: Make, watches: list[Watch]) -> None:
    """A FIFO holds 64 KiB."""
    bell = bell_of(make("one"))
    watches[0].arm([bell])
    for _ in range(70_000):
        bell.ring()
    assert watches[0].wait(10)
    assert not watches[0].wait(0)
    bell.ring()
    assert watches[0].wait(10)


async def test_a_loop_can_wait_for_a_bell(make: Make, watches: list[Watch]) -> None:
    dictionary = make("one")
    watch = watches[0]
    for _ in range(2):
        watch.arm([bell_of(dictionary)])
        waiting = asyncio.ensure_future(watch.await_ring(60))
        await asyncio.sleep(0.01)
        dictionary.append(b"news")
        assert await asyncio.wait_for(waiting, 20)
        assert not await watch.await_ring(0.01)
    waiting = asyncio.ensure_future(watch.await_ring(60))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    watch.arm([bell_of(dictionary)])
    dictionary.append(b"news")
    assert await watch.await_ring(60)


def test_a_bell_that_was_deleted_is_created_again(make: Make, watches: list[Watch]) -> None:
    dictionary = make("one")
    bell = bell_of(dictionary)
    assert watches[0].arm([bell]) == 0.1
    assert stat.filemode(bell.path.stat().st_mode) == "prw-------"
    bell.path.unlink()
    dictionary.append(b"the number still says that somebody waits")
    assert not watches[0].wait(0)
    assert watches[0].arm([bell]) == 0.1
    dictionary.append(b"news")
    assert watches[0].wait(10)


def test_a_bell_goes_with_the_files_of_its_dictionary(make: Make, watches: list[Watch], tmp_path: Path) -> None:
    dictionary = make("one")
    watches[0].arm([bell_of(dictionary)])
    dictionary.close()
    remove(tmp_path / "dicts" / "one.mdb")
    assert [path.name for path in (tmp_path / "dicts").iterdir()] == ["one.card"]


def test_a_dictionary_on_a_file_system_without_fifos_has_no_bell(
    make: Make, watches: list[Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "mkfifo", refuse)
    dictionary = make("one")
    assert watches[0].arm([bell_of(dictionary)]) == math.inf
    assert watches[0].arm([]) == math.inf


def test_a_system_without_epoll_has_no_bell(make: Make, watches: list[Watch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("select.epoll")
    assert watches[0].arm([bell_of(make("one"))]) == math.inf
