"""Forked child processes: no signal is lost between the fork and the handlers of the child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes

PARENT = """
import os, signal, sys, time
from resty_django.processes.supervisor import ProcessPool

def work(index, commands, reports):
    os.write(reports, b"started\\n")
    time.sleep(600)
    return 0

def ended(child, code):
    print("ended", code, flush=True)
    children.stopping = True

children = ProcessPool("test", 1, work, on_report=lambda child, line: print(child.pid, flush=True), on_exit=ended)
children.run(signal.SIGTERM, signal.SIGINT, on_signal=lambda number: None, on_tick=lambda: None, tick=0.2)
"""


@pytest.fixture
def parent() -> Iterator[processes.Process]:
    command = [sys.executable, "-c", PARENT]
    with processes.Process(command, env=dict(os.environ), stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_child_without_handlers_ends_by_a_signal(parent: processes.Process, number: signal.Signals) -> None:
    assert parent.stdout is not None
    os.kill(int(parent.stdout.readline()), number)
    assert parent.stdout.readline() == f"ended {-number}\n"
    assert parent.wait(60) == 0


def test_a_child_without_handlers_ends_with_its_parent(parent: processes.Process) -> None:
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait(60)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


BALLAST = """
import gc, os, re, signal, time
from pathlib import Path
from resty_django.processes.supervisor import ProcessPool

ballast = [[number] for number in range(300_000)]

def own_kilobytes():
    return int(re.search(r"Private_Dirty: *(\\d+)", Path("/proc/self/smaps_rollup").read_text()).group(1))

def work(index, commands, reports):
    before = own_kilobytes()
    gc.collect()
    os.write(reports, b"%d\\n" % (own_kilobytes() - before))
    return 0

def ended(child, code):
    children.stopping = True

children = ProcessPool("test", 1, work, on_report=lambda child, line: print(line.decode()), on_exit=ended)
children.run(on_signal=lambda number: None, on_tick=lambda: None, tick=0.2)
"""


def test_a_collection_in_a_child_does_not_copy_the_memory_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", BALLAST], stdout=subprocess.PIPE, text=True, check=True)
    assert int(done.stdout) < 5_000, "the ballast has 20 MB"
