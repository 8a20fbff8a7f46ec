"""Ends of tasks that were sent to Celery and did not end normally: each end reaches the job of the task."""

from __future__ import annotations

import os
import pickle
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import states
from celery.exceptions import Retry

from resty_django.qless import AsyncResult, Client, TaskFailed
from resty_django.qless import client as site_client
from resty_django.qless.clients.default import default_client
from resty_django.qless.integrations.celery import send, tracking
from resty_django.qless.integrations.celery.tracking import BEGUN, FAR_SECONDS, GRACE_SECONDS, KLASS
from resty_django.redis import StoreDown
from tests.integration.qless.celery import celery_app
from tests.integration.qless.celery.conftest import Cluster
from tests.integration.qless.conftest import LONG, history, job_of
from tests.integration.qless.worker.conftest import wait_for

pytestmark = pytest.mark.slow


def failure(jid: str) -> TaskFailed:
    with pytest.raises(TaskFailed) as caught:
        AsyncResult[Any](jid).get(LONG)
    assert caught.value.jid == jid
    return caught.value


def began(path: Path) -> int:
    """The process that runs the task."""
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"), str(path))
    return int(path.read_text().split()[-1])


@pytest.mark.e2e
def test_ends_that_the_task_itself_does_not_report(cluster: Cluster, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("limit", "child", "terminate")}
    expired = send(celery_app.add, (1,), expires=0.2)
    time.sleep(0.3)  # no worker may have it before
    unknown = send(celery_app.add, (1,), task_id="unknown")
    assert job_of(site_client, unknown).state == "scheduled"
    cluster.celery("one")
    assert AsyncResult[Any](unknown).get(LONG) == 2
    jids = {
        "revoke": send(celery_app.add, (1,), countdown=2),
        "reject": send(celery_app.rejects),
        "limit": send(celery_app.overruns, (str(files["limit"]),)),
    }
    celery_app.app.control.revoke(jids["revoke"])
    groups = {
        "expired": (expired, "celery-TaskRevokedError", "expired"),
        "reject": (jids["reject"], "celery-Reject", "no good"),
        "revoke": (jids["revoke"], "celery-TaskRevokedError", "revoked"),
        "limit": (jids["limit"], "celery-TimeLimitExceeded", "TimeLimitExceeded"),
    }
    for jid, group, text in groups.values():
        error = failure(jid)
        assert error.group == group
        assert text in str(error)
    jids["child"] = send(celery_app.naps, (str(files["child"]),))
    os.kill(began(files["child"]), signal.SIGKILL)
    assert failure(jids["child"]).group == "celery-WorkerLostError"
    jids["terminate"] = send(celery_app.naps, (str(files["terminate"]),))
    began(files["terminate"])
    wait_for(lambda: job_of(site_client, jids["terminate"]).state == "running")
    celery_app.app.control.terminate(jids["terminate"], signal="SIGKILL")
    assert failure(jids["terminate"]).group == "celery-TaskRevokedError"
    assert AsyncResult[Any](send(celery_app.add, (2,))).get(LONG) == 3  # the worker goes on


@pytest.mark.soak
@pytest.mark.e2e
def test_a_whole_worker_of_celery_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody is left to report it: another worker finds the lock that has expired. With `acks_late` the task is run
    again, and so is its job."""
    site_client.config.set("default-heartbeat", 1)
    first = cluster.celery("first")
    late, plain = tmp_path / "late", tmp_path / "plain"
    jids = [send(celery_app.comes_again, (str(late),)), send(celery_app.naps, (str(plain),))]
    began(late)
    began(plain)
    for jid in jids:
        wait_for(lambda jid=jid: site_client.jobs.get(jid).state == "running")
    cluster.kill(first)
    cluster.celery("second")
    assert failure(jids[1]).group == "celery-CeleryLost"
    if cluster.broker.startswith("amqp"):  # Redis delivers it again after its visibility timeout, an hour
        assert AsyncResult[Any](jids[0]).get(LONG) == "rested"


# --- without processes ---


@pytest.fixture
def client(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Client]:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url}}
    celery_app.app.set_current()
    tracking.running_tasks.clear()
    yield default_client()
    site_client.close()


def sent_job(client: Client, jid: str = "task") -> str:
    data = '{"args": [], "kwargs": {}, "options": {}}'
    client.call("put", "w", "default", jid, f"{KLASS}{celery_app.add.name}", data, FAR_SECONDS, "retries", 1_000_000)
    return jid


def in_a_worker(jid: str, what: Callable[..., None], *args: Any) -> None:
    """A receiver of Celery's signals, as it is called for a task that runs."""
    task = celery_app.add

    def call() -> None:
        task.push_request(headers={tracking.HEADER: jid})
        try:
            what(task, jid, *args)
        finally:
            task.pop_request()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(call).result(60)


@pytest.mark.redis
def test_a_task_that_runs_has_the_lock_of_its_job(client: Client) -> None:
    jid = sent_job(client)
    in_a_worker(jid, tracking.on_prerun)
    job = job_of(client, jid)
    assert (job.state, job.worker_name) == ("running", tracking.process_name())
    in_a_worker(jid, tracking.on_postrun, states.RETRY, None)
    assert job_of(client, jid).state == "scheduled"
    in_a_worker(jid, tracking.on_prerun)
    in_a_worker(jid, tracking.on_postrun, states.SUCCESS, 7)
    assert AsyncResult[Any](jid).get(LONG) == 7
    in_a_worker(jid, tracking.on_prerun)  # the message came twice
    in_a_worker(jid, tracking.on_postrun, states.FAILURE, ValueError("late"))
    assert AsyncResult[Any](jid).get(LONG) == 7
    assert client.source.sync().zcard("ql:celery-sent") == 0
    assert not tracking.running_tasks


@pytest.mark.redis
def test_a_retry_reported_late_takes_nothing_from_the_next_run(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery sends the message of the next run before the end of this one is reported."""
    jid = sent_job(client)
    in_a_worker(jid, tracking.on_prerun)
    first = tracking.running_tasks.pop(jid)
    with monkeypatch.context() as other_process:
        other_process.setattr(tracking, "process_name", lambda: "celery-other")
        in_a_worker(jid, tracking.on_prerun)
    second = tracking.running_tasks.pop(jid)
    tracking.running_tasks[jid] = first
    in_a_worker(jid, tracking.on_postrun, states.RETRY, Retry(exc=OSError("not there")))
    job = job_of(client, jid)
    assert (job.state, job.worker_name) == ("running", "celery-other")
    tracking.running_tasks[jid] = second
    with monkeypatch.context() as other_process:
        other_process.setattr(tracking, "process_name", lambda: "celery-other")
        in_a_worker(jid, tracking.on_postrun, states.SUCCESS, 7)
    assert AsyncResult[Any](jid).get(LONG) == 7


@pytest.mark.redis
def test_a_retry_that_has_expired_shows_its_last_error(client: Client) -> None:
    jid = sent_job(client)
    in_a_worker(jid, tracking.on_prerun)
    in_a_worker(jid, tracking.on_postrun, states.RETRY, Retry(exc=OSError("not there")))
    request = SimpleNamespace(id=jid, headers={tracking.HEADER: jid})
    tracking.on_revoked(request, terminated=False, signum=None, expired=True)
    assert re.fullmatch("(?s)The task expired .* error was:\n\nOSError: not there\n.*", str(failure(jid)))


@pytest.mark.redis
@pytest.mark.parametrize("late", [False, True])
def test_the_sweep_fails_jobs_whose_process_is_gone(
    client: Client, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs whose process is gone fail; the sweep leaves other jobs alone, however often it runs."""
    monkeypatch.setattr(celery_app.add, "acks_late", late)
    gone, alive, waiting, expiring = (sent_job(client, name) for name in ("gone", "alive", "waiting", "expiring"))
    in_a_worker(alive, tracking.on_prerun)
    in_a_worker(gone, tracking.on_prerun)
    tracking.running_tasks.pop(gone).lease.close()
    start = client.clock()
    tracking.watch(client, expiring, start + GRACE_SECONDS)
    monkeypatch.setattr(client, "clock", lambda: start + 59)
    assert tracking.fail_abandoned(client) == 1  # the one that has expired
    assert failure(expiring).group == "celery-TaskRevokedError"
    client.call("heartbeat", alive, tracking.process_name())
    monkeypatch.setattr(client, "clock", lambda: start + 80)
    assert tracking.fail_abandoned(client) == 2
    if late:
        assert job_of(client, gone).state == "running"
        monkeypatch.setattr(client, "clock", lambda: start + 80 + 7200)
        client.call("heartbeat", alive, tracking.process_name())
        tracking.fail_abandoned(client)
    assert failure(gone).group == "celery-CeleryLost"
    assert job_of(client, alive).state == "running"
    assert job_of(client, waiting).state == "scheduled"
    assert tracking.fail_abandoned(client) == 0
    # the task is delivered again after all
    in_a_worker(gone, tracking.on_prerun)
    in_a_worker(gone, tracking.on_postrun, states.SUCCESS, 8)
    assert AsyncResult[Any](gone).get(LONG) == 8
    in_a_worker(alive, tracking.on_postrun, states.SUCCESS, 9)


@pytest.mark.redis
def test_the_sweep_is_bounded(client: Client) -> None:
    for number in range(100 + 20):
        tracking.watch(client, f"gone-{number}", 1.0)
    assert [tracking.fail_abandoned(client) for _ in range(3)] == [100, 20, 0]


@pytest.mark.redis
def test_a_task_whose_job_cannot_be_read_does_not_stop_others(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.source.sync().set("ql:j:broken", "of another program")
    jids = [sent_job(client, name) for name in ("one", "two")]
    for jid in ("broken", *jids):
        tracking.watch(client, jid, 1.0)
    tracking.fail_abandoned(client)
    assert failure(jids[0]).group == "celery-TaskRevokedError"
    sweep = tracking.Sweep()
    third = sent_job(client, "three")
    sweep.start()
    try:
        for jid in ("broken", third):
            sweep.report(jid, "celery-group", "message")
        assert failure(third).group == "celery-group"
        wait_for(lambda: not sweep.failures)
    finally:
        sweep.stop()
    assert "task broken cannot be examined: StoreError" in caplog.text
    assert "the end of task broken cannot be reported: StoreError" in caplog.text


@pytest.mark.redis
def test_a_worker_does_not_send_a_lost_task_a_second_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[str] = []
    monkeypatch.setattr(tracking, "_publish", lambda client, task, jid, *args: published.append(jid))
    performer = tracking.CelerySend(celery_app.add)
    jid = sent_job(client, "task")
    in_a_worker(jid, tracking.on_prerun)
    tracking.running_tasks.pop(jid).lease.close()
    with pytest.raises(tracking.CeleryLost) as lost:
        performer.perform(client.jobs.get(jid))  # type: ignore[arg-type]
    assert str(pickle.loads(pickle.dumps(lost.value))) == str(lost.value)  # noqa: S301 (from this process)
    assert not published
    # a person lets it run again
    job_of(client, jid).move("default")
    for _ in range(2):
        with pytest.raises(tracking.RetryLater):
            performer.perform(client.jobs.get(jid))  # type: ignore[arg-type]
    assert published == [jid]


@pytest.mark.redis
def test_signals_of_other_tasks_are_ignored(client: Client) -> None:
    jid = client.queues["q"].put("somebody.else", jid="plain")
    tracking.on_failure(celery_app.add, jid, type("WorkerLostError", (Exception,), {})("gone"))
    tracking.on_revoked(SimpleNamespace(id=jid, headers=None), False, None, False)
    tracking.on_rejected(SimpleNamespace(headers={}))
    assert job_of(client, jid).state == "waiting"
    sent = sent_job(client)
    tracking.on_failure(celery_app.add, sent, ValueError("its own process reports that"))
    assert job_of(client, sent).state == "scheduled"
    tracking.on_rejected(SimpleNamespace(headers={tracking.HEADER: sent}), KeyError("x"), "no.such.task")
    assert failure(sent).group == "celery-NotRegistered"


@pytest.mark.redis
def test_ends_are_reported_when_the_server_of_the_jobs_is_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's loop does not wait for it, and a task that ends reports again."""
    jid, second = sent_job(client, "first"), sent_job(client, "second")
    downs = {"get": 2}
    call = type(client).call

    def faulty(self: Client, command: str, *args: Any) -> Any:
        if downs.get(command, 0):
            downs[command] -= 1
            raise StoreDown("down")
        return call(self, command, *args)

    monkeypatch.setattr(type(client), "call", faulty)
    sweep = tracking.Sweep()
    sweep.start()
    try:
        sweep.report(jid, "celery-group", "message")
        assert failure(jid).group == "celery-group"
    finally:
        sweep.stop()
    downs["get"] = 2
    in_a_worker(second, tracking.on_postrun, states.SUCCESS, 1)
    assert AsyncResult[Any](second).get(LONG) == 1
    assert BEGUN not in history(client, second)


@pytest.mark.redis
@pytest.mark.parametrize("state", [None, states.RETRY, states.FAILURE])
def test_a_stopped_process_does_not_change_the_reported_end(client: Client, state: str | None) -> None:
    """The main process has reported the end before the interrupted task reports its own."""
    jid = sent_job(client)
    in_a_worker(jid, tracking.on_prerun)
    tracking.on_failure(celery_app.add, "other", type("TimeLimitExceeded", (Exception,), {})(1))
    held = tracking.running_tasks.pop(jid)
    tracking.on_failure(celery_app.add, jid, type("TimeLimitExceeded", (Exception,), {})(1))
    tracking.running_tasks[jid] = held
    in_a_worker(jid, tracking.on_postrun, state, ValueError("late"))
    assert failure(jid).group == "celery-TimeLimitExceeded"


@pytest.mark.redis
def test_a_stopped_process_leaves_its_job_to_the_sweep(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery may send no signal when a hard time limit is over."""
    jid = sent_job(client)
    in_a_worker(jid, tracking.on_prerun)
    in_a_worker(jid, tracking.on_postrun, None, None)
    start = client.clock()
    monkeypatch.setattr(client, "clock", lambda: start + 80)
    assert tracking.fail_abandoned(client) == 1
    assert failure(jid).group == "celery-CeleryLost"
