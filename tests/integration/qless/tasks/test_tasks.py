"""Tasks on a real server, with a real worker in a thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from resty_django import qless
from resty_django.qless import (
    AsyncResult,
    DependencyError,
    InvalidArgument,
    MaxRetriesExceeded,
    NoSuchJob,
    ResultGone,
    Task,
    TaskFailed,
    chain,
    chord,
    client,
    group,
    task,
)
from resty_django.qless.tasks import base
from resty_django.qless.tasks.options import (
    CallReactions,
    EnqueueKeywords,
    EnqueueOptions,
    StepKeywords,
    TaskKeywords,
    TaskOptions,
)
from resty_django.txid import bound, txid
from tests.forkserver import ROOT
from tests.integration.qless.conftest import LONG, change_settings, job_of
from tests.integration.qless.tasks import examples
from tests.integration.qless.tasks.conftest import MODULE
from tests.integration.qless.tasks.examples import TRAIL
from tests.integration.qless.worker.conftest import InProcessWorker, StartInProcess, wait_for
from tests.threads import together

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("which", [examples.add, examples.aadd])
async def test_delay_and_get(running: InProcessWorker, which: Any) -> None:
    assert which.delay(1, 2).get(LONG) == 3
    assert which.delay(a=5).get(LONG) == 6
    assert await (await which.adelay(1, b=4)).aget(LONG) == 5
    assert await (await which.aapply_async([1], {"b": 6})).aget(LONG) == 7


def test_delay_takes_few_steps(site: Any) -> None:
    """Each function of ours on the way costs every caller time, and each module costs every reader."""
    examples.add.delay(1)
    frames: list[tuple[str, str]] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and "/resty_django/" in frame.f_code.co_filename:
            frames.append((frame.f_code.co_filename, frame.f_code.co_name))

    with bound():  # as during a request
        sys.setprofile(profile)
        try:
            examples.add.delay(1)
        finally:
            sys.setprofile(None)
    assert len(frames) <= 16, frames
    assert len({path for path, _ in frames}) <= 8, frames


def test_a_task_is_the_function_when_it_is_called(site: Any) -> None:
    assert examples.add(1, 2) == 3
    assert examples.add.__name__ == "add"
    assert client.queues["q"].length() == 0


def test_the_job_has_what_the_task_says(site: Any) -> None:
    job = job_of(client, examples.optioned.delay().id)
    assert (job.klass, job.queue_name, job.priority, job.original_retries, job.tags, job.data) == (
        f"{MODULE}.optioned",
        *("q", 3, 2, ["one"], {"args": [], "kwargs": {}}),
    )
    plain = job_of(client, examples.add.delay(1).id)
    assert (plain.priority, plain.original_retries, plain.tags) == (0, 5, [])


def test_apply_async_overrides_the_options_of_the_task(site: Any) -> None:
    first = examples.add.delay(1)
    result = examples.optioned.apply_async(
        queue="p", priority=-1, task_id="mine", depends=[first, "unknown"], tags=["two"], retries=0
    )
    job = job_of(client, "mine")
    assert result.id == "mine"
    assert (job.queue_name, job.priority, job.original_retries, job.tags, job.dependencies, job.state) == (
        *("p", -1, 0, ["one", "two"], [first.id], "depends"),
    )
    late = examples.add.apply_async((1,), countdown=100).job()
    later = examples.add.apply_async((1,), eta=timezone.now() + timedelta(seconds=200)).job()
    past = examples.add.apply_async((1,), eta=timezone.now() - timedelta(seconds=200)).job()
    assert [job and job.state for job in (late, later, past)] == ["scheduled", "scheduled", "waiting"]
    when = client.call("due", "q")
    assert float(when) <= time.time()
    with pytest.raises(TypeError, match="eta="):
        examples.add.apply_async((1,), countdown=1, eta=timezone.now())


def test_arguments_are_checked_where_the_task_is_put(site: Any) -> None:
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"c": 1}), ((1,), {"a": 1})):
        with pytest.raises(TypeError, match="invalid arguments: "):
            examples.add.delay(*args, **kwargs)
        with pytest.raises(TypeError, match="invalid arguments: "):
            examples.add.delay_on_commit(*args, **kwargs)
    with pytest.raises(TypeError, match="invalid arguments: "):
        examples.bound.delay()
    with pytest.raises(InvalidArgument, match=r"builtins\.object"):
        examples.add.delay(object())
    assert client.queues["q"].length() == 0


def test_a_failure_is_raised_by_get(running: InProcessWorker) -> None:
    result = examples.fails.delay("oh")
    with pytest.raises(TaskFailed, match="ValueError: oh") as caught:
        result.get(LONG)
    assert caught.value.group == "q-ValueError"
    assert "in fails" in str(caught.value)
    assert (result.state, result.ready(), result.failed(), result.successful()) == ("FAILURE", True, True, False)
    with pytest.raises(TaskFailed, match="async no"):
        examples.afails.delay().get(LONG)


async def test_a_task_is_pending_started_and_successful(site: Any, start_worker: StartInProcess) -> None:
    examples.GO.clear()
    result = examples.once.delay(1)
    assert (result.state, result.status, await result.astate()) == ("PENDING", "PENDING", "PENDING")
    start_worker()
    wait_for(lambda: result.state == "STARTED")
    assert not result.ready()
    examples.GO.set()
    assert result.get(LONG) == 3
    assert (result.state, await result.asuccessful()) == ("SUCCESS", True)
    assert AsyncResult("nobody").state == "GONE"
    with pytest.raises(NoSuchJob):
        AsyncResult("nobody").get(1)


def test_get_waits_no_longer_than_its_timeout(site: Any) -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        examples.add.delay(1).get(0.05)


def test_results_expire_after_their_ttl(running: InProcessWorker, valkey: Any) -> None:
    lasting, brief, silent = examples.add.delay(1), examples.brief.delay(), examples.silent.delay()
    assert lasting.get(LONG) == 2
    assert brief.get(LONG) == 1
    assert 86_000 < valkey.ttl(f"ql:x:{lasting.id}") <= 86_400
    assert 0 < valkey.ttl(f"ql:x:{brief.id}") <= 3
    with pytest.raises(ResultGone):
        silent.get(LONG)
    assert silent.successful()


def test_exceptions_are_retried_where_it_says_so(running: InProcessWorker) -> None:
    result = examples.third_time.delay("x")
    assert result.get(LONG) == 3
    with pytest.raises(TaskFailed, match="not to be retried"):
        examples.picky.delay().get(LONG)
    assert TRAIL.count("picky") == 1


def test_a_bound_task_retries_itself_and_reports_progress(running: InProcessWorker) -> None:
    result = examples.bound.delay(2)
    assert result.get(LONG) == [result.id, 2, f"{MODULE}.bound"]
    assert TRAIL == [1, 2, 3]
    assert result.progress == (1.0, "run 3")
    lost = examples.bound.delay(5)
    with pytest.raises(TaskFailed, match="OSError: run 3"):
        lost.get(LONG)


async def test_a_bound_async_task_retries_itself_and_reports_progress(running: InProcessWorker) -> None:
    result = await examples.abound.adelay(1)
    assert await result.aget(LONG) == 1
    assert await result.aprogress() == (0.5, "half")
    with pytest.raises(TaskFailed, match=MaxRetriesExceeded.__name__):
        await (await examples.abound.adelay(5)).aget(LONG)


def test_a_task_that_is_retried_has_the_state_retry(running: InProcessWorker) -> None:
    result = examples.bound.apply_async((1,))
    wait_for(lambda: result.state in ("RETRY", "SUCCESS"))
    assert result.get(LONG)[1] == 1


def test_a_task_that_exceeds_its_timeout_fails(running: InProcessWorker) -> None:
    with pytest.raises(TaskFailed, match="JobTimeout"):
        examples.slow.delay().get(LONG)


def test_an_expired_task_is_not_run(site: Any, start_worker: StartInProcess) -> None:
    late = examples.note.apply_async(("late",), expires=0.01)
    fine = examples.note.apply_async(("fine",), expires=timezone.now() + timedelta(hours=1))
    time.sleep(0.02)
    start_worker()
    with pytest.raises(TaskFailed, match="TaskExpired"):
        late.get(LONG)
    assert fine.get(LONG) == ["fine", {}]
    assert TRAIL == [["fine", {}]]


def test_a_retry_that_has_expired_shows_its_runs_and_its_last_error(site: Any, start_worker: StartInProcess) -> None:
    passed = [0.0]
    worker = start_worker(clock=lambda: time.time() + passed[0])
    result = examples.fails_after.apply_async(expires=1000)
    for left in (1, 0):
        wait_for(lambda left=left: (job := result.job()).state == "scheduled" and job.retries_left == left)
        passed[0] += 601
        worker.resume()
    for expected in ("ran 2 times and was not retried: it has expired.", "did not run this time: it has expired."):
        with pytest.raises(TaskFailed) as caught:
            result.get(LONG)
        assert str(caught.value).startswith(f"TaskExpired: {examples.fails_after.path} {expected}\n")
        assert str(caught.value).endswith('    raise OSError("not there")\nOSError: not there\n')
        result.retry()


def test_a_revoked_task_is_gone(site: Any) -> None:
    first = examples.add.delay(1)
    second = examples.add.apply_async((1,), depends=[first])
    with pytest.raises(DependencyError):
        first.revoke()
    second.revoke()
    first.revoke()
    assert first.state == "GONE"


def test_the_txid_goes_with_it(running: InProcessWorker) -> None:
    mine = txid()
    with bound(mine):
        result = examples.txid.delay()
    assert result.get(LONG) == mine


@pytest.mark.django_db(transaction=True)
def test_the_request_id_of_the_caller_goes_with_it(running: InProcessWorker) -> None:
    with bound(request_id="web-1.example_7"):
        results = [examples.request_id.delay(), (examples.add.s(1) | examples.request_id.si()).delay()]
        with transaction.atomic():
            results.append(examples.request_id.delay_on_commit())
    assert [result.get(LONG) for result in results] == ["web-1.example_7"] * 3
    assert examples.request_id.delay().get(LONG) is None


@pytest.mark.django_db(transaction=True)
def test_tasks_on_commit_are_put_at_the_commit(running: InProcessWorker) -> None:
    with transaction.atomic():
        result = examples.add.delay_on_commit(1, 2)
        with_options = examples.add.apply_async_on_commit((1,), {"b": 3}, priority=1)
        chained = (examples.add.s(1) | examples.add.s(1)).delay_on_commit()
        assert (result.state, with_options.state, chained.state) == ("GONE", "GONE", "GONE")
    assert (result.get(LONG), with_options.get(LONG), chained.get(LONG)) == (3, 4, 3)
    assert examples.add.delay_on_commit(5).get(LONG) == 6


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("queues", [["q"], ["*"]])
def test_delay_waits_for_the_commit_by_setting(running: InProcessWorker, site: Any, queues: Any) -> None:
    change_settings(site, ON_COMMIT=queues)
    with transaction.atomic():
        results = [examples.add.delay(1, 2), (examples.add.s(0) | examples.add.s(2)).delay()]
        elsewhere = examples.add.apply_async((1, 2), queue="elsewhere")
        assert [result.state for result in results] == ["GONE", "GONE"]
        assert elsewhere.state == ("PENDING" if queues == ["q"] else "GONE")
    assert [result.get(LONG) for result in results] == [3, 3]
    assert examples.add.delay(5).get(LONG) == 6
    with transaction.atomic():
        result = examples.add.delay(1)
        transaction.set_rollback(True)
    assert result.state == "GONE"


@pytest.mark.django_db(transaction=True)
async def test_async_delay_does_not_wait_for_a_commit(running: InProcessWorker, site: Any) -> None:
    change_settings(site, ON_COMMIT=["*"])
    assert await (await examples.add.adelay(1, 2)).aget(LONG) == 3


def test_a_unique_task_is_put_once_by_many_threads(site: Any, start_worker: StartInProcess) -> None:
    ids: list[str] = []
    start = threading.Barrier(8)

    def put() -> None:
        start.wait()
        for a in range(20):
            ids.append(examples.once.delay(a % 4, b=2).id)

    together(*[put] * 8, lambda: start_worker(concurrency=4))
    assert len(set(ids)) == 4
    wait_for(lambda: len(TRAIL) == 4)
    assert examples.once.delay(0).id in ids  # still one runs
    examples.GO.set()
    for task_id in set(ids):
        AsyncResult[int](task_id).get(LONG)
    assert sorted(TRAIL) == [("once", a, 2) for a in range(4)]
    second = examples.once.delay(0)
    assert second.id in ids
    assert second.get(LONG) == 2
    assert len(TRAIL) == 5


def test_a_task_may_be_unique_by_some_of_its_arguments(site: Any) -> None:
    first = examples.once_an_order.delay(7, "soon")
    assert examples.once_an_order.delay(order=7, how="late").id == first.id
    assert examples.once_an_order.delay(8, "soon").id != first.id
    assert job_of(client, first.id).data["args"] == [7, "soon"]


@pytest.mark.parametrize("kind", [set, frozenset])
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"a": [(value,)]}], ids=["plain", "nested"])
def test_a_task_is_unique_by_a_set_in_any_order(site: Any, kind: Any, wrap: Any) -> None:
    one, other = kind([0, 8]), kind([8, 0])  # equal, but iterated in another order, as texts in another process
    assert [*one] != [*other]
    assert examples.once_an_order.delay(wrap(one), "a").id == examples.once_an_order.delay(wrap(other), "b").id


def test_a_unique_task_refuses_a_list_that_contains_itself(site: Any) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidArgument, match="contains itself"):
        examples.once_an_order.delay(endless, "a")


def test_a_rate_limits_the_runs_of_a_task(running: InProcessWorker) -> None:
    began = time.monotonic()
    results = [examples.limited.delay(number) for number in range(30)]
    for result in results:
        result.get(LONG)
    assert sorted(TRAIL) == list(range(30))
    assert time.monotonic() - began > 29 / 20 * 0.9


def test_arguments_of_another_client_need_the_form_of_a_task(running: InProcessWorker) -> None:
    jid = client.queues["q"].put(examples.add, {"a": 1})
    with pytest.raises(TaskFailed, match='"args": '):
        AsyncResult[Any](jid).get(LONG)
    assert AsyncResult[int](client.queues["q"].put(examples.add, {"args": [1], "kwargs": {}})).get(LONG) == 2


def test_functions_and_options_that_make_no_task_are_refused(site: Any) -> None:
    with pytest.raises(TypeError, match="top level of a module"):
        task(lambda: None)
    with pytest.raises(TypeError, match="names 'b'"):
        task(unique=["b"])(examples.total.function)
    with pytest.raises(TypeError, match="invalid arguments: "):
        task(every=5)(examples.total.function)


def test_options_of_a_task_that_are_none_have_their_defaults(site: Any) -> None:
    unset = Task(examples.total.function, name="unset", priority=None, unique=None)  # type: ignore[arg-type]
    assert (unset.options.priority, unset.options.unique) == (0, False)
    assert unset.delay([1]).id != unset.delay([1]).id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quue": "mail"}, r"@task has no option 'quue'\. Did you mean 'queue'\?"),
        ({"retry": 3}, r"@task has no option 'retry'\. Did you mean 'retry_on'\?"),
        ({"xyz": 3}, r"@task has no option 'xyz'\. Options are aliases, backoff, bind, "),
    ],
)
def test_options_of_task_that_do_not_exist_are_errors_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        task(**options)


def test_options_of_apply_async_that_do_not_exist_are_errors(site: Any) -> None:
    for call in (examples.add.apply_async, examples.add.apply_async_on_commit):
        with pytest.raises(TypeError, match="countdwn"):
            call((1,), countdwn=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'countdown'"):
        examples.add.s(1).set(countdwn=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'countdwn'"):
        examples.add.signature((1,), countdwn=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("keywords", "options"),
    [(TaskKeywords, TaskOptions), (EnqueueKeywords, EnqueueOptions), (StepKeywords, CallReactions)],
)
def test_keywords_are_the_fields_of_the_options(keywords: type, options: Any) -> None:
    assert {*options.__struct_fields__} == keywords.__annotations__.keys()


def test_the_package_exports_the_decorator_also_after_the_import_of_its_module() -> None:
    code = (
        "import resty_django.qless.tasks.base, resty_django.qless as qless\n"
        "from resty_django.qless import task\n"
        "import resty_django.qless.tasks\n"
        "assert task is qless.task is resty_django.qless.tasks.base.task, task\n"
        "assert callable(task)\n"
    )
    settings = "from django.conf import settings; settings.configure()\n"
    subprocess.run([sys.executable, "-c", settings + code], check=True, cwd=ROOT)


WITHOUT_LIMITS = """
import sys

import django
from django.conf import settings

from resty_django.qless import task
from resty_django.qless.testing import TestWorker


@task(rate="1/h")
def work(): ...


if __name__ == "__main__":
    settings.configure(
        SECRET_KEY="site",
        INSTALLED_APPS=["resty_django", "resty_django.qless"],
        RESTY_DJANGO={"QLESS": {"MODULES": ["limited_site"]}, "SHARED_DICTS": {"limits": {"PATH": sys.argv[1]}}},
    )
    django.setup()
    import limited_site

    with TestWorker() as worker:
        limited_site.work.delay()
        limited_site.work.delay()
        assert [run.outcome for run in worker.drain()] == ["completed", "retried"]
"""


def test_a_rate_holds_also_where_the_app_of_limits_is_not_installed(tmp_path: Path) -> None:
    site = tmp_path / "limited_site.py"
    site.write_text(WITHOUT_LIMITS)
    subprocess.run([sys.executable, site, tmp_path], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_the_package_has_what_tasks_need() -> None:
    plain_task: Any = task(plain)
    assert isinstance(plain_task, Task)
    with_options: Any = task(queue="other", retries=3)(plain)
    assert (with_options.queue, with_options.options.retries, with_options(2)) == ("other", 3, 4)
    assert type(base.task(plain)) is Task
    assert {AsyncResult, chain, chord, group} <= {getattr(qless, name) for name in qless.__all__}


def plain(number: int) -> int:
    return number * 2
