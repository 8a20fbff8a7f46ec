"""Jobs of the client: their life, changes, hooks and errors."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from redis import Redis

from resty_django import txid
from resty_django.qless import (
    CannotComplete,
    CannotFail,
    CannotRetry,
    CannotTimeout,
    Client,
    DependencyError,
    InvalidArgument,
    Job,
    LostLock,
    NoSuchJob,
)
from tests.integration.qless.conftest import Invoke, SkewedClient

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def kept(valkey: Redis, jid: str) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in valkey.hgetall(f"ql:j:{jid}").items()}


async def test_a_job_is_put_as_every_client_puts_it(client: Client, valkey: Redis, invoke: Invoke) -> None:
    jid = await invoke(client.queues["q"].put, "shop.jobs.Send", {"order": 7})
    assert len(jid) == 32
    assert int(jid, 16)
    fields = kept(valkey, jid)
    assert float(fields.pop("time")) == pytest.approx(time.time(), abs=30)
    assert fields == {
        "jid": jid,
        "klass": "shop.jobs.Send",
        "data": '{"order":7}',
        "priority": "0",
        "tags": "{}",
        "state": "waiting",
        "worker": "",
        "expires": "0",
        "queue": "q",
        "retries": "5",
        "remaining": "5",
    }


async def test_a_put_sends_its_options(client: Client, valkey: Redis, invoke: Invoke) -> None:
    queue = client.queues["q"]
    await invoke(queue.put, "K", jid="first")
    options = {"jid": "j", "priority": 3, "tags": ["a", "b"], "retries": 2, "depends": ["first"], "delay": 60}
    assert await invoke(queue.put, "K", [1], **options) == "j"
    fields = kept(valkey, "j")
    assert [fields[name] for name in ("priority", "tags", "retries", "state")] == ["3", '["a","b"]', "2", "depends"]
    assert float(fields["scheduled"]) == pytest.approx(time.time() + 60, abs=30)
    job = await invoke(client.jobs.get, "j")
    assert (job.priority, job.tags, job.original_retries, job.dependencies) == (3, ["a", "b"], 2, ["first"])
    assert (await invoke(client.jobs.get, "first")).dependents == ["j"]


async def test_a_jid_put_again_is_moved_with_the_defaults(client: Client, valkey: Redis, invoke: Invoke) -> None:
    await invoke(client.queues["q"].put, "K", 1, jid="j", priority=9, tags=["a"], retries=1)
    await invoke(client.queues["p"].put, "L", 2, jid="j")
    fields = kept(valkey, "j")
    assert [fields[name] for name in ("queue", "klass", "data", "priority", "tags", "retries")] == [
        *("p", "L", "2", "0", "{}", "5")
    ]
    assert client.queues["q"].length() == 0


async def test_a_job_carries_the_current_txid(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    with txid.bound(request_id="web-1.example_7") as current:
        jids = [await invoke(queue.put, "K"), await invoke(queue.put, "K", jid="given")]
        jids += await invoke(queue.put_many, [{"klass": "K"}, {"klass": "K", "priority": 1}])
    assert [client.jobs.get(jid).txid for jid in jids] == [current] * 4  # type: ignore[union-attr]
    assert [client.jobs.get(jid).request_id for jid in jids] == ["web-1.example_7"] * 4  # type: ignore[union-attr]
    with txid.bound() as current:
        await invoke(queue.put, "K", jid="given")
    again = client.jobs.get("given")
    assert (again.txid, again.request_id) == (current, None)  # type: ignore[union-attr]
    bare = await invoke(queue.put, "K")
    assert client.jobs.get(bare).txid is None  # type: ignore[union-attr]
    assert client.jobs.get(bare).request_id is None  # type: ignore[union-attr]


async def test_a_job_goes_from_put_to_complete_with_all_its_fields(client: SkewedClient, invoke: Invoke) -> None:
    queue = client.queues["q"]
    jid = await invoke(queue.put, "K", {"n": [1, 2.5, None]}, tags=["a"])
    job = await invoke(queue.pop)
    assert isinstance(job, Job)
    assert (job.jid, job.klass, job.queue_name, job.worker_name, job.state) == (jid, "K", "q", "w", "running")
    assert (job.data, job.tags, job.failure, job.tracked, job.txid) == ({"n": [1, 2.5, None]}, ["a"], {}, False, None)
    assert (job.dependencies, job.dependents, job.spawned_from_jid) == ([], [], None)
    assert (job.original_retries, job.retries_left, job.priority) == (5, 5, 0)
    assert [entry["what"] for entry in job.raw_queue_history] == ["put", "popped"]
    assert 50 < job.ttl() <= 60
    assert job.queue().name == "q"
    assert job.description() == f"K ({jid} / q / running)"
    client.skew = 30
    assert await invoke(job.heartbeat) == job.expires_at == pytest.approx(client.clock() + 60, abs=5)
    await invoke(job.progress, 0.25, "begun")
    now = await invoke(job.result)
    assert (now.state, now.progress, now.message, now.result) == ("running", 0.25, "begun", None)
    assert not job.state_changed
    assert await invoke(job.complete, result={"sent": True}) == "complete"
    assert job.state_changed
    done = await invoke(client.jobs.result, jid)
    assert (done.state, done.result) == ("complete", {"sent": True})
    completed = await invoke(client.jobs.get, jid)
    assert (completed.state, completed.queue_name, completed.worker_name) == ("complete", "", "")
    assert await invoke(client.jobs.complete) == [jid]


async def test_a_completed_job_moves_to_the_next_queue(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    for jid, options, state in (
        ("a", {"next": "p"}, "waiting"),
        ("b", {"next": "p", "delay": 60}, "scheduled"),
        ("c", {"next": "p", "depends": ["a"]}, "depends"),
    ):
        await invoke(queue.put, "K", jid=jid)
        assert await invoke((await invoke(queue.pop)).complete, **options) == state
    counts = await invoke(client.queues["p"].counts)
    assert (counts.waiting, counts.scheduled, counts.depends) == (1, 1, 1)


async def test_a_job_may_change_its_data_before_it_ends(client: Client, valkey: Redis, invoke: Invoke) -> None:
    queue = client.queues["q"]
    for end, args in (
        ("heartbeat", ()),
        ("complete", ()),
        ("fail", ("g", "m")),
        ("requeue", ("p",)),
    ):
        await invoke(queue.put, "K", {"n": 1}, jid=end)
        job = await invoke(queue.pop)
        job.data["n"] = 2
        await invoke(getattr(job, end), *args)
        assert kept(valkey, end)["data"] == '{"n":2}'
        job.data = "other"
        assert job.raw_data == '"other"'
        if end == "heartbeat":
            await invoke(job.cancel)


async def test_data_that_were_not_accessed_keep_their_text(client: Client, valkey: Redis, invoke: Invoke) -> None:
    text = '{ "a" : 1.50, "b":[ ] }'
    await invoke(client.call, "put", "other", "q", "j", "K", text, 0)
    job = await invoke(client.queues["q"].pop)
    await invoke(job.heartbeat)
    await invoke(job.complete)
    assert kept(valkey, "j")["data"] == text


async def test_a_failed_job_is_listed_and_can_be_unfailed(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    jid = await invoke(queue.put, "K")
    assert await invoke((await invoke(queue.pop)).fail, "broken", "it broke") == jid
    assert await invoke(client.jobs.failed) == {"broken": 1}
    failures = await invoke(client.jobs.failed, "broken")
    assert failures.total == 1
    (job,) = failures.jobs
    assert job.state == "failed"
    assert {**job.failure, "when": 0} == {"group": "broken", "message": "it broke", "when": 0, "worker": "w"}
    assert await invoke(client.unfail, "broken", "p") == 1
    assert await invoke(client.jobs.failed) == {}
    assert (await invoke(client.queues["p"].pop)).jid == jid


async def test_unfail_all_puts_each_group_into_the_queue_of_its_newest_job(client: Client, invoke: Invoke) -> None:
    for queue, group, count in (("q", "one", 3), ("p", "two", 2)):
        for _ in range(count):
            client.queues[queue].put("K")
            client.queues[queue].pop().fail(group, "m")  # type: ignore[union-attr]
    assert await invoke(client.unfail_all) == 5
    assert [counts.waiting for counts in await invoke(client.queues.counts)] == [3, 2]
    assert await invoke(client.unfail_all) == 0


async def test_a_retry_counts_and_fails_when_there_are_none(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    await invoke(queue.put, "K", jid="j", retries=1)
    assert await invoke((await invoke(queue.pop)).retry, 0, "late", "too late") == 0
    job = await invoke(queue.pop)
    assert job.retries_left == 0
    assert job.failure["message"] == "too late"
    assert await invoke(job.retry) == -1
    assert job.state_changed
    assert await invoke(client.jobs.failed) == {"failed-retries-q": 1}
    await invoke(queue.put, "K", jid="k")
    assert await invoke((await invoke(queue.pop)).retry, 60) == 4
    assert await invoke(queue.jobs.scheduled) == ["k"]
    with pytest.raises(InvalidArgument, match="group"):
        await invoke(client.jobs.get("k").retry, message="m")  # type: ignore[union-attr]


async def test_a_requeue_sends_what_the_job_has(client: Client, valkey: Redis, invoke: Invoke) -> None:
    queue = client.queues["q"]
    await invoke(queue.put, "K", jid="first")
    await invoke(queue.put, "K", {"n": 1}, jid="j", priority=3, tags=["a"], retries=2, depends=["first"])
    job = await invoke(client.jobs.get, "j")
    assert await invoke(job.requeue, "p") == "j"
    fields = kept(valkey, "j")
    assert [fields[name] for name in ("queue", "data", "priority", "tags", "retries", "state")] == [
        *("p", '{"n":1}', "3", '["a"]', "2", "depends")
    ]
    assert await invoke(job.requeue, "p", data=[], priority=0, tags=[], retries=1, delay=5) == "j"
    fields = kept(valkey, "j")
    assert [fields[name] for name in ("data", "priority", "tags", "retries")] == ["[]", "0", "{}", "1"]
    await invoke(job.undepend, all=True)
    await invoke(job.cancel)
    with pytest.raises(NoSuchJob):
        await invoke(job.requeue, "p")


async def test_changes_that_are_possible_in_any_state(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    await invoke(queue.put, "K", jid="a")
    await invoke(queue.put, "K", jid="b")
    await invoke(queue.put, "K", jid="j", depends=["a"])
    job = await invoke(client.jobs.get, "j")
    assert await invoke(job.tag, "x", "y") == job.tags == ["x", "y"]
    assert await invoke(job.untag, "x") == ["y"]
    assert (await invoke(client.jobs.tagged, "y")).jobs == ["j"]
    assert await invoke(job.track) is True
    assert await invoke(job.track) is False
    assert job.tracked
    assert [tracked.jid for tracked in (await invoke(client.jobs.tracked)).jobs] == ["j"]
    assert await invoke(job.untrack) is True
    assert await invoke(job.untrack) is False
    await invoke(job.depend, "b")
    assert sorted((await invoke(client.jobs.get, "j")).dependencies) == ["a", "b"]
    await invoke(job.undepend, "a")
    assert (await invoke(client.jobs.get, "j")).dependencies == ["b"]
    await invoke(job.undepend, all=True)
    with pytest.raises(DependencyError):
        await invoke(job.depend, "b")
    await invoke(job.log, "seen", {"by": "me"})
    last = (await invoke(client.jobs.get, "j")).raw_queue_history[-1]
    assert (last["what"], last["by"]) == ("seen", "me")
    await invoke(job.set_priority, 5)
    assert job.priority == 5
    job.priority = 7
    assert (await invoke(client.jobs.get, "j")).priority == 7
    assert (await invoke(queue.peek)).jid == "j"


async def test_changes_that_a_state_does_not_allow_are_refused(client: Client, valkey_url: str, invoke: Invoke) -> None:
    queue = client.queues["q"]
    other_client = Client(valkey_url, worker_name="other")
    await invoke(queue.put, "K", jid="j")
    job = await invoke(queue.pop)
    await invoke(job.timeout)
    assert (await invoke(client.jobs.get, "j")).state == "stalled"
    with pytest.raises(CannotTimeout):
        await invoke(job.timeout)
    for method, args, kind in (
        (job.complete, (), CannotComplete),
        (job.fail, ("g", "m"), CannotFail),
        (job.retry, (), CannotRetry),
        (job.heartbeat, (), LostLock),
        (job.progress, (1,), LostLock),
    ):
        with pytest.raises(kind):
            await invoke(method, *args)
    assert (await invoke(other_client.queues["q"].pop)).jid == "j"
    for method, args in (
        (job.complete, ()),
        (job.fail, ("g", "m")),
        (job.retry, ()),
        (job.heartbeat, ()),
        (job.progress, (1,)),
    ):
        with pytest.raises(LostLock, match="other"):
            await invoke(method, *args)
    assert not job.state_changed
    await invoke(client.jobs.get("j").cancel)  # type: ignore[union-attr]
    for method, args in ((job.complete, ()), (job.tag, ("x",)), (job.log, ("m",)), (job.set_priority, (1,))):
        with pytest.raises(NoSuchJob):
            await invoke(method, *args)
    assert await invoke(job.result) is None
    other_client.close()


async def test_jobs_that_depend_are_canceled_together(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    await invoke(queue.put, "K", jid="a")
    await invoke(queue.put, "K", jid="b", depends=["a"])
    with pytest.raises(DependencyError):
        await invoke(client.jobs.get("a").cancel)  # type: ignore[union-attr]
    assert sorted(await invoke(client.bulk_cancel, ["a", "b"])) == ["a", "b"]
    assert await invoke(client.bulk_cancel, []) == []
    assert await invoke(client.jobs.multiget, "a", "b") == []


async def test_hooks_run_before_and_after_each_end(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    for what, args in (
        ("complete", ()),
        ("fail", ("g", "m")),
        ("retry", ()),
        ("requeue", ("p",)),
        ("cancel", ()),
    ):
        jid = await invoke(queue.put, "K")
        job = await invoke(queue.pop)
        calls: list[Any] = []
        getattr(job, f"before_{what}")(lambda job, calls=calls: calls.append(("before", job.jid, job.state_changed)))
        getattr(job, f"before_{what}")(lambda job, calls=calls: calls.append("second"))
        getattr(job, f"after_{what}")(lambda job, calls=calls: calls.append(("after", job.state_changed)))
        await invoke(getattr(job, what), *args)
        assert calls == [("before", jid, False), "second", ("after", True)]
        await invoke(client.bulk_cancel, [jid])


async def test_a_hook_that_raises_prevents_the_change(client: Client, invoke: Invoke) -> None:
    await invoke(client.queues["q"].put, "K", jid="j")
    job = await invoke(client.queues["q"].pop)

    @job.before_complete
    def never(job: Job) -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        await invoke(job.complete)
    assert (await invoke(client.jobs.get, "j")).state == "running"
    assert not job.state_changed


async def test_a_hook_that_is_a_coroutine_function_is_for_asyncio(client: Client) -> None:
    queue = client.queues["q"]
    queue.put_many([{"klass": "K"}, {"klass": "K"}])
    jids = []

    async def hook(job: Job) -> None:
        jids.append(job.jid)

    first, two = queue.pop(2)
    first.before_complete(hook)
    two.before_complete(hook)
    await first.acomplete()
    with pytest.raises(InvalidArgument, match="coroutine"):
        two.complete()
    assert jids == [first.jid]


async def test_a_job_can_be_built_without_a_server(client: Client) -> None:
    job = Job.build(client, "K", data={"n": 1}, tags=["a"])
    assert (job.worker_name, job.queue_name, job.state, job.original_retries) == (
        *("mock_worker", "mock_queue", "running", 5),
    )
    assert (job.data, job.tags, job.failure, job.raw_queue_history) == ({"n": 1}, ["a"], {}, [])
    assert 3500 < job.ttl() <= 3600
    with pytest.raises(NoSuchJob):
        job.complete()


async def test_the_history_and_failure_of_a_job_of_another_client(
    client: Client, valkey: Redis, invoke: Invoke
) -> None:
    """Written as the Ruby client's core writes them: keys in other orders, lists as [], an old history in the hash."""
    valkey.hset(
        "ql:j:old",
        mapping={
            **{"jid": "old", "klass": "Mail::Send", "data": "[]", "priority": "1.5", "tags": "[]", "state": "failed"},
            **{"queue": "q", "worker": "", "expires": "", "retries": "5", "remaining": "-1"},
            "failure": json.dumps({"worker": "w2", "when": 1400000000.1234, "message": "m", "group": "g"}),
            "history": json.dumps([{"q": "q", "put": 1400000000, "popped": 1400000010.5, "worker": "w2"}]),
        },
    )
    job = await invoke(client.jobs.get, "old")
    assert (job.klass, job.data, job.tags, job.priority, job.retries_left) == ("Mail::Send", [], [], 1.5, -1)
    assert (job.expires_at, job.failure["when"]) == (0, 1400000000.1234)
    assert [(entry["what"], entry["when"]) for entry in job.raw_queue_history] == [
        *(("put", 1400000000), ("popped", 1400000010))
    ]


ENDS = {
    "complete": ((), "handed out to another worker: w"),
    "complete result": ((), "handed out to another worker: w"),
    "advance": (("next",), "handed out to another worker: w"),
    "fail": (("group", "message"), "running with another worker: w"),
    "retry": ((3, "group", "message"), "given to another worker: w"),
    "heartbeat": ((), "given out to another worker: w"),
    "progress": ((0.5,), "given out to another worker: w"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_only_its_worker_ends_a_job(
    client: Client, valkey: Redis, valkey_url: str, invoke: Invoke, end: str
) -> None:
    """Others find it by its jid, as any process of a site may, and get the error of the core."""
    jid = client.queues["q"].put("K", {"a": 1})
    popped = client.queues["q"].pop()
    stranger = Client(valkey_url, worker_name="stranger")
    before = kept(valkey, jid)
    job: Any = await invoke(stranger.jobs.get, jid)
    name = {"advance": "complete", "complete result": "complete"}.get(end, end)
    job.data["a"] = 2
    args, message = ENDS[end]
    with pytest.raises(LostLock, match=message):
        await invoke(getattr(job, name), *args, **({"result": 1} if end == "complete result" else {}))
    assert not job.state_changed
    assert kept(valkey, jid) == before
    assert (await invoke(client.jobs.result, jid)).progress is None
    # any client with the name of the worker may, also through another object
    same_job: Any = await invoke(client.jobs.get, jid)
    await invoke(getattr(same_job, name), *args)
    assert popped is not None
    stranger.close()


async def test_a_job_without_a_worker_has_no_holder(client: Client, invoke: Invoke) -> None:
    jid = client.queues["q"].put("K")
    for method, args, kind in (
        ("complete", (), CannotComplete),
        ("fail", ("g", "m"), CannotFail),
        ("retry", (), CannotRetry),
        ("heartbeat", (), LostLock),
    ):
        job = await invoke(client.jobs.get, jid)
        with pytest.raises(kind):
            await invoke(getattr(job, method), *args)
