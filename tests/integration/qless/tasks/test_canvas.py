"""Chains, also with a step that fails, and groups as steps of chains."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.qless import AsyncResult, TaskFailed, chain, chord, client, group
from tests.integration.qless.conftest import LONG
from tests.integration.qless.tasks import examples
from tests.integration.qless.tasks.examples import aadd, add, fails, note, silent, total
from tests.integration.qless.worker.conftest import InProcessWorker, StartInProcess

pytestmark = pytest.mark.redis


def test_a_chain_hands_results_on(running: InProcessWorker) -> None:
    result = chain(add.s(1, 2), aadd.s(10), add.s(b=100)).delay()
    assert result.get(LONG) == 113
    assert isinstance(result.parent, AsyncResult)
    assert result.parent.get(LONG) == 13
    assert result.parent.parent is not None
    assert result.parent.parent.get(LONG) == 3


async def test_a_chain_can_be_put_in_asyncio(running: InProcessWorker) -> None:
    result = await (add.s(1, 2) | note.si("x", word="y") | note.s()).adelay()
    assert await result.aget(LONG) == [["x", {"word": "y"}], {}]


async def test_groups_may_be_steps_of_chains(running: InProcessWorker) -> None:
    result = chord([add.s(1, 1), chain(add.s(2, 2), add.s(1)), aadd.s(5)], total.s(extra=100)).delay()
    assert result.get(LONG) == 2 + 5 + 6 + 100
    spread = chain(add.s(1, 1), group(add.s(10), add.s(20)), group(total.s(), total.s(1)), total.s()).delay()
    assert spread.get(LONG) == 34 + 35
    assert await group(add.s(1), add.s(2)).apply_async().aget(LONG) == [2, 3]


def test_signatures_have_their_own_options(site: Any) -> None:
    result = (add.s(1).set(queue="p", priority=4) | add.signature((2,), queue="r", tags=["t"])).delay()
    first, second = result.parent.job(), result.job()
    assert (first.queue_name, first.priority, first.state) == ("p", 4, "waiting")
    assert (second.queue_name, second.tags, second.state, second.dependencies) == ("r", ["t"], "depends", [first.jid])


def test_arguments_are_checked_with_the_result_that_comes(site: Any) -> None:
    with pytest.raises(TypeError, match="invalid arguments: "):
        chain(add.s(1), add.s(1, 2)).delay()
    with pytest.raises(TypeError, match="invalid arguments: "):
        chain(add.s(1), add.si()).delay()
    with pytest.raises(TypeError, match="keeps no result"):
        chain(silent.s(), add.s()).delay()
    with pytest.raises(TypeError, match="must end with a task"):
        group(chain(add.s(1), group(add.s(1)))).delay()
    with pytest.raises(TypeError, match="signatures"):
        chain(7)  # type: ignore[arg-type]
    assert client.queues["q"].counts().waiting == 0


def test_a_failed_step_fails_the_rest_until_it_is_retried(running: InProcessWorker) -> None:
    """The steps after it fail at once with its reason, and continue once it has been retried and succeeds."""
    result = chain(add.s(1), fails.si("broken"), add.si(1), note.s()).delay()
    with pytest.raises(TaskFailed, match="ValueError: broken") as caught:
        result.get(LONG)
    broken = result.parent.parent
    assert caught.value.jid == broken.id
    assert caught.value.group == "q-ValueError"
    assert (broken.state, result.parent.state, result.state) == ("FAILURE", "FAILURE", "FAILURE")
    assert result.job().failure["group"] == "q-DependencyFailed"
    assert examples.TRAIL == []
    examples.GO.set()
    assert client.unfail("q-ValueError", "q") == 1
    assert result.get(LONG) == [2, {}]


def test_a_step_fails_if_the_result_before_it_is_gone(site: Any, start_worker: StartInProcess, valkey: Any) -> None:
    worker = start_worker()
    first = add.delay(1)
    assert first.get(LONG) == 2
    valkey.delete(f"ql:x:{first.id}")
    client.queues["q"].put(add, {"args": [], "kwargs": {}, "from": first.id}, jid="second")
    with pytest.raises(TaskFailed, match="ResultGone"):
        AsyncResult[int]("second").get(LONG)
    assert worker.client is not None


def test_a_chain_puts_one_job_that_waits_and_the_rest_behind_it(site: Any) -> None:
    result = chain(add.s(1), group(add.s(n) for n in range(20)), total.s()).delay()
    counts = client.queues["q"].counts()
    assert (counts.waiting, counts.depends) == (1, 21)
    assert result.job().dependencies == [result.parent.id]
    assert result.job().data == {"args": [], "kwargs": {}, "from_group": result.parent.id}
