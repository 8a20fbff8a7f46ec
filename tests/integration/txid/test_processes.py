"""Many processes at once, and forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from resty_django.txid import parse
from tests import processes

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("worker.py")


def start(*args: object) -> processes.Process:
    """The worker, with its output going to a pipe."""
    return processes.Process(
        [sys.executable, str(WORKER), *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def end(*processes: processes.Process) -> list[list[str]]:
    """The lines of each."""
    outputs = [process.communicate()[0].split("\n")[:-1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return outputs


@pytest.mark.parametrize(
    ("processes", "each"),
    [(4, 100_000), pytest.param(8, 1_250_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
)
def test_processes_never_make_the_same_id(processes: int, each: int, tmp_path: Path) -> None:
    end(*(start("heap", tmp_path, each) for _ in range(processes)))
    shelves = sorted(tmp_path.iterdir())
    assert len(shelves) == 32
    total = 0
    for shelf in shelves:
        ids = shelf.read_text().split("\n")[:-1]
        assert len(set(ids)) == len(ids)
        total += len(ids)
    assert total == processes * each


def test_ids_of_all_processes_are_in_the_order_of_time() -> None:
    rows = [line.split(" ") for lines in end(*(start("stamped", 2000) for _ in range(4))) for line in lines]
    assert len(rows) == 8000
    rows.sort()
    newest = 0
    for txid, before, after in rows:
        assert int(before) <= parse(txid).ms <= int(after)
        assert parse(txid).ms >= newest
        newest = parse(txid).ms
    assert newest - parse(rows[0][0]).ms > 20


def test_children_of_a_fork_never_make_an_id_of_their_parent() -> None:
    """Threads make ids meanwhile. The ids have one fixed time, so that only the random bits distinguish them."""
    children, count = 12, 400
    (ids,) = end(start("fork", children, count))
    assert len(ids) > (2 * children + 2) * count * 4
    assert len(set(ids)) == len(ids)
