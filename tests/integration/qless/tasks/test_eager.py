"""Eager mode: no server, and no worker."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from resty_django.qless import AsyncResult, NoSuchJob, chain, chord, task
from resty_django.qless.tasks import eager
from resty_django.qless.worker.control import JobTimeout
from resty_django.txid import bound, txid
from tests.integration.qless.tasks import examples
from tests.integration.qless.tasks.examples import aadd, abound, add, fails, note, third_time, total


@pytest.fixture(autouse=True)
def _eager(settings: Any) -> None:
    section = {"URL": "redis://127.0.0.1:1/0", "EAGER": True, "MODULES": [examples.__name__]}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": section}
    examples.TRAIL.clear()
    examples.GO.clear()
    eager.outcomes.clear()


async def test_tasks_run_where_they_are_put() -> None:
    assert add.delay(1, 2).get() == 3
    assert await (await add.adelay(1, 2)).aget() == 3
    assert await (await aadd.adelay(1, 2)).aget() == 3
    result = note.delay("x")
    assert (result.state, result.ready(), AsyncResult[Any](result.id).get()) == ("SUCCESS", True, ["x", {}])


def test_async_tasks_from_sync_code() -> None:
    assert aadd.delay(1, 2).get() == 3
    assert abound.delay(2).get() == 2


@pytest.mark.parametrize("which", [examples.naps, examples.anaps])
async def test_timeouts_are_obeyed(which: Any) -> None:
    with pytest.raises(JobTimeout, match=r"0\.1 s"):
        await which.aapply_async(task_id="napping")
    assert AsyncResult[None]("napping").state == "FAILURE"
    assert await (await add.adelay(1, 2)).aget() == 3


def test_a_task_within_its_timeout_is_left_alone() -> None:
    assert [examples.quick.delay().get() for _ in range(100)] == [1] * 100


def test_nothing_asks_a_server() -> None:
    result = examples.progressing.delay()
    assert (result.progress.share, result.progress.message) == (0.5, "half")
    assert result.job() is None
    result.revoke()
    assert result.get() == 1
    unknown = AsyncResult[None]("unknown")
    assert (unknown.state, unknown.progress.share) == ("GONE", None)
    with pytest.raises(NoSuchJob):
        unknown.get()


def test_values_go_through_json_as_they_would() -> None:
    assert note.delay(("a", "tuple")).get() == [["a", "tuple"], {}]


def test_what_a_task_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="no"):
        fails.apply_async(task_id="broken")
    assert AsyncResult[None]("broken").state == "FAILURE"
    with pytest.raises(ValueError, match="no"):
        AsyncResult[None]("broken").get()


def test_retries_come_at_once() -> None:
    assert third_time.delay("x").get() == 3
    assert examples.bound.delay(2).get()[1] == 2
    with pytest.raises(OSError, match="run 3"):
        examples.bound.delay(9)
    with pytest.raises(ValueError, match="not to be retried"):
        examples.picky.delay()


def test_chains_and_groups() -> None:
    assert chain(add.s(1), add.s(2), note.si("x")).delay().get() == ["x", {}]
    assert chord([add.s(1), add.s(2)], total.s()).delay().get() == 5
    with pytest.raises(ValueError, match="stop"):
        chain(add.s(1), fails.si("stop"), note.si("never")).delay()
    assert examples.TRAIL == [["x", {}]]


def test_the_txid_is_the_one_of_the_caller() -> None:
    mine = txid()
    with bound(mine):
        assert examples.txid.delay().get() == mine


@pytest.mark.django_db
def test_on_commit(django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        result = add.delay_on_commit(1, 2)
        assert result.id not in eager.outcomes
    assert result.get() == 3


def test_so_many_outcomes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "KEPT", 3)
    results = [add.delay(n) for n in range(5)]
    assert [result.id in eager.outcomes for result in results] == [False, False, True, True, True]


def test_a_nested_function_is_refused() -> None:
    def inner() -> None: ...

    with pytest.raises(TypeError, match="top level of a module"):
        task(inner)
