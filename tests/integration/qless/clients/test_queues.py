"""Queues, workers, options, recurring jobs and searches of the client."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from resty_django.qless import Client, InvalidArgument, JobSpec, NoSuchJob, QueueNotEmpty, RecurringJob
from resty_django.qless.facts import QueuePause, pauses_of
from tests.integration.qless.conftest import Invoke, SkewedClient, job_of

pytestmark = [pytest.mark.redis, pytest.mark.contract]


async def test_pop_and_peek_return_one_or_a_list(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    assert await invoke(queue.pop) is await invoke(queue.peek) is None
    assert await invoke(queue.pop, 3) == await invoke(queue.peek, 3) == []
    jids = await invoke(queue.put_many, [{"klass": "K", "priority": 9 - n} for n in range(4)])
    assert (await invoke(queue.peek)).jid == jids[0]
    assert [job.jid for job in await invoke(queue.peek, 9)] == jids
    assert (await invoke(queue.pop)).jid == jids[0]
    assert [job.jid for job in await invoke(queue.pop, 2)] == jids[1:3]
    assert await invoke(queue.pop, 0) == []
    with pytest.raises(InvalidArgument, match="count"):
        await invoke(queue.pop, -1)


async def test_put_many_takes_dicts_and_specs(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    jids = await invoke(
        queue.put_many,
        [
            {"klass": "K", "data": {"n": 1}},
            JobSpec(klass="L", jid="j", delay=60, retries=0),
            {"klass": JobSpec, "tags": ("a", "b"), "depends": ["j"], "priority": 2, "retries": 1},
        ],
    )
    assert jids[1] == "j"
    first, two, three = await invoke(client.jobs.multiget, *jids)
    assert (first.klass, first.data, first.original_retries, first.state) == ("K", {"n": 1}, 5, "waiting")
    assert (two.klass, two.data, two.original_retries, two.state) == ("L", None, 0, "scheduled")
    assert (three.klass, three.tags, three.dependencies) == (
        "resty_django.qless.clients.put_options.JobSpec",
        ["a", "b"],
        ["j"],
    )
    assert (three.priority, three.original_retries, three.state) == (2, 1, "depends")


async def test_an_unset_delay_is_zero_and_wrong_values_are_refused(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    jids = [await invoke(queue.put, "K", delay=None), *await invoke(queue.put_many, [{"klass": "K", "delay": None}])]
    assert [job_of(client, jid).state for jid in jids] == ["waiting", "waiting"]
    for wrong in (False, "", []):
        with pytest.raises(TypeError, match="delay= must be"):
            await invoke(queue.put_many, [{"klass": "K", "delay": wrong}])


async def test_put_many_of_more_than_one_call(client: Client, invoke: Invoke) -> None:
    count = 207
    jids = await invoke(client.queues["q"].put_many, ({"klass": "K", "data": n} for n in range(count)))
    assert len(set(jids)) == count == await invoke(client.queues["q"].length)
    assert (await invoke(client.jobs.get, jids[-1])).data == count - 1
    assert await invoke(client.queues["q"].put_many, []) == []


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"klass": "K", "dealy": 1}, "unknown field 'dealy'"),
        ({"data": 1}, "needs a klass"),
        ("K", "not a str"),
        ({"klass": "K", "tags": "abc"}, "tags= must be a list"),
        ({"klass": "K", "priority": "high"}, "priority= must be a number"),
    ],
)
async def test_put_many_refuses_a_chunk_as_a_whole(client: Client, invoke: Invoke, job: Any, message: str) -> None:
    with pytest.raises((InvalidArgument, TypeError), match=message):
        await invoke(client.queues["q"].put_many, [{"klass": "K"}, job])
    assert await invoke(client.queues["q"].length) == 0


async def test_unknown_options_are_refused(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    with pytest.raises(TypeError, match="dealy"):
        await invoke(queue.put, "K", dealy=1)
    with pytest.raises(TypeError, match="delay"):
        await invoke(queue.recur, "K", {}, 60, delay=1)
    assert await invoke(queue.length) == 0


async def test_a_queue_counts_and_lists_its_jobs_by_state(client: SkewedClient, invoke: Invoke) -> None:
    queue = client.queues["q"]
    for jid in "abc":
        await invoke(queue.put, "K", jid=jid)
    await invoke(queue.put, "K", jid="late", delay=60)
    await invoke(queue.put, "K", jid="behind", depends=["a"])
    await invoke(queue.recur, "K", {}, 60, jid="r", offset=90)
    await invoke(queue.pop)
    counts = await invoke(queue.counts)
    assert (counts.name, counts.waiting, counts.running, counts.stalled, counts.scheduled) == ("q", 2, 1, 0, 1)
    assert (counts.depends, counts.recurring, counts.paused) == (1, 1, False)
    assert await invoke(client.queues.counts) == [counts]
    assert await invoke(queue.length) == 4
    assert await invoke(queue.jobs.ready) == ["b", "c"]
    assert await invoke(queue.jobs.ready, 1, 1) == ["c"]
    assert await invoke(queue.jobs.in_state, "waiting") == ["b", "c"]
    assert await invoke(queue.jobs.in_state, "scheduled", 0, 1) == ["late"]
    with pytest.raises(InvalidArgument, match="Unknown type"):
        await invoke(queue.jobs.in_state, "ready")
    assert await invoke(queue.jobs.running) == ["a"]
    assert await invoke(queue.jobs.scheduled) == ["late"]
    assert await invoke(queue.jobs.depends) == ["behind"]
    assert await invoke(queue.jobs.recurring) == ["r"]
    assert await invoke(queue.jobs.stalled) == []
    client.skew = 61
    assert await invoke(queue.jobs.stalled) == ["a"]
    assert (await invoke(queue.counts)).stalled == 1


async def test_the_time_when_a_queue_is_due(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    assert await invoke(queue.due) is None
    await invoke(queue.put, "K", delay=60)
    assert await invoke(queue.due) == pytest.approx(time.time() + 60, abs=20)


async def test_statistics_count_runs_and_waits(client: SkewedClient, invoke: Invoke) -> None:
    queue = client.queues["q"]
    await invoke(queue.put, "K")
    job = await invoke(queue.pop)
    await invoke(job.complete)
    stats = await invoke(queue.stats)
    assert (stats.retries, stats.failed, stats.failures, stats.run.count, stats.wait.count) == (0, 0, 0, 1, 1)
    assert len(stats.run.histogram) == 148
    assert (await invoke(queue.stats, time.time() - 3 * 86400)).run.count == 0
    assert sum((await invoke(queue.throughput)).hours) == 1


async def test_latency_is_the_age_of_the_oldest_waiting_job(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    assert await invoke(queue.latency) is None
    await invoke(queue.put, "K")
    assert 0 <= await invoke(queue.latency) < 60


async def test_a_pause_records_who_when_and_why_until_its_end(client: SkewedClient, invoke: Invoke) -> None:
    queue, foreign = client.queues["q"], client.queues["p"]
    client.call("pause", "p")
    await invoke(queue.pause, reason="deploy", by="ann")
    client.skew = 100.0
    await invoke(queue.pause, by="bob")  # it is paused already: only the reason changes
    (pause,) = pauses_of(client, ["q"]).values()
    assert pause.since == pytest.approx(client.clock() - 100, abs=20)
    assert (pause.by, pause.reason) == ("ann", "")
    assert pauses_of(client, ["p"]) == {"p": QueuePause()}
    await invoke(queue.config_set, "paused-since", "yesterday")
    assert pauses_of(client, ["q"])["q"] == QueuePause(by="ann")
    await invoke(queue.unpause)
    await invoke(foreign.unpause)
    assert pauses_of(client, ["q", "p"]) == {"q": QueuePause(), "p": QueuePause()}


async def test_a_paused_queue_hands_out_nothing(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    jids = await invoke(queue.put_many, [{"klass": "K", "priority": -n} for n in range(3)])
    await invoke(queue.pop)
    assert await invoke(queue.paused) is False
    await invoke(queue.pause)
    assert await invoke(queue.paused) is True
    assert await invoke(queue.pop) is None
    assert (await invoke(client.jobs.get, jids[0])).state == "running"
    await invoke(queue.pause, stop_jobs=True)
    assert (await invoke(client.jobs.get, jids[0])).state == "stalled"
    await invoke(queue.pause, stop_jobs=True)
    await invoke(queue.unpause)
    assert len(await invoke(queue.pop, 9)) == 3


async def test_a_queue_is_forgotten_once_it_is_empty(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    await invoke(queue.put, "K", jid="j")
    with pytest.raises(QueueNotEmpty, match="1 waiting"):
        await invoke(queue.forget)
    await invoke(client.bulk_cancel, ["j"])
    await invoke(queue.forget)
    assert await invoke(client.queues.counts) == []


async def test_options_are_read_set_and_unset(client: Client, invoke: Invoke) -> None:
    config, queue = client.config, client.queues["q"]
    assert (await invoke(config.get, "heartbeat"), await invoke(config.get, "nothing", 7)) == (60, 7)
    for value, expected in (
        (90, 90),
        ("90", 90),
        (1.5, 1.5),
        (True, 1),
        ("007", "007"),
        ("1e3", "1e3"),
        ("Grüße", "Grüße"),
        ("-3", -3),
    ):
        await invoke(config.set, "own", value)
        assert await invoke(config.get, "own") == expected
        assert (await invoke(config.all))["own"] == expected
    await invoke(config.set, "application", "2048")
    assert await invoke(config.get, "application") == "2048"
    await invoke(config.unset, "application")
    assert await invoke(config.get, "application") == "qless"
    assert await invoke(queue.get_heartbeat) == 60
    await invoke(config.set, "heartbeat", 45)
    assert await invoke(queue.get_heartbeat) == 45
    queue.heartbeat = 20
    assert queue.heartbeat == await invoke(queue.get_heartbeat) == await invoke(queue.config_get, "heartbeat") == 20
    assert queue.max_concurrency == 0
    queue.max_concurrency = 3
    assert queue.max_concurrency == await invoke(queue.get_max_concurrency) == 3
    assert await invoke(client.config_get, "q-max-concurrency") == 3
    await invoke(client.config_clear, "q-max-concurrency")
    await invoke(client.config_set, "q-heartbeat", 5)
    assert (await invoke(client.config_get_all))["q-heartbeat"] == 5
    await invoke(queue.put, "K")
    assert (await invoke(queue.pop)).ttl() <= 5


async def test_workers_are_listed_and_deregistered(client: Client, invoke: Invoke) -> None:
    await invoke(client.queues["q"].put, "K", jid="j")
    await invoke(client.queues["q"].pop)
    (counts,) = await invoke(client.workers.counts)
    assert (counts.name, counts.jobs, counts.stalled) == ("w", 1, 0)
    assert client.workers["w"] == await invoke(client.workers.get, "w")
    assert client.workers["w"].jobs == ["j"]
    assert client.workers["nobody"].jobs == client.workers["nobody"].stalled == []
    await invoke(client.deregister_workers, ["w", "nobody"])
    await invoke(client.deregister_workers, [])
    assert await invoke(client.workers.counts) == []


async def test_tagged_and_tracked_jobs_are_listed(client: Client, invoke: Invoke) -> None:
    jids = await invoke(
        client.queues["q"].put_many,
        [{"klass": "K", "jid": jid, "tags": tags} for jid, tags in (("1", ["a", "b"]), ("2", ["a"]))],
    )
    assert await invoke(client.tags) == ["a"]
    page = await invoke(client.jobs.tagged, "a", 1, 1)
    assert (page.total, page.jobs) == (2, jids[1:])
    assert await invoke(client.track, jids[0]) is True
    tracked = await invoke(client.jobs.tracked)
    assert ([job.jid for job in tracked.jobs], tracked.expired) == (jids[:1], [])
    await invoke(client.bulk_cancel, jids)
    tracked = await invoke(client.jobs.tracked)
    assert (tracked.jobs, tracked.expired) == ([], jids[:1])
    with pytest.raises(NoSuchJob):
        await invoke(client.track, "nobody")
    assert await invoke(client.tags) == []


async def test_a_search_continues_with_its_cursor(client: Client, invoke: Invoke) -> None:
    jids = await invoke(client.queues["q"].put_many, [{"klass": "KL"[n % 2], "priority": -n} for n in range(6)])
    page = await invoke(client.jobs.search, klass="K", count=2)
    assert page.jobs == [jids[4], jids[2]]
    next_page = await invoke(client.jobs.search, klass="K", count=2, cursor=page.cursor)
    assert (next_page.jobs, next_page.cursor) == ([jids[0]], "")
    assert (await invoke(client.jobs.search, state="complete")).jobs == []
    with pytest.raises(InvalidArgument, match="Unknown state"):
        await invoke(client.jobs.search, state="asleep")


async def test_lookups_of_missing_objects_return_nothing(client: Client, invoke: Invoke) -> None:
    assert await invoke(client.jobs.get, "nobody") is None
    assert await invoke(client.jobs.multiget) == await invoke(client.jobs.multiget, "nobody") == []
    assert await invoke(client.jobs.failed) == {}
    assert await invoke(client.jobs.failed, "g") == (await invoke(client.jobs.failed, "g"))
    assert (await invoke(client.jobs.failed, "g")).jobs == []
    assert await invoke(client.queues.counts) == await invoke(client.workers.counts) == []
    assert await invoke(client.jobs.result, "nobody") is None


async def test_a_recurring_job_is_created_changed_and_canceled(client: Client, valkey: Redis, invoke: Invoke) -> None:
    queue = client.queues["q"]
    options = {"jid": "r", "priority": 2, "tags": ["a"], "backlog": 3, "offset": 60}
    assert await invoke(queue.recur, "K", {"n": 1}, 90, **options) == "r"
    job = await invoke(client.jobs.get, "r")
    assert isinstance(job, RecurringJob)
    assert (job.jid, job.klass, job.klass_name, job.queue_name, job.state) == ("r", "K", "K", "q", "recur")
    assert (job.data, job.priority, job.tags, job.backlog, job.interval) == ({"n": 1}, 2, ["a"], 3, 90)
    assert (job.retries, job.count, job.last_spawned_jid) == (5, 0, None)
    assert await invoke(job.last_spawned_job) is None
    assert await invoke(job.next) == pytest.approx(client.clock() + 60, abs=20)
    job.priority, job.retries, job.interval, job.backlog = 5, 1, 30.5, 0
    job.data, job.klass = [1], "L"
    assert await invoke(job.tag, "b") == ["a", "b"]
    assert await invoke(job.untag, "a") == job.tags == ["b"]
    await invoke(job.move, "p")
    for same_job in (job, await invoke(client.jobs.get, "r")):
        assert (same_job.priority, same_job.retries, same_job.interval, same_job.backlog) == (5, 1, 30.5, 0)
        assert (same_job.data, same_job.klass, same_job.queue_name, same_job.tags) == ([1], "L", "p", ["b"])
        assert same_job.queue().name == "p"
    with pytest.raises(InvalidArgument, match="colour"):
        await invoke(job.update, colour="red")
    await invoke(job.cancel)
    assert await invoke(client.jobs.get, "r") is None
    assert await invoke(job.next) is None
    with pytest.raises(NoSuchJob):
        await invoke(job.update, priority=1)


async def test_a_recurring_job_and_the_jobs_that_it_spawned_name_each_other(
    client: SkewedClient, invoke: Invoke
) -> None:
    queue = client.queues["q"]
    await invoke(queue.recur, "K", {"n": 1}, 60, jid="r")
    spawned = await invoke(queue.pop)
    assert (spawned.jid, spawned.spawned_from_jid, spawned.data) == ("r-1", "r", {"n": 1})
    parent = await invoke(spawned.spawned_from)
    assert (parent.jid, parent.count, parent.last_spawned_jid) == ("r", 1, "r-1")
    assert (await invoke(parent.last_spawned_job)).jid == "r-1"
    assert await invoke(client.jobs.get("r-1").spawned_from)  # type: ignore[union-attr]
    client.skew = 61
    assert [job.jid for job in await invoke(queue.pop, 9)] == ["r-2"]


async def test_a_paused_recurring_job_spawns_nothing(client: SkewedClient, invoke: Invoke) -> None:
    queue = client.queues["q"]
    await invoke(queue.recur, "K", {}, 60, jid="r", offset=30)
    job = await invoke(client.jobs.get, "r")
    due = await invoke(job.next)
    for _ in range(2):
        await invoke(job.pause)
        assert (await invoke(job.paused), await invoke(job.next)) == (True, None)
    client.skew = 10_000
    assert await invoke(queue.pop) is None
    for _ in range(2):
        await invoke(job.resume)
        assert await invoke(job.paused) is False
        assert await invoke(job.next) == pytest.approx(due + 167 * 60)
    client.skew = 10_080
    assert [job.jid for job in await invoke(queue.pop, 9)] == ["r-1"]
    await invoke(job.cancel)
    for change in (job.pause, job.resume):
        with pytest.raises(NoSuchJob):
            await invoke(change)


async def test_call_many_returns_a_reply_or_an_error_for_each_request(client: Client, invoke: Invoke) -> None:
    await invoke(client.queues["q"].put, "K", jid="j")
    requests = [("length", "q"), ("nonsense",), ("get", "j"), ("complete", "j", "w", "q", "{}"), ("length", "q")]
    length, unknown, job, refused, length_after = await invoke(client.call_many, requests)
    assert (length, length_after) == (1, 1)
    assert isinstance(unknown, InvalidArgument)
    assert b'"jid":"j"' in job
    assert str(refused) == "Complete(): Job j is not currently running: waiting"
    assert await invoke(client.call_many, []) == []
