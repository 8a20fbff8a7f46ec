"""Jobs that the workers of Celery run: handed over, killed in the middle, and tied to tasks of Celery by their IDs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import OperationalError

from resty_django.qless import AsyncResult, TaskFailed, chain, client
from resty_django.qless.integrations.celery import put_task, send
from resty_django.txid import bound
from resty_django.txid import txid as new_txid
from tests.integration.qless.celery import celery_app, jobs
from tests.integration.qless.celery.conftest import Cluster, use_broker
from tests.integration.qless.conftest import LONG, history, job_of
from tests.integration.qless.worker.conftest import short_locks, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_celery_runs_the_jobs(cluster: Cluster) -> None:
    cluster.celery("one")
    forwarder = cluster.via("--concurrency", "4")
    mine = new_txid()
    with bound(mine):
        results = [jobs.whose.delay(number) for number in range(30)]
    values = [result.get(LONG) for result in results]
    assert [number for number, *_ in values] == list(range(30))
    assert {txid for *_, txid in values} == {mine}
    assert {name.rpartition("-")[2] for _, name, _, _ in values} == {str(pid) for *_, pid, _ in values}
    assert all(name.startswith("celery-") for _, name, _, _ in values)
    assert forwarder.pid not in {pid for _, _, pid, _ in values}
    assert history(client, results[0].id) == ["put", "popped", "taken", "done"]

    assert jobs.awhose.delay(7).get(LONG) == 7
    assert jobs.third_time.delay().get(LONG) == 3
    with pytest.raises(TaskFailed, match="broken on purpose") as caught:
        jobs.fails.delay().get(LONG)
    assert caught.value.group == "q-ValueError"
    with pytest.raises(TaskFailed, match="JobTimeout"):
        jobs.endless.delay().get(LONG)
    with pytest.raises(TaskFailed, match="NotAllowed"):
        AsyncResult[Any](client.queues["q"].put("os.system", {})).get(LONG)
    # tasks of Celery as jobs, on Celery again; and a chain of both
    jid = put_task(celery_app.retrying, (1,), queue="q")
    assert AsyncResult[Any](jid).get(LONG)[:3] == [jid, 1, "again"]
    assert chain(jobs.awhose.s(1), jobs.awhose.s()).delay().get(LONG) == 1
    wait_for(lambda: client.queues["q"].counts().running == 0)


def test_the_job_of_a_killed_celery_worker_runs_again(cluster: Cluster, tmp_path: Path) -> None:
    """Its job comes back by the lock, another one does it, and it is done once in the records."""
    short_locks(client, 4, 0)
    first = cluster.celery("first")
    cluster.via("--concurrency", "2")
    trail = tmp_path / "trail"
    result = jobs.lengthy.delay(str(trail), 600)
    wait_for(lambda: trail.exists() and trail.read_text().endswith("\n"))
    cluster.kill(first)
    cluster.celery("second")
    began, ended = wait_for(lambda: len(pids := trail.read_text().split()) == 2 and pids)
    assert result.get(LONG) == ended
    assert began != ended
    assert history(client, result.id).count("done") == 1
    assert history(client, result.id).count("taken") == 2
    assert job_of(client, result.id).original_retries == 5
    assert client.jobs.complete() == [result.id]


def test_a_lock_is_prolonged_while_celery_runs_the_job(cluster: Cluster, tmp_path: Path) -> None:
    short_locks(client, 4, 0)
    cluster.celery("one")
    cluster.via()
    trail = tmp_path / "trail"
    result = jobs.lengthy.delay(str(trail), 6)
    assert result.get(LONG) == trail.read_text().strip()
    assert history(client, result.id) == ["put", "popped", "taken", "done"]


def test_jobs_wait_in_the_queue_and_not_in_the_broker(cluster: Cluster) -> None:
    """Without a Celery worker, there is one message per slot, and the locks are extended."""
    short_locks(client, 4, 0)
    forwarder = cluster.via("--concurrency", "3", "--grace", "0.5")
    results = [jobs.whose.delay(number) for number in range(10)]
    wait_for(lambda: client.queues["q"].counts().running == 3)
    time.sleep(5)  # longer than a lock
    counts = client.queues["q"].counts()
    assert (counts.running, counts.waiting) == (3, 7)
    assert max(history(client, result.id).count("popped") for result in results) == 1
    forwarder.terminate()
    forwarder.wait(30)
    counts = client.queues["q"].counts()
    assert (counts.running, counts.waiting) == (0, 10)  # given back at once
    cluster.celery("one")
    cluster.via()
    assert [result.get(LONG)[0] for result in results] == list(range(10))
    assert all(history(client, result.id).count("done") == 1 for result in results)


def test_jobs_and_tasks_of_celery_wait_for_each_other(cluster: Cluster) -> None:
    cluster.worker()
    job = jobs.awhose.apply_async((1,), countdown=0.2)
    mine = new_txid()
    with bound(mine, request_id="web-1.example_7"):
        task = send(celery_app.ids, depends=[job])
        retried = send(celery_app.retrying, (1,))
        last = jobs.whose.apply_async((3,), depends=[task, retried])
        failing = send(celery_app.fails, depends=[last])
        never = jobs.awhose.apply_async((4,), depends=[failing])
    assert job.get(LONG) == 1
    assert AsyncResult[Any](last.id).state == "PENDING"
    cluster.celery("one")
    assert AsyncResult[Any](task).get(LONG) == [mine, "web-1.example_7"]
    assert AsyncResult[Any](retried).get(LONG)[:2] == [retried, 1]
    assert last.get(LONG)[3] == mine
    with pytest.raises(TaskFailed, match="broken on purpose") as caught:
        never.get(LONG)
    assert (caught.value.jid, caught.value.group) == (failing, "celery-ValueError")


def test_a_task_that_could_not_be_sent_leaves_no_job(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that could not be sent leaves no job behind for which others would wait."""
    at_once = {"max_retries": 1, "interval_start": 0, "interval_step": 0}
    monkeypatch.setitem(celery_app.app.conf, "broker_transport_options", at_once)
    use_broker("amqp://127.0.0.1:1//")
    try:
        with pytest.raises(OperationalError):
            send(celery_app.add, (1,), task_id="unsent", retry=False)
        assert AsyncResult[Any]("unsent").state == "GONE"
    finally:
        use_broker(cluster.broker)
