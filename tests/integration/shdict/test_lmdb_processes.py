"""LMDB: several processes and threads, forks, and readers that stay behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from resty_django.shdict import Keep, NoMemory, NotANumber, NotFound, Update, WrongKind
from resty_django.shdict.lmdb import LmdbDict, environment
from tests import processes
from tests.dictionaries import MIB, Clock
from tests.threads import together

from .forks import ACTS
from .structure import check, check_pages, open_file, reader_pids, readers

ROOT = Path(__file__).resolve().parents[3]
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "project.settings"}


@pytest.fixture
def lmdb_dict(folder: Path) -> Iterator[LmdbDict]:
    new_dict = LmdbDict("one", MIB, str(folder))
    yield new_dict
    new_dict.close()


@pytest.mark.parametrize("act", ACTS)
def test_forks_keep_the_dictionary_whole(act: str, folder: Path, lmdb_dict: LmdbDict, tmp_path: Path) -> None:
    """See forks.py."""
    done = processes.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("forks.py")), act, str(folder)],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    check(lmdb_dict)
    check_pages(lmdb_dict, tmp_path / "copy")


class Other(processes.Process):
    """A process that runs `code` with `one`, the same dictionary; it is killed at the end."""

    def __init__(self, folder: Path, code: str) -> None:
        begin = f"from resty_django.shdict.lmdb import LmdbDict\none = LmdbDict('one', {MIB}, {str(folder)!r})\n"
        command = [sys.executable, "-c", begin + code]
        super().__init__(command, env=ENV, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line: str = "") -> str:
        assert self.stdin is not None
        assert self.stdout is not None
        if line:
            self.stdin.write(line + "\n")
            self.stdin.flush()
        return self.stdout.readline().strip()

    def __exit__(self, *args: Any) -> None:
        self.kill()
        self.communicate()


def test_processes_count_together(folder: Path, lmdb_dict: LmdbDict) -> None:
    code = (
        "import threading\n"
        "from resty_django.shdict import Update\n"
        "def work():\n"
        "    for _ in range(300):\n"
        "        one.incr('incr', 1, init=0)\n"
        "        one.update('update', lambda old: Update((old or 0) + 1))\n"
        "        one.rpush('list', 1)\n"
        "threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
    )
    with Other(folder, code) as first, Other(folder, code) as second, Other(folder, code) as third:
        for process in (first, second, third):
            assert process.wait(60) == 0
    assert (lmdb_dict.get("incr"), lmdb_dict.get("update"), lmdb_dict.llen("list")) == (1800, 1800, 1800)
    check(lmdb_dict)


def test_other_processes_read_a_write_at_once(folder: Path, lmdb_dict: LmdbDict) -> None:
    with Other(folder, "while input():\n    print(one.get('k'), one.get('k2', 'none'), flush=True)\n") as peer:
        for number in range(20):
            lmdb_dict.set("k", number)
            assert peer.ask("look") == f"{number} none"
        lmdb_dict.set("k2", "v")
        lmdb_dict.flush_all()
        assert peer.ask("look") == "None none"
        lmdb_dict.set("k2", "w")
        assert peer.ask("look") == "None w"


def test_items_written_often_stay_while_another_process_fills_the_memory(folder: Path, lmdb_dict: LmdbDict) -> None:
    lmdb_dict.set("hot", 0)
    fill = (
        "at = 0\n"
        "while input():\n"
        "    for at in range(at, at + 50):\n"
        "        one.set(f'k{at}', b'x' * 1000)\n"
        "    at += 1\n"
        "    print(at, flush=True)\n"
    )
    with Other(folder, fill) as peer:
        for number in range(1, 41):
            assert peer.ask("fill") == str(50 * number)
            assert lmdb_dict.incr("hot") == number
    assert (lmdb_dict.stats().forcible or 0) > 1000
    check(lmdb_dict)


def test_threads_of_one_process(lmdb_dict: LmdbDict) -> None:
    def work(number: int) -> None:
        for step in range(200):
            lmdb_dict.incr("n", 1, init=0)
            lmdb_dict.update("m", lambda old: Update((old or 0) + 1))
            lmdb_dict.set(f"own{number}", step)
            assert lmdb_dict.get(f"own{number}") == step
            if step % 20 == 0:
                lmdb_dict.close()

    together(*(partial(work, number) for number in range(5)))
    assert (lmdb_dict.get("n"), lmdb_dict.get("m")) == (1000, 1000)
    check(lmdb_dict)


@pytest.mark.parametrize("call", ["incr", "set", "update", "delete", "flush_all", "rpush", "flush_expired", "close"])
def test_writing_in_the_function_of_update(lmdb_dict: LmdbDict, call: str) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "incr": lambda: lmdb_dict.incr("other", 1, init=0),
        "set": lambda: lmdb_dict.set("other", 1),
        "update": lambda: lmdb_dict.update("k", lambda old: Keep()),
        "delete": lambda: lmdb_dict.delete("other"),
        "flush_all": lmdb_dict.flush_all,
        "rpush": lambda: lmdb_dict.rpush("list", 1),
        "flush_expired": lmdb_dict.flush_expired,
        "close": lmdb_dict.close,
    }
    lmdb_dict.set("k", "before")
    sentence = (
        "forked or closed it" if call == "close" else "was written to while this thread was already writing to it"
    )
    with pytest.raises(RuntimeError, match=sentence):
        lmdb_dict.update("k", lambda old: Update(calls[call]()))
    assert lmdb_dict.get("k") == "before"
    assert lmdb_dict.get("other") is None
    assert lmdb_dict.incr("other", 1, init=0) == 1


def test_stored_errors_keep_no_transaction_alive(lmdb_dict: LmdbDict) -> None:
    lmdb_dict.rpush("list", 1)
    lmdb_dict.set("text", "x")
    lmdb_dict.set("broken", b"\xff")
    errors: list[BaseException] = []

    def fails(old: Any) -> Update:
        raise ZeroDivisionError

    calls: list[Callable[[], Any]] = [
        lambda: lmdb_dict.get("list"),
        lambda: lmdb_dict.get_item("list"),
        lambda: lmdb_dict.get_stale("list"),
        lambda: lmdb_dict.llen("text"),
        lambda: lmdb_dict.lpop("text"),
        lambda: lmdb_dict.lpush("text", 1),
        lambda: lmdb_dict.incr("text"),
        lambda: lmdb_dict.incr("none"),
        lambda: lmdb_dict.update("list", fails),
        lambda: lmdb_dict.update("text", fails),
        lambda: lmdb_dict.set("huge", b"x" * MIB),
    ]
    for call in calls:
        with pytest.raises((WrongKind, NotANumber, NotFound, NoMemory, ZeroDivisionError)) as caught:
            call()
        errors.append(caught.value)
    assert all(reader[-1] == "-" for reader in readers(lmdb_dict))
    for number in range(5000):
        assert lmdb_dict.set(f"k{number}", "x" * 1000)


READER = "one.get('k')\ntxn = one._begin(one._items)\ntxn.get(b'k')\nprint('reading', flush=True)\ninput()\n"


def test_a_reader_that_was_killed_is_forgotten(folder: Path, lmdb_dict: LmdbDict) -> None:
    lmdb_dict.set("k", "v")
    for _ in range(3):
        with Other(folder, READER) as peer:
            assert peer.ask() == "reading"
        assert peer.pid in reader_pids(lmdb_dict)
        for number in range(2000):
            assert lmdb_dict.set(f"k{number}", "x" * 1000)
        assert peer.pid not in reader_pids(lmdb_dict)
    check(lmdb_dict)


def store(lmdb_dict: LmdbDict, count: int = 2000) -> int:
    """Store items, and return the number of stored ones."""
    for number in range(count):
        try:
            lmdb_dict.set(f"k{number}", "x" * 1000)
        except NoMemory as error:
            assert str(error) == 'RESTY_DJANGO["SHARED_DICTS"]["one"] is full. Raise its SIZE (1048576).'  # noqa: PT017
            return number
    return count


def test_a_write_waits_for_an_old_reader_and_then_raises(
    folder: Path, lmdb_dict: LmdbDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "MAX_TRIES", 100)
    lmdb_dict.set("k", "v")
    with Other(folder, READER) as peer:
        assert peer.ask() == "reading"
        os.kill(peer.pid, signal.SIGSTOP)
        number = store(lmdb_dict)
        assert 20 < number < 2000
        assert lmdb_dict.get(f"k{number - 1}") == "x" * 1000
        with pytest.raises(NoMemory):
            lmdb_dict.set("k", "w")
        assert lmdb_dict.get("k") == "v"
        monkeypatch.setattr(environment, "MAX_TRIES", 100_000)
        threading.Timer(0.3, peer.kill).start()
        assert lmdb_dict.set("k", "w")
    assert store(lmdb_dict) == 2000
    check(lmdb_dict)


def test_a_dictionary_without_references_closes_its_files(folder: Path, clock: Clock) -> None:
    lmdb_dict = LmdbDict("one", MIB, str(folder), clock)
    lmdb_dict.set("k", "v")
    dict_file = open_file(lmdb_dict)
    del lmdb_dict, dict_file
    gc.collect()
    two = LmdbDict("one", 2 * MIB, str(folder), clock)
    assert two.get("k") is None
    two.close()
