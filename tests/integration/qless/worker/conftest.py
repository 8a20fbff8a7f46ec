"""Workers of the job queue: in a thread of the tests, and as processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.qless import Client
from resty_django.qless.management.worker_process import build
from resty_django.qless.worker.handlers import resolve_handler
from resty_django.qless.worker.options import WorkerOptions
from resty_django.qless.worker.running_job import RunningJob
from tests import processes
from tests.forkserver import ROOT
from tests.integration.qless.conftest import job_of
from tests.integration.qless.worker import jobs
from tests.servers import Server, running

JOBS = "tests.integration.qless.worker.jobs"


def wait_for(check: Callable[[], Any], what: str = "", seconds: float = 40.0) -> Any:
    """Return what `check` returns once it is true."""
    end = time.monotonic() + seconds
    while not (result := check()):
        assert time.monotonic() < end, f"{what}: {result!r}"
        time.sleep(0.01)
    return result


def put(client: Client, name: str, data: Any = None, queue: str = "q", **options: Any) -> str:
    return client.queues[queue].put(f"{JOBS}.{name}", data, **options)


def state(client: Client, jid: str) -> str:
    return job_of(client, jid).state


def until(client: Client, jid: str, end_state: str) -> Any:
    wait_for(lambda: state(client, jid) == end_state, f"{jid} is to be {end_state}")
    return client.jobs.get(jid)


def texts(client: Client, key: str) -> list[str]:
    """The entries of a list on the server."""
    return [entry.decode() for entry in client.source.sync().lrange(key, 0, -1)]


def written_lines(client: Client) -> list[str]:
    """Return what jobs have written with `jobs.write`: their worker and their data."""
    return texts(client, "told")


def started(client: Client, count: int = 1) -> list[str]:
    return list(wait_for(lambda: (lines := written_lines(client))[count - 1 :] and lines, "jobs are to start"))


def holds(jid: str) -> str:
    """Wait until the job runs in this process; return its jid."""
    assert jobs.SEEN.get(timeout=30) == ("holds", jid)
    return jid


def short_locks(client: Client, seconds: float = 0.6, grace: float = 0.2) -> None:
    client.config.set("heartbeat", seconds)
    client.config.set("grace-period", grace)


def is_there(pid: int) -> bool:
    """A process that has ended, but whose parent has not heard of it, is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """The processes below this one."""
    children: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, path.read_text().split())
    return [*children, *(below for child in children for below in descendants(child))]


def options(**overrides: Any) -> WorkerOptions:
    defaults: dict[str, Any] = {
        **{"queues": ("q",), "reserver": "ordered", "concurrency": 4, "processes": 1},
        **{"interval": 60.0, "grace": 5.0, "interrupt": False, "name": "tests"},
    }
    return WorkerOptions(**{**defaults, **overrides})


def traced_code_runs() -> bool:
    """Whether a thread with a trace function, as debuggers and coverage.py have one, comes to its end."""

    def trace(*_: object) -> Any:
        return trace

    def code() -> None:
        sys.settrace(trace)
        for number in range(100):
            (lambda number: number)(number)
        sys.settrace(None)

    thread = threading.Thread(target=code, daemon=True)
    thread.start()
    thread.join(20)
    return not thread.is_alive()


class InProcessWorker:
    """A worker that runs in a thread of the test process."""

    def __init__(self, url: str, *, clock: Callable[[], float] = time.time, **overrides: Any) -> None:
        name = overrides.pop("name", f"in-process-{id(self)}")
        self.client = Client(url, worker_name=name, clock=clock)
        self.loop, self.listener = build(self.client, options(**overrides))
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> InProcessWorker:
        self.listener.start()
        self.thread.start()
        return self

    def _run(self) -> None:
        self.code = self.loop.run()

    def do(self, function: Callable[..., object], *args: Any) -> None:
        """Call it in the thread of the worker loop."""
        self.loop.inbox.put(lambda: function(*args))

    def pause(self) -> None:
        self.do(self.loop.pause, True)
        wait_for(lambda: self.loop.paused)

    def resume(self) -> None:
        """And poll all queues."""
        self.do(self.loop.on_reconnect)
        self.do(self.loop.pause, False)

    # The worker's state that tests read or change.

    @property
    def name(self) -> str:
        return self.loop.name

    @property
    def counts(self) -> Counter[str]:
        """Jobs by how they ended."""
        return self.loop.in_flight.counts

    @property
    def running(self) -> dict[str, RunningJob]:
        """By jid; also jobs whose end the server has not confirmed."""
        return self.loop.in_flight.running

    @property
    def unsent(self) -> list[RunningJob]:
        """Jobs whose end is to be sent."""
        return self.loop.in_flight.finished

    def snapshot(self) -> dict[str, Any]:
        return self.loop.snapshot()

    def lease(self, queue: str) -> float:
        return self.loop.in_flight.leases.lengths[queue]

    def check_leases(self) -> None:
        """At once, and not when it is time."""
        self.do(setattr, self.loop.in_flight.leases, "next_check", 0.0)

    def ask_when_due(self, queue: str) -> None:
        """Let it ask when a job of the queue is due, as after a poll that gave less than asked for."""
        self.do(self.loop.short_queues.add, queue)
        wait_for(lambda: not self.loop.short_queues)

    def stop(self, grace: float | None = 5.0) -> int | None:
        self.do(self.loop.stop, grace)
        return self.join()

    def join(self) -> int | None:
        self.thread.join(40)
        self.listener.stop()
        self.listener.thread.join(20)
        self.client.close()
        assert not self.thread.is_alive()
        return self.code


StartInProcess = Callable[..., InProcessWorker]


@contextlib.contextmanager
def in_process_workers(url: str, kind: type[InProcessWorker] = InProcessWorker) -> Iterator[Callable[..., Any]]:
    """Starts workers in threads, which end with the block."""
    workers: list[InProcessWorker] = []

    def start(**overrides: Any) -> InProcessWorker:
        workers.append(kind(**{"url": url, **overrides}).start())
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop(0)


@pytest.fixture
def start_worker(valkey: Any, valkey_url: str, settings: Any) -> Iterator[StartInProcess]:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "MODULES": [JOBS]}}
    jobs.GO.clear()
    jobs.TRAIL.clear()
    while not jobs.SEEN.empty():
        jobs.SEEN.get()
    resolve_handler.cache_clear()
    with in_process_workers(valkey_url) as start:
        yield start
        jobs.GO.set()


@pytest.fixture
def client(valkey: Any, valkey_url: str) -> Iterator[Client]:
    test_client = Client(valkey_url, worker_name="the tests")
    yield test_client
    test_client.close()


class Workers:
    """`manage.py runqless` in a separate process, with the jobs of the tests."""

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
            "RESTY_TEST_DB": "sqlite",  # a server has the database only while a test uses it
        }
        command = [sys.executable, "manage.py", "runqless", *arguments]
        with log.open("ab") as output:
            self.process = processes.Process(
                command,
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output if terminal < 0 else terminal,
                stderr=output,
            )

    def text(self) -> str:
        return self.log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def ready(self, count: int = 1) -> list[int]:
        """Return the worker processes, once `count` of them receive notifications of jobs."""
        return list(wait_for(lambda: (pids := self.children()) and self.takes(pids) >= count and pids, self.text()))

    def takes(self, pids: list[int]) -> int:
        return sum(f"-{pid} serves the queues" in self.text() for pid in pids)

    def wait(self) -> int:
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.text()) from None

    def stop(self) -> int:
        """End it gracefully; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            below = descendants(self.process.pid)
            self.process.kill()
            self.process.wait(20)
            for pid in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


Start = Callable[..., Workers]


@contextlib.contextmanager
def worker_processes(folder: Path, url: str | None) -> Iterator[Start]:
    """Starts worker processes, which end with the block; their logs are in this folder."""
    runs: list[Workers] = []

    def start(*arguments: str, **options: Any) -> Workers:
        log = folder / f"log{len(runs)}"
        runs.append(Workers(options.pop("url", url), log, *arguments, **options))
        return runs[-1]

    yield start
    for run in runs:
        run.end()


@pytest.fixture
def workers(valkey: Any, valkey_url: str, tmp_path: Path) -> Iterator[Start]:
    with worker_processes(tmp_path, valkey_url) as start:
        yield start


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """Start a server that keeps its data, to be killed and started again."""
    server = Server(tmp_path / "server", "--appendonly", "yes", "--appendfsync", "always", "--loglevel", "notice")
    with running([server]):
        yield server
