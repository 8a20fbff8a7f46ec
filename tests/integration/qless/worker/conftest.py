"""Workers of the job queue: in a thread of the tests, and as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.qless import Client
from resty_django.qless.worker.entries import entry_of
from resty_django.qless.worker.options import Options
from resty_django.qless.worker.process import build
from tests.integration.qless.worker import jobs

ROOT = Path(__file__).resolve().parents[4]
JOBS = "tests.integration.qless.worker.jobs"


def wait_for(check: Callable[[], Any], what: str = "", seconds: float = 40.0) -> Any:
    """What `check` gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, f"{what}: {found!r}"
        time.sleep(0.01)
    return found


def options(**given: Any) -> Options:
    usual: dict[str, Any] = {
        **{"queues": ("q",), "reserver": "ordered", "concurrency": 4, "processes": 1},
        **{"interval": 60.0, "grace": 5.0, "interrupt": False, "name": "tests"},
    }
    return Options(**{**usual, **given})


class Here:
    """A worker in a thread of this process."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time, **given: Any) -> None:
        name = given.pop("name", f"here-{id(self)}")
        self.client = Client(url, worker_name=name, clock=clock)
        self.desk, self.listener = build(self.client, options(**given))
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Here:
        self.listener.start()
        self.thread.start()
        return self

    def _run(self) -> None:
        self.code = self.desk.run()

    def do(self, function: Callable[..., object], *args: Any) -> None:
        """In the thread of the desk."""
        self.desk.inbox.put(lambda: function(*args))

    def pause(self) -> None:
        self.do(self.desk.pause, True)
        wait_for(lambda: self.desk.paused)

    def go_on(self) -> None:
        """And look at all queues."""
        self.do(self.desk.missed)
        self.do(self.desk.pause, False)

    def stop(self, grace: float | None = 5.0) -> int | None:
        self.do(self.desk.stop, grace)
        return self.join()

    def join(self) -> int | None:
        self.thread.join(40)
        self.listener.stop()
        self.listener._thread.join(20)
        self.client.close()
        assert not self.thread.is_alive()
        return self.code


@pytest.fixture
def here(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Callable[..., Here]]:
    """Starts workers in threads, which end with the test."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "MODULES": [JOBS]}}
    jobs.GO.clear()
    jobs.TRAIL.clear()
    while not jobs.SEEN.empty():
        jobs.SEEN.get()
    entry_of.cache_clear()
    made: list[Here] = []

    def start(**given: Any) -> Here:
        made.append(Here(valkey_url, **given).start())
        return made[-1]

    yield start
    jobs.GO.set()
    for each in made:
        each.stop(0)


@pytest.fixture
def client(valkey: Any, valkey_url: str) -> Iterator[Client]:
    found = Client(valkey_url, worker_name="the tests")
    yield found
    found.close()


class Workers:
    """`manage.py runqless` in a process of its own, with the jobs of the tests."""

    def __init__(
        self,
        url: str | None,
        log: Path,
        *arguments: str,
        qless: dict[str, Any] | None = None,
        caches: dict[str, Any] | None = None,
        terminal: int = -1,
    ) -> None:
        self.log = log
        section = {"URL": url, "MODULES": [JOBS], "WORKER": {"QUEUES": ["q"]}, **(qless or {})}
        env = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.integration.qless.worker.site_settings",
            "TEST_QLESS": json.dumps(section),
            "TEST_CACHES": json.dumps(caches or {}),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "manage.py", "runqless", *arguments]
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out if terminal < 0 else terminal,
                stderr=out,
            )

    def text(self) -> str:
        return self.log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(each) for each in path.read_text().split()]

    def ready(self, count: int = 1) -> list[int]:
        """The worker processes, once so many hear of jobs."""
        return list(wait_for(lambda: (pids := self.children()) and self.takes(pids) >= count and pids, self.text()))

    def takes(self, pids: list[int]) -> int:
        return sum(f"-{pid} takes jobs" in self.text() for pid in pids)

    def wait(self) -> int:
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.text()) from None

    def end(self) -> None:
        if self.process.poll() is None:
            children = self.children()
            self.process.kill()
            self.process.wait(20)
            for pid in children:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


@pytest.fixture
def workers(valkey: Any, valkey_url: str, tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    made: list[Workers] = []

    def start(*arguments: str, **given: Any) -> Workers:
        made.append(Workers(given.pop("url", valkey_url), tmp_path / f"log{len(made)}", *arguments, **given))
        return made[-1]

    yield start
    for each in made:
        each.end()
