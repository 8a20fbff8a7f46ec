"""The commands `oldest` and `expire`: old failed and complete jobs are deleted, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from tests.integration.qless.conftest import NOW, Core, CoreError, Events, text_of

from .test_bounded import failed, inner_calls
from .test_outcomes import callback, outcome, state, tidy

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def fail(core: Core, jid: str, group: str = "g", queue: str = "q", **options: Any) -> None:
    core.put(jid, queue, priority=9, **options)
    assert core.popped(queue=queue) == [jid]
    core("fail", jid, "w", group, "m")


def oldest(core: Core, kind: str, group: str = "", *options: int) -> list[tuple[str, str, str]]:
    reply = core("oldest", kind, group, *options)
    return [*zip(reply[::3], reply[1::3], reply[2::3], strict=True)]


def expire(core: Core, *jobs: str, at: float = NOW, state: str = "failed") -> int:
    return int(core("expire", state, *(word for jid in jobs for word in (jid, at))))


def test_failed_jobs_are_listed_oldest_first(core: Core, valkey: Redis) -> None:
    for number, queue in enumerate("pqp"):
        core.now = NOW + number
        fail(core, f"j{number}", queue=queue)
    jobs = [("j0", "p", "1400000000"), ("j1", "q", "1400000001"), ("j2", "p", "1400000002")]
    assert oldest(core, "failed", "g") == jobs
    assert oldest(core, "failed", "g", 1, 1) == jobs[1:2]
    assert oldest(core, "failed", "g", 3) == oldest(core, "failed", "h") == []
    valkey.delete("ql:j:j0")
    valkey.hset("ql:j:j1", "state", "waiting")
    assert oldest(core, "failed", "g") == [("j0", "", ""), ("j1", "", ""), jobs[2]]


def test_complete_jobs_are_listed_with_their_last_queue(core: Core) -> None:
    core.put("a", "p")
    core.popped(queue="p")
    core.complete("a", queue="p", next="q")
    core.now += 1.25
    core.popped()
    core.complete("a")
    assert oldest(core, "complete") == [("a", "q", "1400000001.25")]
    assert expire(core, "a", state="complete") == 0
    assert expire(core, "a", at=NOW + 1.25, state="complete") == 1
    assert (core.get("a"), core.zset("completed")) == (None, {})


@pytest.mark.parametrize("queue", ['{"x":1}', "null", "7", "false", "[]", '"q'])
def test_a_history_of_another_client_may_contain_anything(core: Core, valkey: Redis, queue: str) -> None:
    core.put("a")
    core.popped()
    core.complete("a")
    valkey.rpush("ql:j:a-history", f'[1400000000,"put",{{"q":{queue}}}]')
    assert oldest(core, "complete") == [("a", "", "1400000000")]
    assert expire(core, "a", state="complete") == 1


@pytest.mark.parametrize("fixes", ["none", "shared", "all"])
def test_nothing_is_left_of_an_expired_job(core: Core, valkey: Redis, fixes: str) -> None:
    core.config(fixes=fixes)
    before = {key for key in valkey.scan_iter() if b":b:" not in key}
    fail(core, "j", tags='["t"]')
    core("index.put", "j", "0a", '["c:K"]')
    core("track", "track", "j")
    assert expire(core, "j") == 1
    left = {key for key in valkey.scan_iter() if b":b:" not in key} - before
    statistics = {b"ql:s:wait:1399939200:q", b"ql:s:stats:1399939200:q"}
    contract = {b"ql:tags", b"ql:tracked"} if fixes != "all" else set()  # as after a cancel
    assert left - {b"ql:unindexed", b"ql:workers", b"ql:queues", b"ql:classes"} == statistics | contract
    assert core.stats()["failed"] == 0
    assert core.stats()["failures"] == 1


def test_old_statistics_do_not_come_back(core: Core, valkey: Redis) -> None:
    fail(core, "j")
    valkey.delete("ql:s:stats:1399939200:q")
    assert expire(core, "j") == 1
    assert not valkey.exists("ql:s:stats:1399939200:q")


def test_a_job_that_was_retried_or_has_failed_again_stays(core: Core) -> None:
    for jid in ("a", "b", "c"):
        fail(core, jid)
    core("requeue", "c", "q", "a", "Klass", "{}", 0)
    core.now += 5
    assert core.popped() == ["a"]
    core("unfail", "q", "g", 1)
    assert core.popped() == ["b"]
    core("fail", "b", "w", "g", "again")
    assert expire(core, "a", "b", "c", "gone") == 1
    assert [state(core, jid) for jid in ("a", "b", "c")] == ["running", "failed", None]


def test_a_job_stays_while_others_wait_for_it(core: Core, events: Events) -> None:
    fail(core, "a")
    core.put("waiting", depends='["a"]')
    assert expire(core, "a") == 0
    core("cancel", "waiting")
    events()
    assert expire(core, "a") == 1
    assert events() == [("ql:log", {"event": "canceled", "jid": "a", "worker": "", "queue": "q"})]


def test_jobs_that_failed_because_of_another_one_go_with_it(core: Core) -> None:
    core.put("a")
    core.put("b", depends='["a"]', outcome=outcome(policy="fail"))
    core.put("c", depends='["b"]', outcome=outcome(policy="fail"))
    core.popped()
    core("fail", "a", "w", "g", "m")
    assert [state(core, jid) for jid in "abc"] == ["failed"] * 3
    assert expire(core, "a", "b") == 0
    assert expire(core, "a", "b", "c") == 3
    assert core.json("failed") == {}
    assert core.zset("outcomes") == {}


def test_no_callback_follows_and_the_group_counts_as_before(core: Core, valkey: Redis) -> None:
    core("group.open", "group", "name")
    fail(core, "j", outcome=outcome(group="group", complete=[callback("c")]))
    core("group.close", "group")
    assert core.json("group.get", "group")["state"] == "failed"
    assert state(core, "c") == "waiting"
    assert expire(core, "j") == 1
    tidy(core)
    assert state(core, "c-2") is None
    group = core.json("group.get", "group")
    assert (group["state"], group["failed"], group["canceled"], group["reason"]) == ("failed", 1, 0, "j")
    assert not valkey.exists("ql:o:j")


def test_a_failure_by_another_core_has_its_consequences_first(core: Core, valkey: Redis) -> None:
    core.put("j", outcome=outcome(failure=[callback("f")]))
    core.popped()
    failure = json.dumps({"group": "g", "message": "m", "when": NOW, "worker": "w"})
    valkey.hset("ql:j:j", mapping={"state": "failed", "failure": failure, "worker": "", "expires": ""})
    valkey.lpush("ql:f:g", "j")
    valkey.sadd("ql:failures", "g")
    assert expire(core, "j") == 1
    assert state(core, "f") == "waiting"


def test_a_member_stays_while_jobs_wait_for_its_group(core: Core) -> None:
    core("group.open", "group", "name")
    fail(core, "j", outcome=outcome(group="group"))
    core.put("waiting", depends='["group"]')
    core("group.close", "group")
    assert expire(core, "j") == 0
    core("cancel", "waiting")
    assert expire(core, "j") == 1


def test_jobs_of_a_retry_that_is_under_way_stay(core: Core) -> None:
    failed(core, 300)
    last = oldest(core, "failed", "g", 299)[0]
    core("pace", "g", 1)
    assert expire(core, last[0], at=float(last[2])) == 0
    core("pace", "g", 0)
    core("unfail", "p", "g", 200)  # all but 100 of them later
    assert expire(core, last[0], at=float(last[2])) == 0
    tidy(core)
    assert expire(core, last[0], at=float(last[2])) == 1


def test_a_step_from_the_middle_of_a_long_group_keeps_the_others_in_order(core: Core) -> None:
    failed(core, 1000)
    jids = [jid for jid, _, _ in oldest(core, "failed", "g", 0, 1000)]
    page = oldest(core, "failed", "g", 300)[::3]
    calls = inner_calls(core, "expire", "failed", *(word for jid, _, at in page for word in (jid, at)))
    gone = {jid for jid, _, _ in page}
    assert [jid for jid, _, _ in oldest(core, "failed", "g", 0, 1000)] == [jid for jid in jids if jid not in gone]
    assert calls < 40 * len(page)


def test_wrong_arguments_delete_nothing(core: Core, valkey: Redis) -> None:
    fail(core, "j")
    for arguments, message in (
        (["running", "j", NOW], '"failed" or "complete"'),
        (["failed", "j"], "jids and times"),
        (["failed", *["j", NOW] * 101], "at most 100 jobs"),
        (["failed", "j", NOW, "k", "soon"], '"when" not a number'),
    ):
        with pytest.raises(CoreError, match=message):
            core("expire", *arguments)
    assert text_of(valkey.lrange("ql:f:g", 0, -1)) == ["j"]
