"""The demo's supervisor: starts again what dies, and leaves nothing running."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAM = """
import sys
import project.supervisor
from project.supervisor import Child, Supervisor
project.supervisor.GRACE = 1.0
sleeper = "import os, time; print('child', os.getpid(), flush=True); time.sleep(60)"
deaf = "import signal; signal.signal(15, signal.SIG_IGN);" + sleeper
failing = "raise SystemExit(3)"
codes = {"sleeper": sleeper, "deaf": deaf, "failing": failing}
children = [Child(name, [sys.executable, "-c", codes[name]]) for name in sys.argv[1:]]
def log(text):
    print("log", text, flush=True)
Supervisor(children, log=log, announce=lambda: log("announced")).run()
log("end")
"""


class Run:
    """A supervisor in a process of its own; what it and its children print goes to a file."""

    def __init__(self, log: pathlib.Path, *names: str) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, *names], cwd=ROOT, stdout=out)

    def read(self) -> str:
        return self.log.read_text()

    def children(self) -> list[int]:
        return [int(pid) for pid in re.findall(r"^child (\d+)$", self.read(), re.MULTILINE)]

    def wait_for(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.read()
            time.sleep(0.02)


def lives(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start_one(*names: str) -> Run:
        runs.append(Run(tmp_path / f"{len(runs)}.log", *names))
        return runs[-1]

    yield start_one
    for run in runs:
        run.process.kill()
        run.process.wait()
        for pid in run.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_children(start: Callable[..., Run], number: signal.Signals) -> None:
    run = start("sleeper", "sleeper")
    run.wait_for(lambda: len(run.children()) == 2 and "announced" in run.read())
    run.process.send_signal(number)
    assert run.process.wait(10) == 0
    assert run.read().endswith("log end\n")
    assert not any(lives(pid) for pid in run.children())


def test_a_child_that_does_not_listen_is_killed(start: Callable[..., Run]) -> None:
    run = start("deaf", "sleeper")
    run.wait_for(lambda: len(run.children()) == 2)
    run.process.terminate()
    assert run.process.wait(10) == 0
    assert "log deaf did not end within 1 s; it is killed." in run.read()
    assert not any(lives(pid) for pid in run.children())


def test_a_child_that_dies_is_started_again(start: Callable[..., Run]) -> None:
    run = start("sleeper")
    run.wait_for(lambda: len(run.children()) == 1)
    os.kill(run.children()[0], signal.SIGKILL)
    run.wait_for(lambda: len(run.children()) == 2)
    assert "log sleeper was ended by SIGKILL; it starts again in 0.5 s." in run.read()


def test_a_child_that_keeps_dying_is_started_ever_more_slowly(start: Callable[..., Run]) -> None:
    run = start("failing")
    run.wait_for(lambda: run.read().count("log failing") >= 3)
    assert re.findall(r"exit code 3; it starts again in ([\d.]+) s", run.read())[:3] == ["0.5", "1.0", "2.0"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs prctl")
def test_children_end_when_the_supervisor_is_killed(start: Callable[..., Run]) -> None:
    run = start("sleeper", "sleeper")
    run.wait_for(lambda: len(run.children()) == 2)
    run.process.kill()
    run.process.wait()
    run.wait_for(lambda: not any(lives(pid) for pid in run.children()))
