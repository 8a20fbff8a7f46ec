"""Options of jobs on Django's tasks: on Django 6.1 and with django-tasks in `@task`, on Django 6.0 added afterwards."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import django
import pytest
from django.db import transaction
from django.utils import timezone

from resty_django.qless import TaskExpired, client
from resty_django.qless.clients.serialization import encode
from resty_django.qless.errors import InvalidArgument, LostLock
from resty_django.qless.middleware.job import WorkerJob
from resty_django.qless.outcomes import JobTimeout, ProcessDied
from resty_django.qless.testing import TestWorker
from resty_django.qless.worker.handlers import handler_of, resolve_handler
from tests.integration.qless.conftest import job_of

if django.VERSION < (6, 0):
    pytest.importorskip("django_tasks")

from resty_django.qless.integrations.django_tasks import QlessBackend, QlessTask, compat
from resty_django.qless.testing.django_tasks import DummyBackend, ImmediateBackend

pytest_plugins = ["resty_django.qless.testing.pytest_plugin"]

BACKEND = "resty_django.qless.integrations.django_tasks.QlessBackend"
TESTING = "resty_django.qless.testing.django_tasks"
OF_DJANGO = compat.DummyBackend.__module__.rpartition(".")[0]
MODULE = "tests.integration.qless.tasks.django_options"
Status = compat.TaskResultStatus
has_options = pytest.mark.skipif(
    (6, 0) <= django.VERSION < (6, 1), reason="Django 6.0 has no options of backends in @task"
)


def backends(settings: Any, **backends: dict[str, Any]) -> None:
    settings.TASKS = {name: {"QUEUES": ["q"], **params} for name, params in backends.items()}
    resolve_handler.cache_clear()


@pytest.fixture(autouse=True)
def examples(settings: Any) -> Iterator[Any]:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"MODULES": [MODULE]}}
    backends(
        settings,
        default={"BACKEND": BACKEND},
        other={"BACKEND": BACKEND, "OPTIONS": {"RETRIES": 3, "BACKOFF": 5}},
        foreign={"BACKEND": f"{OF_DJANGO}.dummy.DummyBackend"},
    )
    module = import_module(MODULE)
    module.FAILURES.clear()
    module.OUTCOMES.clear()
    yield module
    client.close()


@pytest.fixture
def worker(examples: Any, qless_worker: TestWorker) -> TestWorker:
    return qless_worker


def outcomes(worker: TestWorker, seconds: float = 0.0) -> list[str]:
    return [run.outcome for run in worker.drain(seconds=seconds)]


def refreshed(result: Any) -> Any:
    result.refresh()
    return result


# --- the class of tasks ---


@has_options
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"retires": 3}, TypeError, "'retires'"),
        ({"retries": "3"}, TypeError, r"\.plain: retries= must be a whole number"),
        ({"retries": -1}, InvalidArgument, r"\.plain: retries= must be"),
        ({"backoff": "1"}, TypeError, r"\.plain: backoff= must be"),
        ({"backoff": []}, ValueError, r"\.plain: backoff= is an empty list"),
        ({"timeout": 0}, InvalidArgument, r"\.plain: timeout= must be"),
        ({"unique": "order"}, TypeError, r"\.plain: unique= must be a list"),
        ({"unique": ["order"]}, TypeError, r"\.plain: unique= names 'order', which is not an argument"),
        ({"rate": []}, TypeError, r"\.plain: rate= must be a rate"),
        ({"tags": "mail"}, TypeError, r"\.plain: tags= must be a list of texts"),
        ({"expires": "soon"}, TypeError, r"\.plain: expires= must be"),
        ({"expires": -1}, InvalidArgument, r"\.plain: expires= must be"),
        ({"on_success": "ended"}, TypeError, "on_success= takes tasks and signatures"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(examples: Any, options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        examples.task(queue_name="q", **options)(examples.plain.func)


@has_options
def test_callbacks_cannot_be_tasks_of_django(examples: Any) -> None:
    with pytest.raises(TypeError, match="on_failure= takes tasks and signatures"):
        examples.task(queue_name="q", on_failure=examples.plain)(examples.plain.func)


@pytest.mark.skipif(not (6, 0) <= django.VERSION < (6, 1), reason="only Django 6.0 refuses options itself")
def test_django_without_options_refuses_them(examples: Any) -> None:
    with pytest.raises(TypeError, match="'retries'"):
        examples.task(retries=3)


def test_other_backends_refuse_the_options_and_accept_plain_tasks(examples: Any) -> None:
    for change in (lambda task: replace(task, backend="foreign"), lambda task: task.using(backend="foreign")):
        with pytest.raises(compat.InvalidTask, match=r"\.flaky: the backend 'foreign' does not support retries="):
            change(examples.flaky)
        assert change(examples.plain).enqueue().status == Status.READY


def test_plain_tasks_of_other_backends_are_accepted(examples: Any, worker: TestWorker) -> None:
    foreign = compat.Task(
        func=examples.plain.func, priority=3, backend="foreign", queue_name="q", run_after=None, takes_context=False
    )
    result = foreign.using(backend="default").enqueue()
    assert type(result.task) is compat.Task
    assert job_of(client, result.id).priority == 3
    worker.drain()
    assert refreshed(result).return_value == "sent"


def test_copies_of_a_task_keep_its_options(examples: Any) -> None:
    flaky = examples.flaky
    for task in (flaky.using(priority=5), flaky.using(backend="other"), replace(flaky, priority=5)):
        assert (task.retries, task.backoff, task.queue_name) == (2, [10, 100], "q")
    for task in (flaky, examples.by_order, examples.short_lived, examples.followed):
        assert copy.deepcopy(task) == task
        assert hash(copy.copy(task)) == hash(task)
    assert copy.deepcopy(examples.followed).on_success is examples.ended


@pytest.mark.skipif(django.VERSION < (6, 1), reason="before Django 6.1, tasks cannot be pickled")
@pytest.mark.parametrize("name", ["plain", "flaky", "by_order", "short_lived", "followed"])
def test_a_pickled_task_keeps_its_options(examples: Any, name: str) -> None:
    task = getattr(examples, name).using(priority=7)
    assert pickle.loads(pickle.dumps(task)) == task  # noqa: S301
    assert pickle.loads(pickle.dumps(examples.ended)) is examples.ended  # noqa: S301


def test_using_takes_the_options_that_are_sent_with_the_job(examples: Any) -> None:
    task = examples.plain.using(retries=1, tags=["x"], expires=5, queue_name="q", priority=None)
    assert (task.retries, task.tags, task.expires, task.priority) == (1, ["x"], 5, 0)
    assert task.using(run_after=None).retries == 1
    with pytest.raises(TypeError, match=r"using\(\) has no option 'timeout'"):
        examples.plain.using(timeout=5)
    with pytest.raises(TypeError, match="retries="):
        examples.plain.using(retries="1")


def test_a_subclass_may_call_super(examples: Any, settings: Any) -> None:
    class Strict(QlessTask):
        def __post_init__(self) -> None:
            super().__post_init__()
            assert self.get_backend().alias == self.backend

    fields = {name: getattr(examples.flaky, name) for name in ("func", "priority", "queue_name", "run_after")}
    task = Strict(**fields, backend="other", takes_context=False, retries=1)
    assert task.using(retries=4).retries == 4
    assert type(task.using(priority=1)) is Strict


# --- retries ---


@pytest.mark.parametrize("name", ["flaky", "aflaky"])
def test_retries_and_backoff_of_a_task(examples: Any, worker: TestWorker, name: str) -> None:
    examples.FAILURES.extend(["one", "two"])
    result = getattr(examples, name).enqueue()
    job = job_of(client, result.id)
    assert (job.original_retries, job.data["retried"]) == (2, True)
    assert outcomes(worker, 9.9) == ["retried"]
    assert (refreshed(result).status, result.attempts) == (Status.READY, 1)
    assert outcomes(worker, 0.2) == ["retried"]
    assert outcomes(worker, 99.8) == []
    assert outcomes(worker, 0.3) == ["completed"]
    assert (refreshed(result).return_value, result.attempts) == ("sent", 3)
    assert [error.exception_class for error in result.errors] == [OSError, OSError]
    assert result.task.backoff == [10, 100]


@pytest.mark.parametrize("name", ["flaky", "aflaky"])
def test_a_task_without_retries_left_fails(examples: Any, worker: TestWorker, name: str) -> None:
    examples.FAILURES.extend(["x"] * 5)
    result = getattr(examples, name).using(retries=1).enqueue()
    assert outcomes(worker, 1000) == ["retried", "failed"]
    assert (refreshed(result).status, result.attempts, len(result.errors)) == (Status.FAILED, 2, 2)
    assert result.finished_at is not None


@pytest.mark.parametrize(
    ("name", "backend", "retries", "is_retried"),
    [
        ("plain", "default", 5, False),
        ("plain", "other", 3, True),
        ("final", "other", 0, True),
        ("flaky", "other", 2, True),
        ("delayed", "default", 5, True),
    ],
)
def test_the_job_contains_its_retries(
    examples: Any, worker: TestWorker, name: str, backend: str, retries: int, is_retried: bool
) -> None:
    job = job_of(client, getattr(examples, name).using(backend=backend).enqueue().id)
    assert (job.original_retries, job.data["retried"]) == (retries, is_retried)
    examples.FAILURES.append("x")
    assert outcomes(worker) == ["retried" if is_retried and retries else "failed"]


def test_a_job_is_retried_by_the_settings_under_which_it_was_enqueued(
    examples: Any, worker: TestWorker, settings: Any
) -> None:
    retried, final = examples.plain.using(backend="other"), examples.plain
    results = [retried.enqueue(), final.enqueue()]
    examples.FAILURES.extend(["x", "x"])
    backends(settings, default={"BACKEND": BACKEND, "OPTIONS": {"RETRIES": 4}}, other={"BACKEND": BACKEND})
    assert sorted(outcomes(worker, 2)) == ["completed", "failed", "retried"]
    assert [refreshed(result).status for result in results] == [Status.SUCCESSFUL, Status.FAILED]


@pytest.mark.parametrize("other", [None, f"{OF_DJANGO}.dummy.DummyBackend"])
def test_a_job_of_a_backend_that_is_gone_runs_and_is_retried(
    examples: Any, worker: TestWorker, settings: Any, other: str | None
) -> None:
    senders: list[object] = []

    def receiver(sender: object, **kwargs: Any) -> None:
        senders.append(sender)

    compat.signals.task_started.connect(receiver)
    jids = [examples.plain.using(backend="other").enqueue().id, examples.flaky.using(backend="other").enqueue().id]
    examples.FAILURES.extend(["x", "x"])
    backends(settings, default={"BACKEND": BACKEND}, **({} if other is None else {"other": {"BACKEND": other}}))
    assert outcomes(worker, 2) == ["retried", "retried", "completed"]  # after a second, and after the task's 10
    assert outcomes(worker, 10) == ["completed"]
    assert [client.jobs.result(jid).result for jid in jids] == [{"value": "sent"}] * 2  # type: ignore[union-attr]
    assert senders == [QlessBackend] * 4


@pytest.mark.parametrize(("backend", "outcome"), [("default", "failed"), ("other", "retried")])
def test_a_job_of_an_earlier_release_is_retried_by_the_settings(
    examples: Any, worker: TestWorker, backend: str, outcome: str
) -> None:
    data = {"args": [], "kwargs": {}, "backend": backend, "enqueued": worker.clock()}
    client.queues["q"].put(f"{MODULE}.plain", data, retries=3)
    examples.FAILURES.append("x")
    assert outcomes(worker) == [outcome]


def test_a_task_that_chooses_its_end_has_no_error(examples: Any, worker: TestWorker) -> None:
    ends: list[str] = []

    def receiver(task_result: Any, **kwargs: Any) -> None:
        ends.append(str(task_result.status))

    compat.signals.task_finished.connect(receiver)
    examples.FAILURES.append("x")
    result = examples.again_later.enqueue()
    assert outcomes(worker, 10) == ["retried", "completed"]
    assert (refreshed(result).errors, result.return_value, ends) == ([], "sent", ["SUCCESSFUL"])


@pytest.mark.parametrize("seconds", [0, 5])
@pytest.mark.parametrize("name", ["final", "once"])
def test_an_operator_may_retry_a_failed_task(examples: Any, worker: TestWorker, name: str, seconds: float) -> None:
    examples.FAILURES.extend(["x", "x"])
    result = getattr(examples, name).enqueue()
    for attempts in (1, 2):
        worker.advance(seconds)
        assert outcomes(worker) == ["failed"]
        job_of(client, result.id).requeue("q")
        assert (refreshed(result).attempts, len(result.errors)) == (attempts, attempts)
    assert outcomes(worker) == ["completed"]
    assert (refreshed(result).status, result.attempts) == (Status.SUCCESSFUL, 3)


def test_a_retried_task_whose_worker_dies_has_its_own_end(examples: Any, worker: TestWorker) -> None:
    examples.FAILURES.append("x")
    result = examples.final.enqueue()
    assert outcomes(worker) == ["failed"]
    earlier = refreshed(result).finished_at
    worker.advance(5)
    job_of(client, result.id).requeue("q")
    for _ in range(3):  # later pops find that the lock has expired, and then that no retry is left
        client.queues["q"].pop()
        worker.advance(3600)
    assert (refreshed(result).status, result.attempts) == (Status.FAILED, 2)
    assert result.finished_at > earlier + timedelta(seconds=3600)
    assert [error.exception_class for error in result.errors] == [OSError, LostLock]


def test_a_worker_decides_on_retries_after_the_process_of_a_job_has_died(examples: Any, worker: TestWorker) -> None:
    decide = next(
        around.decide_retry  # type: ignore[attr-defined]
        for around in handler_of(f"{MODULE}.flaky", "q").middleware
        if hasattr(around, "decide_retry")
    )
    data = {"args": [], "kwargs": {}, "backend": "default", "retried": True}
    job = WorkerJob.build(client, f"{MODULE}.flaky", data=data, retries=2, remaining=2)
    for error in (JobTimeout(1), ProcessDied("killed")):
        assert decide(job, error).delay == 10
    job.data["retried"] = False
    assert decide(job, JobTimeout(1)) is None


# --- other options ---


@pytest.mark.parametrize("name", ["slow", "aslow"])
def test_a_task_that_takes_too_long_is_interrupted_and_retried(examples: Any, worker: TestWorker, name: str) -> None:
    result = getattr(examples, name).enqueue()
    assert outcomes(worker, 2) == ["retried", "failed"]
    assert refreshed(result).status == Status.FAILED
    assert [error.exception_class for error in result.errors] == [JobTimeout, JobTimeout]


def test_a_task_whose_process_was_killed_after_its_timeout_has_this_error(examples: Any, worker: TestWorker) -> None:
    result = examples.slow.enqueue()
    job = client.queues["q"].pop()
    assert job is not None
    job.fail("q-JobTimeout", "The job took longer than 0.2 s.")  # type: ignore[union-attr]
    (error,) = refreshed(result).errors
    assert (error.exception_class, error.traceback) == (JobTimeout, "The job took longer than 0.2 s.")


def test_a_unique_task_is_enqueued_once(examples: Any, worker: TestWorker) -> None:
    result = examples.invoice.enqueue(7)
    worker.advance(5)
    for same in (examples.invoice.enqueue(order=7), examples.invoice.enqueue(7, copies=1)):
        assert (same.id, same.status) == (result.id, Status.READY)
        assert same.enqueued_at > result.enqueued_at
        assert refreshed(same).enqueued_at == result.enqueued_at
    assert examples.invoice.enqueue(7, copies=2).id != result.id
    assert examples.invoice.using(backend="other").enqueue(7).id != result.id
    assert client.queues["q"].length() == 3
    with pytest.raises(TypeError, match=r"\.invoice\(.*invalid arguments"):
        examples.invoice.enqueue()
    with pytest.raises(TypeError):
        examples.invoice.enqueue(object())
    assert examples.invoice.get_result(result.id).task.unique is True


async def test_a_unique_task_is_enqueued_once_by_async_code(examples: Any, worker: TestWorker) -> None:
    first, second = await examples.invoice.aenqueue(7), await examples.invoice.aenqueue(7)
    assert first.id == second.id
    await worker.adrain()
    await second.arefresh()
    assert second.return_value == "1 x 7"


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("seconds", [0, 5])
def test_a_unique_task_that_has_ended_is_enqueued_again(
    examples: Any, worker: TestWorker, fails: bool, seconds: float
) -> None:
    examples.FAILURES.extend(["x"] * fails)
    first = examples.invoice.enqueue(7)
    worker.drain()
    worker.advance(seconds)
    second = examples.invoice.enqueue(7)
    assert second.id == first.id
    assert (refreshed(second).status, second.attempts, second.started_at, second.errors) == (Status.READY, 0, None, [])
    worker.drain()
    assert (refreshed(second).status, second.attempts) == (Status.SUCCESSFUL, 1)


@pytest.mark.django_db(transaction=True)
def test_a_unique_task_that_ends_before_the_commit_of_the_next_is_not_mistaken_for_it(
    examples: Any, worker: TestWorker, settings: Any
) -> None:
    backends(settings, default={"BACKEND": BACKEND, "OPTIONS": {"ON_COMMIT": True}})
    first = examples.invoice.enqueue(7)
    worker.advance(5)
    with transaction.atomic():
        second = examples.invoice.enqueue(7)
        worker.advance(5)
        assert outcomes(worker) == ["completed"]
        worker.advance(5)
    assert second.id == first.id
    assert (refreshed(second).status, second.attempts, second.started_at) == (Status.READY, 0, None)


def test_a_unique_task_may_compare_some_arguments(examples: Any, worker: TestWorker) -> None:
    assert examples.by_order.enqueue(7, 1).id == examples.by_order.enqueue(7, 2).id
    assert examples.by_order.enqueue(8).id != examples.by_order.enqueue(7).id


def test_runs_that_the_rate_limit_refused_are_not_attempts(examples: Any, worker: TestWorker) -> None:
    results = [examples.limited.enqueue(), examples.limited.enqueue()]
    assert sorted(outcomes(worker)) == ["completed", "retried"]
    waiting = next(result for result in results if refreshed(result).status == Status.READY)
    assert (waiting.attempts, waiting.started_at) == (0, None)


def test_tags_of_a_task(examples: Any, worker: TestWorker) -> None:
    assert job_of(client, examples.short_lived.enqueue(1).id).tags == ["mail", "slow"]
    assert job_of(client, examples.short_lived.using(tags=["x"]).enqueue(1).id).tags == ["x"]


def test_a_task_that_starts_too_late_fails(examples: Any, worker: TestWorker) -> None:
    at = timezone.now() + timedelta(seconds=3600)
    late, kept = examples.short_lived.enqueue(1), examples.short_lived.using(expires=at).enqueue(2)
    worker.advance(61)
    assert sorted(outcomes(worker)) == ["completed", "failed"]
    assert (refreshed(late).status, refreshed(kept).return_value) == (Status.FAILED, 2)
    (error,) = late.errors
    assert error.exception_class is TaskExpired
    assert "did not run: it expired before a worker was free" in error.traceback


def test_a_retry_that_is_due_too_late_fails(examples: Any, worker: TestWorker) -> None:
    examples.FAILURES.append("the server is down")
    result = examples.flaky.using(expires=5).enqueue()
    assert outcomes(worker, 20) == ["retried", "failed"]
    assert [error.exception_class for error in refreshed(result).errors] == [OSError, TaskExpired]


def test_callbacks_get_the_outcome_of_a_task(examples: Any, worker: TestWorker) -> None:
    for number in (2, 0):
        examples.followed.enqueue(number)
    worker.drain()
    states = [outcome if isinstance(outcome, str) else (outcome.state, outcome.result) for outcome in examples.OUTCOMES]
    assert sorted(map(str, states)) == ["('complete', 0.5)", "('failed', None)", "the end", "the end"]
    examples.OUTCOMES.clear()
    examples.followed.using(on_success=[], on_complete=[]).enqueue(2)
    worker.drain()
    assert examples.OUTCOMES == []


# --- backends for tests ---


@has_options
@pytest.mark.parametrize("name", ["dummy.DummyBackend", "immediate.ImmediateBackend"])
def test_the_backends_of_django_refuse_the_options_at_import(examples: Any, settings: Any, name: str) -> None:
    backends(settings, default={"BACKEND": f"{OF_DJANGO}.{name}"})
    with pytest.raises(TypeError, match="'retries'"):
        examples.task(queue_name="q", retries=3)(examples.plain.func)


@has_options
@pytest.mark.parametrize("backend", [DummyBackend, ImmediateBackend])
def test_our_backends_for_tests_accept_the_options(examples: Any, settings: Any, backend: type[Any]) -> None:
    backends(settings, default={"BACKEND": f"{TESTING}.{backend.__name__}"})
    task = examples.task(queue_name="q", retries=3, unique=True, on_success=examples.ended)(examples.plain.func)
    result = task.enqueue()
    assert result.task == task
    assert result.status == (Status.READY if backend is DummyBackend else Status.SUCCESSFUL)
    with pytest.raises(TypeError, match="retries= must be"):
        examples.task(queue_name="q", retries="3")(examples.plain.func)


# --- imports ---


@has_options
def test_tasks_with_options_are_imported_without_redis() -> None:
    package = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    script = f"""
import sys
sys.modules.update(redis=None, django_redis=None)
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "resty_django", "resty_django.qless"],
    TASKS={{
        "default": {{"BACKEND": "{BACKEND}"}},
        "dummy": {{"BACKEND": "{TESTING}.DummyBackend"}},
    }},
)
import django
django.setup()
from {package} import task
@task(retries=3, backoff=1, timeout=5, unique=["order"], rate="1/m", tags=["x"], expires=60)
def send(order): ...
assert send.unique_id([7], {{}})
send.using(backend="dummy").enqueue(7)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_data_of_a_job_stay_small(examples: Any, worker: TestWorker) -> None:
    data = job_of(client, examples.plain.enqueue().id).data
    assert set(data) == {"args", "kwargs", "backend", "enqueued", "retried"}
    assert len(encode(data)) < 120
