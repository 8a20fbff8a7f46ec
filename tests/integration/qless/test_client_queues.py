"""What a client does with queues, workers, options and recurring jobs, and what it finds."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from resty_django.qless import Client, InvalidArgument, JobSpec, NoSuchJob, QueueNotEmpty, RecurringJob
from resty_django.qless.puts import CHUNK

from .conftest import SkewedClient, Way

pytestmark = pytest.mark.redis


async def test_pop_and_peek_give_one_or_a_list(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    assert await way(queue.pop) is await way(queue.peek) is None
    assert await way(queue.pop, 3) == await way(queue.peek, 3) == []
    jids = await way(queue.put_many, [{"klass": "K", "priority": 9 - n} for n in range(4)])
    assert (await way(queue.peek)).jid == jids[0]
    assert [job.jid for job in await way(queue.peek, 9)] == jids
    assert (await way(queue.pop)).jid == jids[0]
    assert [job.jid for job in await way(queue.pop, 2)] == jids[1:3]
    assert await way(queue.pop, 0) == []
    with pytest.raises(InvalidArgument, match="must not be negative"):
        await way(queue.pop, -1)


async def test_put_many_takes_dicts_and_specs(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    jids = await way(
        queue.put_many,
        [
            {"klass": "K", "data": {"n": 1}},
            JobSpec(klass="L", jid="j", delay=60, retries=0),
            {"klass": JobSpec, "tags": ("a", "b"), "depends": ["j"], "priority": 2, "retries": 1},
        ],
    )
    assert jids[1] == "j"
    one, two, three = await way(client.jobs.multiget, *jids)
    assert (one.klass, one.data, one.original_retries, one.state) == ("K", {"n": 1}, 5, "waiting")
    assert (two.klass, two.data, two.original_retries, two.state) == ("L", None, 0, "scheduled")
    assert (three.klass, three.tags, three.dependencies) == ("resty_django.qless.values.JobSpec", ["a", "b"], ["j"])
    assert (three.priority, three.original_retries, three.state) == (2, 1, "depends")


async def test_put_many_of_more_than_one_call(client: Client, way: Way) -> None:
    count = 2 * CHUNK + 7
    jids = await way(client.queues["q"].put_many, ({"klass": "K", "data": n} for n in range(count)))
    assert len(set(jids)) == count == await way(client.queues["q"].length)
    assert (await way(client.jobs.get, jids[-1])).data == count - 1
    assert await way(client.queues["q"].put_many, []) == []


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"klass": "K", "dealy": 1}, "knows no dealy"),
        ({"data": 1}, "needs a klass"),
        ("K", "not a str"),
        ({"klass": "K", "tags": "abc"}, "tags must be a list"),
        ({"klass": "K", "priority": "high"}, "not a number"),
    ],
)
async def test_put_many_refuses_a_chunk_as_a_whole(client: Client, way: Way, job: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        await way(client.queues["q"].put_many, [{"klass": "K"}, job])
    assert await way(client.queues["q"].length) == 0


async def test_counts_lengths_and_lists(client: SkewedClient, way: Way) -> None:
    queue = client.queues["q"]
    for jid in "abc":
        await way(queue.put, "K", jid=jid)
    await way(queue.put, "K", jid="late", delay=60)
    await way(queue.put, "K", jid="behind", depends=["a"])
    await way(queue.recur, "K", {}, 60, jid="r", offset=90)
    await way(queue.pop)
    counts = await way(queue.counts)
    assert (counts.name, counts.waiting, counts.running, counts.stalled, counts.scheduled) == ("q", 2, 1, 0, 1)
    assert (counts.depends, counts.recurring, counts.paused) == (1, 1, False)
    assert await way(client.queues.counts) == [counts]
    assert await way(queue.length) == 4
    assert await way(queue.jobs.waiting) == ["b", "c"]
    assert await way(queue.jobs.waiting, 1, 1) == ["c"]
    assert await way(queue.jobs.running) == ["a"]
    assert await way(queue.jobs.scheduled) == ["late"]
    assert await way(queue.jobs.depends) == ["behind"]
    assert await way(queue.jobs.recurring) == ["r"]
    assert await way(queue.jobs.stalled) == []
    client.skew = 61
    assert await way(queue.jobs.stalled) == ["a"]
    assert (await way(queue.counts)).stalled == 1


async def test_the_time_when_a_queue_is_due(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    assert await way(queue.due) is None
    await way(queue.put, "K", delay=60)
    assert await way(queue.due) == pytest.approx(time.time() + 60, abs=20)


async def test_statistics(client: SkewedClient, way: Way) -> None:
    queue = client.queues["q"]
    await way(queue.put, "K")
    job = await way(queue.pop)
    await way(job.complete)
    found = await way(queue.stats)
    assert (found.retries, found.failed, found.failures, found.run.count, found.wait.count) == (0, 0, 0, 1, 1)
    assert len(found.run.histogram) == 148
    assert (await way(queue.stats, time.time() - 3 * 86400)).run.count == 0
    assert sum((await way(queue.throughput)).hours) == 1


async def test_a_paused_queue_hands_out_nothing(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    jids = await way(queue.put_many, [{"klass": "K", "priority": -n} for n in range(3)])
    await way(queue.pop)
    assert await way(queue.paused) is False
    await way(queue.pause)
    assert await way(queue.paused) is True
    assert await way(queue.pop) is None
    assert (await way(client.jobs.get, jids[0])).state == "running"
    await way(queue.pause, stop_jobs=True)
    assert (await way(client.jobs.get, jids[0])).state == "stalled"
    await way(queue.pause, stop_jobs=True)
    await way(queue.unpause)
    assert len(await way(queue.pop, 9)) == 3


async def test_a_queue_is_forgotten_once_it_is_empty(client: Client, way: Way) -> None:
    queue = client.queues["q"]
    await way(queue.put, "K", jid="j")
    with pytest.raises(QueueNotEmpty, match="1 waiting"):
        await way(queue.forget)
    await way(client.bulk_cancel, ["j"])
    await way(queue.forget)
    assert await way(client.queues.counts) == []


async def test_options(client: Client, way: Way) -> None:
    config, queue = client.config, client.queues["q"]
    assert (await way(config.get, "heartbeat"), await way(config.get, "nothing", 7)) == (60, 7)
    for value, told in (
        (90, 90),
        ("90", 90),
        (1.5, 1.5),
        (True, 1),
        ("007", "007"),
        ("1e3", "1e3"),
        ("Grüße", "Grüße"),
        ("-3", -3),
    ):
        await way(config.set, "own", value)
        assert await way(config.get, "own") == told
        assert (await way(config.all))["own"] == told
    await way(config.set, "application", "2048")
    assert await way(config.get, "application") == "2048"
    await way(config.unset, "application")
    assert await way(config.get, "application") == "qless"
    assert await way(queue.get_heartbeat) == 60
    await way(config.set, "heartbeat", 45)
    assert await way(queue.get_heartbeat) == 45
    queue.heartbeat = 20
    assert queue.heartbeat == await way(queue.get_heartbeat) == await way(queue.config_get, "heartbeat") == 20
    assert queue.max_concurrency == 0
    queue.max_concurrency = 3
    assert queue.max_concurrency == await way(queue.get_max_concurrency) == 3
    assert await way(client.config_get, "q-max-concurrency") == 3
    await way(client.config_clear, "q-max-concurrency")
    await way(client.config_set, "q-heartbeat", 5)
    assert (await way(client.config_get_all))["q-heartbeat"] == 5
    await way(queue.put, "K")
    assert (await way(queue.pop)).ttl() <= 5


async def test_workers(client: Client, way: Way) -> None:
    await way(client.queues["q"].put, "K", jid="j")
    await way(client.queues["q"].pop)
    (counts,) = await way(client.workers.counts)
    assert (counts.name, counts.jobs, counts.stalled) == ("w", 1, 0)
    assert client.workers["w"] == await way(client.workers.get, "w")
    assert client.workers["w"].jobs == ["j"]
    assert client.workers["nobody"].jobs == client.workers["nobody"].stalled == []
    await way(client.deregister_workers, ["w", "nobody"])
    await way(client.deregister_workers, [])
    assert await way(client.workers.counts) == []


async def test_tags_tracked_and_tagged(client: Client, way: Way) -> None:
    jids = await way(
        client.queues["q"].put_many,
        [{"klass": "K", "jid": jid, "tags": tags} for jid, tags in (("1", ["a", "b"]), ("2", ["a"]))],
    )
    assert await way(client.tags) == ["a"]
    found = await way(client.jobs.tagged, "a", 1, 1)
    assert (found.total, found.jobs) == (2, jids[1:])
    assert await way(client.track, jids[0]) is True
    tracked = await way(client.jobs.tracked)
    assert ([job.jid for job in tracked.jobs], tracked.expired) == (jids[:1], [])
    await way(client.bulk_cancel, jids)
    tracked = await way(client.jobs.tracked)
    assert (tracked.jobs, tracked.expired) == ([], jids[:1])
    with pytest.raises(NoSuchJob):
        await way(client.track, "nobody")
    assert await way(client.tags) == []


async def test_a_search(client: Client, way: Way) -> None:
    jids = await way(client.queues["q"].put_many, [{"klass": "KL"[n % 2], "priority": -n} for n in range(6)])
    found = await way(client.jobs.search, klass="K", count=2)
    assert found.jobs == [jids[4], jids[2]]
    more = await way(client.jobs.search, klass="K", count=2, cursor=found.cursor)
    assert (more.jobs, more.cursor) == ([jids[0]], "")
    assert (await way(client.jobs.search, state="complete")).jobs == []
    with pytest.raises(InvalidArgument, match="Unknown state"):
        await way(client.jobs.search, state="asleep")


async def test_nothing_is_there(client: Client, way: Way) -> None:
    assert await way(client.jobs.get, "nobody") is None
    assert await way(client.jobs.multiget) == await way(client.jobs.multiget, "nobody") == []
    assert await way(client.jobs.failed) == {}
    assert await way(client.jobs.failed, "g") == (await way(client.jobs.failed, "g"))
    assert (await way(client.jobs.failed, "g")).jobs == []
    assert await way(client.queues.counts) == await way(client.workers.counts) == []
    assert await way(client.jobs.result, "nobody") is None


async def test_a_recurring_job(client: Client, valkey: Redis, way: Way) -> None:
    queue = client.queues["q"]
    options = {"jid": "r", "priority": 2, "tags": ["a"], "backlog": 3, "offset": 60}
    assert await way(queue.recur, "K", {"n": 1}, 90, **options) == "r"
    job = await way(client.jobs.get, "r")
    assert isinstance(job, RecurringJob)
    assert (job.jid, job.klass, job.klass_name, job.queue_name, job.state) == ("r", "K", "K", "q", "recur")
    assert (job.data, job.priority, job.tags, job.backlog, job.interval) == ({"n": 1}, 2, ["a"], 3, 90)
    assert (job.retries, job.count, job.last_spawned_jid) == (5, 0, None)
    assert await way(job.last_spawned_job) is None
    assert await way(job.next) == pytest.approx(client.clock() + 60, abs=20)
    job.priority, job.retries, job.interval, job.backlog = 5, 1, 30.5, 0
    job.data, job.klass = [1], "L"
    assert await way(job.tag, "b") == ["a", "b"]
    assert await way(job.untag, "a") == job.tags == ["b"]
    await way(job.move, "p")
    for told in (job, await way(client.jobs.get, "r")):
        assert (told.priority, told.retries, told.interval, told.backlog, told.data) == (5, 1, 30.5, 0, [1])
        assert (told.klass, told.queue_name, told.tags, told.queue().name) == ("L", "p", ["b"], "p")
    with pytest.raises(InvalidArgument, match="has no colour"):
        await way(job.update, colour="red")
    await way(job.cancel)
    assert await way(client.jobs.get, "r") is None
    assert await way(job.next) is None
    with pytest.raises(NoSuchJob):
        await way(job.update, priority=1)


async def test_what_a_recurring_job_spawns(client: SkewedClient, way: Way) -> None:
    queue = client.queues["q"]
    await way(queue.recur, "K", {"n": 1}, 60, jid="r")
    spawned = await way(queue.pop)
    assert (spawned.jid, spawned.spawned_from_jid, spawned.data) == ("r-1", "r", {"n": 1})
    parent = await way(spawned.spawned_from)
    assert (parent.jid, parent.count, parent.last_spawned_jid) == ("r", 1, "r-1")
    assert (await way(parent.last_spawned_job)).jid == "r-1"
    assert await way(client.jobs.get("r-1").spawned_from)  # type: ignore[union-attr]
    client.skew = 61
    assert [job.jid for job in await way(queue.pop, 9)] == ["r-2"]


async def test_many_calls_at_once(client: Client, way: Way) -> None:
    await way(client.queues["q"].put, "K", jid="j")
    requests = [("length", "q"), ("nonsense",), ("get", "j"), ("complete", "j", "w", "q", "{}"), ("length", "q")]
    length, unknown, job, refused, again = await way(client.call_many, requests)
    assert (length, again) == (1, 1)
    assert isinstance(unknown, InvalidArgument)
    assert b'"jid":"j"' in job
    assert str(refused) == "Complete(): Job j is not currently running: waiting"
    assert await way(client.call_many, []) == []
