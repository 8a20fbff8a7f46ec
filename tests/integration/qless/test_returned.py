"""A task may return any JSON, and nothing else: the same by each way to run it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resty_django.qless import AsyncResult, Client, InvalidArgument, Job, ResultGone, Task, TaskFailed
from resty_django.qless import client as site_client
from resty_django.qless.clients.serialization import encode
from resty_django.qless.integrations.celery import put_task, tracking
from resty_django.qless.integrations.celery.runner import run_borrowed
from resty_django.qless.job_classes import find
from resty_django.qless.tasks import eager
from resty_django.qless.worker.handlers import resolve_handler
from tests.integration.qless.celery import celery_app
from tests.integration.qless.conftest import LONG, change_settings, history
from tests.integration.qless.returned import NOT_FINITE, REFUSED, RETURNED, VALUES
from tests.integration.qless.tasks import examples, indirect
from tests.integration.qless.tasks.conftest import MODULE
from tests.integration.qless.worker.conftest import InProcessWorker, Start, in_process_workers, until
from tests.integration.qless.worker.conftest import workers as workers  # the fixture

pytestmark = [pytest.mark.redis, pytest.mark.contract]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.fixture
def site(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Client]:
    change_settings(settings, URL=valkey_url, MODULES=[MODULE])
    celery_app.app.set_current()
    for cached in (resolve_handler, find):
        cached.cache_clear()
    eager.outcomes.clear()
    yield site_client
    site_client.close()


def by_a_worker(start: Callable[[], InProcessWorker], name: str) -> str:
    start()
    return examples.returns.delay(name).id


def by_a_worker_for_asyncio(start: Callable[[], InProcessWorker], name: str) -> str:
    start()
    return examples.areturns.delay(name).id


def as_a_task_of_celery(start: Callable[[], InProcessWorker], name: str) -> str:
    start()
    return put_task(celery_app.returns, (name,), queue="q")


def in_a_process_of_celery(start: Callable[[], InProcessWorker], name: str) -> str:
    """As `runqless --via celery` lets it run there."""
    jid = examples.returns.delay(name).id
    holder, runner = Client(site_client.source.sync()), Client(site_client.source.sync(), worker_name="celery")
    assert holder.queues["q"].pop() is not None
    with ThreadPoolExecutor() as threads:  # the thread has no connection of the database that tests may not use
        threads.submit(run_borrowed, runner, jid, holder.worker_name, 0).result(LONG)
    return jid


def sent_to_celery(start: Callable[[], InProcessWorker], name: str) -> str:
    """Do the same as a Celery worker after a task that was sent."""
    site_client.call("put", "w", "default", "sent", "celery-send:x", "{}", tracking.FAR_SECONDS)
    celery_app.returns.push_request(headers={tracking.HEADER: "sent"})
    try:
        tracking.on_postrun(celery_app.returns, "sent", "SUCCESS", RETURNED[name])
    finally:
        celery_app.returns.pop_request()
    return "sent"


WAYS = pytest.mark.parametrize(
    "run", [by_a_worker, by_a_worker_for_asyncio, as_a_task_of_celery, in_a_process_of_celery, sent_to_celery]
)


@pytest.fixture
def start(site: Client, valkey_url: str) -> Iterator[Callable[[], InProcessWorker]]:
    with in_process_workers(valkey_url) as start:
        yield start


@WAYS
@pytest.mark.parametrize("name", [name for name in VALUES if name not in ("true", "zero point", "deep")])
def test_any_json_is_a_result(start: Callable[[], InProcessWorker], run: Callable[..., str], name: str) -> None:
    jid = run(start, name)
    returned = AsyncResult[Any](jid).get(LONG)
    assert (returned, type(returned)) == (VALUES[name], type(VALUES[name]))
    assert history(site_client, jid).count("popped") <= 1
    assert site_client.jobs.result(jid).result == VALUES[name]  # type: ignore[union-attr]


@WAYS
@pytest.mark.parametrize("name", NOT_FINITE)
def test_a_result_that_is_not_finite_fails_at_once(
    start: Callable[[], InProcessWorker], run: Callable[..., str], name: str
) -> None:
    jid = run(start, name)
    with pytest.raises(TaskFailed, match=REFUSED) as caught:
        AsyncResult[Any](jid).get(LONG)
    assert caught.value.group.endswith("-InvalidArgument")
    assert history(site_client, jid).count("popped") <= 1


class TestEager:
    """No server, and the same answers."""

    @pytest.fixture(autouse=True)
    def _eager(self, settings: Any) -> None:
        change_settings(settings, URL="redis://127.0.0.1:1/0", EAGER=True, MODULES=[MODULE])
        eager.outcomes.clear()

    @pytest.mark.parametrize("name", VALUES)
    async def test_any_json_is_a_result(self, name: str) -> None:
        for task in (examples.returns, examples.areturns):
            result = await task.adelay(name)
            returned = await result.aget()
            assert (returned, type(returned)) == (VALUES[name], type(VALUES[name]))

    @pytest.mark.parametrize("name", NOT_FINITE)
    def test_a_result_that_is_not_finite_fails(self, name: str) -> None:
        with pytest.raises(InvalidArgument, match=REFUSED):
            examples.returns.apply_async((name,), task_id="refused")
        assert AsyncResult[Any]("refused").state == "FAILURE"
        with pytest.raises(InvalidArgument, match=REFUSED):
            asyncio.run(examples.areturns.aapply_async((name,)))

    def test_a_result_that_a_worker_would_not_keep_is_gone(self) -> None:
        result = examples.drops.delay("nan")
        assert result.state == "SUCCESS"
        with pytest.raises(ResultGone):
            result.get()


def test_a_result_that_is_not_kept_may_be_anything(start: Callable[[], InProcessWorker]) -> None:
    start()
    result = examples.drops.delay("nan")
    with pytest.raises(ResultGone):
        result.get(LONG)
    assert result.state == "SUCCESS"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON)
def test_results_come_back_as_they_were(client: Client, value: Any) -> None:
    """Through the core, by the client, for values of all shapes."""
    queue = client.queues["q"]
    jid = queue.put("Klass", jid="j")
    queue.pop().complete(result=value)  # type: ignore[union-attr]
    assert encode(client.jobs.result(jid).result) == encode(value)  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["NaN", "nan", "Infinity", "-Infinity", "inf", "", "{", "nope"])
def test_the_core_refuses_text_that_is_not_json(client: Client, text: str) -> None:
    """From a client in any language: nothing has changed then."""
    jid = client.queues["q"].put("Klass")
    client.queues["q"].pop()
    with pytest.raises(InvalidArgument, match="result"):
        client.call("complete", jid, "w", "q", "{}", "result", text)
    assert client.jobs.get(jid).state == "running"  # type: ignore[union-attr]


# --- functions that return what their caller has to run ---

GENERATOR = "returned the generator .*, whose code has not run"
JOB_CLASS = f"{indirect.__name__}.{indirect.KeepsNothing.__qualname__}"


@pytest.fixture
def _indirect(site: Client, settings: Any) -> None:
    change_settings(settings, MODULES=[indirect.__name__])
    examples.TRAIL.clear()


@pytest.mark.usefixtures("_indirect")
def test_awaitables_are_awaited_and_generators_fail(start: Callable[[], InProcessWorker]) -> None:
    """Also if nobody wants the result, so that nothing else would notice."""
    start()
    for (kind, ignored), each in indirect.TASKS.items():
        result = each.delay(kind)
        if kind in indirect.GENERATORS:
            with pytest.raises(TaskFailed, match=GENERATOR) as caught:
                result.get(LONG)
            assert caught.value.group == "q-TypeError"
        elif ignored:
            until(site_client, result.id, "complete")
        else:
            assert result.get(LONG) == kind
    for kind in indirect.AWAITED | indirect.GENERATORS:
        jid = site_client.queues["q"].put(JOB_CLASS, kind)
        until(site_client, jid, "failed" if kind in indirect.GENERATORS else "complete")
    assert sorted(examples.TRAIL) == sorted([*indirect.AWAITED] * 3)


def test_processes_handle_results_in_the_same_way(workers: Start, client: Client) -> None:
    run = workers("--pool", "processes", qless={"MODULES": [indirect.__name__], "WORKER": {"QUEUES": ["q"]}})
    jids = {kind: client.queues["q"].put(indirect.TASKS[kind, False].name, DATA) for kind in indirect.AWAITED}
    for jid in jids.values():
        until(client, jid, "complete")
        assert client.jobs.result(jid).result == "word"  # type: ignore[union-attr]
    for kind in indirect.GENERATORS:
        for name in (indirect.TASKS[kind, False].name, indirect.TASKS[kind, True].name):
            failure = until(client, client.queues["q"].put(name, DATA), "failed").failure
            assert (failure["group"], "whose code has not run" in failure["message"]) == ("q-TypeError", True)
    assert run.stop() == 0


DATA = {"args": ["word"], "kwargs": {}}


@pytest.mark.usefixtures("_indirect")
async def test_eager_tasks_handle_results_in_the_same_way(settings: Any) -> None:
    job = Job.build(site_client, JOB_CLASS, queue="q", data="wrapped")
    assert await job.aperform() == "wrapped"
    assert await sync_to_async(job.perform)() == "wrapped"
    job.data = "rows"
    for perform in (job.aperform, sync_to_async(job.perform)):
        with pytest.raises(TypeError, match=GENERATOR):
            await perform()
    change_settings(settings, EAGER=True)
    examples.TRAIL.clear()
    for (kind, _), each in indirect.TASKS.items():
        for delay in (each.adelay, sync_to_async(each.delay)):
            if kind in indirect.GENERATORS:
                with pytest.raises(TypeError, match=GENERATOR):
                    await delay(kind)
            else:
                await delay(kind)
    assert sorted(examples.TRAIL) == sorted([*indirect.AWAITED] * 4)


def test_awaitables_of_celery_are_awaited_and_generators_fail(start: Callable[[], InProcessWorker]) -> None:
    start()
    assert AsyncResult[Any](put_task(celery_app.coroutine, ("word",), queue="q")).get(LONG) == "word"
    with pytest.raises(TaskFailed, match=GENERATOR):
        AsyncResult[Any](put_task(celery_app.rows, queue="q")).get(LONG)


def test_a_generator_function_is_not_a_task() -> None:
    for function in (indirect.rows, indirect.arows, functools.partial(indirect.rows)):
        vars(function).setdefault("__qualname__", "indirect.rows")
        with pytest.raises(TypeError, match=r"indirect\.a?rows is a generator function, which cannot be a task"):
            Task(function, ignore_result=True)
    for function in (functools.partial(indirect.body), indirect.Caller()):
        with pytest.raises(TypeError, match=r"cannot be a task\. Define it at the top level"):
            Task(function)


def test_stop_iteration_keeps_its_name(start: Callable[[], InProcessWorker]) -> None:
    """Python replaces it by RuntimeError where a generator or a coroutine raises it, and middleware are generators."""
    start()
    examples.TRAIL.clear()
    for each in (examples.exhausted, examples.aexhausted):
        with pytest.raises(TaskFailed) as caught:
            each.delay().get(LONG)
        assert caught.value.group == "q-StopIteration"
    assert examples.TRAIL == ["exhausted"] * 4, "retry_on=StopIteration was obeyed"


async def test_stop_iteration_ends_a_run_without_a_worker(site: Client, settings: Any) -> None:
    job = Job.build(site_client, examples.exhausted.name, queue="q", data={"args": [], "kwargs": {}})
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(job.aperform(), LONG)
    change_settings(settings, EAGER=True)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(examples.exhausted.adelay(), LONG)
