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

from project.supervisor import Child, Supervisor

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAM = """
import pathlib
import sys
import project.supervisor
from project.supervisor import Child, Supervisor
project.supervisor.GRACE = 1.0
sleeper = "import os, time; os.write(1, ('child %d' % os.getpid() + chr(10)).encode()); time.sleep(60)"
deaf = "import signal; signal.signal(15, signal.SIG_IGN);" + sleeper
failing = "raise SystemExit(3)"
codes = {"sleeper": sleeper, "late": sleeper, "logging": sleeper, "deaf": deaf, "failing": failing}
folder = pathlib.Path(sys.argv[1])
children = [
    Child(
        name,
        [sys.executable, "-c", codes[name]],
        late=name == "late",
        log=folder / "logging.log" if name == "logging" else None,
    )
    for name in sys.argv[2:]
]
def log(text):
    print("log", text, flush=True)
ready = lambda: "late" not in sys.argv or (folder / "ready").exists()
Supervisor(children, log=log, ready=ready, announce=lambda: log("announced")).run()
log("end")
"""


class Run:
    """A supervisor in a separate process; its output and its children's output go to a file."""

    def __init__(self, log: pathlib.Path, *names: str) -> None:
        self.log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(log.parent), *names], cwd=ROOT, stdout=stream
            )

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
    assert "log deaf did not end within 1 s; killing it." in run.read()
    assert not any(lives(pid) for pid in run.children())


def test_a_child_that_dies_is_started_again(start: Callable[..., Run]) -> None:
    run = start("sleeper")
    run.wait_for(lambda: len(run.children()) == 1)
    os.kill(run.children()[0], signal.SIGKILL)
    run.wait_for(lambda: len(run.children()) == 2)
    assert "log sleeper was ended by SIGKILL; restarting it in 0.5 s." in run.read()


def test_a_child_that_keeps_dying_is_restarted_after_growing_pauses(start: Callable[..., Run]) -> None:
    run = start("failing")
    run.wait_for(lambda: run.read().count("log failing") >= 3)
    assert re.findall(r"exit code 3; restarting it in ([\d.]+) s", run.read())[:3] == ["0.5", "1.0", "2.0"]


def test_a_late_child_is_started_when_the_others_are_ready(start: Callable[..., Run], tmp_path: pathlib.Path) -> None:
    run = start("sleeper", "late")
    run.wait_for(lambda: len(run.children()) == 1)
    time.sleep(0.5)
    assert len(run.children()) == 1
    (tmp_path / "ready").touch()
    run.wait_for(lambda: len(run.children()) == 2)
    assert run.read().index("log announced") < run.read().rindex("child ")


def test_a_child_with_a_log_writes_there_alone(start: Callable[..., Run], tmp_path: pathlib.Path) -> None:
    log = tmp_path / "logging.log"
    log.write_text("of an earlier start\n")
    run = start("logging")
    run.wait_for(lambda: re.fullmatch(r"child \d+\n", log.read_text()))
    first = log.read_text()
    os.kill(int(first.split()[1]), signal.SIGKILL)
    run.wait_for(lambda: log.read_text().startswith(first) and log.read_text().count("child ") == 2)
    run.process.terminate()
    assert run.process.wait(10) == 0
    death = f"log logging was ended by SIGKILL; restarting it in 0.5 s. See {log}."
    assert run.read().splitlines() == ["log announced", death, "log end"]


def test_children_end_when_the_supervisor_is_killed(start: Callable[..., Run]) -> None:
    run = start("sleeper", "sleeper")
    run.wait_for(lambda: len(run.children()) == 2)
    run.process.kill()
    run.process.wait()
    run.wait_for(lambda: not any(lives(pid) for pid in run.children()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_preparation_skips_the_rest(number: signal.Signals, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "child.log"
    children = [Child("child", [sys.executable, "-c", "print('started')"], log=log)]
    calls: list[str] = []

    def interrupted() -> None:
        calls.append("first")
        os.kill(os.getpid(), number)
        calls.append("to its end")

    Supervisor(children, log=calls.append, announce=lambda: calls.append("announced")).run(
        interrupted, lambda: calls.append("second")
    )
    assert calls == ["first", "to its end"]
    assert log.read_bytes() == b""


def test_an_exception_of_a_preparation_is_raised_before_any_child_starts(tmp_path: pathlib.Path) -> None:
    started = tmp_path / "started"
    children = [Child("child", [sys.executable, "-c", f"open({str(started)!r}, 'w')"])]
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError):
        Supervisor(children, log=print).run(lambda: 1 / 0)
    assert not started.exists()
    assert signal.getsignal(signal.SIGTERM) is before
