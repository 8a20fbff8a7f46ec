"""The backend of Django's tasks, as their documentation says, on whichever Django there is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any

import django
import pytest
from django.db import transaction
from django.utils import timezone

from resty_django.qless import Client, client
from resty_django.qless.worker.handlers import resolve_handler
from resty_django.txid import bound, txid
from tests.integration.qless.conftest import change_settings, job_of
from tests.integration.qless.worker.conftest import (
    StartInProcess,
    in_process_workers,
    short_locks,
    wait_for,
)

if django.VERSION < (6, 0):
    pytest.importorskip("django_tasks")

from resty_django.qless.integrations.django_tasks import compat

pytestmark = pytest.mark.redis

BACKEND = "resty_django.qless.integrations.django_tasks.QlessBackend"
MODULE = "tests.integration.qless.tasks.django_examples"
Status = compat.TaskResultStatus


@pytest.fixture(autouse=True)
def examples(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Any]:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "MODULES": [MODULE]}}
    settings.TASKS = {
        "default": {"BACKEND": BACKEND, "QUEUES": ["q", "p"]},
        "again": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"RETRIES": 2, "BACKOFF": 0.02}},
    }
    resolve_handler.cache_clear()
    module = import_module(MODULE)
    module.FAILURES.clear()
    yield module
    client.close()


@pytest.fixture
def start_worker(examples: Any, valkey_url: str) -> Iterator[StartInProcess]:
    with in_process_workers(valkey_url) as start:
        yield start


def finished(result: Any) -> Any:
    def check() -> bool:
        result.refresh()
        return bool(result.is_finished)

    wait_for(check)
    return result


@contextmanager
def events_heard(*names: str) -> Iterator[list[tuple[str, str, str]]]:
    """Connect to these signals; collects their names, and the id and status of their task."""
    events: list[tuple[str, str, str]] = []
    with ExitStack() as stack:
        for name in names:

            def receiver(sender: Any, task_result: Any, name: str = name, **kwargs: Any) -> None:
                assert sender.__name__ == "QlessBackend"
                events.append((name, task_result.id, str(task_result.status)))

            signal = getattr(compat.signals, name)
            signal.connect(receiver, weak=False)
            stack.callback(signal.disconnect, receiver)
        yield events


def test_the_backend_has_all_capabilities() -> None:
    backend = compat.task_backends["default"]
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert list(backend.check()) == []


@pytest.mark.parametrize("name", ["add", "aadd"])
async def test_enqueue_and_result(examples: Any, start_worker: StartInProcess, name: str) -> None:
    task = getattr(examples, name)
    before = timezone.now()
    result = await task.aenqueue(1, b=2)
    assert (result.status, result.args, result.kwargs, result.backend) == (Status.READY, [1], {"b": 2}, "default")
    assert result.task == task
    assert before <= result.enqueued_at <= timezone.now()
    assert (result.started_at, result.finished_at, result.last_attempted_at, result.attempts) == (None, None, None, 0)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    stored = await task.aget_result(result.id)
    assert (stored.id, stored.status, stored.enqueued_at) == (result.id, Status.READY, result.enqueued_at)
    worker = start_worker()
    end = time.monotonic() + 40
    while not result.is_finished:
        assert time.monotonic() < end
        await result.arefresh()
    assert (result.status, result.return_value, result.errors, result.attempts) == (Status.SUCCESSFUL, 3, [], 1)
    assert result.worker_ids == [worker.client.worker_name]
    assert before <= result.started_at <= result.finished_at <= timezone.now()
    assert result.last_attempted_at == result.started_at


def test_enqueue_of_sync_code(examples: Any, start_worker: StartInProcess) -> None:
    assert examples.add.call(1, 2) == 3  # the function, as before
    result = examples.add.enqueue(4)
    second = examples.add.using(queue_name="p").enqueue(1)
    start_worker(queues=("q", "p"))
    assert finished(result).return_value == 5
    assert finished(second).return_value == 2
    assert examples.add.get_result(result.id).return_value == 5


def test_a_task_may_be_deferred_and_have_a_priority(examples: Any) -> None:
    at = timezone.now() + timedelta(seconds=600)
    result = examples.add.using(run_after=at, priority=7).enqueue(1)
    job = job_of(client, result.id)
    assert (job.state, job.priority, job.klass) == ("scheduled", 7, f"{MODULE}.add")
    assert 599 < client.queues["q"].due() - client.clock() <= 600  # type: ignore[operator]
    stored = examples.add.get_result(result.id)
    assert (stored.status, stored.task.priority, stored.task.queue_name) == (Status.READY, 7, "q")
    assert abs(stored.task.run_after - at) < timedelta(milliseconds=1)


def test_a_task_gets_its_context(examples: Any, start_worker: StartInProcess) -> None:
    result, async_result = examples.attempt.enqueue("x"), examples.aattempt.enqueue()
    name = start_worker().client.worker_name
    assert finished(result).return_value == ["x", 1, result.id, "RUNNING", [name], 1]
    assert finished(async_result).return_value == 1


def test_a_failed_task_has_its_error(examples: Any, start_worker: StartInProcess) -> None:
    result = examples.fails.enqueue()
    start_worker()
    finished(result)
    assert (result.status, result.attempts) == (Status.FAILED, 1)
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert "this is wrong" in error.traceback
    assert "in fails" in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    assert result.finished_at >= result.started_at


def test_arguments_and_results_must_be_json(examples: Any, start_worker: StartInProcess) -> None:
    with pytest.raises(TypeError):
        examples.add.enqueue(object())
    result = examples.no_json.enqueue()
    start_worker()
    assert finished(result).status == Status.FAILED
    assert result.errors[0].exception_class is TypeError


@pytest.mark.parametrize("name", ["third_time", "athird_time"])
def test_a_failed_task_is_retried(examples: Any, start_worker: StartInProcess, name: str) -> None:
    task = getattr(examples, name)
    fine, lost = task.enqueue(3), task.enqueue(9)
    start_worker()
    assert finished(fine).return_value == 3
    assert finished(lost).status == Status.FAILED
    assert fine.attempts == lost.attempts == 3
    assert [error.traceback.splitlines()[-1] for error in fine.errors] == ["OSError: run 1", "OSError: run 2"]
    assert len(lost.errors) == 3
    assert fine.last_attempted_at > fine.started_at


@pytest.mark.parametrize(("options", "runs"), [({}, 6), ({"RETRIES": 0}, 1), ({"RETRIES": 2}, 3)])
def test_a_task_whose_workers_died(examples: Any, settings: Any, valkey_url: str, options: Any, runs: int) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["q"], "OPTIONS": options}}
    short_locks(client, 1, 0)
    result = examples.add.enqueue(1)
    now = [client.clock()]
    dying = Client(valkey_url, clock=lambda: now[0])
    for _ in range(7):  # each pop finds the lock of the one before expired
        dying.queues["q"].pop()
        now[0] += 10
    dying.close()
    stored = examples.add.get_result(result.id)
    assert (stored.status, stored.attempts) == (Status.FAILED, runs)
    assert stored.errors[0].exception_class_path.endswith("LostLock")
    assert "exhausted" in stored.errors[0].traceback
    assert stored.finished_at is not None


def test_missing_and_mismatched_results_are_refused(examples: Any, start_worker: StartInProcess, valkey: Any) -> None:
    Gone = compat.TaskResultDoesNotExist
    client.queues["q"].put("some.Klass", {}, jid="other")
    result = examples.add.enqueue(1)
    for owner, jid in ((examples.add, "nothing"), (examples.add, "other"), (compat.task_backends["again"], result.id)):
        with pytest.raises(Gone):
            owner.get_result(jid)
    exceptions = import_module(compat.TaskResultDoesNotExist.__module__)
    with pytest.raises(exceptions.TaskResultMismatch):
        examples.fails.get_result(result.id)
    job_of(client, "other").cancel()
    start_worker()
    finished(result)
    valkey.delete(f"ql:x:{result.id}")
    with pytest.raises(Gone):
        examples.add.get_result(result.id)


def test_tasks_that_are_refused(examples: Any, settings: Any) -> None:
    Invalid = compat.InvalidTask
    with pytest.raises(Invalid, match="not valid for backend"):
        examples.add.using(queue_name="nowhere")
    with pytest.raises(Invalid, match="whole number"):
        examples.add.using(priority=101)
    for run_after in ("2026-01-01", 1.8e9):
        with pytest.raises(TypeError, match="run_after="):
            examples.add.using(run_after=run_after)
    with pytest.raises(Invalid, match="aware"):
        examples.add.using(run_after=timezone.now().replace(tzinfo=None))
    change_settings(settings, MODULES=[])
    with pytest.raises(Invalid, match="MODULES"):
        examples.add.enqueue(1)


def test_awaitables_are_awaited_and_generators_are_refused(examples: Any, start_worker: StartInProcess) -> None:
    start_worker()
    assert finished(examples.awrapped.enqueue()).return_value == "awaited"
    (error,) = finished(examples.rows.enqueue()).errors
    assert error.exception_class_path == "builtins.TypeError"
    assert "whose code has not run" in error.traceback
    with pytest.raises(compat.InvalidTask, match="is a generator function"):
        examples.task(queue_name="q")(examples.rows.func.__wrapped__)


def test_signals_are_sent_for_each_change_of_state(examples: Any, start_worker: StartInProcess) -> None:
    with events_heard("task_enqueued", "task_started", "task_finished") as events:
        result, failing, retried = examples.add.enqueue(1), examples.fails.enqueue(), examples.third_time.enqueue(2)
        start_worker()
        for task_result in (result, failing, retried):
            finished(task_result)

    def of(task_result: Any) -> list[tuple[str, str]]:
        return [(name, status) for name, id, status in events if id == task_result.id]

    began = [("task_enqueued", "READY"), ("task_started", "RUNNING")]
    assert of(result) == [*began, ("task_finished", "SUCCESSFUL")]
    assert of(failing) == [*began, ("task_finished", "FAILED")]
    assert of(retried) == [*began, ("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")]


@pytest.mark.parametrize("name", ["waits", "awaits"])
def test_a_task_whose_worker_stops_returns_to_its_queue(examples: Any, start_worker: StartInProcess, name: str) -> None:
    with events_heard("task_started", "task_finished") as events:
        result = getattr(examples, name).enqueue()
        worker = start_worker(interrupt=True)
        wait_for(lambda: events)
        worker.stop(0)
    result.refresh()
    assert (result.status, result.errors) == (Status.READY, [])
    assert [event for event, _, _ in events] == ["task_started"]


@pytest.mark.parametrize("failing", ["task_started", "task_finished"])
def test_a_receiver_of_a_signal_that_raises_fails_the_task(
    examples: Any, start_worker: StartInProcess, failing: str
) -> None:
    calls: list[str] = []

    def receiver(task_result: Any, **kwargs: Any) -> None:
        calls.append(str(task_result.status))
        raise LookupError("the receiver")

    signal = getattr(compat.signals, failing)
    signal.connect(receiver)
    result = examples.third_time.enqueue(1)
    start_worker()
    finished(result)
    signal.disconnect(receiver)
    assert result.status == Status.FAILED
    # an error before the run is retried like one of the task; after its end, the task does not run again
    assert (len(calls), len(examples.FAILURES)) == ((3, 0) if failing == "task_started" else (1, 1))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("option", "queues", "waits"),
    [(None, [], False), (True, [], True), (None, ["q"], True), (None, ["*"], True), (False, ["*"], False)],
)
def test_enqueue_waits_for_the_commit(examples: Any, settings: Any, option: Any, queues: Any, waits: bool) -> None:
    change_settings(settings, ON_COMMIT=queues)
    options = {} if option is None else {"ON_COMMIT": option}
    settings.TASKS = {"default": {**settings.TASKS["default"], "OPTIONS": options}}
    with events_heard("task_enqueued") as events:
        with transaction.atomic():
            examples.add.enqueue(1)
            transaction.set_rollback(True)
        assert (client.queues["q"].length(), len(events)) == ((0, 0) if waits else (1, 1))
        with transaction.atomic():
            result = examples.add.enqueue(2)
            assert (client.jobs.get(result.id) is None) is waits
        assert events[-1][1] == result.id
        assert client.jobs.get(result.id) is not None


def test_on_commit_must_be_true_or_false(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"ON_COMMIT": "yes"}}}
    (error,) = compat.task_backends["default"].check()
    assert error.id == "resty_qless.E005"
    assert error.msg == "TASKS['default'] ON_COMMIT must be True or False, not 'yes'."


def test_the_txid_goes_with_it(examples: Any, start_worker: StartInProcess) -> None:
    mine = txid()
    with bound(mine):
        result = examples.txid.enqueue()
    start_worker()
    assert finished(result).return_value == mine


@pytest.mark.parametrize("options", [{"RETRIES": -1}, {"RETRIES": "3"}, {"RETRIES": 1.5}, {"BACKOFF": float("nan")}])
def test_options_out_of_range_are_refused(examples: Any, settings: Any, options: dict[str, Any]) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["q"], "OPTIONS": options}}
    with pytest.raises((TypeError, ValueError), match=r"^TASKS\['default'\] OPTIONS: (retries|backoff)= must be a"):
        examples.add.enqueue(1)


def test_system_checks_find_wrong_options(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"RETRY": 1}}}
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "resty_django.qless"]
    backend = compat.task_backends["default"]
    assert [message.id for message in backend.check()] == ["resty_qless.E004", "resty_qless.E005"]
