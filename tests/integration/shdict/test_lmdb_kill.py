"""LMDB: processes that are killed at any moment, in a dictionary that is full all the time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO

import pytest

from resty_django.shdict.lmdb import LmdbDict
from tests import processes
from tests.dictionaries import MIB

from .nursery import WRITERS, Tally
from .structure import check, check_pages, reader_pids

ROOT = Path(__file__).resolve().parents[3]
PARTS = [f"{role} {number}" for role in ("write", "read") for number in range(WRITERS)]


class Nursery:
    """The process of nursery.py."""

    def __init__(self, folder: Path, size: int, tallies: Path) -> None:
        self.errors = folder.with_name("errors")
        with self.errors.open("w") as errors:
            self.process = self._start(folder, size, tallies, errors)
        self.pids: dict[str, int] = {}

    def _start(self, folder: Path, size: int, tallies: Path, errors: IO[str]) -> processes.Process:
        return processes.Process(
            [sys.executable, str(Path(__file__).with_name("nursery.py")), str(folder), str(size), str(tallies)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "project.settings"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def fork(self, role: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(role + "\n")
        self.process.stdin.flush()
        self.pids[role] = int(self.process.stdout.readline())

    def kill(self, role: str) -> None:
        assert not self.errors.read_text()
        os.kill(self.pids.pop(role), signal.SIGKILL)

    def end(self) -> None:
        for role in list(self.pids):
            self.kill(role)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def tallies(tmp_path: Path) -> Path:
    path = tmp_path / "tallies"
    path.write_bytes(bytes(16 * WRITERS))
    return path


def run(tmp_path: Path, tallies: Path, size: int, seconds: float) -> Iterator[int]:
    """Kill a process every 50 ms, and yield the counts of all processes each second."""
    folder = tmp_path / "dictionaries"
    nursery = Nursery(folder, size, tallies)
    chance = random.Random()
    try:
        for role in PARTS:
            nursery.fork(role)
        end = time.monotonic() + seconds
        second = 0.0
        while time.monotonic() < end:
            time.sleep(0.05)
            role = chance.choice(PARTS)
            nursery.kill(role)
            nursery.fork(role)
            if time.monotonic() > second + 1:
                second = time.monotonic()
                yield sum(Tally(str(tallies), number).done for number in range(WRITERS))
    finally:
        nursery.end()


def verify(tmp_path: Path, tallies: Path, size: int) -> None:
    dictionary = LmdbDict("nursery", size, str(tmp_path / "dictionaries"))
    for number in range(WRITERS):
        tally = Tally(str(tallies), number)
        assert dictionary.get(f"count{number}") in {tally.begun, tally.done}
    assert dictionary.stats().forcible
    assert check(dictionary) > 100
    assert reader_pids(dictionary) <= {os.getpid()}
    check_pages(dictionary, tmp_path / "copy")
    for number in range(2000):
        assert dictionary.set(f"after{number}", "x" * 3000)
    check(dictionary)
    dictionary.close()


def killed(tmp_path: Path, tallies: Path, size: int, seconds: float) -> None:
    counts = list(run(tmp_path, tallies, size, seconds))
    assert all(later > earlier for earlier, later in pairwise(counts)), counts
    verify(tmp_path, tallies, size)


def test_killing_processes_breaks_nothing(tmp_path: Path, tallies: Path) -> None:
    killed(tmp_path, tallies, 2 * MIB, 3)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [MIB, 8 * MIB], ids=["1 MiB", "8 MiB"])
def test_killing_processes_for_a_minute_breaks_nothing(tmp_path: Path, tallies: Path, size: int) -> None:
    killed(tmp_path, tallies, size, 60)
