"""The background thread of a process, which several parts share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from resty_django.processes.background import Background
from tests.servers import eventually


@pytest.fixture
def background() -> Iterator[Background]:
    thread = Background()
    yield thread
    thread.stop(ended=True)


def test_a_task_runs_once_more_when_it_is_finished_and_never_again(background: Background) -> None:
    """Also while it runs already: what it has read before may be old."""
    runs: list[float] = []
    running, go_on = threading.Event(), threading.Event()

    def work() -> float:
        runs.append(time.monotonic())
        running.set()
        go_on.wait(10)
        return 60.0

    task = background.add(work)
    background.run_soon(task)
    assert running.wait(10)
    threading.Timer(0.1, go_on.set).start()
    asked = time.monotonic()
    background.finish(task, 10)
    assert len(runs) == 2
    assert runs[1] > asked
    background.run_soon(background.add(lambda: 60.0))
    assert len(runs) == 2


def test_a_task_that_hangs_does_not_hold_the_end_of_another(background: Background) -> None:
    go_on = threading.Event()
    background.run_soon(background.add(lambda: 0.0 * go_on.wait(10)))
    began = time.monotonic()
    background.finish(background.add(lambda: 0.0), 0.2)
    go_on.set()
    assert time.monotonic() - began < 5


def test_a_forked_child_does_not_run_the_tasks_of_its_parent(background: Background) -> None:
    runs: list[int] = []

    def work() -> float:
        runs.append(os.getpid())
        return 0.01

    background.run_soon(background.add(work))
    assert eventually(lambda: len(runs) > 1)
    child = os.fork()
    if child == 0:
        other = threading.Event()
        background.after_fork()  # this one is not the thread of the process, which registers it itself
        background.run_soon(background.add(lambda: 0.01 if other.is_set() else other.set() or 0.1))
        ran = other.wait(10)
        time.sleep(0.3)
        os._exit(0 if ran and os.getpid() not in runs else 1)
    assert os.waitpid(child, 0)[1] == 0
