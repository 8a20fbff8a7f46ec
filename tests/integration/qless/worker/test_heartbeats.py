"""Jobs that hold the interpreter lock for longer than the locks of their process last."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from resty_django.qless import Client
from tests.integration.qless.conftest import history
from tests.integration.qless.worker.conftest import Start, descendants, put, started, state, until, wait_for

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180), pytest.mark.slow]

LEASE = 3.0


def test_a_job_that_holds_the_interpreter_keeps_its_lock_and_those_of_its_neighbours(
    workers: Start, client: Client
) -> None:
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
    (helper,) = descendants(killed)
    os.kill(stopped, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{helper}").exists(), "the helper is to end with its worker")
    for jid in jids:  # the process in place of the killed one finds that the locks have expired
        wait_for(lambda jid=jid: "timed-out" in history(client, jid), "the lock is to expire")
    os.kill(stopped, signal.SIGKILL)
    run.end()


def test_the_helper_ends_with_its_worker_and_survives_signals_to_the_group(workers: Start, client: Client) -> None:
    jid = put(client, "long", 1.0)
    run = workers()
    (worker,) = run.ready()
    (helper,) = descendants(worker)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        os.kill(helper, number)
    started(client)
    assert Path(f"/proc/{helper}").exists()
    assert run.stop() == 0
    assert state(client, jid) == "complete"
    assert not Path(f"/proc/{helper}").exists()
