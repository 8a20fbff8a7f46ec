"""Tasks and workers against Celery, dramatiq, huey and RQ, in one run on one embedded Valkey.

    python bench/tasks.py [--quick] [--jobs N] [--rounds N] [--only drain,start] [--peers ours,celery] [--json FILE]

Enqueue: one client puts tasks that do nothing, one by one with `delay`. Drain: they are put first, then the workers
start; tasks a second from the first look at which some are done to the end. Start: from the put of a task to idle
workers to its first line, of 100 tasks. Each peer has its recommended settings for two cores; those that cannot be
installed are left out. `--quick` leaves out starts, and all but the main rows.

Of ours, there are also tasks with results, plain jobs, `runqless --pool processes` with as many processes as Celery's
prefork has and with as many as threads, and the bridge: `runqless --via celery` and workers of Celery as in the row of
Celery, broker and jobs on the same Valkey.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis
from _table import HERE, ROOT, Options, Row, Samples, compare, installed, main, row

PLACE = HERE / "peers"
STARTS = 100
LONGEST = 60.0
"""Seconds that a drain may take."""


@dataclass(frozen=True)
class Peer:
    """`left` counts the jobs that are not done; `what` is put, see `tasks_jobs`."""

    package: str
    workers: tuple[tuple[str, ...], ...]
    left: Callable[[redis.Redis], int]
    least_jobs: float = 1.0
    """The share of the jobs that it gets, where it is slow."""
    what: str = "noop"
    quick: bool = False
    """Whether it is measured with `--quick`."""

    @property
    def name(self) -> str:
        return self.package.partition("[")[0]

    @property
    def is_ours(self) -> bool:
        return self.package in ("ours", "bridge")


def _in_list(key: str) -> Callable[[redis.Redis], int]:
    return lambda client: int(client.llen(key))


def _celery(*pool: str) -> tuple[tuple[str, ...], ...]:
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "error")
    return (("-m", "celery", "-A", "tasks_jobs", "worker", *pool, *quiet),)


RQ = ("-m", "rq.cli", "worker", "--quiet")
RUNQLESS = ("-m", "django", "runqless", "--verbosity", "0")
THREADS = (*RUNQLESS, "--processes", "2", "--concurrency", "16")
PROCESSES = (*RUNQLESS, "--pool", "processes", "--concurrency")


def _left(client: redis.Redis) -> int:
    return int(client.zcard("ql:q:default-work") + client.zcard("ql:q:default-locks"))


def _left_of_celery(client: redis.Redis) -> int:
    return int(client.llen("celery") + client.hlen("unacked"))


SUBJECTS: Mapping[str, Peer] = {
    "ours": Peer("ours", (THREADS,), _left, quick=True),
    "ours, results": Peer("ours", (THREADS,), _left, what="result"),
    "ours, jobs": Peer("ours", (THREADS,), _left, what="job", quick=True),
    "ours, 2 processes": Peer("ours", ((*PROCESSES, "2"),), _left, quick=True),
    "ours, 16 processes": Peer("ours", ((*PROCESSES, "16"),), _left),
    "bridge": Peer(
        "bridge", ((*RUNQLESS, "--via", "celery", "--concurrency", "200"), *_celery("-P", "prefork", "-c", "2")), _left
    ),
    "dramatiq": Peer(
        "dramatiq[redis]",
        (("-m", "dramatiq", "tasks_jobs", "--processes", "2", "--threads", "8"),),
        lambda client: int(client.hlen("dramatiq:default.msgs")),
        quick=True,
    ),
    "huey, processes": Peer(
        "huey[redis]",
        (("-m", "huey.bin.huey_consumer", "tasks_jobs.huey", "-k", "process", "-w", "2", "-q"),),
        _in_list("huey.redis.bench"),
        quick=True,
    ),
    "Celery, prefork": Peer("celery[redis]", _celery("-P", "prefork", "-c", "2"), _left_of_celery, quick=True),
    "Celery, threads": Peer("celery[redis]", _celery("-P", "threads", "-c", "8"), _left_of_celery),
    "RQ, SimpleWorker": Peer(
        "rq",
        ((*RQ, "-w", "rq.SimpleWorker"), (*RQ, "-w", "rq.SimpleWorker")),
        _in_list("rq:queue:default"),
        least_jobs=0.3,
    ),
    "RQ, default": Peer("rq", (RQ, RQ), _in_list("rq:queue:default"), least_jobs=0.05),
}


class Subject:
    """A peer on a server."""

    def __init__(self, peer: Peer, options: Options, ours: Path = ROOT) -> None:
        self.peer = peer
        packages = ours if peer.is_ours else installed(options, peer.package, "redis")
        url = options.url
        self.client = redis.Redis.from_url(url)
        self.env = {
            **os.environ,
            **{"PEER": peer.name, "BROKER": url, "RQ_REDIS_URL": url, "PYTHONPATH": f"{PLACE}:{packages}"},
            "PYTHONUNBUFFERED": "1",
        }
        if peer.is_ours:
            self.env["DJANGO_SETTINGS_MODULE"] = "tasks_site"

    def put(self, what: str, count: int) -> float:
        """Seconds that it took."""
        command = [sys.executable, "-c", f"import tasks_jobs; tasks_jobs.main({what!r}, {count})"]
        done = subprocess.run(
            command, env=self.env, cwd=PLACE, capture_output=True, text=True, check=False, timeout=LONGEST
        )
        if done.returncode:
            raise SystemExit(f"{self.peer.name} {what}: {done.stderr[-2000:]}")
        return float(done.stdout.split()[-1])

    @contextmanager
    def working(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        running = [
            subprocess.Popen(
                [sys.executable, *arguments],
                env=self.env,
                cwd=PLACE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for arguments in self.peer.workers
        ]
        try:
            yield running
        finally:
            for process in running:
                process.terminate()
            for process in running:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(10)

    def drain(self, jobs: int) -> tuple[float, float]:
        """Jobs a second: of one client that puts them, and of the workers."""
        self.client.flushall()
        putting = jobs / self.put(self.peer.what, jobs)
        total = self.peer.left(self.client)
        with self.working():
            end = time.monotonic() + LONGEST
            while (first := self.peer.left(self.client)) == total:
                self._pause(end)
            began = time.monotonic()
            while self.peer.left(self.client):
                self._pause(end)
            rate = first / (time.monotonic() - began)
            if self.peer.is_ours and (done := self.client.zcard("ql:completed")) != jobs:
                raise SystemExit(f"of {jobs} jobs {done} are complete")
            return putting, rate

    def starts(self) -> tuple[float, float]:
        """Milliseconds from each put to the start of the job: the median, and at p99."""
        self.client.flushall()
        with self.working():
            self.put("stamp", 5)
            self.client.delete("took")
            self.put("stamp", STARTS)
        took = sorted(float(entry) * 1000 for entry in self.client.lrange("took", 0, -1))
        return took[len(took) // 2], took[int(len(took) * 0.99) - 1]

    def _pause(self, end: float) -> None:
        if time.monotonic() > end:
            raise SystemExit(f"{self.peer.name} did not end its jobs in {LONGEST:.0f} s")
        time.sleep(0.01)


def prepare(options: Options) -> None:
    options.jobs = options.jobs or (1000 if options.quick else 4000)
    options.subjects = {}
    for name, peer in SUBJECTS.items():
        if peer.name in options.peers.split(",") and (peer.quick or not options.quick):
            try:
                options.subjects[name] = Subject(peer, options)
            except OSError as error:
                print(error, file=sys.stderr)


def drain(options: Options) -> Iterator[Row]:
    putting: Samples = {name: [] for name in options.subjects}
    draining: Samples = {name: [] for name in options.subjects}
    for _ in range(options.rounds):
        for name, subject in options.subjects.items():
            rates = subject.drain(max(100, int(options.jobs * subject.peer.least_jobs)))
            for samples, rate in zip((putting, draining), rates, strict=True):
                samples[name].append(rate)
    celery, processes = "Celery, prefork", "ours, 2 processes"
    enqueued = (
        ("ours", celery, ">= 2"),
        ("ours", "dramatiq", ">= 1.2"),
        ("ours", "huey, processes", ">= 0.95"),
        ("ours", "RQ, default"),
        ("ours, jobs", "dramatiq", ">= 1"),
    )
    done = (
        ("ours", celery, ">= 12"),
        ("ours", "dramatiq", ">= 2.5"),
        ("ours", "huey, processes", ">= 3"),
        (processes, celery, ">= 1"),
        *((processes, peer) for peer in ("dramatiq", "huey, processes", "RQ, default")),
        *(("ours", peer) for peer in ("Celery, threads", "RQ, SimpleWorker", "ours, results", "ours, 16 processes")),
        ("ours, jobs", "dramatiq", ">= 1.5"),
        ("bridge", celery, ">= 0.5"),
    )
    yield from compare(putting, enqueued, "a second", "enqueue, ")
    yield from compare(draining, done, "a second", "drain, ")


def start(options: Options) -> Iterator[Row]:
    if options.quick:
        return
    medians: Samples = {name: [] for name in options.subjects}
    latest: Samples = {name: [] for name in options.subjects}
    for _ in range(options.rounds):
        for name, subject in options.subjects.items():
            for samples, took in zip((medians, latest), subject.starts(), strict=True):
                samples[name].append(took)
    yield from compare(medians, [("ours", name) for name in medians if name != "ours"], "ms", "start at p50, ")
    if "ours" in latest:
        yield row("start at p99, ours", latest["ours"], None, "ms", "<= 20")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, help="4000; --quick: 1000")
    parser.add_argument("--peers", default=",".join(subject.name for subject in SUBJECTS.values()), help="packages")


if __name__ == "__main__":
    main({"drain": drain, "start": start}, prepare, arguments)
