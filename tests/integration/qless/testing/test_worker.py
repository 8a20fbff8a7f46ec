"""The worker for tests: real jobs on an embedded Valkey, in the thread of the test, by a clock that the test moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group

from resty_django.qless import TaskFailed, client, group
from resty_django.qless.clients.job import Job
from resty_django.qless.testing import FakeClock, TestWorker
from tests.integration.qless.tasks import examples
from tests.integration.qless.testing import shop_tasks
from tests.integration.qless.testing.shop_tasks import (
    FAILURES,
    attempt,
    double,
    flaky,
    follow,
    forever,
    rename,
    send_invoice,
)

pytest_plugins = ["resty_django.qless.testing.pytest_plugin"]

MODULE = shop_tasks.__name__


@pytest.fixture(autouse=True)
def _site(settings: Any) -> Iterator[None]:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"MODULES": [MODULE, examples.__name__]}}
    FAILURES.clear()
    yield
    client.close()


@pytest.fixture
def worker(_site: None, qless_worker: TestWorker) -> TestWorker:
    return qless_worker


def test_drain_runs_waiting_jobs_and_returns_the_runs(worker: TestWorker) -> None:
    first, second = send_invoice.delay(7), double.delay(4)
    assert {(run.id, run.name, run.queue, run.outcome) for run in worker.drain()} == {
        (first.id, f"{MODULE}.send_invoice", "mail", "completed"),
        (second.id, f"{MODULE}.double", "default", "completed"),
    }
    assert (first.get(), second.get()) == ("invoice 7", 8)
    assert worker.drain() == []
    assert len(worker.runs) == 2


def test_drain_of_one_queue_leaves_the_others(worker: TestWorker) -> None:
    mail, other = send_invoice.delay(7), double.delay(4)
    assert [run.id for run in worker.drain("mail")] == [mail.id]
    assert other.state == "PENDING"


def test_tasks_that_jobs_enqueue_are_run_too(worker: TestWorker) -> None:
    follow.delay(3)
    assert [run.name.rpartition(".")[2] for run in worker.drain()] == ["follow"] * 4 + ["send_invoice"]


def test_retries_follow_the_clock_of_the_test(worker: TestWorker) -> None:
    FAILURES.extend(["down", "down"])
    result, start = flaky.delay(), worker.clock()
    assert [run.outcome for run in worker.drain()] == ["retried"]
    assert (result.state, worker.clock()) == ("RETRY", start)
    assert [run.outcome for run in worker.drain(seconds=29)] == []
    assert [run.outcome for run in worker.drain(seconds=61)] == ["retried", "completed"]
    assert result.get() == "sent"
    assert worker.clock() == pytest.approx(start + 90, abs=0.01)


def test_scheduled_task_runs_when_the_clock_reaches_its_time(worker: TestWorker) -> None:
    result = send_invoice.apply_async((7,), countdown=3600)
    assert worker.drain() == []
    worker.advance(3600)
    assert len(worker.drain()) == 1
    assert result.get() == "invoice 7"


@pytest.mark.parametrize("task", [examples.naps, examples.anaps])
def test_timeout_interrupts_the_task(worker: TestWorker, task: Any) -> None:
    result = task.delay()
    assert [run.outcome for run in worker.drain()] == ["failed"]
    with pytest.raises(TaskFailed, match="JobTimeout"):
        result.get()
    assert threading.active_count() < 20


def test_job_runs_again_after_a_lost_lease(worker: TestWorker) -> None:
    result = attempt.delay()
    assert len(worker.client.queues["default"].pop(1)) == 1  # a worker that is never heard of again
    assert worker.drain() == []
    worker.advance(3600)
    assert len(worker.drain(seconds=60)) == 1
    assert result.get() == 2


def test_unknown_class_fails_with_the_reason(worker: TestWorker) -> None:
    jid = worker.client.queues["default"].put("shop.nowhere.Task", {})
    assert [run.outcome for run in worker.drain()] == ["failed"]
    job = worker.client.jobs.get(jid)
    assert isinstance(job, Job)
    assert "is outside the modules from which jobs may come" in job.failure["message"]


@pytest.mark.django_db
def test_task_sees_the_uncommitted_rows_of_the_test(worker: TestWorker) -> None:
    Group.objects.create(name="old")
    rename.delay("old", "new")
    worker.drain()
    assert Group.objects.get().name == "new"


async def test_async_test_drains_too(worker: TestWorker) -> None:
    result = await double.adelay(4)
    assert len(await worker.adrain()) == 1
    assert await result.aget() == 8


def test_jobs_that_enqueue_one_another_end_the_drain(worker: TestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resty_django.qless.testing.worker.MAX_RUNS", 20)
    forever.delay()
    with pytest.raises(AssertionError, match="20 jobs"):
        worker.drain()


def test_queue_is_empty_at_the_start_and_gone_in_the_end(valkey_url: str, valkey: Any) -> None:
    valkey.set("of-the-site", 1)
    with TestWorker(valkey_url, FakeClock(1_800_000_000.0)) as worker:
        send_invoice.delay(7)
        assert worker.client.clock() == 1_800_000_000.0
        assert len(valkey.keys()) > 1
        with TestWorker(valkey_url) as another:
            assert another.drain() == []
    assert valkey.keys() == [b"of-the-site"]
    assert client.clock() > 1_700_000_000.0


def test_callbacks_and_groups_run(worker: TestWorker) -> None:
    FAILURES.extend(["down"] * 3)
    result = (group([flaky.s()], on_failure=send_invoice.si(1)) | double.s()).delay()
    runs = worker.drain(seconds=100)
    assert [(run.name.rpartition(".")[2], run.outcome) for run in runs] == [
        *[("flaky", "retried")] * 2,
        ("flaky", "failed"),
        ("send_invoice", "completed"),
    ]
    with pytest.raises(TaskFailed, match="ConnectionError: down"):
        result.get()
    assert result.parent.retry() == 1
    worker.drain()
    assert result.get() == ["sent", "sent"]


def test_drain_runs_jobs_that_many_dependents_wait_for(worker: TestWorker) -> None:
    """The core releases more than a hundred dependents in later calls."""
    first = double.apply_async((1,), countdown=5)
    results = [double.apply_async((n,), depends=[first]) for n in range(150)]
    worker.drain(seconds=5)
    assert [result.get() for result in results] == [2 * n for n in range(150)]
