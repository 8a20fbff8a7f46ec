"""Jobs that hold the interpreter lock for longer than the locks of their process last."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from resty_django.qless import Client
from tests.integration.qless.conftest import history
from tests.integration.qless.worker.conftest import (
    Start,
    Workers,
    is_there,
    put,
    started,
    state,
    until,
    wait_for,
)

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180), pytest.mark.slow]

LEASE = 3.0


def test_a_job_that_holds_the_interpreter_keeps_all_locks_of_its_worker(workers: Start, client: Client) -> None:
    client.config.set("heartbeat", LEASE)
    neighbour = put(client, "long", 0.2 + LEASE)
    jid = put(client, "hold_interpreter", 2.5 * LEASE)
    run = workers("--processes", "2", "--interval", "0.2", "--concurrency", "2")
    for started_jid in (jid, neighbour):
        until(client, started_jid, "complete")
        assert history(client, started_jid) == ["put", "popped", "done"]
    assert client.queues["q"].stats().retries == 0
    assert "holds the interpreter lock (GIL)" in run.text()
    assert run.stop() == 0


def test_no_heartbeat_for_a_worker_that_is_killed_or_stopped(workers: Start, client: Client) -> None:
    client.config.set("heartbeat", LEASE)
    jids = [put(client, "hold_interpreter", 60.0, retries=0) for _ in range(2)]
    run = workers("--processes", "2", "--concurrency", "1", "--interval", "60")
    started(client, 2)
    jobs = [client.jobs.get(jid) for jid in jids]
    killed, stopped = (int(job.worker_name.rpartition("-")[2]) for job in jobs)  # type: ignore[union-attr]
    pids = wait_for(lambda: len(below := helpers(run, killed, stopped)) == 2 and below, "each is to have a helper")
    os.kill(stopped, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: sum(map(is_there, pids)) == 1, "the helper is to end with its worker")
    for jid in jids:  # the process in place of the killed one finds that the locks have expired
        wait_for(lambda jid=jid: "timed-out" in history(client, jid), "the lock is to expire")
    os.kill(stopped, signal.SIGKILL)
    run.end()


def test_a_worker_whose_interpreter_is_free_has_no_helper(workers: Start, client: Client) -> None:
    client.config.set("heartbeat", LEASE)
    jid = put(client, "long", 1.5 * LEASE)
    run = workers()
    (worker,) = run.ready()
    started(client)
    while state(client, jid) == "running":
        assert helpers(run, worker) == []
        time.sleep(0.05)
    assert state(client, jid) == "complete"


def test_the_helper_ends_when_the_interpreter_is_free_and_survives_signals_to_the_group(
    workers: Start, client: Client
) -> None:
    client.config.set("heartbeat", LEASE)
    jid = put(client, "hold_interpreter", 2.0 * LEASE)
    run = workers()
    (worker,) = run.ready()
    (helper,) = wait_for(lambda: helpers(run, worker), "the helper is to start")
    wait_for(lambda: "holds the interpreter lock (GIL)" in run.text(), "the helper is to send a heartbeat")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        os.kill(helper, number)
    time.sleep(0.2)
    assert is_there(helper)
    until(client, jid, "complete")
    assert history(client, jid) == ["put", "popped", "done"]
    wait_for(lambda: not Path(f"/proc/{helper}").exists(), "the helper is to end, and its parent to notice")
    assert run.stop() == 0


def test_a_helper_that_is_killed_is_replaced_and_none_outlives_the_parent(workers: Start, client: Client) -> None:
    client.config.set("heartbeat", LEASE)
    put(client, "hold_interpreter", 30.0)
    run = workers()
    (worker,) = run.ready()
    (first,) = wait_for(lambda: helpers(run, worker), "the helper is to start")
    os.kill(first, signal.SIGKILL)
    (second,) = wait_for(lambda: [pid for pid in helpers(run, worker) if pid != first], "another is to start")
    run.process.kill()
    wait_for(lambda: not is_there(second), "the helper is to end with its parent")
    os.kill(worker, signal.SIGKILL)


def helpers(run: Workers, *workers: int) -> list[int]:
    """Return the processes that `runqless` has started besides these workers."""
    return [pid for pid in run.children() if pid not in workers]
