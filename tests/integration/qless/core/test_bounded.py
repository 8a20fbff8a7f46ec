"""Each call does a bounded part of the work; later calls do the rest, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from resty_django.qless import Client, DependencyError
from resty_django.qless.clients.transport import Request
from tests.integration.qless.conftest import NOW, Core, CoreError

from .test_oracle import Both

pytestmark = [pytest.mark.redis, pytest.mark.contract]

PART = 100


def put_many(core: Core, jids: list[str], queue: str = "q", delay: float = 0, **options: Any) -> None:
    text = json.dumps(options) if options else ""
    for first in range(0, len(jids), PART):
        chunk = jids[first : first + PART]
        core("put.many", "client", queue, *(word for jid in chunk for word in (jid, "K", "{}", delay, text)))


def tidy(core: Core) -> int:
    calls = 1
    while core("tidy", "w"):
        calls += 1
    return calls


# --- what a call costs does not grow with what is there ---


def inner_calls(core: Core, *arguments: Any) -> int:
    """How many commands one call of the core makes in the server."""
    core.client.config_resetstat()
    core(*arguments)
    return sum(stat["calls"] for name, stat in core.client.info("commandstats").items() if "evalsha" not in name)


def due(core: Core, count: int) -> None:
    put_many(core, [f"due-{n}" for n in range(count)], delay=5)
    for n in range(count // 10):
        core("recur", "q", f"r-{n}", "K", "{}", "interval", 1, 0)
    core.now += 10


def dependents(core: Core, count: int) -> None:
    core.put("first", "p")
    put_many(core, [f"d-{n}" for n in range(count)], depends=["first"])
    core.pop(queue="p")


def dependencies(core: Core, count: int) -> None:
    put_many(core, [f"d-{n}" for n in range(count)])
    core.put("last", depends=[f"d-{n}" for n in range(count)])
    tidy(core)


def pending(core: Core, count: int) -> None:
    put_many(core, [f"d-{n}" for n in range(count)])
    core.put("last", depends=[f"d-{n}" for n in range(count)])


def expired(core: Core, count: int) -> None:
    put_many(core, [f"old-{n}" for n in range(count)])
    for _ in range(count // PART):
        for jid in core.popped(count=PART):
            core.complete(jid)
    core.put("last")
    core.pop()
    core.config(jobs_history=5, jobs_history_count=1)
    core.now += 10


def lost(core: Core, count: int) -> None:
    put_many(core, [f"lost-{n}" for n in range(count)])
    for _ in range(count // PART):
        core.pop("dead", count=PART)
    core.now += 100


def silent(core: Core, count: int) -> None:
    for n in range(count):
        core.pop(f"worker-{n}", "none")
    core.now += 100_000


def failed(core: Core, count: int) -> None:
    put_many(core, [f"f-{n}" for n in range(count)])
    for _ in range(count // PART):
        for n, jid in enumerate(core.popped(count=PART)):
            core("fail", jid, "w", "g", "broken")
            core.now += n % 10 == 0


def paced(core: Core, count: int) -> None:
    failed(core, count)
    core("pace", "g", 100_000)


def queues(core: Core, count: int) -> None:
    for n in range(count):
        core.put(f"j-{n}", f"queue-{n}")


@pytest.mark.parametrize(
    ("fill", "arguments"),
    [
        (due, ("queues", "q")),
        (due, ("queues",)),
        (due, ("jobs", "scheduled", "q")),
        (due, ("pop", "q", "w", 10)),
        (due, ("peek", "q", 10)),
        (dependents, ("complete", "first", "w", "p", "{}")),
        (dependents, ("cancel", "d-1")),
        (pending, ("tidy", "w")),
        (pending, ("pop", "q", "w", 10)),
        (dependencies, ("cancel", "last")),
        (dependencies, ("depends", "last", "off", "all")),
        (dependencies, ("put", "w", "q", "last", "K", "{}", 0, "depends", '["d-1"]')),
        (expired, ("complete", "last", "w", "q", "{}")),
        (expired, ("tidy", "w")),
        (lost, ("pop", "q", "w", 10)),
        (silent, ("workers",)),
        (silent, ("tidy", "w")),
        (silent, ("page", "workers")),
        (failed, ("unfail", "q", "g", 50)),
        (failed, ("unfail", "q", "g", 10_000)),
        (failed, ("failed", "g")),
        (failed, ("oldest", "failed", "g")),
        (failed, ("expire", "failed", *(word for n in range(PART) for word in (f"f-{n}", NOW + (n + 9) // 10)))),
        (failed, ("pace", "g", 10)),
        (paced, ("pop", "q", "w", 10)),
        (queues, ("page", "queues")),
        (queues, ("search", "klass", "none", "scan", 200)),
    ],
    ids=lambda value: value.__name__ if callable(value) else "-".join(map(str, value[:3])),
)
def test_the_work_of_a_call_is_bounded(
    core: Core, fill: Callable[[Core, int], None], arguments: tuple[Any, ...]
) -> None:
    calls = []
    for count in (600, 1500):
        core.client.flushdb()
        core.now = NOW
        fill(core, count)
        calls.append(inner_calls(core, *arguments))
    assert calls[1] <= calls[0] * 1.1 + 30
    assert calls[1] < 2500


def test_put_with_many_dependencies_does_little_at_once(core: Core) -> None:
    jids = [f"d-{n}" for n in range(1200)]
    put_many(core, jids)
    assert inner_calls(core, "put", "w", "q", "last", "K", "{}", 0, "depends", json.dumps(jids)) < 100
    assert inner_calls(core, "stage", "other", *jids) < 100
    assert inner_calls(core, "put", "w", "q", "other", "K", "{}", 0, "staged", 1) < 100


@pytest.mark.parametrize("command", ["cancel", "put.many"])
def test_many_jobs_leave_a_long_group_together(core: Core, command: str) -> None:
    failed(core, 1000)
    for n in range(3, 990, 97):  # a clock went wrong, a record is lost
        core.client.hset(f"ql:j:f-{n}", "failure", json.dumps({"group": "g", "when": NOW - n, "message": '"when":1'}))
    gone = [f"f-{n}" for n in [*range(0, 1000, 40), *range(500, 540), 3, 100]]
    gone = list(dict.fromkeys(gone))
    calls = inner_calls(core, command, *gone) if command == "cancel" else 0
    if command == "put.many":
        core("put.many", "w", "q", *(word for jid in gone for word in (jid, "K", "{}", 0, "")))
    remaining = core.json("failed", "g", 0, 2000)["jobs"]
    assert len(remaining) == 1000 - len(gone)
    assert not set(remaining) & set(gone)
    assert calls < 60 * len(gone)


# --- and what is left is done, in its order ---


def prioritized(core: Core, count: int = 450) -> list[str]:
    """Jobs that wait for the running job `first`, in the order in which they are to be popped."""
    core.put("first", "p")
    core.pop(queue="p")
    jids = [f"d-{n}" for n in range(count)]
    for n, jid in enumerate(jids):
        core.put(jid, depends=["first"], priority=n % 7)
    return sorted(jids, key=lambda jid: (int(jid[2:]) % 7, jid), reverse=True)


def test_dependents_go_on_in_the_order_of_their_priority(core: Core) -> None:
    order = prioritized(core)
    assert core.complete("first", queue="p", pending=1) == "pending"
    popped: list[str] = []
    while len(popped) < len(order):  # nobody but those who pop
        popped += core.popped(count=60)
    assert popped == order
    assert core("due", "none") is None
    assert core.client.keys("ql:p*") == []


def test_other_calls_of_complete_return_the_usual_reply(core: Core, events: Any) -> None:
    order = prioritized(core)
    assert core.complete("first", queue="p") == "complete"
    assert tidy(core) > 2
    assert core.popped(count=1000) == order
    events()
    assert [channel for channel, _ in events.wakes if channel == "ql:wake:q"]


def test_each_pop_releases_a_batch_of_dependents(core: Core) -> None:
    core.put("first", "p")
    core.pop(queue="p")
    put_many(core, [f"d-{n}" for n in range(2000)], depends=["first"])
    core("pause", "paused")
    core.complete("first", queue="p")  # by a client that knows nothing of deferred work
    for number, queue in enumerate(("q", "other", "paused"), 1):
        core.pop(queue=queue)
        assert core("length", "q") == PART + number * PART / 4


def test_pops_continue_an_unfail(core: Core) -> None:
    failed(core, 400)
    oldest = core.json("failed", "g", 100, 300)["jobs"]
    assert core("unfail", "p", "g", 300) == 300
    popped: list[str] = []
    while jids := core.popped(queue="p", count=60):
        popped += jids
    assert sorted(popped) == sorted(oldest)
    assert core.json("failed", "g")["total"] == 100
    assert core.client.keys("ql:p*") == []


def test_a_foreign_entry_among_deferred_unfails_is_dropped(core: Core) -> None:
    core.client.zadd("ql:unfailing", {"foreign": 5})
    core.put(jid="j")
    assert core.popped() == ["j"]
    assert core.client.exists("ql:unfailing") == 0


def test_one_worker_carries_on_and_another_takes_over(core: Core) -> None:
    prioritized(core)
    core.complete("first", queue="p")
    assert core("tidy", "a") == 1
    assert core("tidy", "b") == 0
    assert core("tidy", "a") == 1
    core.client.delete("ql:tidying")  # as after a second
    assert core("tidy", "b") == 1


def test_changes_of_dependents_in_the_meantime_count(core: Core) -> None:
    prioritized(core)
    for n in range(6):  # not among those that `complete` releases at once
        core("priority", f"d-{n}", -1)
    core.put("second", "p")
    core.complete("first", queue="p")
    core("cancel", "d-0")
    core("cancel", "d-1")
    core.put("d-1", depends=["second"])
    core.put("d-2", depends=["second"])
    core("depends", "d-3", "on", "second")
    core.put("d-4", "other")
    core.put("first", "p")  # put again: who begins to wait for it now waits for its next end
    core.put("d-5", depends=["first"])
    tidy(core)
    waiting = set(core("jobs", "waiting", "q", 0, -1))
    assert waiting == {f"d-{n}" for n in range(6, 450)}
    assert core.get("d-4")["state"] == "waiting"
    for jid in ("d-1", "d-2", "d-3", "d-5"):
        assert core.get(jid)["state"] == "depends"
    assert core.get("d-0") is None
    core.pop(queue="p", count=2)
    core.complete("second", queue="p")
    core.complete("first", queue="p")
    assert all(core.get(f"d-{n}")["state"] == "waiting" for n in (1, 2, 3, 5))


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("delay", [0, 50])
def test_a_job_waits_for_all_of_many(core: Core, delay: float, staged: bool) -> None:
    jids = [f"d-{n}" for n in range(250)]
    put_many(core, jids, "p")
    for jid in core.popped(queue="p", count=50):
        core.complete(jid, queue="p")
    core.put("before")
    core.now += 1
    dependencies = [*jids, "unknown"]
    if staged:
        core("stage", "last", *dependencies[:200])
        core("stage", "last", *dependencies[200:])
        core.put("last", delay=delay, staged=1)
    else:
        core.put("last", delay=delay, depends=dependencies)
    assert core.get("last")["state"] == "depends"
    for jid in core.popped(queue="p", count=120):
        core.complete(jid, queue="p")
    tidy(core)
    assert len(core.get("last")["dependencies"]) == 80
    for jid in core.popped(queue="p", count=80):
        assert core.get("last")["state"] == "depends"
        core.complete(jid, queue="p")
    tidy(core)
    assert core.get("last")["state"] == ("scheduled" if delay else "waiting")
    core.now += 60
    assert core.popped(count=2) == ["before", "last"]
    assert core.client.keys("ql:p:*") == []


def test_a_job_whose_dependencies_are_all_complete_keeps_the_age_of_its_put(core: Core) -> None:
    core.put("last", depends=[f"unknown-{n}" for n in range(150)])
    core.now += 10
    core.put("later")
    tidy(core)
    assert core.popped(count=2) == ["last", "later"]


def test_links_of_a_job_that_stops_waiting_are_removed(core: Core) -> None:
    jids = [f"d-{n}" for n in range(250)]
    put_many(core, jids, "p")
    ends = (("depends", "last-0", "off", "all"), ("depends", "last-1", "off", *jids), ("cancel", "last-2"))
    for n, end in enumerate(ends):
        core.put(f"last-{n}", depends=jids, delay=5)
        tidy(core)
        core(*end)
    core.put("last-3", depends=jids)
    tidy(core)
    core.put("last-3", depends=["d-7"])
    core.put("last-4", depends=jids)
    core("cancel", "last-4")  # before anything was written at the others
    tidy(core)
    assert [core.get(f"last-{n}")["state"] for n in (0, 1)] == ["waiting", "waiting"]
    assert core.get("last-2") is None
    assert core.get("last-3")["dependencies"] == ["d-7"]
    linked = {jid: core.get(jid)["dependents"] for jid in jids}
    assert linked == {jid: ["last-3"] if jid == "d-7" else {} for jid in jids}


def test_a_dependency_that_another_core_deletes_before_it_is_linked_keeps_no_link(core: Core) -> None:
    others = [f"other{n}" for n in range(250)]
    put_many(core, others)
    core.put("j", depends=others[:50])
    core.put("j", depends=others)  # links that are wanted again stay
    for jid in others:
        core.client.delete(f"ql:j:{jid}", f"ql:j:{jid}-history")
    tidy(core)
    assert core.get("j")["state"] == "waiting"
    assert core.client.keys("ql:j:*-depend*") == []


def test_nothing_is_put_once_its_staged_dependencies_have_expired(core: Core) -> None:
    core("stage", "last", "a", "b")
    assert 0 < core.client.ttl("ql:p:s:last") <= 3600
    core.client.delete("ql:p:s:last")
    with pytest.raises(CoreError, match=r"Put\(\): No jobs are staged for last"):
        core.put("last", staged=1)
    assert core.get("last") is None


def test_expired_jobs_and_silent_workers_go_without_further_ends(core: Core) -> None:
    expired(core, 300)
    core.complete("last")
    assert len(core("jobs", "complete", 0, 1000)) > 1
    silent(core, 250)
    assert core.json("page", "workers")["items"] == {}
    tidy(core)
    assert core("jobs", "complete", 0, 1000) == []
    assert core.zset("workers") == {}
    assert core.client.keys("ql:j:old-*") == []


def test_children_of_a_recurring_job_declared_again_find_a_free_number_soon(core: Core) -> None:
    for n in range(1, 1500):
        core.client.hset(f"ql:j:r-{n}", "jid", f"r-{n}")
    core("recur", "q", "r", "K", "{}", "interval", 60, 0)
    assert inner_calls(core, "pop", "q", "w", 1) < 1000
    assert 1500 <= int(core("jobs", "running", "q")[0][2:]) < 2000


class Parts(Both):
    """The rules hold, too, where two jobs of a call are many, once what is left is done.

    Not for what `complete` with `next` replies, which for many is always `depends`.
    """

    most_depends = 1

    def __init__(self) -> None:
        super().__init__()
        text = self.core.text.replace("local STEP = 100", "local STEP = 1")
        for old, new in (
            ("2 ^ floor(tried / STEP)", "1"),
            ("moved < STEP", "moved < 100"),
            ("STEP - moved", "100 - moved"),
            ("enqueue_due(queue, STEP)", "enqueue_due(queue, 100)"),
            ("expire(life, kept, STEP / 2)", "expire(life, kept, 1000)"),
            ("later().forget(oldest, STEP)", "later().forget(oldest, 1000)"),
            ("left = later().expire(", "left = left or ({"),
            (", STEP) or left\n  left = later().forget(", "})[9]\n  left = left or ({"),
            (", STEP) or left\n  if left then", "})[9]\n  if left then"),
        ):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        self.core.text, self.core.sha = text, self.client.script_load(text)

    def compare(self) -> None:
        tidy(self.core)
        super().compare()

    def compare_wakes(self, ours: list[Any], theirs: list[Any]) -> None:  # one for many
        assert {channel for channel, _ in ours} == {channel for channel, _ in theirs}


def test_the_rules_hold_in_parts(valkey: Redis) -> None:
    machine = type("InParts", (Parts,), {"client": valkey})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    limits = settings(max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(machine, settings=limits)


# --- the client sends no more in a call ---


class Watched(Client):
    """Notes how many arguments each call has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.sizes: dict[str, list[int]] = {}
        super().__init__(*args, **kwargs)

    def _arguments(self, request: Request) -> Any:
        self.sizes.setdefault(request[0], []).append(request[3] if request[0] == "unfail" else len(request) - 1)
        return super()._arguments(request)

    def call_many(self, requests: Sequence[Request]) -> list[Any]:
        self.sizes.setdefault(f"pipeline of {requests[0][0]}", []).append(len(requests))
        return super().call_many(requests)


@pytest.fixture
def watched(valkey: Redis, valkey_url: str) -> Any:
    client = Watched(valkey_url, worker_name="w")
    yield client
    client.close()


def test_the_client_splits_larger_calls(watched: Watched) -> None:
    queue = watched.queues["q"]
    jids = queue.put_many([{"klass": "K"}] * 250)
    last = queue.put("K", jid="last", depends=[*jids, *(f"unknown-{n}" for n in range(1000))])
    assert watched.jobs.get(last).state == "depends"  # type: ignore[union-attr]
    assert len(queue.peek(230)) == 230
    assert sorted(job.jid for job in watched.jobs.multiget(*jids)) == sorted(jids)
    popped = queue.pop(300)
    assert sorted(job.jid for job in popped) == sorted(jids)
    assert sorted(queue.jobs.running(0, -1)) == sorted(jids)
    for job in popped[:240]:
        job.fail("g", "broken")
    assert watched.unfail("g", "q", 500) == 240
    assert watched.jobs.failed() == {}
    with pytest.raises(DependencyError):
        watched.bulk_cancel(jids)
    assert len(watched.jobs.multiget(*jids)) == 250
    watched.bulk_cancel([*jids, last])
    assert watched.jobs.multiget(*jids, last) == []
    assert max(watched.sizes["put.many"]) <= 2 + 5 * PART
    assert max(max(watched.sizes[name]) for name in ("cancel", "multiget")) <= PART
    assert max(watched.sizes["stage"]) <= 1 + 1000
    assert max(watched.sizes["unfail"]) <= PART / 2


def test_the_client_requeues_few_jobs_together(watched: Watched) -> None:
    watched.call("group.open", "group", "")
    for n in range(60):
        watched.call("put", "w", "q", f"j{n}", "K", "{}", 0, "outcome", '{"group": "group"}')
    for job in watched.queues["q"].pop(60):
        job.fail("g", "broken")
    assert watched.groups.retry("group") == 60
    assert max(watched.sizes["pipeline of requeue"]) <= PART / 10


def test_a_chain_longer_than_a_call_is_cancelled(watched: Watched) -> None:
    queue = watched.queues["q"]
    jids = [queue.put("K", jid="j0")]
    for n in range(1, 230):
        jids.append(queue.put("K", jid=f"j{n}", depends=[jids[-1]]))
    assert watched.bulk_cancel(jids) == jids
    assert watched.jobs.multiget(*jids) == []


def test_lists_are_returned_in_pages(watched: Watched) -> None:
    for n in range(230):
        watched.queues[f"q{n}"].put("K", jid=f"j{n}")
        watched.track(f"j{n}")
        job = watched.queues[f"q{n}"].pop()
        assert job is not None
        job.fail(f"group {n}", "broken")
        Client(watched.source.sync(), worker_name=f"w{n}").queues["none"].pop()
    assert [queue.name for queue in watched.queues.counts()] == [f"q{n}" for n in range(230)]
    assert len(watched.workers.counts()) == 231
    assert watched.jobs.failed() == {f"group {n}": 1 for n in range(230)}
    assert [job.jid for job in watched.jobs.tracked().jobs] == [f"j{n}" for n in range(230)]
