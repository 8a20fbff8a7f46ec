"""Eight processes under load whose store is stopped, restarted empty and failed over: no request fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.integration.cache.outage_worker import KEYS
from tests.servers import until

WORKER = Path(__file__).with_name("outage_worker.py")
ROOT = Path(__file__).resolve().parents[3]
PROCESSES = 8
TTL, STALE, OUTAGE_TTL = 2.0, 3.0, 1.0
LATE = 1.0
"""Seconds that a busy machine may take between a callback and the end of the call that returns its value."""


class Worker:
    def __init__(self, kind: str, folder: Path, site: dict[str, Any]) -> None:
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), kind, str(folder)],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
                    "RESTY_WORKER_SITE": json.dumps(site),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.lines: list[Any] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def ask(self, command: str, reply: str) -> Any:
        """Send a command and return what the worker says next with this word."""
        assert self.process.stdin is not None
        count = len(self.lines)
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        assert self.process.poll() is None, "the worker has ended"
        return until(lambda: [line for line in self.lines[count:] if line[0] == reply], 60)[0][-1]


@contextmanager
def working(folder: Path, site: dict[str, Any]) -> Iterator[list[Worker]]:
    workers = [Worker("async" if number % 2 else "sync", folder, site) for number in range(PROCESSES)]
    try:
        until(lambda: all(["ready"] in worker.lines for worker in workers), 60)
        yield workers
    finally:
        for worker in workers:
            worker.end()


def phase(name: str, workers: list[Worker]) -> dict[str, Any]:
    """Return what the workers have done since the last phase."""
    reports = [worker.ask("report", "report") for worker in workers]
    figures = {
        "requests": sum(report["requests"] for report in reports),
        "failed": sum(report["failed"] for report in reports),
        "runs": sum(report["runs"] for report in reports),
        "slow": sum(report["slow"] for report in reports),
        "oldest": round(max(report["oldest"] for report in reports), 2),
        "longest": round(max(report["longest"] for report in reports), 2),
        "seconds": round(max(report["seconds"] for report in reports), 1),
    }
    print(name, figures)
    assert figures["failed"] == 0, [report["errors"] for report in reports]
    assert all(report["requests"] for report in reports)
    assert figures["oldest"] < TTL + STALE + LATE
    assert figures["runs"] <= PROCESSES * KEYS * (figures["seconds"] / OUTAGE_TTL + 2)
    return figures


def fail_over_after(watched: servers.Watched, milliseconds: int) -> None:
    for sentinel in watched.sentinels:
        sentinel.call("SENTINEL", "SET", servers.NAME, "down-after-milliseconds", milliseconds)


@pytest.mark.soak
@pytest.mark.redis
@pytest.mark.timeout(400)
def test_eight_processes_and_a_store_that_fails_in_all_ways(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("1")
    with servers.sentinel(3) as watched:
        fail_over_after(watched, 600_000)
        cache = {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": f"redis://{servers.NAME}/0",
            "OPTIONS": {
                "CLIENT_CLASS": "django_redis.client.SentinelClient",
                "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
                "SENTINELS": [sentinel.place for sentinel in watched.sentinels],
                "SENTINEL_KWARGS": {"socket_timeout": 0.25},
                "SOCKET_TIMEOUT": 0.25,
                "SOCKET_CONNECT_TIMEOUT": 0.25,
            },
        }
        dicts = {name: {"ENGINE": "redis"} for name in ("default", "events")}
        site = {"CACHES": {"default": cache}, "RESTY_DJANGO": {"SHARED_DICTS": dicts}}
        with working(tmp_path, site) as workers:
            assert {worker.ask("version", "version") for worker in workers} == {"1"}
            phase("start", workers)
            time.sleep(8)
            usual = phase("usual", workers)
            assert usual["runs"] <= KEYS * (usual["seconds"] / TTL + 2)

            master = watched.servers[0]
            assert master.process is not None
            master.process.send_signal(signal.SIGSTOP)
            time.sleep(4)
            version.write_text("2")
            assert workers[0].ask("delete", "deleted") == "deleted"
            time.sleep(4)
            phase("stopped", workers)
            master.process.send_signal(signal.SIGCONT)
            until(lambda: {worker.ask("version", "version") for worker in workers} == {"2"}, 30)
            time.sleep(4)
            phase("continued", workers)

            master.kill()
            time.sleep(6)
            phase("killed", workers)
            master.start()
            time.sleep(6)
            phase("restarted empty", workers)

            replica = watched.servers[1]
            until(lambda: replica.call("INFO", "replication")["master_link_status"] == "up")
            fail_over_after(watched, 300)
            phase("before the failover", workers)
            master.kill()
            until(lambda: watched.master() is replica, 60)
            time.sleep(8)
            phase("failed over", workers)
            time.sleep(4)
            usual = phase("usual again", workers)
            assert usual["runs"] <= KEYS * (usual["seconds"] / TTL + 2)
            log = (tmp_path / "log").read_text()
            assert log.count("cannot be used; caches follow") == log.count("can be used again") == 3 * PROCESSES
