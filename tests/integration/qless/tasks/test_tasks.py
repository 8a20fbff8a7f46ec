"""Tasks on a real server, with a real worker in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from resty_django.qless import DependencyError, InvalidArgument, NoSuchJob, client
from resty_django.qless.message import ResultGone
from resty_django.qless.results import AsyncResult
from resty_django.qless.run import MaxRetriesExceeded
from resty_django.qless.task import TaskFailed, task
from resty_django.txid import bound, txid
from tests.integration.qless.tasks import examples
from tests.integration.qless.tasks.examples import TRAIL
from tests.integration.qless.worker.conftest import Here, wait_for

pytestmark = pytest.mark.redis

PATH = "tests.integration.qless.tasks.examples"
LONG = 60.0


@pytest.mark.parametrize("which", [examples.add, examples.aadd])
async def test_delay_and_get(running: Here, which: Any) -> None:
    assert which.delay(1, 2).get(LONG) == 3
    assert which.delay(a=5).get(LONG) == 6
    assert await (await which.adelay(1, b=4)).aget(LONG) == 5
    assert await (await which.aapply_async([1], {"b": 6})).aget(LONG) == 7


def test_a_task_is_the_function_when_it_is_called(site: Any) -> None:
    assert examples.add(1, 2) == 3
    assert examples.add.__name__ == "add"
    assert client.queues["q"].length() == 0


def test_the_job_has_what_the_task_says(site: Any) -> None:
    job = examples.optioned.delay().job()
    assert job is not None
    assert (job.klass, job.queue_name, job.priority, job.original_retries, job.tags, job.data) == (
        f"{PATH}.optioned",
        *("q", 3, 2, ["one"], {"args": [], "kwargs": {}}),
    )
    plain = examples.add.delay(1).job()
    assert plain is not None
    assert (plain.priority, plain.original_retries, plain.tags) == (0, 5, [])


def test_options_of_apply_async(site: Any) -> None:
    first = examples.add.delay(1)
    found = examples.optioned.apply_async(
        queue="p", priority=-1, task_id="mine", depends=[first, "unknown"], tags=["two"], retries=0
    )
    job = found.job()
    assert found.id == "mine"
    assert job is not None
    assert (job.queue_name, job.priority, job.original_retries, job.tags, job.dependencies, job.state) == (
        *("p", -1, 0, ["one", "two"], [first.id], "depends"),
    )
    late = examples.add.apply_async((1,), countdown=100).job()
    later = examples.add.apply_async((1,), eta=timezone.now() + timedelta(seconds=200)).job()
    past = examples.add.apply_async((1,), eta=timezone.now() - timedelta(seconds=200)).job()
    assert [each and each.state for each in (late, later, past)] == ["scheduled", "scheduled", "waiting"]
    when = client.call("due", "q")
    assert float(when) <= time.time()
    with pytest.raises(TypeError, match="cannot be used together"):
        examples.add.apply_async((1,), countdown=1, eta=timezone.now())


def test_arguments_are_checked_where_the_task_is_put(site: Any) -> None:
    for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"c": 1}), ((1,), {"a": 1})):
        with pytest.raises(TypeError, match="cannot be called so"):
            examples.add.delay(*args, **kwargs)
    with pytest.raises(TypeError, match="cannot be called so"):
        examples.bound.delay()
    with pytest.raises(InvalidArgument, match=r"builtins\.object"):
        examples.add.delay(object())
    assert client.queues["q"].length() == 0


def test_a_failure_is_raised_by_get(running: Here) -> None:
    found = examples.fails.delay("oh")
    with pytest.raises(TaskFailed, match="ValueError: oh") as caught:
        found.get(LONG)
    assert caught.value.group == "q-ValueError"
    assert "in fails" in str(caught.value)
    assert (found.state, found.ready(), found.failed(), found.successful()) == ("FAILURE", True, True, False)
    with pytest.raises(TaskFailed, match="async no"):
        examples.afails.delay().get(LONG)


async def test_states(site: Any, here: Callable[..., Here]) -> None:
    examples.GO.clear()
    found = examples.once.delay(1)
    assert (found.state, found.status, await found.astate()) == ("PENDING", "PENDING", "PENDING")
    here()
    wait_for(lambda: found.state == "STARTED")
    assert not found.ready()
    examples.GO.set()
    assert found.get(LONG) == 3
    assert (found.state, await found.asuccessful()) == ("SUCCESS", True)
    assert AsyncResult("nobody").state == "GONE"
    with pytest.raises(NoSuchJob):
        AsyncResult("nobody").get(1)


def test_get_waits_no_longer_than_told(site: Any) -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        examples.add.delay(1).get(0.05)


def test_results_live_as_long_as_told(running: Here, valkey: Any) -> None:
    kept, brief, silent = examples.add.delay(1), examples.brief.delay(), examples.silent.delay()
    assert kept.get(LONG) == 2
    assert brief.get(LONG) == 1
    assert 86_000 < valkey.ttl(f"ql:x:{kept.id}") <= 86_400
    assert 0 < valkey.ttl(f"ql:x:{brief.id}") <= 3
    with pytest.raises(ResultGone):
        silent.get(LONG)
    assert silent.successful()


def test_exceptions_are_retried_where_it_says_so(running: Here) -> None:
    found = examples.third_time.delay("x")
    assert found.get(LONG) == 3
    with pytest.raises(TaskFailed, match="not to be retried"):
        examples.picky.delay().get(LONG)
    assert TRAIL.count("picky") == 1


def test_retry_and_progress(running: Here) -> None:
    found = examples.bound.delay(2)
    assert found.get(LONG) == [found.id, 2, f"{PATH}.bound"]
    assert TRAIL == [1, 2, 3]
    assert found.progress == (1.0, "run 3")
    lost = examples.bound.delay(5)
    with pytest.raises(TaskFailed, match="OSError: run 3"):
        lost.get(LONG)


async def test_retry_and_progress_of_async_tasks(running: Here) -> None:
    found = await examples.abound.adelay(1)
    assert await found.aget(LONG) == 1
    assert await found.aprogress() == (0.5, "half")
    with pytest.raises(TaskFailed, match=MaxRetriesExceeded.__name__):
        await (await examples.abound.adelay(5)).aget(LONG)


def test_a_task_between_two_runs(running: Here) -> None:
    found = examples.bound.apply_async((1,))
    wait_for(lambda: found.state in ("RETRY", "SUCCESS"))
    assert found.get(LONG)[1] == 1


def test_timeout(running: Here) -> None:
    with pytest.raises(TaskFailed, match="JobTimeout"):
        examples.slow.delay().get(LONG)


def test_an_expired_task_is_not_run(site: Any, here: Callable[..., Here]) -> None:
    late = examples.note.apply_async(("late",), expires=0.01)
    fine = examples.note.apply_async(("fine",), expires=timezone.now() + timedelta(hours=1))
    time.sleep(0.02)
    here()
    with pytest.raises(TaskFailed, match="TaskExpired"):
        late.get(LONG)
    assert fine.get(LONG) == ["fine", {}]
    assert TRAIL == [["fine", {}]]


def test_revoke(site: Any) -> None:
    first = examples.add.delay(1)
    second = examples.add.apply_async((1,), depends=[first])
    with pytest.raises(DependencyError):
        first.revoke()
    second.revoke()
    first.revoke()
    assert first.state == "GONE"


def test_the_txid_goes_with_it(running: Here) -> None:
    mine = txid()
    with bound(mine):
        found = examples.txid.delay()
    assert found.get(LONG) == mine


@pytest.mark.django_db(transaction=True)
def test_on_commit(running: Here) -> None:
    with transaction.atomic():
        found = examples.add.delay_on_commit(1, 2)
        other = examples.add.apply_async_on_commit((1,), {"b": 3}, priority=1)
        chained = (examples.add.s(1) | examples.add.s(1)).delay_on_commit()
        assert (found.state, other.state, chained.state) == ("GONE", "GONE", "GONE")
    assert (found.get(LONG), other.get(LONG), chained.get(LONG)) == (3, 4, 3)
    assert examples.add.delay_on_commit(5).get(LONG) == 6


@pytest.mark.django_db(transaction=True)
def test_no_job_after_a_rollback(site: Any) -> None:
    with transaction.atomic():
        found = examples.add.delay_on_commit(1)
        transaction.set_rollback(True)
    with transaction.atomic(), pytest.raises(TypeError):
        examples.add.delay_on_commit()
    assert found.state == "GONE"
    assert client.queues["q"].length() == 0


def test_unique_tasks_under_many_enqueuers(site: Any, here: Callable[..., Here]) -> None:
    ids: list[str] = []
    start = threading.Barrier(8)

    def put() -> None:
        start.wait()
        for a in range(20):
            ids.append(examples.once.delay(a % 4, b=2).id)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for each in threads:
        each.start()
    here(concurrency=4)
    for each in threads:
        each.join()
    assert len(set(ids)) == 4
    wait_for(lambda: len(TRAIL) == 4)
    assert examples.once.delay(0).id in ids  # still one runs
    examples.GO.set()
    for found in [AsyncResult[int](each) for each in set(ids)]:
        found.get(LONG)
    assert sorted(TRAIL) == [("once", a, 2) for a in range(4)]
    again = examples.once.delay(0)
    assert again.id in ids
    assert again.get(LONG) == 2
    assert len(TRAIL) == 5


def test_unique_by_some_arguments(site: Any) -> None:
    first = examples.once_an_order.delay(7, "soon")
    assert examples.once_an_order.delay(order=7, how="late").id == first.id
    assert examples.once_an_order.delay(8, "soon").id != first.id
    job = first.job()
    assert job is not None
    assert job.data["args"] == [7, "soon"]


def test_rate(running: Here) -> None:
    began = time.monotonic()
    found = [examples.limited.delay(number) for number in range(30)]
    for each in found:
        each.get(LONG)
    assert sorted(TRAIL) == list(range(30))
    assert time.monotonic() - began > 29 / 20 * 0.9


def test_data_of_another_client(running: Here) -> None:
    jid = client.queues["q"].put(examples.add, {"a": 1})
    with pytest.raises(TaskFailed, match='"args": '):
        AsyncResult[Any](jid).get(LONG)
    assert AsyncResult[int](client.queues["q"].put(examples.add, {"args": [1], "kwargs": {}})).get(LONG) == 2


def test_what_cannot_be_a_task(site: Any) -> None:
    with pytest.raises(TypeError, match="top of a module"):
        task(lambda: None)
    with pytest.raises(TypeError, match="names 'b'"):
        task(unique=["b"])(examples.total.function)
    with pytest.raises(ValueError, match="at least 0"):
        task(backoff=-1)(examples.total.function)
    with pytest.raises(TypeError, match="cannot be called so"):
        task(every=5)(examples.total.function)
