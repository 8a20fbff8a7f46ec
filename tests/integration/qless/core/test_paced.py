"""Paced retries: failed jobs return to their queues at a rate, released by the pops of these queues."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.qless.conftest import Core

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def fail(core: Core, group: str, *jids: str, queue: str = "q") -> None:
    for jid in jids:
        core.put(jid, queue)
        assert core.popped(queue=queue) == [jid]
        core("fail", jid, "w", group, "broken")
    core.now += 1


def run(core: Core, seconds: float, queue: str = "q", step: float = 0.1) -> list[str]:
    """The jobs that a worker of 100 slots gets in a time."""
    jids: list[str] = []
    for _ in range(round(seconds / step)):
        jids += core.popped(queue=queue, count=100)
        core.now += step
    return jids


def left(core: Core, group: str = "g") -> int:
    return int(core.hash(f"paced:{group}")["left"])


def counts(core: Core, group: str = "g") -> tuple[Any, ...]:
    """State, total, done, failed, canceled and left of the group of jobs of a paced retry."""
    members = core.json("group.get", core.hash(f"paced:{group}")["id"])
    assert members["name"] == group
    return tuple(members[name] for name in ("state", "total", "done", "failed", "canceled", "left"))


def test_jobs_return_at_the_rate_oldest_first(core: Core) -> None:
    jids = [f"j{n}" for n in range(10)]
    fail(core, "g", *jids)
    assert core("pace", "g", 2) == 10
    assert core.popped(count=100) == ["j0"]
    assert core.popped(count=100) == []
    assert float(core("due", "q")) == core.now + 0.5
    core.now += 0.5
    assert run(core, 2) == jids[1:5]
    assert left(core) == 5
    assert core.json("failed", "g")["total"] == 5
    assert run(core, 3) == jids[5:]
    assert left(core) == 0
    assert core.client.exists("ql:q:q-paced") == 0
    assert 0 < core.client.ttl("ql:paced:g") <= 86_400


@pytest.mark.parametrize(("rate", "expected"), [(0.5, 2), (4, 16), (9, 36), (95, 380), (400, 1000)])
def test_no_rate_is_exceeded(core: Core, rate: float, expected: int) -> None:
    core("put.many", "c", "q", *(word for n in range(1000) for word in (f"j{n}", "K", "{}", 0, "")))
    for jid in core.popped(count=1000):
        core("fail", jid, "w", "g", "broken")
    core("pace", "g", rate)
    assert expected * 0.9 <= len(run(core, 4, step=0.01)) <= expected + 1 + rate / 10


def test_the_group_of_jobs_counts_their_ends(core: Core) -> None:
    fail(core, "g", "good", "bad", "gone", "last")
    core("pace", "g", 1)
    assert run(core, 3, step=1) == ["good", "bad", "gone"]
    core.complete("good")
    core("fail", "bad", "w", "g", "still broken")
    core("cancel", "gone")
    assert counts(core) == ("open", 3, 1, 1, 1, 0)
    assert run(core, 9, step=1) == ["last"]  # what has failed again is not retried again
    core.complete("last")
    assert counts(core) == ("failed", 4, 2, 1, 1, 0)
    assert core.json("failed", "g")["jobs"] == ["bad"]


def test_a_paused_queue_keeps_the_pace(core: Core) -> None:
    fail(core, "g", *(f"j{n}" for n in range(20)))
    core("pace", "g", 4)
    assert core.popped(count=100) == ["j0"]
    core("pause", "q")
    assert run(core, 60, step=1) == []
    assert left(core) == 19
    core("unpause", "q")
    assert core.popped(count=100) == ["j1"]
    assert core.popped(count=100) == []
    core.complete("j0")
    core.complete("j1")
    core.now += 3600  # no worker asks
    assert core.popped(count=100) == ["j2"]
    assert core.popped(count=100) == []


def test_a_peek_releases_nothing(core: Core) -> None:
    fail(core, "g", "j")
    core("pace", "g", 4)
    assert core("peek", "q", 10) == "{}"
    assert left(core) == 1


def test_a_second_group_of_the_queue_comes_after_the_first(core: Core) -> None:
    fail(core, "b", *(f"b{n}" for n in range(4)))
    fail(core, "a", *(f"a{n}" for n in range(4)))
    core("pace", "b", 2)
    core("pace", "a", 2)
    assert run(core, 4.1) == ["b0", "b1", "b2", "b3", "a0", "a1", "a2", "a3"]


def test_a_second_retry_of_the_group_adds_its_jobs(core: Core) -> None:
    fail(core, "g", "j0", "j1", "j2")
    core("pace", "g", 1)
    assert run(core, 1) == ["j0"]
    core("fail", "j0", "w", "g", "again")
    fail(core, "g", "j3")
    assert core("pace", "g", 2) == 4
    assert len(run(core, 1)) == 2
    assert run(core, 1) == ["j0", "j3"]
    for jid in ("j0", "j1", "j2", "j3"):
        core.complete(jid)
    assert counts(core) == ("complete", 4, 4, 0, 0, 0)
    assert core.client.llen(f"ql:g:{core.hash('paced:g')['id']}-jobs") == 4


def test_each_job_returns_to_its_queue(core: Core) -> None:
    for number in range(6):
        fail(core, "g", f"j{number}", queue="pq"[number % 2])
    core("pace", "g", 2)
    assert core.popped(queue="q", count=9) == []
    assert core.popped(queue="p", count=9) == ["j0"]
    assert core.popped(queue="q", count=9) == []
    core.now += 0.6
    assert float(core("due", "q")) <= core.now
    assert core.popped(queue="q", count=9) == ["j1"]
    jids: list[str] = []
    for _ in range(25):
        jids += [*core.popped(queue="p", count=9), *core.popped(queue="q", count=9)]
        core.now += 0.1
    assert jids == ["j2", "j3", "j4", "j5"]
    assert core.client.keys("ql:q:*-paced") == []


def test_a_stop_leaves_the_rest_failed(core: Core) -> None:
    fail(core, "g", *(f"j{n}" for n in range(5)))
    core("pace", "g", 1)
    assert run(core, 2, step=1) == ["j0", "j1"]
    assert core("pace", "g", 0) == 3
    assert core("pace", "g", 0) == 0
    assert run(core, 5, step=1) == []
    assert core.json("failed", "g")["total"] == 3
    record = core.hash("paced:g")
    assert (record["left"], record["stopped"]) == ("0", "3")
    assert core.json("group.get", record["id"])["state"] == "running"
    assert core("pace", "g", 1) == 3
    assert run(core, 9, step=1) == ["j2", "j3", "j4"]


def test_jobs_that_leave_the_group_otherwise_are_not_replaced(core: Core) -> None:
    fail(core, "g", *(f"j{n}" for n in range(5)))
    core("pace", "g", 1)
    assert run(core, 1, step=1) == ["j0"]
    core("fail", "j0", "w", "g", "again")
    core("cancel", "j1", "j2")
    core("requeue", "c", "q", "j3", "K", "{}", 0)
    assert sorted(run(core, 9, step=1)) == ["j3", "j4"]
    assert core.json("failed", "g")["jobs"] == ["j0"]


def test_nothing_to_retry_and_lost_records(core: Core) -> None:
    assert core("pace", "g", 1) == 0
    assert core.client.keys("ql:*") == []
    fail(core, "g", "j")
    core("pace", "g", 1)
    core.client.delete("ql:paced:g")
    assert core.popped() == []
    assert core.client.exists("ql:q:q-paced") == 0
    assert core.json("failed", "g")["total"] == 1


def test_a_pop_costs_nothing_more_without_a_paced_retry(core: Core) -> None:
    def calls() -> int:
        core.client.config_resetstat()
        core.pop(queue="other")
        return sum(stat["calls"] for name, stat in core.client.info("commandstats").items() if "evalsha" not in name)

    before = calls()
    fail(core, "g", *(f"j{n}" for n in range(3)))
    core("pace", "g", 1)
    assert calls() == before


def test_jobs_that_failed_because_of_a_job_wait_for_it_again(core: Core) -> None:
    core.put("first")
    core.put("second", depends=["first"], outcome={"policy": "fail"})
    assert core.popped() == ["first"]
    core("fail", "first", "w", "g", "broken")
    assert core.json("failed") == {"g": 1, "q-DependencyFailed": 1}
    core("pace", "q-DependencyFailed", 4)
    assert core.popped() == []  # it fails again, since the first one is still failed
    assert counts(core, "q-DependencyFailed") == ("failed", 1, 0, 1, 0, 0)
    core("pace", "g", 4)
    assert core.popped() == ["first"]
    assert core.json("failed") == {}
    core.complete("first")
    assert core.popped() == ["second"]


def test_a_job_that_is_gone_is_dropped(core: Core) -> None:
    fail(core, "g", "j0", "j1", "j2")
    core.client.delete("ql:j:j1")
    core("pace", "g", 4)
    assert run(core, 2) == ["j0", "j2"]
    assert core.client.exists("ql:f:g", "ql:q:q-paced") == 0
