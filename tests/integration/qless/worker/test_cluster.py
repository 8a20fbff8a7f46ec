"""`manage.py runqless` on a real cluster. Its interval is ten minutes: what starts earlier was heard of."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import RedisCluster
from redis.crc import key_slot

from resty_django.qless import Client
from resty_django.qless.tasks.abandoned import of_tasks
from tests.integration.qless.conftest import job_of
from tests.integration.qless.worker.conftest import (
    JOBS,
    Start,
    Workers,
    put,
    short_locks,
    started,
    state,
    texts,
    until,
    wait_for,
    worker_processes,
)
from tests.servers import Server, cluster
from tests.servers import until as until_up

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

PREFIX = "{jobs}ql:"
TICK = "tests.integration.qless.tasks.ticking"


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Server]]:
    with cluster() as servers:
        yield servers


@pytest.fixture
def client(nodes: list[Server]) -> Iterator[Client]:
    """Of a cluster that is empty, and knows no script."""
    for node in nodes:
        node.call("FLUSHALL")
        node.call("SCRIPT", "FLUSH")
    with RedisCluster(host="127.0.0.1", port=nodes[0].port) as redis:
        yield Client(redis, prefix=PREFIX, worker_name="the tests")


@pytest.fixture
def workers(client: Client, nodes: list[Server], tmp_path: Path) -> Iterator[Start]:
    """`interval`: 600 seconds, where it is not given."""
    cache = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": [node.url for node in nodes],
        "OPTIONS": {"CLIENT_CLASS": "resty_django.redis.cluster.ClusterClient"},
    }

    with worker_processes(tmp_path, None) as start_worker:

        def start(*arguments: str, qless: dict[str, Any] | None = None) -> Workers:
            section = {"URL": None, "ALIAS": "jobs", "PREFIX": PREFIX, **(qless or {})}
            return start_worker("--interval", "600", *arguments, qless=section, caches={"jobs": cache})

        yield start


def heard_by(nodes: list[Server], channel: str) -> int:
    return sum(int(node.call("PUBSUB", "NUMSUB", PREFIX + channel)[1]) for node in nodes)


def listening(run: Workers, nodes: list[Server], count: int = 1) -> None:
    """Wait until `count` processes receive notifications of jobs."""
    run.ready(count)
    wait_for(lambda: heard_by(nodes, "wake:q") == count, run.text())


def home(nodes: list[Server]) -> Server:
    """The node that has the jobs."""
    return next(node for node in nodes if node.call("KEYS", f"{PREFIX}queues"))


def test_a_job_starts_when_it_is_put(workers: Start, client: Client, nodes: list[Server]) -> None:
    run = workers("--processes", "2")
    listening(run, nodes, 2)
    server = client.source.sync()
    for count in range(20):
        client.queues["q"].put(f"{JOBS}.stamp", time.time())
        wait_for(lambda count=count: server.llen("took") == count + 1, run.text())  # type: ignore[misc]
        time.sleep(0.05)  # they look once more after a job, and are to hear of the next one
    took = sorted(map(float, texts(client, "took")))
    assert took[10] < 1, took


def test_a_job_starts_when_its_time_has_come(workers: Start, client: Client, nodes: list[Server]) -> None:
    run = workers()
    listening(run, nodes)
    jid = put(client, "write", "later", delay=1.0)
    assert state(client, jid) == "scheduled"
    until(client, jid, "complete")


@pytest.mark.parametrize("operation", ["cancel", "timeout"])
@pytest.mark.parametrize(
    ("function", "report"), [("keeps", "lost"), ("along", "cancelled")], ids=["function", "coroutine"]
)
def test_a_job_that_the_worker_has_lost_is_interrupted_at_once(
    workers: Start, client: Client, nodes: list[Server], function: str, report: str, operation: str
) -> None:
    """Long before the next heartbeat, which comes in half a minute at the earliest.

    `operation`: what another client does to the job. `report`: the list to which the function adds an interruption.
    """
    run = workers()
    listening(run, nodes)
    jid = put(client, function, 60.0)
    (line,) = started(client)
    wait_for(lambda: heard_by(nodes, f"w:{line.split()[0]}") == 1, run.text())
    began = time.monotonic()
    getattr(job_of(client, jid), operation)()
    wait_for(lambda: texts(client, report) == [jid], run.text())
    assert time.monotonic() - began < 20
    assert f"job {jid} lost its lock" in run.text()


def test_locks_are_extended_unless_their_worker_was_killed(workers: Start, client: Client) -> None:
    """Two workers and two jobs: one is killed, and the other one does both."""
    short_locks(client, 3, 0)
    jids = [put(client, "long", 5.0) for _ in range(2)]
    runs = [workers("--concurrency", "1") for _ in range(2)]
    by = {line.split()[0] for line in started(client, 2)}
    assert len(by) == 2
    lost, stays = runs
    children = lost.children()
    lost.process.kill()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    lost.process.wait(20)
    for jid in jids:
        until(client, jid, "complete")
    (survivor,) = stays.children()
    restarts = texts(client, "told")[2:]
    assert restarts
    assert all(line.split()[0].endswith(f"-{survivor}") for line in restarts)


def test_a_periodic_task_runs_once_an_interval(workers: Start, client: Client) -> None:
    run = workers("--processes", "2", qless={"MODULES": [TICK], "WORKER": {"QUEUES": ["ticks"]}})
    wait_for(lambda: len(client.jobs.complete()) >= 3, run.text())
    assert run.stop() == 0
    assert client.queues["ticks"].counts().recurring == 1
    assert [entry.job.jid for entry in of_tasks(client)] == [f"every-{TICK}.tick"]
    jids = client.jobs.complete()
    assert all(jid.startswith(f"every-{TICK}.tick-") for jid in jids)
    assert len(set(jids)) == len(jids)


def test_the_worker_survives_a_restart_of_its_node(workers: Start, client: Client, nodes: list[Server]) -> None:
    """It has lost all, and its scripts."""
    run = workers()
    until(client, put(client, "write", "before"), "complete")
    node = home(nodes)
    node.kill()
    wait_for(lambda: "does not answer" in run.text() or "receives no events" in run.text(), "the worker is to notice")
    node.start()
    until_up(lambda: all(b"cluster_state:ok" in each.call("CLUSTER", "INFO") for each in nodes))
    wait_for(lambda: heard_by(nodes, "wake:q") == 1, run.text())
    for count in range(3):
        until(client, until_up(lambda count=count: put(client, "write", count)), "complete")  # type: ignore[misc]
        time.sleep(0.1)
    assert run.stop() == 0


def test_the_worker_follows_its_jobs_to_another_node(workers: Start, client: Client, nodes: list[Server]) -> None:
    run = workers()
    listening(run, nodes)
    running = put(client, "long", 3.0)
    started(client)
    source, slot = home(nodes), key_slot(PREFIX.encode())
    target = next(node for node in nodes if node is not source)
    source.call("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.call("CLUSTER", "MYID").decode())
    jids = []

    def moved() -> bool:
        jids.append(put(client, "write", "meanwhile"))
        return bool(target.call("KEYS", f"{PREFIX}queues"))

    wait_for(moved, "the slot is to move")
    assert home(nodes) is target
    for count in range(3):
        until(client, put(client, "write", count), "complete")
        time.sleep(0.1)
    for jid in (running, *jids):
        until(client, jid, "complete")
    assert run.stop() == 0
