"""Groups, with a real server and a worker in a thread."""

from __future__ import annotations

import time
from typing import Any

import pytest

from resty_django.qless import (
    GroupOutcome,
    GroupResult,
    InvalidArgument,
    NoSuchJob,
    TaskFailed,
    chain,
    chord,
    client,
    group,
)
from resty_django.qless.clients import graph
from resty_django.qless.tasks import message
from tests.integration.qless.conftest import LONG
from tests.integration.qless.tasks import examples
from tests.integration.qless.tasks.examples import add, fails, note, once_an_order, report, silent, total
from tests.integration.qless.worker.conftest import InProcessWorker, wait_for

pytestmark = pytest.mark.redis


def test_a_group_is_one_object(running: InProcessWorker) -> None:
    result = group(
        (add.s(n, n) for n in range(5)), name="doubles", on_success=report, on_complete=note.si("end")
    ).delay()
    assert result.join(LONG) == [0, 2, 4, 6, 8]
    assert isinstance(result, GroupResult)
    assert (len(result), result.completed_count()) == (5, 5)
    assert (result.ready(), result.successful(), result.failed()) == (True, True, False)
    assert (result.name, result.state, result.progress) == ("doubles", "SUCCESS", (5, 0, 0, 0, 0, 5))
    wait_for(lambda: len(examples.TRAIL) == 2)
    assert (GroupOutcome(result.id, "doubles", "complete", 5, 5),) in examples.TRAIL
    again = GroupResult.restore(result.id)
    assert again == result
    assert [member.id for member in again] == [member.id for member in result]
    assert again.get(LONG) == [0, 2, 4, 6, 8]
    assert dict(again.iter_native(LONG)) == {
        member.id: {"status": "SUCCESS", "result": 2 * n} for n, member in enumerate(result)
    }


async def test_a_group_works_in_asyncio(running: InProcessWorker) -> None:
    result = await group(add.s(1), add.s(2)).adelay()
    assert await result.aget(LONG) == [2, 3]
    assert [ended async for ended in result.aiter_native(LONG)] == [
        (result[0].id, {"status": "SUCCESS", "result": 2}),
        (result[1].id, {"status": "SUCCESS", "result": 3}),
    ]
    states = (await result.astate(), await result.aready(), await result.asuccessful(), await result.afailed())
    assert states == ("SUCCESS", True, True, False)
    again = GroupResult(result.id)
    assert (await again.acompleted_count(), await again.aname(), (await again.aprogress()).left) == (2, add.name, 0)
    assert [member.id for member in await again.aresults()] == [member.id for member in result]


def test_what_a_group_sends(site: Any, valkey: Any) -> None:
    result = (group(add.s(1), chain(add.s(1), add.s(2)), on_failure=report) | total.s()).delay()
    fields = valkey.hgetall(f"ql:g:{result.parent.id}")
    assert fields.keys() == {b"name", b"state", b"at", b"total", b"failure"}
    assert (fields[b"state"], fields[b"total"], fields[b"name"]) == (b"running", b"2", add.name.encode())
    members = [jid.decode() for jid in valkey.lrange(f"ql:g:{result.parent.id}-jobs", 0, -1)]
    assert members == [member.id for member in result.parent]
    assert valkey.smembers(f"ql:j:{result.parent.id}-dependents") == {result.id.encode()}
    assert valkey.hget(f"ql:o:{members[1]}", "policy") == b"fail"
    assert valkey.zcard("ql:open-groups") == 0


def test_an_empty_group_succeeds_at_once(running: InProcessWorker) -> None:
    result = group([], on_success=report).delay()
    assert (result.get(LONG), result.state, len(result)) == ([], "SUCCESS", 0)
    assert list(result.iter_native(LONG)) == []
    wait_for(lambda: [(GroupOutcome(result.id, "", "complete"),)] == examples.TRAIL)
    assert chord([], total.s()).delay().get(LONG) == 0
    ordered = chain(note.si("first"), group([]), total.s(7), add.s(1)).delay()
    assert ordered.get(LONG) == 8
    assert examples.TRAIL[1:] == [["first", {}]]


def test_a_failed_member_fails_the_group(running: InProcessWorker) -> None:
    result = group(add.s(1), fails.s("one"), on_failure=report, on_success=note).delay()
    with pytest.raises(TaskFailed, match="ValueError: one") as caught:
        result.get(LONG)
    assert caught.value.jid == result[1].id
    wait_for(result.ready)
    assert (result.state, result.successful(), result.failed(), result.completed_count()) == ("FAILURE", False, True, 1)
    wait_for(lambda: len(examples.TRAIL) == 1)
    (((outcome,),)) = examples.TRAIL
    assert outcome == GroupOutcome(result.id, "", "failed", 2, 1, 1, reason=result[1].id)
    ended = dict(result.iter_native(LONG))
    assert [ended[member.id]["status"] for member in result] == ["SUCCESS", "FAILURE"]
    assert isinstance(ended[result[1].id]["result"], TaskFailed)
    examples.GO.set()
    client.unfail("q-ValueError", "q")
    assert result.get(LONG) == [2, None]


def test_a_group_may_skip_or_release_its_body(running: InProcessWorker) -> None:
    skipping = (group(add.s(1), fails.s(), if_failed="skip") | note.s()).delay()
    assert (skipping.get(LONG), skipping.state) == (None, "SKIPPED")
    for body in (
        group(add.s(1), fails.s(), silent.s(), if_failed="release") | note.si("x"),
        group(add.s(1), fails.s(), silent.s()) | note.si("x").set(allow_failure=True),
    ):
        assert body.delay().get(LONG) == ["x", {}]
    released = chord([add.s(1), fails.s(), add.s(2)], note.s().set(allow_failure=True)).delay()
    assert released.get(LONG) == [[2, None, 3], {}]


def test_a_link_of_a_group_gets_the_results(running: InProcessWorker) -> None:
    group([add.s(1), add.s(2)], link=note.s("sum")).delay()
    wait_for(lambda: examples.TRAIL == [[[2, 3], "sum", {}]])
    with pytest.raises(TypeError, match="keeps no result"):
        group([silent.s()], link=note.s()).delay()


def test_a_group_may_contain_a_unique_task_twice(running: InProcessWorker) -> None:
    result = group(once_an_order.s(1, "a"), once_an_order.s(1, "b"), once_an_order.s(2, "c")).delay()
    assert result.get(LONG)[2] == "c"
    assert (result.progress.total, result.progress.done) == (3, 3)
    assert result[0] == result[1]
    assert len(dict(result.iter_native(LONG))) == 2


def test_a_canceled_member_ends_the_group(running: InProcessWorker) -> None:
    result = group(add.s(1), add.s(2).set(countdown=60)).delay()
    wait_for(lambda: result.completed_count() == 1)
    assert result.state == "STARTED"
    with pytest.raises(TimeoutError, match=f"The group {result.id} did not end within"):
        result.get(0.01)
    result[1].revoke()
    assert result.progress == (1, 0, 0, 1, 0, 2)
    assert [ended["status"] for _, ended in result.iter_native(LONG)] == ["SUCCESS", "GONE"]
    with pytest.raises(NoSuchJob, match="1 tasks of the group"):
        result.get(LONG)


def test_tasks_that_depend_on_a_group(running: InProcessWorker) -> None:
    header = group(add.s(1), fails.s("in the header")).delay()
    for depends in ([header], [header.id], header):
        with pytest.raises(TaskFailed, match="in the header"):
            note.apply_async(("after",), depends=depends).get(LONG)
    assert note.apply_async(("after",), depends=[header], allow_failure=True).get(LONG) == ["after", {}]


def test_a_member_fails_before_the_body_is_enqueued(running: InProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands are sent one by one, and the worker is faster."""
    monkeypatch.setattr(message, "MAX_REQUESTS_PER_BATCH", 1)
    call_many = client.client.call_many

    def slow(requests: Any) -> Any:
        replies = call_many(requests)
        if requests[0][0] == "put":
            jid = requests[0][3]
            wait_for(lambda: client.jobs.get(jid).state in ("failed", "complete", "depends"))
        return replies

    monkeypatch.setattr(client.client, "call_many", slow)
    result = chain(group(fails.s("fast"), add.s(1)), note.s(), note.s("end")).apply_async(on_failure=report)
    with pytest.raises(TaskFailed, match="ValueError: fast") as caught:
        result.get(LONG)
    assert caught.value.jid == result.parent.parent[0].id
    wait_for(lambda: len(examples.TRAIL) == 1)
    assert result.parent.parent.progress == (1, 1, 0, 0, 0, 2)


def test_an_unknown_group_is_gone(site: Any) -> None:
    unknown = GroupResult("unknown")
    assert (unknown.state, unknown.progress.total, unknown.name, len(unknown)) == ("GONE", 0, "", 0)
    with pytest.raises(NoSuchJob, match="The group unknown does not exist"):
        unknown.get()


def test_a_group_that_is_not_closed_within_an_hour_fails(site: Any, running: InProcessWorker) -> None:
    """The core fails a group that is not closed within an hour."""
    client.call("group.open", "left", "")
    client.call("put", "w", "q", "member", add.name, '{"args":[1],"kwargs":{}}', 0, "outcome", '{"group":"left"}')
    result = GroupResult("left")
    wait_for(lambda: result.completed_count() == 1)
    assert result.state == "STARTED"
    now = time.time() + 3601
    earlier, client.client.clock = client.client.clock, lambda: now  # type: ignore[misc]
    try:
        client.tidy()
    finally:
        client.client.clock = earlier  # type: ignore[misc]
    with pytest.raises(TaskFailed, match="its client did not finish enqueuing it"):
        result.get(LONG)


def test_a_group_may_have_thousands_of_members(running: InProcessWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MEMBERS_PER_CALL", 700)
    result = chord([add.s(n, 0) for n in range(3000)], total.s()).delay()
    assert result.get(600) == sum(range(3000))
    assert result.job().dependencies == []
    assert result.parent.progress == (3000, 0, 0, 0, 0, 3000)
    assert result.parent.get(LONG) == list(range(3000))
    assert len(list(result.parent.iter_native(LONG))) == 3000


def test_a_group_is_revoked_with_the_steps_before_its_members(site: Any) -> None:
    result = (group(add.s(1), chain(add.s(1), add.s(2))) | total.s()).delay()
    before = result.parent[1].parent
    result.parent.revoke()
    assert [member.state for member in (*result.parent, before)] == ["GONE", "GONE", "GONE"]
    assert (result.parent.state, result.parent.progress.canceled) == ("FAILURE", 2)
    assert (result.state, result.job().failure["group"]) == ("FAILURE", "q-DependencyFailed")


def test_a_group_is_retried(running: InProcessWorker) -> None:
    result = (group(add.s(1), chain(fails.s(), add.si(2))) | note.s()).delay()
    wait_for(result.parent.ready)
    examples.GO.set()
    assert result.parent.retry() == 1
    assert result.get(LONG) == [[2, 3], {}]


def test_graphs_are_retried_and_revoked_as_a_whole(running: InProcessWorker) -> None:
    result = chain(add.s(1), group(fails.si(), add.s(2)), note.s(), note.s("end")).delay()
    with pytest.raises(TaskFailed):
        result.get(LONG)
    wait_for(result.parent.parent.ready)
    examples.GO.set()
    assert result.retry(graph=True) == 1
    assert result.get(LONG)[0][0] == [None, 4]
    waiting = chain(add.s(1).set(countdown=60), group(add.s(3), add.s(2)), note.s(), note.s("end")).delay()
    waiting.parent.revoke(graph=True)
    results = [waiting, waiting.parent, *waiting.parent.parent, waiting.parent.parent.parent]
    assert {each.state for each in results} == {"GONE"}


def test_one_task_is_retried(running: InProcessWorker) -> None:
    result = chain(fails.s(), add.si(1)).delay()
    with pytest.raises(TaskFailed):
        result.get(LONG)
    examples.GO.set()
    assert (result.parent.retry(), result.get(LONG), result.retry()) == (1, 2, 0)
    with pytest.raises(NoSuchJob):
        GroupResult("unknown", results=[type(result)("unknown")])[0].retry()


@pytest.mark.parametrize("batch", [1, 500])
def test_a_group_with_a_refused_member_fails(
    running: InProcessWorker, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(message, "MAX_REQUESTS_PER_BATCH", batch)
    client.config.set("max-payload", 2000)
    members = [add.s(1), add.s("x" * 2000), add.s(3)]
    with pytest.raises(InvalidArgument, match="max-payload"):
        (group(members, on_success=note.s("success"), on_failure=report) | total.s()).delay()
    (refused,) = client.groups.list().groups
    result = GroupResult(refused.id)
    wait_for(result.ready)
    assert (result.state, client.groups.get(refused.id).incomplete) == ("FAILURE", True)
    with pytest.raises(TaskFailed, match="its client did not finish enqueuing it"):
        result.get(LONG)
    wait_for(lambda: len(examples.TRAIL) == 1)
    assert examples.TRAIL[0][0].state == "failed"


async def test_a_group_with_a_refused_member_fails_in_asyncio(running: InProcessWorker) -> None:
    client.config.set("max-payload", 2000)
    with pytest.raises(InvalidArgument, match="max-payload"):
        await group(add.s(1), add.s("x" * 2000)).adelay()
    (refused,) = client.groups.list().groups
    wait_for(GroupResult(refused.id).ready)
    assert client.groups.get(refused.id).incomplete
