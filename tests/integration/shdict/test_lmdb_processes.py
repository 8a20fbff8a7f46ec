"""LMDB: several processes and threads, forks, and readers that stay behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.shdict import Change, Keep, NoMemory, NotANumber, NotFound, WrongKind
from resty_django.shdict.lmdb import LmdbDict, memory
from tests.dictionaries import MIB, Clock

from .forks import ACTS
from .structure import check, check_pages

ROOT = Path(__file__).resolve().parents[3]
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "project.settings"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dictionaries"


@pytest.fixture
def one(folder: Path) -> Iterator[LmdbDict]:
    made = LmdbDict("one", MIB, str(folder))
    yield made
    made.close()


@pytest.mark.parametrize("act", ACTS)
def test_forks(act: str, folder: Path, one: LmdbDict, tmp_path: Path) -> None:
    """See forks.py."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(Path(__file__).with_name("forks.py")), act, str(folder)],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    check(one)
    check_pages(one, tmp_path / "copy")


class Other(subprocess.Popen[str]):
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


def test_processes_count_together(folder: Path, one: LmdbDict) -> None:
    code = (
        "import threading\n"
        "from resty_django.shdict import Change\n"
        "def work():\n"
        "    for _ in range(300):\n"
        "        one.incr('incr', 1, init=0)\n"
        "        one.update('update', lambda old: Change((old or 0) + 1))\n"
        "        one.rpush('list', 1)\n"
        "threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
    )
    with Other(folder, code) as first, Other(folder, code) as second, Other(folder, code) as third:
        for process in (first, second, third):
            assert process.wait(60) == 0
    assert (one.get("incr"), one.get("update"), one.llen("list")) == (1800, 1800, 1800)
    check(one)


def test_what_one_process_writes_another_reads_at_once(folder: Path, one: LmdbDict) -> None:
    with Other(folder, "while input():\n    print(one.get('k'), one.get('k2', 'none'), flush=True)\n") as other:
        for number in range(20):
            one.set("k", number)
            assert other.ask("look") == f"{number} none"
        one.set("k2", "v")
        one.flush_all()
        assert other.ask("look") == "None none"
        one.set("k2", "w")
        assert other.ask("look") == "None w"


def test_what_one_process_writes_often_stays_while_another_fills_the_memory(folder: Path, one: LmdbDict) -> None:
    one.set("hot", 0)
    fill = (
        "at = 0\n"
        "while input():\n"
        "    for at in range(at, at + 50):\n"
        "        one.set(f'k{at}', b'x' * 1000)\n"
        "    at += 1\n"
        "    print(at, flush=True)\n"
    )
    with Other(folder, fill) as other:
        for number in range(1, 41):
            assert other.ask("fill") == str(50 * number)
            assert one.incr("hot") == number
    assert (one.stats().forcible or 0) > 1000
    check(one)


def test_threads_of_one_process(one: LmdbDict) -> None:
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(200):
                one.incr("n", 1, init=0)
                one.update("m", lambda old: Change((old or 0) + 1))
                one.set(f"own{number}", step)
                assert one.get(f"own{number}") == step
                if step % 20 == 0:
                    one.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    assert (one.get("n"), one.get("m")) == (1000, 1000)
    check(one)


@pytest.mark.parametrize("call", ["incr", "set", "update", "delete", "flush_all", "rpush", "flush_expired", "close"])
def test_writing_in_the_function_of_update(one: LmdbDict, call: str) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "incr": lambda: one.incr("other", 1, init=0),
        "set": lambda: one.set("other", 1),
        "update": lambda: one.update("k", lambda old: Keep()),
        "delete": lambda: one.delete("other"),
        "flush_all": one.flush_all,
        "rpush": lambda: one.rpush("list", 1),
        "flush_expired": one.flush_expired,
        "close": one.close,
    }
    one.set("k", "before")
    sentence = "forked or closed it" if call == "close" else "is written to while this thread is writing to it"
    with pytest.raises(RuntimeError, match=sentence):
        one.update("k", lambda old: Change(calls[call]()))
    assert one.get("k") == "before"
    assert one.get("other") is None
    assert one.incr("other", 1, init=0) == 1


def test_errors_that_are_kept_keep_no_transaction_alive(one: LmdbDict) -> None:
    one.rpush("list", 1)
    one.set("text", "x")
    one.set("broken", b"\xff")
    kept: list[BaseException] = []

    def fails(old: Any) -> Change:
        raise ZeroDivisionError

    calls: list[Callable[[], Any]] = [
        lambda: one.get("list"),
        lambda: one.get_item("list"),
        lambda: one.get_stale("list"),
        lambda: one.llen("text"),
        lambda: one.lpop("text"),
        lambda: one.lpush("text", 1),
        lambda: one.incr("text"),
        lambda: one.incr("none"),
        lambda: one.update("list", fails),
        lambda: one.update("text", fails),
        lambda: one.set("huge", b"x" * MIB),
    ]
    for call in calls:
        with pytest.raises((WrongKind, NotANumber, NotFound, NoMemory, ZeroDivisionError)) as caught:
            call()
        kept.append(caught.value)
    assert one._env is not None
    assert all(line.split()[-1] == "-" for line in one._env.readers().splitlines()[1:])
    for number in range(5000):
        assert one.set(f"k{number}", "x" * 1000)


READER = "one.get('k')\ntxn = one._begin(one._items)\ntxn.get(b'k')\nprint('reading', flush=True)\ninput()\n"


def test_a_reader_that_was_killed_is_forgotten(folder: Path, one: LmdbDict) -> None:
    one.set("k", "v")
    for _ in range(3):
        with Other(folder, READER) as other:
            assert other.ask() == "reading"
        assert one._env is not None
        assert str(other.pid) in one._env.readers()
        for number in range(2000):
            assert one.set(f"k{number}", "x" * 1000)
        assert str(other.pid) not in one._env.readers()
    check(one)


def store(one: LmdbDict, count: int = 2000) -> int:
    """Store items; how many there was room for."""
    for number in range(count):
        try:
            one.set(f"k{number}", "x" * 1000)
        except NoMemory as error:
            assert str(error) == 'RESTY_DJANGO["SHARED_DICTS"]["one"] is full. Raise its SIZE (1048576).'  # noqa: PT017
            return number
    return count


def test_a_reader_that_stays_behind_is_waited_for_and_then_told(
    folder: Path, one: LmdbDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "TRIES", 100)
    one.set("k", "v")
    with Other(folder, READER) as other:
        assert other.ask() == "reading"
        os.kill(other.pid, signal.SIGSTOP)
        number = store(one)
        assert 20 < number < 2000
        assert one.get(f"k{number - 1}") == "x" * 1000
        with pytest.raises(NoMemory):
            one.set("k", "w")
        assert one.get("k") == "v"
        monkeypatch.setattr(memory, "TRIES", 100_000)
        threading.Timer(0.3, other.kill).start()
        assert one.set("k", "w")
    assert store(one) == 2000
    check(one)


def test_a_dictionary_that_nobody_holds_lets_go(folder: Path, clock: Clock) -> None:
    one = LmdbDict("one", MIB, str(folder), clock)
    one.set("k", "v")
    place = one._place
    assert place is not None
    del one, place
    gc.collect()
    two = LmdbDict("one", 2 * MIB, str(folder), clock)
    assert two.get("k") is None
    two.close()
