"""What a client does with a job."""

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

from .conftest import SkewedClient, Way

pytestmark = pytest.mark.redis


def kept(valkey: Redis, jid: str) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in valkey.hgetall(f"ql:j:{jid}").items()}


async def test_a_job_is_put_as_every_client_puts_it(client: Client, valkey: Redis, way: Way) -> None:
    jid = await way(client.queues["q"].put, "shop.jobs.Send", {"order": 7})
    assert len(jid) == 32
    assert int(jid, 16)
    found = kept(valkey, jid)
    assert float(found.pop("time")) == pytest.approx(time.time(), abs=30)
    assert found == {
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


async def test_options_of_a_put(client: Client, valkey: Redis, way: Way) -> None:
    queue = client.queues["q"]
    await way(queue.put, "K", jid="first")
    options = {"jid": "j", "priority": 3, "tags": ["a", "b"], "retries": 2, "depends": ["first"], "delay": 60}
    assert await way(queue.put, "K", [1], **options) == "j"
    found = kept(valkey, "j")
    assert [found[name] for name in ("priority", "tags", "retries", "state")] == ["3", '["a","b"]', "2", "depends"]
    assert float(found["scheduled"]) == pytest.approx(time.time() + 60, abs=30)
    job = await way(client.jobs.get, "j")
    assert (job.priority, job.tags, job.original_retries, job.dependencies) == (3, ["a", "b"], 2, ["first"])
    assert (await way(client.jobs.get, "first")).dependents == ["j"]


async def test_a_jid_put_again_is_moved_with_the_defaults(client: Client, valkey: Redis, way: Way) -> None:
    await way(client.queues["q"].put, "K", 1, jid="j", priority=9, tags=["a"], retries=1)
    await way(client.queues["p"].put, "L", 2, jid="j")
    found = kept(valkey, "j")
    assert [found[name] for name in ("queue", "klass", "data", "priority", "tags", "retries")] == [
        *("p", "L", "2", "0", "{}", "5")
    ]
    assert client.queues["q"].length() == 0


async def test_the_txid_under_way_travels_with_a_job(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    with txid.bound() as current:
        jids = [await way(queue.put, "K"), await way(queue.put, "K", jid="given")]
        jids += await way(queue.put_many, [{"klass": "K"}, {"klass": "K", "priority": 1}])
    assert [client.jobs.get(jid).txid for jid in jids] == [current] * 4  # type: ignore[union-attr]
    bare = await way(queue.put, "K")
    assert client.jobs.get(bare).txid is None  # type: ignore[union-attr]


async def test_the_life_of_a_job(client: SkewedClient, way: Way) -> None:
    queue = client.queues["q"]
    jid = await way(queue.put, "K", {"n": [1, 2.5, None]}, tags=["a"])
    job = await way(queue.pop)
    assert isinstance(job, Job)
    assert (job.jid, job.klass, job.queue_name, job.worker_name, job.state) == (jid, "K", "q", "w", "running")
    assert (job.data, job.tags, job.failure, job.tracked, job.txid) == ({"n": [1, 2.5, None]}, ["a"], {}, False, None)
    assert (job.dependencies, job.dependents, job.spawned_from_jid) == ([], [], None)
    assert (job.original_retries, job.retries_left, job.priority) == (5, 5, 0)
    assert [each["what"] for each in job.raw_queue_history] == ["put", "popped"]
    assert 50 < job.ttl() <= 60
    assert job.queue().name == "q"
    assert job.description() == f"K ({jid} / q / running)"
    client.skew = 30
    assert await way(job.heartbeat) == job.expires_at == pytest.approx(client.clock() + 60, abs=5)
    await way(job.progress, 0.25, "begun")
    now = await way(job.result)
    assert (now.state, now.progress, now.message, now.result) == ("running", 0.25, "begun", None)
    assert not job.state_changed
    assert await way(job.complete, result={"sent": True}) == "complete"
    assert job.state_changed
    done = await way(client.jobs.result, jid)
    assert (done.state, done.result) == ("complete", {"sent": True})
    over = await way(client.jobs.get, jid)
    assert (over.state, over.queue_name, over.worker_name) == ("complete", "", "")
    assert await way(client.jobs.complete) == [jid]


async def test_a_job_goes_on_to_the_next_queue(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    for jid, options, told in (
        ("a", {"next": "p"}, "waiting"),
        ("b", {"next": "p", "delay": 60}, "scheduled"),
        ("c", {"next": "p", "depends": ["a"]}, "depends"),
    ):
        await way(queue.put, "K", jid=jid)
        assert await way((await way(queue.pop)).complete, **options) == told
    counts = await way(client.queues["p"].counts)
    assert (counts.waiting, counts.scheduled, counts.depends) == (1, 1, 1)


async def test_a_job_may_change_its_data_before_it_ends(client: Client, valkey: Redis, way: Way) -> None:
    queue = client.queues["q"]
    for end, args in (
        ("heartbeat", ()),
        ("complete", ()),
        ("fail", ("g", "m")),
        ("requeue", ("p",)),
    ):
        await way(queue.put, "K", {"n": 1}, jid=end)
        job = await way(queue.pop)
        job.data["n"] = 2
        await way(getattr(job, end), *args)
        assert kept(valkey, end)["data"] == '{"n":2}'
        job.data = "other"
        assert job.raw_data == '"other"'
        if end == "heartbeat":
            await way(job.cancel)


async def test_data_that_nobody_looked_at_keep_their_text(client: Client, valkey: Redis, way: Way) -> None:
    text = '{ "a" : 1.50, "b":[ ] }'
    await way(client.call, "put", "other", "q", "j", "K", text, 0)
    job = await way(client.queues["q"].pop)
    await way(job.heartbeat)
    await way(job.complete)
    assert kept(valkey, "j")["data"] == text


async def test_a_failed_job(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    jid = await way(queue.put, "K")
    assert await way((await way(queue.pop)).fail, "broken", "it broke") == jid
    assert await way(client.jobs.failed) == {"broken": 1}
    found = await way(client.jobs.failed, "broken")
    assert found.total == 1
    (job,) = found.jobs
    assert job.state == "failed"
    assert {**job.failure, "when": 0} == {"group": "broken", "message": "it broke", "when": 0, "worker": "w"}
    assert await way(client.unfail, "broken", "p") == 1
    assert await way(client.jobs.failed) == {}
    assert (await way(client.queues["p"].pop)).jid == jid


async def test_unfail_all_puts_each_group_into_the_queue_of_its_newest_job(client: Client, way: Way) -> None:
    for queue, group, count in (("q", "one", 3), ("p", "two", 2)):
        for _ in range(count):
            client.queues[queue].put("K")
            client.queues[queue].pop().fail(group, "m")  # type: ignore[union-attr]
    assert await way(client.unfail_all) == 5
    assert [counts.waiting for counts in await way(client.queues.counts)] == [3, 2]
    assert await way(client.unfail_all) == 0


async def test_a_retry_counts_and_fails_when_there_are_none(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    await way(queue.put, "K", jid="j", retries=1)
    assert await way((await way(queue.pop)).retry, 0, "late", "too late") == 0
    job = await way(queue.pop)
    assert job.retries_left == 0
    assert job.failure["message"] == "too late"
    assert await way(job.retry) == -1
    assert job.state_changed
    assert await way(client.jobs.failed) == {"failed-retries-q": 1}
    await way(queue.put, "K", jid="k")
    assert await way((await way(queue.pop)).retry, 60) == 4
    assert await way(queue.jobs.scheduled) == ["k"]
    with pytest.raises(InvalidArgument, match="a message without a group"):
        await way(client.jobs.get("k").retry, message="m")  # type: ignore[union-attr]


async def test_a_requeue_sends_what_the_job_has(client: Client, valkey: Redis, way: Way) -> None:
    queue = client.queues["q"]
    await way(queue.put, "K", jid="first")
    await way(queue.put, "K", {"n": 1}, jid="j", priority=3, tags=["a"], retries=2, depends=["first"])
    job = await way(client.jobs.get, "j")
    assert await way(job.requeue, "p") == "j"
    found = kept(valkey, "j")
    assert [found[name] for name in ("queue", "data", "priority", "tags", "retries", "state")] == [
        *("p", '{"n":1}', "3", '["a"]', "2", "depends")
    ]
    assert await way(job.requeue, "p", data=[], priority=0, tags=[], retries=1, delay=5) == "j"
    found = kept(valkey, "j")
    assert [found[name] for name in ("data", "priority", "tags", "retries")] == ["[]", "0", "{}", "1"]
    await way(job.undepend, all=True)
    await way(job.cancel)
    with pytest.raises(NoSuchJob, match="does not exist"):
        await way(job.requeue, "p")


async def test_what_changes_a_job_whatever_its_state(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    await way(queue.put, "K", jid="a")
    await way(queue.put, "K", jid="b")
    await way(queue.put, "K", jid="j", depends=["a"])
    job = await way(client.jobs.get, "j")
    assert await way(job.tag, "x", "y") == job.tags == ["x", "y"]
    assert await way(job.untag, "x") == ["y"]
    assert (await way(client.jobs.tagged, "y")).jobs == ["j"]
    assert await way(job.track) is True
    assert await way(job.track) is False
    assert job.tracked
    assert [each.jid for each in (await way(client.jobs.tracked)).jobs] == ["j"]
    assert await way(job.untrack) is True
    assert await way(job.untrack) is False
    await way(job.depend, "b")
    assert sorted((await way(client.jobs.get, "j")).dependencies) == ["a", "b"]
    await way(job.undepend, "a")
    assert (await way(client.jobs.get, "j")).dependencies == ["b"]
    await way(job.undepend, all=True)
    with pytest.raises(DependencyError, match="not in the depends state: waiting"):
        await way(job.depend, "b")
    await way(job.log, "seen", {"by": "me"})
    last = (await way(client.jobs.get, "j")).raw_queue_history[-1]
    assert (last["what"], last["by"]) == ("seen", "me")
    await way(job.set_priority, 5)
    assert job.priority == 5
    job.priority = 7
    assert (await way(client.jobs.get, "j")).priority == 7
    assert (await way(queue.peek)).jid == "j"


async def test_what_is_refused(client: Client, valkey_url: str, way: Way) -> None:
    queue = client.queues["q"]
    other = Client(valkey_url, worker_name="other")
    await way(queue.put, "K", jid="j")
    job = await way(queue.pop)
    await way(job.timeout)
    assert (await way(client.jobs.get, "j")).state == "stalled"
    with pytest.raises(CannotTimeout):
        await way(job.timeout)
    for method, args, kind in (
        (job.complete, (), CannotComplete),
        (job.fail, ("g", "m"), CannotFail),
        (job.retry, (), CannotRetry),
        (job.heartbeat, (), LostLock),
        (job.progress, (1,), LostLock),
    ):
        with pytest.raises(kind, match="not currently running"):
            await way(method, *args)
    assert (await way(other.queues["q"].pop)).jid == "j"
    for method, args in (
        (job.complete, ()),
        (job.fail, ("g", "m")),
        (job.retry, ()),
        (job.heartbeat, ()),
        (job.progress, (1,)),
    ):
        with pytest.raises(LostLock, match="other"):
            await way(method, *args)
    assert not job.state_changed
    await way(client.jobs.get("j").cancel)  # type: ignore[union-attr]
    for method, args in ((job.complete, ()), (job.tag, ("x",)), (job.log, ("m",)), (job.set_priority, (1,))):
        with pytest.raises(NoSuchJob, match="does not exist"):
            await way(method, *args)
    assert await way(job.result) is None
    other.close()


async def test_jobs_that_depend_are_canceled_together(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    await way(queue.put, "K", jid="a")
    await way(queue.put, "K", jid="b", depends=["a"])
    with pytest.raises(DependencyError, match="is a dependency of b"):
        await way(client.jobs.get("a").cancel)  # type: ignore[union-attr]
    assert sorted(await way(client.bulk_cancel, ["a", "b"])) == ["a", "b"]
    assert await way(client.bulk_cancel, []) == []
    assert await way(client.jobs.multiget, "a", "b") == []


async def test_hooks(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    for what, args in (
        ("complete", ()),
        ("fail", ("g", "m")),
        ("retry", ()),
        ("requeue", ("p",)),
        ("cancel", ()),
    ):
        jid = await way(queue.put, "K")
        job = await way(queue.pop)
        seen: list[Any] = []
        getattr(job, f"before_{what}")(lambda job, seen=seen: seen.append(("before", job.jid, job.state_changed)))
        getattr(job, f"before_{what}")(lambda job, seen=seen: seen.append("second"))
        getattr(job, f"after_{what}")(lambda job, seen=seen: seen.append(("after", job.state_changed)))
        await way(getattr(job, what), *args)
        assert seen == [("before", jid, False), "second", ("after", True)]
        await way(client.bulk_cancel, [jid])


async def test_a_hook_that_raises_before_prevents_it(client: Client, way: Way) -> None:
    await way(client.queues["q"].put, "K", jid="j")
    job = await way(client.queues["q"].pop)

    @job.before_complete
    def never(job: Job) -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        await way(job.complete)
    assert (await way(client.jobs.get, "j")).state == "running"
    assert not job.state_changed


async def test_a_hook_that_is_a_coroutine_function_is_for_asyncio(client: Client) -> None:
    queue = client.queues["q"]
    queue.put_many([{"klass": "K"}, {"klass": "K"}])
    seen = []

    async def hook(job: Job) -> None:
        seen.append(job.jid)

    one, two = queue.pop(2)
    one.before_complete(hook)
    two.before_complete(hook)
    await one.acomplete()
    with pytest.raises(InvalidArgument, match="coroutine function"):
        two.complete()
    assert seen == [one.jid]


async def test_a_mock_job(client: Client) -> None:
    job = Job.build(client, "K", data={"n": 1}, tags=["a"])
    assert (job.worker_name, job.queue_name, job.state, job.original_retries) == (
        *("mock_worker", "mock_queue", "running", 5),
    )
    assert (job.data, job.tags, job.failure, job.raw_queue_history) == ({"n": 1}, ["a"], {}, [])
    assert 3500 < job.ttl() <= 3600
    with pytest.raises(NoSuchJob):
        job.complete()


async def test_the_history_and_failure_of_a_job_of_another_client(client: Client, valkey: Redis, way: Way) -> None:
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
    job = await way(client.jobs.get, "old")
    assert (job.klass, job.data, job.tags, job.priority, job.retries_left) == ("Mail::Send", [], [], 1.5, -1)
    assert (job.expires_at, job.failure["when"]) == (0, 1400000000.1234)
    assert [(each["what"], each["when"]) for each in job.raw_queue_history] == [
        *(("put", 1400000000), ("popped", 1400000010))
    ]
