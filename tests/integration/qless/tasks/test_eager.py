"""Eager mode: no server, and no worker."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from resty_django.qless import (
    AsyncResult,
    GroupOutcome,
    GroupResult,
    NoSuchJob,
    TaskExpired,
    TaskOutcome,
    chain,
    chord,
    group,
)
from resty_django.qless.outcomes import JobTimeout
from resty_django.qless.tasks import eager
from resty_django.txid import bound, txid
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.tasks import examples
from tests.integration.qless.tasks.examples import aadd, abound, add, fails, note, report, third_time, total


@pytest.fixture(autouse=True)
def _eager(settings: Any) -> None:
    change_settings(settings, URL="redis://127.0.0.1:1/0", EAGER=True, MODULES=[examples.__name__])
    examples.TRAIL.clear()
    examples.GO.clear()
    eager.outcomes.clear()
    eager.groups.clear()


async def test_tasks_run_where_they_are_put() -> None:
    assert add.delay(1, 2).get() == 3
    assert await (await add.adelay(1, 2)).aget() == 3
    assert await (await aadd.adelay(1, 2)).aget() == 3
    result = note.delay("x")
    assert (result.state, result.ready(), AsyncResult[Any](result.id).get()) == ("SUCCESS", True, ["x", {}])


def test_async_tasks_run_from_sync_code() -> None:
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


def test_a_retry_that_has_expired_shows_its_runs_and_its_last_error() -> None:
    with pytest.raises(TaskExpired, match="ran once and was not retried") as caught:
        examples.fails_after.apply_async((0.02,), expires=0.01)
    assert caught.value.__notes__[0].endswith("OSError: not there")


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


def test_chains_and_chords_run_where_they_are_put() -> None:
    assert chain(add.s(1), add.s(2), note.si("x")).delay().get() == ["x", {}]
    assert chord([add.s(1), add.s(2)], total.s()).delay().get() == 5
    with pytest.raises(ValueError, match="stop"):
        chain(add.s(1), fails.si("stop"), note.si("never")).delay()
    assert examples.TRAIL == [["x", {}]]


def test_the_txid_is_the_one_of_the_caller() -> None:
    mine = txid()
    with bound(mine):
        assert examples.txid.delay().get() == mine
        assert examples.request_id.delay().get() is None
    with bound(mine, request_id="web-1.example_7"):
        assert examples.request_id.delay().get() == "web-1.example_7"


@pytest.mark.django_db
def test_a_task_on_commit_runs_at_the_commit(django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        result = add.delay_on_commit(1, 2)
        assert result.id not in eager.outcomes
    assert result.get() == 3


def test_the_latest_outcomes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "MAX_KEPT", 3)
    results = [add.delay(n) for n in range(5)]
    assert [result.id in eager.outcomes for result in results] == [False, False, True, True, True]


def test_callbacks_run_after_their_task() -> None:
    result = add.apply_async((1, 2), on_success=report, link=note.s("x"), on_failure=report, on_complete=note.si("y"))
    outcome = TaskOutcome(result.id, add.name, "complete", 3)
    assert [(outcome,), [3, "x", {}], ["y", {}]] == examples.TRAIL
    examples.TRAIL.clear()
    with pytest.raises(ValueError, match="bad"):
        fails.apply_async(("bad",), on_success=report, on_failure=report.s(1), on_complete=report.s(2))
    assert [(entry[0].state, entry[1]) for entry in examples.TRAIL] == [("failed", 1), ("failed", 2)]
    assert examples.TRAIL[0][0].failure_group == "q-ValueError"
    with pytest.raises(ValueError, match="callback"):
        add.apply_async((1, 2), on_success=fails.si("callback"))


def test_failures_follow_the_policies() -> None:
    skipped = chain(fails.s().set(if_failed="skip"), add.si(1), note.s(1)).delay()
    assert (skipped.get(), skipped.state, skipped.parent.parent.state) == (None, "SKIPPED", "FAILURE")
    released = chain(fails.s().set(if_failed="release"), note.s()).delay()
    assert (released.get(), released.parent.state) == ([None, {}], "FAILURE")
    with pytest.raises(ValueError, match="wait"):
        chain(fails.s("wait").set(if_failed="wait"), add.si(1).set(task_id="waits")).delay()
    assert AsyncResult[int]("waits").state == "PENDING"
    examples.TRAIL.clear()
    with pytest.raises(ValueError, match="first"):
        chain(fails.s("first"), add.si(1), note.si()).apply_async(on_failure=report)
    ((outcome,),) = examples.TRAIL
    assert outcome.failure_group == "q-DependencyFailed"


def test_groups_run_their_members_and_callbacks() -> None:
    result = group([add.s(1), add.s(2)], name="two", on_success=report).delay()
    assert (result.get(), result.state, result.name, result.progress) == ([2, 3], "SUCCESS", "two", (2, 0, 0, 0, 0, 2))
    assert [(GroupOutcome(result.id, "two", "complete", 2, 2),)] == examples.TRAIL
    assert [ended for _, ended in GroupResult(result.id).iter_native()] == [
        {"status": "SUCCESS", "result": 2},
        {"status": "SUCCESS", "result": 3},
    ]
    assert chord([], total.s()).delay().get() == 0
    examples.TRAIL.clear()
    with pytest.raises(ValueError, match="one"):
        group([fails.s("one"), note.s("other")], on_failure=report).delay()
    assert examples.TRAIL[0] == ["other", {}]
    assert examples.TRAIL[1][0].failed == 1
    assert chord([fails.s(), add.s(1)], note.s().set(allow_failure=True)).delay().get() == [[None, 2], {}]
    with pytest.raises(ValueError, match="of the header"):
        chord([fails.s("of the header"), add.s(1)], note.s()).delay()


async def test_groups_run_in_asyncio() -> None:
    result = await chord([aadd.s(1), add.s(2)], total.s()).aapply_async(on_success=report)
    assert await result.aget() == 5
    assert await result.parent.aget() == [2, 3]
    assert len(examples.TRAIL) == 1
