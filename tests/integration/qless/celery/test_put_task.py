"""Tasks of Celery, unchanged, as jobs that our worker runs."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from celery import signals

from resty_django.qless import AsyncResult, InvalidArgument, NotAllowed, TaskFailed, client
from resty_django.qless.integrations.celery import put_task
from resty_django.qless.job_classes import find
from resty_django.qless.worker.handlers import resolve_handler
from resty_django.txid import bound
from resty_django.txid import txid as new_txid
from tests.integration.qless.celery import celery_app
from tests.integration.qless.conftest import LONG, job_of
from tests.integration.qless.worker.conftest import InProcessWorker, in_process_workers, traced_code_runs, wait_for

pytestmark = pytest.mark.redis


@pytest.fixture(autouse=True)
def site(valkey: Any, valkey_url: str, settings: Any) -> Iterator[None]:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url}}
    celery_app.TRAIL.clear()
    celery_app.app.set_current()
    resolve_handler.cache_clear()
    find.cache_clear()
    yield
    client.close()


@pytest.fixture
def running(site: None, valkey_url: str) -> Iterator[InProcessWorker]:
    with in_process_workers(valkey_url) as start:
        yield start(queues=("default",))


def outcome(jid: str) -> Any:
    return AsyncResult[Any](jid).get(LONG)


def test_a_task_is_run(running: InProcessWorker) -> None:
    assert outcome(put_task(celery_app.add, (1, 2))) == 3
    assert outcome(put_task(celery_app.add, (1,), {"b": 5}, countdown=0.01, priority=3, tags=["t"])) == 6
    first = put_task(celery_app.add, (1,), task_id="mine")
    assert outcome(put_task(celery_app.add, (2,), depends=[first])) == 3
    assert outcome("mine") == 2


def test_an_empty_queue_is_not_the_default_one(site: None) -> None:
    for queue in (None, ""):
        put_task(celery_app.add, (1,), queue=queue)  # type: ignore[typeddict-item]
    assert [counts.name for counts in client.queues.counts()] == ["default", ""]


def test_the_job_has_the_options_of_the_call(site: None) -> None:
    job = job_of(client, put_task(celery_app.add, (1,), priority=3, tags=["t"], retries=2, countdown=50))
    assert (job.klass, job.data, job.priority, job.tags, job.state) == (
        "celery:tests.integration.qless.celery.celery_app.add",
        *({"args": [1], "kwargs": {}}, 3, ["t"], "scheduled"),
    )


def test_arguments_come_as_celery_brings_them(running: InProcessWorker) -> None:
    jid = put_task(celery_app.typed, (date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)), {"key": uuid.uuid4()})
    assert outcome(jid) == ["date", "datetime", "UUID"]


def test_arguments_are_checked(site: None) -> None:
    with pytest.raises(TypeError, match="arguments"):
        put_task(celery_app.add)
    with pytest.raises(TypeError, match="arguments"):
        put_task(celery_app.retrying, (1, "x", 3))
    with pytest.raises(InvalidArgument):
        put_task(celery_app.add, (object(),))


def test_retries_and_requests_of_celery(running: InProcessWorker) -> None:
    jid = put_task(celery_app.retrying, (2,))
    assert outcome(jid) == [jid, 2, "again", "default", False]
    assert [(retries, id, args) for retries, id, args, _ in celery_app.TRAIL] == [(n, jid, [2]) for n in range(3)]
    assert [kwargs for *_, kwargs in celery_app.TRAIL] == [{}, {"sent": "again"}, {"sent": "again"}]
    lost = put_task(celery_app.retrying, (9,))
    with pytest.raises(TaskFailed, match="OSError: run 3"):
        outcome(lost)
    assert job_of(client, lost).original_retries == 5  # those for lost workers are untouched
    assert outcome(put_task(celery_app.auto)) == 3


def test_a_retry_that_has_expired_shows_its_runs_and_its_last_error(site: None, valkey_url: str) -> None:
    passed = [0.0]
    with in_process_workers(valkey_url) as start:
        worker = start(queues=("default",), clock=lambda: time.time() + passed[0])
        jid = put_task(celery_app.retries_later, expires=500)
        wait_for(lambda: job_of(client, jid).state == "scheduled")
        passed[0] = 601
        worker.resume()
        with pytest.raises(TaskFailed, match=r"(?s) ran once and was not retried: .*OSError: not there\n$"):
            outcome(jid)


def test_handlers_and_signals_of_celery_are_called(running: InProcessWorker) -> None:
    heard: Counter[str] = Counter()

    def receiver(sender: Any = None, signal: Any = None, **kwargs: Any) -> None:
        heard[signal.name] += sender.name == celery_app.watched.name

    connected = (signals.task_prerun, signals.task_postrun, signals.task_success, signals.task_retry)
    for signal in connected:
        signal.connect(receiver)
    try:
        fine, bad = put_task(celery_app.watched, (True,)), put_task(celery_app.watched, (False,))
        assert outcome(fine) == "fine"
        with pytest.raises(TaskFailed, match="OSError: bad"):
            outcome(bad)
    finally:
        for signal in connected:
            signal.disconnect(receiver)
    assert ("success", fine, "fine") in celery_app.TRAIL
    assert [event for event in celery_app.TRAIL if event[1] == bad] == [("retry", bad, "bad"), ("failure", bad, "bad")]
    assert heard == {"task_prerun": 3, "task_postrun": 3, "task_success": 1, "task_retry": 1}


def test_failures_of_celery_tasks_are_failures_of_their_jobs(running: InProcessWorker) -> None:
    with pytest.raises(TaskFailed, match="ValueError: broken on purpose") as caught:
        outcome(put_task(celery_app.fails))
    assert caught.value.group == "default-ValueError"
    assert "in fails" in str(caught.value)
    with pytest.raises(TaskFailed, match="no good"):
        outcome(put_task(celery_app.rejects))
    with pytest.raises(TaskFailed, match="JobTimeout"):
        outcome(put_task(celery_app.slow))
    assert traced_code_runs()
    with pytest.raises(TaskFailed, match="TaskExpired"):
        outcome(put_task(celery_app.add, (1,), expires=datetime(2026, 1, 1, tzinfo=UTC)))


def test_results_that_json_cannot_represent_are_none(running: InProcessWorker) -> None:
    assert outcome(put_task(celery_app.ignores)) is None
    assert outcome(put_task(celery_app.strange)) is None


def test_the_txid_goes_with_the_job(running: InProcessWorker) -> None:
    mine = new_txid()
    with bound(mine):
        jid = put_task(celery_app.txid)
    assert outcome(jid) == mine
    with bound(mine, request_id="web-1.example_7"):
        jid = put_task(celery_app.ids)
    assert outcome(jid) == [mine, "web-1.example_7"]


def test_only_registered_tasks_are_run(running: InProcessWorker) -> None:
    with pytest.raises(NotAllowed):
        find("celery:os.system")
    jid = client.queues["default"].put("celery:os.system", {"args": ["true"], "kwargs": {}})
    with pytest.raises(TaskFailed, match="does not know the task"):
        outcome(jid)
