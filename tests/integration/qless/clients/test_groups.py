"""The client and callbacks, policies, groups, graphs of jobs, and stuck jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from redis import Redis

from resty_django.qless import (
    Callback,
    Client,
    DependencyError,
    GraphTooLarge,
    GroupError,
    InvalidArgument,
    JobSpec,
    NoSuchJob,
)
from resty_django.qless.clients.graph import requeue
from resty_django.qless.clients.put_options import JobOutcome
from resty_django.qless.clients.replies import StuckJob
from tests.integration.qless.conftest import Invoke, SkewedClient, pop

pytestmark = [pytest.mark.redis, pytest.mark.contract]

CALLBACK = ["s", "callbacks", "Callback", {"args": []}]


def states(client: Client, jids: Iterable[str]) -> list[str | None]:
    jobs = {job.jid: job.state for job in client.jobs.multiget(*jids)}
    return [jobs.get(jid) for jid in jids]


def run(client: Client, jid: str, end: str = "complete") -> None:
    job = pop(client.queues["q"])
    assert job.jid == jid
    if end == "complete":
        job.complete()
    else:
        job.fail("q-KeyError", "KeyError: 'x'")


def chain(client: Client, *jids: str, **outcome: Any) -> None:
    """Put jobs that depend on each other, with the policy `fail`; the last one has this outcome, too."""
    for n, jid in enumerate(jids):
        fields = {"policy": "fail"} | (outcome if jid == jids[-1] else {})
        client.queues["q"].put("K", jid=jid, depends=jids[n - 1 : n], outcome=fields)


async def test_a_put_sends_its_callbacks_and_policies(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    callback = Callback("f", "callbacks", "Callback", {"n": 1}, {"priority": 3})
    fields = {"success": [CALLBACK], "failure": [callback], "policy": "fail", "policy:a": "skip"}
    await invoke(queue.put, "K", jid="a")
    await invoke(queue.put, "K", jid="j", depends=["a"], outcome=fields)
    await invoke(queue.put_many, [JobSpec(klass="K", jid="k", depends=["a"], outcome=fields)])
    expected = JobOutcome(
        success=(Callback("s", "callbacks", "Callback", {"args": []}),),
        failure=(callback,),
        policy="fail",
        policies={"a": "skip"},
    )
    assert await invoke((await invoke(client.jobs.get, "j")).outcome) == expected
    assert await invoke(client.jobs.outcome, "k") == expected
    assert await invoke(client.jobs.outcome, "a") is await invoke(client.jobs.outcome, "none") is None
    run(client, "a", "fail")
    assert states(client, "ajk") == ["failed", "complete", "complete"]


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ({"sucess": []}, "unknown field 'sucess'. Did you mean 'success'?"),
        ({"policy": "skipp"}, "unknown policy 'skipp'. Did you mean 'skip'?"),
        ({"success": "s"}, "success must be a list of callbacks, not a str"),
        ({"success": [["s"]]}, r"A callback is a list \[jid, queue, klass, data, options\]"),
        ({"success": [["s", "q", "K", {}]]}, "must be a dict with at least one name"),
        ({"success": [["s", "q", "K", '{"broken']]}, "must be a dict with at least one name"),
        ({"success": [["s", "q", "K", [1]]]}, "must be a dict with at least one name"),
        ({"failure": [["s", "q", "K", {"a": 1}, {}, 1]]}, "A callback is a list"),
        (["group"], "outcome must be a dict, not a list"),
    ],
)
async def test_wrong_outcomes_are_refused(client: Client, invoke: Invoke, outcome: Any, message: str) -> None:
    queue = client.queues["q"]
    with pytest.raises(InvalidArgument, match=message):
        await invoke(queue.put, "K", outcome=outcome)
    with pytest.raises(InvalidArgument, match=message):
        await invoke(queue.put_many, [{"klass": "K", "outcome": outcome}])
    assert await invoke(queue.length) == 0


async def test_a_group_counts_its_members(client: SkewedClient, invoke: Invoke) -> None:
    groups = client.groups
    assert await invoke(groups.open, "g", "Import", on_success=[CALLBACK], on_complete=[["c", *CALLBACK[1:]]]) == "g"
    chain(client, "a", group="g")
    chain(client, "b", group="g")
    group = await invoke(groups.get, "g")
    assert (group.id, group.name, group.state, group.total, group.left) == ("g", "Import", "open", 2, 2)
    assert (group.reason, group.incomplete, group.ended_at) == (None, False, None)
    assert group.created_at == pytest.approx(client.clock(), abs=60)
    assert await invoke(groups.close, "g") == "running"
    run(client, "a")
    assert await invoke(groups.jobs, "g") == [("a", "complete"), ("b", "waiting")]
    assert await invoke(groups.jobs, "g", 1, 5) == [("b", "waiting")]
    callbacks = await invoke(groups.callbacks, "g")
    assert [callback.jid for callback in callbacks.success + callbacks.complete] == ["s", "c"]
    assert callbacks.failure == ()
    run(client, "b")
    group = await invoke(groups.get, "g")
    assert (group.state, group.done, group.left) == ("complete", 2, 0)
    assert group.ended_at == pytest.approx(client.clock(), abs=60)
    assert states(client, "sc") == ["waiting", "waiting"]
    assert await invoke(groups.get, "none") is await invoke(groups.callbacks, "none") is None
    assert await invoke(groups.jobs, "none") == []


async def test_groups_are_listed_in_pages(client: SkewedClient, invoke: Invoke) -> None:
    assert (await invoke(client.groups.list)).groups == []
    for number in range(130):
        client.skew = number
        client.groups.open(f"g{number}", "")
    page = await invoke(client.groups.list)
    assert page.total == 130
    assert [group.id for group in page.groups] == [f"g{number}" for number in range(129, 104, -1)]
    assert len((await invoke(client.groups.list, 0, 1000)).groups) == 130
    assert [group.id for group in (await invoke(client.groups.list, 128, 10)).groups] == ["g1", "g0"]


async def test_wrong_calls_of_groups_are_refused(client: Client, invoke: Invoke) -> None:
    groups = client.groups
    for call in (groups.close, groups.cancel, groups.retry):
        with pytest.raises(GroupError, match="does not exist"):
            await invoke(call, "none")
    with pytest.raises(GroupError, match="does not exist"):
        await invoke(client.queues["q"].put, "K", outcome={"group": "none"})
    await invoke(groups.open, "g", "")
    with pytest.raises(GroupError, match="already exists"):
        await invoke(groups.open, "g", "")
    await invoke(groups.close, "g")
    with pytest.raises(GroupError, match="is closed"):
        await invoke(client.queues["q"].put, "K", outcome={"group": "g"})
    for name in ("", "a b"):
        with pytest.raises(InvalidArgument, match="spaces"):
            await invoke(groups.open, name, "")
    with pytest.raises(InvalidArgument, match="on_failure"):
        await invoke(groups.open, "h", "", on_failure=["f"])


async def test_a_group_is_canceled_as_a_whole(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    for name in ("inner", "g"):
        client.groups.open(name, "")
    chain(client, "done", group="g")
    chain(client, "one", "two", "end", group="g")
    chain(client, "m", group="inner")
    client.groups.close("inner")
    queue.put("K", jid="body", depends=["inner"], outcome={"group": "g"})
    queue.put("K", jid="shared")
    queue.put("K", jid="other", depends=["shared"])
    queue.put("K", jid="needs", depends=["shared"], outcome={"group": "g"})
    queue.put("K", jid="after", depends=["g"], outcome={"policy": "fail"})
    client.groups.close("g")
    run(client, "done")
    running = pop(client.queues["q"])
    assert running.jid == "one"
    assert await invoke(client.groups.cancel, "g") == 6
    names = ("done", "one", "two", "end", "m", "body", "shared", "other", "needs", "after")
    expected = ["complete", None, None, None, None, None, "waiting", "depends", None, "failed"]
    assert states(client, names) == expected
    group = client.groups.get("g")
    assert group is not None
    assert (group.state, group.done, group.canceled, group.left) == ("failed", 1, 3, 0)
    assert await invoke(client.groups.cancel, "g") == 0


async def test_cancel_of_a_group_whose_members_others_need(client: Client, invoke: Invoke) -> None:
    client.groups.open("g", "")
    chain(client, "m", group="g")
    chain(client, "n", group="g")
    client.queues["q"].put("K", jid="x", depends=["m"])
    with pytest.raises(DependencyError, match="Job x"):
        await invoke(client.groups.cancel, "g")
    assert states(client, "mnx") == ["waiting", "waiting", "depends"]


async def test_a_large_group_is_canceled_in_several_calls(client: Client, invoke: Invoke) -> None:
    client.groups.open("g", "")
    client.queues["q"].put_many(
        {"klass": "K", "jid": f"{n}", "depends": [f"{n - 1}"] if n else [], "outcome": {"group": "g"}}
        for n in range(230)
    )
    client.groups.close("g")
    assert await invoke(client.groups.cancel, "g") == 230
    assert client.queues["q"].counts().depends == client.queues["q"].length() == 0


async def test_failed_members_of_a_group_are_retried(client: Client, invoke: Invoke) -> None:
    client.groups.open("g", "")
    chain(client, "a", "b", group="g")
    chain(client, "c", group="g")
    client.groups.close("g")
    run(client, "a", "fail")
    run(client, "c", "fail")
    assert states(client, "abc") == ["failed", "failed", "failed"]
    assert await invoke(client.groups.retry, "g") == 2
    assert states(client, "abc") == ["waiting", "depends", "waiting"]
    assert await invoke(client.groups.retry, "g") == 0
    for jid in "cab":
        run(client, jid)
    group = client.groups.get("g")
    assert group is not None
    assert group.state == "complete"


def tangle(client: Client) -> None:
    """Two chains that end in a group, for which a job waits; one more job shares a dependency with them."""
    client.groups.open("g", "")
    chain(client, "a", "b", group="g")
    chain(client, "c", "d", group="g")
    client.groups.close("g")
    client.queues["q"].put("K", jid="body", depends=["g"], outcome={"policy": "fail"})
    client.queues["q"].put("K", jid="side", depends=["c"])
    client.queues["q"].put("K", jid="apart")


@pytest.mark.parametrize("start", ["a", "b", "d", "body", "side", "g"])
async def test_the_graph_of_a_job_contains_all_connected_jobs(client: Client, invoke: Invoke, start: str) -> None:
    tangle(client)
    graph = await invoke(client.jobs.graph, start)
    assert graph.jobs.keys() == {"a", "b", "c", "d", "body", "side"}
    assert graph.groups.keys() == {"g"}
    order = graph.not_complete()
    assert set(order) == graph.jobs.keys()
    for first, second in (("body", "b"), ("b", "a"), ("body", "d"), ("d", "c"), ("side", "c")):
        assert order.index(first) < order.index(second)


async def test_a_graph_that_is_too_large_is_refused(client: Client, invoke: Invoke) -> None:
    tangle(client)
    assert len((await invoke(client.jobs.graph, "a", 6)).jobs) == 6
    for call in (client.jobs.graph, client.cancel_graph, client.retry_graph):
        with pytest.raises(GraphTooLarge, match="5"):
            await invoke(call, "a", 5)
        with pytest.raises(GraphTooLarge, match="1"):
            await invoke(call, "g", 1)
        with pytest.raises(NoSuchJob):
            await invoke(call, "none")
    assert states(client, ("a", "body")) == ["waiting", "depends"]


async def test_a_graph_is_canceled_as_a_whole(client: Client, invoke: Invoke) -> None:
    tangle(client)
    run(client, "a")
    running = pop(client.queues["q"])
    assert running.jid == "c"
    assert await invoke(client.cancel_graph, "d") == 5
    assert states(client, ("a", "b", "c", "d", "body", "side")) == ["complete", *[None] * 5]
    assert client.jobs.multiget("apart")[0].state == "waiting"
    assert client.queues["q"].counts().depends == 0


async def test_a_large_graph_is_canceled_in_several_calls(client: Client, invoke: Invoke) -> None:
    client.queues["q"].put_many(
        {"klass": "K", "jid": f"{n}", "depends": [f"{n // 2}"] if n > 1 else []} for n in range(1, 300)
    )
    assert await invoke(client.cancel_graph, "250") == 299
    assert client.queues["q"].counts().depends == client.queues["q"].length() == 0


async def test_failed_jobs_of_a_graph_are_retried(client: Client, invoke: Invoke) -> None:
    tangle(client)
    run(client, "a", "fail")
    run(client, "c", "fail")
    names = ("a", "b", "c", "d", "body", "side")
    assert states(client, names) == ["failed"] * 5 + ["depends"]
    assert {job.jid for job in client.jobs.graph("body").failed()} == {"a", "c"}
    assert await invoke(client.retry_graph, "body") == 2
    assert states(client, names) == ["waiting", "depends", "waiting", "depends", "depends", "depends"]
    assert await invoke(client.retry_graph, "body") == 0


async def test_a_job_that_runs_again_keeps_its_worker(client: Client, invoke: Invoke) -> None:
    chain(client, "a")
    run(client, "a", "fail")
    failed = client.jobs.multiget("a")
    await invoke(failed[0].requeue, "q")
    assert client.queues["q"].pop() is not None
    await client.arun(requeue(client, failed))
    assert states(client, ["a"]) == ["running"]


class Crowded(SkewedClient):
    """A client before whose first cancels another client puts a job that depends on `a`."""

    late = 0

    def perform(self, request: Any) -> Any:
        if request[0] == "cancel" and self.late:
            self.late -= 1
            self.queues["q"].put("K", jid=f"late-{self.late}", depends=["a"])
        return super().perform(request)


def test_jobs_that_are_put_during_a_cancel_are_canceled(client: Client, valkey_url: str) -> None:
    crowded = Crowded(valkey_url)
    chain(client, "a", "b")
    crowded.late = 2
    assert crowded.cancel_graph("b") == 4
    assert states(client, ("a", "b", "late-0", "late-1")) == [None] * 4
    chain(client, "a", "b")
    crowded.late = 1000
    with pytest.raises(DependencyError):
        crowded.cancel_graph("b")
    crowded.late = 0
    assert crowded.cancel_graph("a") > 0
    assert client.queues["q"].counts().depends == client.queues["q"].length() == 0
    crowded.close()


async def test_callbacks_whose_data_are_not_json_are_shown(client: Client, valkey: Redis, invoke: Invoke) -> None:
    chain(client, "a", "b", success=[CALLBACK])
    valkey.hset("ql:o:b", "success", '[["s","q","K","{\\"broken"]]')
    outcome = await invoke(client.jobs.outcome, "b")
    assert outcome.success == (Callback("s", "q", "K", '{"broken'),)
    assert await invoke(client.cancel_graph, "a") == 2


def break_jobs(client: Client, valkey: Redis) -> list[StuckJob]:
    """Leave jobs that no worker will ever run, as foreign clients do; return them."""
    for jid in "abcd":
        client.queues["q"].put("K", jid=jid)
        client.queues["q"].put("K", jid=f"{jid}-waits", depends=[jid])
    client.queues["q"].put("K", jid="loop", depends=["loop"])
    client.queues["r"].put("K", jid="apart", depends=["d"])
    valkey.delete("ql:j:a")
    valkey.hset("ql:j:b", "state", "complete")
    valkey.hset("ql:j:c", "state", "failed")
    valkey.srem("ql:j:apart-dependencies", "d")
    return [
        StuckJob("a-waits", "q", "a", "gone"),
        StuckJob("b-waits", "q", "b", "complete"),
        StuckJob("c-waits", "q", "c", "failed"),
        StuckJob("loop", "q", "loop", "itself"),
        StuckJob("apart", "r", None, "nothing"),
    ]


async def test_stuck_jobs_are_listed_with_their_reason(client: Client, valkey: Redis, invoke: Invoke) -> None:
    stuck = break_jobs(client, valkey)
    assert [list(client.stuck()), list(client.stuck("r")), list(client.stuck("none"))] == [stuck, stuck[4:], []]
    assert [job async for job in client.astuck()] == stuck
    assert [job async for job in client.astuck("r")] == stuck[4:]
    page = await invoke(client.queues["q"].stuck, "", 2)
    assert (page.jobs, page.cursor) == (stuck[:2], "2")
    assert (await invoke(client.queues["q"].stuck, page.cursor)).jobs == stuck[2:4]


async def test_stuck_jobs_are_found_among_many_that_wait(client: Client) -> None:
    client.queues["q"].put("K", jid="a")
    client.queues["q"].put_many({"klass": "K", "depends": ["a"]} for _ in range(250))
    client.queues["q"].put("K", jid="loop", depends=["loop"])
    assert [job.jid for job in client.stuck()] == ["loop"]
    assert [job.jid async for job in client.astuck()] == ["loop"]
