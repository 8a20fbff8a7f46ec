"""`manage.py runqless --burst` and `--max-jobs`."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from django.core.management import CommandError, call_command

from resty_django.qless import Client
from tests.integration.qless.worker.conftest import Start, put, started, state, until, wait_for, written_lines

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180)]


@pytest.mark.parametrize("pool", ["threads", "processes"])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_burst_ends_when_no_job_is_ready(workers: Start, client: Client, pool: str, processes: str) -> None:
    first = put(client, "write", "first")
    jids = [
        *(put(client, "write", number) for number in range(30)),
        put(client, "puts", "from a job"),
        put(client, "boom"),
        put(client, "write", "after", depends=[first]),
    ]
    future = put(client, "write", "future", delay=3600)
    recurring = client.queues["q"].recur("no.Matter", None, 3600, offset=3600)
    run = workers("--burst", "--pool", pool, "--processes", processes, "--interval", "60")
    assert run.wait() == 0, run.text()
    states = Counter(state(client, jid) for jid in [first, *jids])
    assert states == {"complete": 33, "failed": 1}
    assert len(written_lines(client)) == 33  # one was put by a job
    assert state(client, future) == "scheduled"
    assert client.jobs.get(recurring) is not None
    assert client.workers.counts() == []
    assert "is not replaced" not in run.text()


def test_a_burst_of_empty_queues_ends_at_once(workers: Start, client: Client) -> None:
    began = time.monotonic()
    run = workers("--burst", "--queues", "q,other", "--interval", "60")
    assert run.wait() == 0
    assert time.monotonic() - began < 30


def test_a_burst_waits_for_jobs_that_are_held_back_by_a_limit(workers: Start, client: Client) -> None:
    client.queues["q"].max_concurrency = 1
    put(client, "write", "first")
    first = client.queues["q"].pop()
    assert first is not None
    waits = put(client, "write", "second")
    run = workers("--burst")
    run.ready()
    time.sleep(2)
    assert run.process.poll() is None
    assert state(client, waits) == "waiting"
    first.complete()
    assert run.wait() == 0
    assert state(client, waits) == "complete"


def test_a_process_of_a_burst_that_dies_is_replaced(workers: Start, client: Client) -> None:
    client.config.set("heartbeat", 1)
    client.config.set("grace-period", 0)
    put(client, "dies", ["exit", 1], retries=1)
    jid = put(client, "long", 3.0)
    run = workers("--burst", "--concurrency", "1")
    assert run.wait() == 0
    assert "died; restarting it" in run.text()
    assert state(client, jid) == "complete"


def test_a_burst_that_is_stopped_returns_its_jobs(workers: Start, client: Client) -> None:
    put(client, "long", 60.0)
    run = workers("--burst", "--grace", "0")
    started(client)
    assert run.stop() == 3


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_a_process_is_replaced_after_its_number_of_jobs(workers: Start, client: Client, pool: str) -> None:
    jids = [put(client, "write", number) for number in range(10)]
    run = workers("--max-jobs", "3", "--pool", pool, "--concurrency", "8")
    for jid in jids:
        until(client, jid, "complete")
    by_worker = Counter(line.split()[0] for line in written_lines(client))
    assert sorted(by_worker.values()) == [1, 3, 3, 3]
    wait_for(lambda: run.text().count("starting another one") == 3)
    assert "died" not in run.text()
    assert run.stop() == 0


def test_a_burst_with_a_number_of_jobs(workers: Start, client: Client) -> None:
    jids = [put(client, "write", number) for number in range(7)]
    run = workers("--burst", "--max-jobs", "2", "--processes", "2")
    assert run.wait() == 0
    assert {state(client, jid) for jid in jids} == {"complete"}
    by_worker = Counter(line.split()[0] for line in written_lines(client))
    assert max(by_worker.values()) <= 2


def test_wrong_values() -> None:
    with pytest.raises(CommandError, match="--max-jobs must be at least 1, and finite"):
        call_command("runqless", max_jobs=0)
    with pytest.raises(CommandError, match="--burst ends the worker, and --reload starts it again"):
        call_command("runqless", burst=True, reload=True)
