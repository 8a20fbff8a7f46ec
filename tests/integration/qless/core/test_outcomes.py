"""Consequences of the end of a job, by the raw keys: callbacks, the end of jobs that wait for it, groups."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.integration.qless.conftest import Core, CoreError

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def callback(jid: str, data: str = '{"args":[],"kwargs":{}}', **options: Any) -> list[Any]:
    return [jid, "callbacks", "Callback", data, *([options] if options else [])]


def outcome(**fields: Any) -> str:
    return json.dumps({name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()})


def run(core: Core, jid: str, end: str = "complete", result: str = "1") -> None:
    """Run the job that is first in its queue and has this ID."""
    assert core.popped() == [jid]
    if end == "complete":
        core("complete", jid, "w", "q", "{}", "result", result)
    else:
        core("fail", jid, "w", "q-KeyError", "Traceback\nKeyError: 'x'")


def state(core: Core, jid: str) -> Any:
    job = core.get(jid)
    return job and job["state"]


def tidy(core: Core) -> None:
    for _ in range(1000):
        if core("tidy", "w") == 0:
            return
    raise AssertionError("The deferred work never ends.")


def test_callbacks_of_a_success(core: Core) -> None:
    core.put(
        outcome=outcome(
            success=[callback("s", tags=["t"], priority=3)], failure=[callback("f")], complete=[callback("c")]
        )
    )
    assert core.client.lrange("ql:j:j-history", 0, -1) == [b'[1400000000,"put",{"q":"q","outcome":true}]']
    assert core.get("s") is None
    run(core, "j", result='{"a": [1]}')
    job = core.get("s")
    assert (job["queue"], job["klass"], job["tags"], job["priority"]) == ("callbacks", "Callback", ["t"], 3)
    assert json.loads(job["data"]) == {
        "outcome": {"jid": "j", "klass": "Klass", "state": "complete", "failure": None, "result": {"a": [1]}},
        "args": [],
        "kwargs": {},
    }
    assert (state(core, "f"), state(core, "c")) == (None, "waiting")
    assert core.client.exists("ql:o:j") == 0
    assert core.zset("outcomes") == {}
    whats = [entry["what"] for entry in core.get()["history"]]
    assert whats == ["put", "popped", "done", "callback", "callback"]


def test_callbacks_of_a_failure_and_of_a_later_success(core: Core) -> None:
    core.put(outcome=outcome(success=[callback("s")], failure=[callback("f")]))
    run(core, "j", "fail")
    assert json.loads(core.get("f")["data"])["outcome"]["failure"]["group"] == "q-KeyError"
    core("requeue", "c", "q", "j", "Klass", "{}", 0)
    run(core, "j", "fail")
    assert (state(core, "f"), state(core, "f-2")) == ("waiting", "waiting")
    assert core("unfail", "q", "q-KeyError") == 1
    run(core, "j")
    assert state(core, "s") == "waiting"
    assert core.client.exists("ql:o:j") == 0


def test_a_new_put_drops_callbacks(core: Core) -> None:
    core.put(outcome=outcome(success=[callback("s")]))
    core.put()
    assert core.client.exists("ql:o:j") == 0
    run(core, "j")
    assert state(core, "s") is None


def test_a_new_put_by_another_core_drops_callbacks(core: Core) -> None:
    core.put(outcome=outcome(success=[callback("s")]))
    core.client.rpush("ql:j:j-history", '[1400000000,"put",{"q":"q"}]')
    run(core, "j")
    assert state(core, "s") is None
    assert core.client.exists("ql:o:j") == 0


def test_a_job_that_moves_keeps_its_callbacks(core: Core) -> None:
    core.put(outcome=outcome(success=[callback("s")]))
    assert core.popped() == ["j"]
    core("complete", "j", "w", "q", "{}", "next", "q")
    assert state(core, "s") is None
    run(core, "j")
    assert state(core, "s") == "waiting"


@pytest.mark.parametrize("end", ["complete", "failed", "canceled"])
def test_ends_by_another_core_are_found(core: Core, end: str) -> None:
    core.put(outcome=outcome(success=[callback("s")], failure=[callback("f")], complete=[callback("c")]))
    core.popped()
    if end == "canceled":
        core.client.delete("ql:j:j", "ql:j:j-history")
    else:
        core.client.hset("ql:j:j", "state", end)
    tidy(core)
    assert state(core, "c") is None
    core.now += 11
    tidy(core)
    tidy(core)
    assert state(core, "c") == "waiting"
    assert json.loads(core.get("c")["data"])["outcome"]["state"] == end
    assert state(core, "s") == ("waiting" if end == "complete" else None)
    assert state(core, "f") == ("waiting" if end == "failed" else None)


def test_cancel_calls_back(core: Core) -> None:
    core.put(outcome=outcome(failure=[callback("f")], complete=[callback("c")]))
    core("cancel", "j")
    assert (state(core, "f"), state(core, "c")) == (None, "waiting")
    assert core.client.exists("ql:o:j", "ql:outcomes", "ql:j:j-history") == 0


def chain(core: Core, *jids: str, policy: str = "fail") -> None:
    core.put(jids[0])
    for before, jid in pairwise(jids):
        core.put(jid, depends=[before], outcome=outcome(policy=policy))


def test_a_chain_fails_at_once_and_continues_after_a_retry(core: Core) -> None:
    chain(core, "a", "b", "c")
    core.put("own", depends=["a"])
    run(core, "a", "fail")
    assert [state(core, jid) for jid in ("a", "b", "c", "own")] == ["failed", "failed", "failed", "depends"]
    failure = core.get("c")["failure"]
    assert failure["group"] == "q-DependencyFailed"
    assert failure["message"] == "This job did not run, because it depends on a (Klass), which failed: KeyError: 'x'"
    assert core.json("failed") == {"q-KeyError": 1, "q-DependencyFailed": 2}
    assert set(core.zset("q:q-depends")) == {"own"}
    core("requeue", "c", "q", "a", "Klass", "{}", 0)
    assert [state(core, jid) for jid in ("a", "b", "c", "own")] == ["waiting", "depends", "depends", "depends"]
    assert core.json("failed") == {}
    assert set(core.zset("q:q-depends")) == {"b", "c", "own"}
    for jid in ("a", "own", "b", "c"):
        assert core.popped() == [jid]
        core("complete", jid, "w", "q", "{}")
    assert core.client.keys("ql:o*") == []


def test_retry_of_all_failed_dependents_alone_fails_them_again(core: Core) -> None:
    chain(core, "a", "b")
    run(core, "a", "fail")
    assert core("unfail", "q", "q-DependencyFailed") == 1
    assert state(core, "b") == "failed"
    assert core.json("failed") == {"q-KeyError": 1, "q-DependencyFailed": 1}
    core("requeue", "c", "q", "b", "Klass", "{}", 0, "depends", ["a"])
    assert state(core, "b") == "failed"
    assert core("unfail", "q", "q-KeyError") == 1
    assert (state(core, "a"), state(core, "b")) == ("waiting", "depends")


@pytest.mark.parametrize("another_core", [False, True])
def test_retry_of_jobs_that_depend_on_each_other(core: Core, another_core: bool) -> None:
    core.put("a")
    core.put("b", depends=["a"], outcome={"policy": "fail"})
    core.put("c", depends=["a", "b"], outcome={"policy": "fail"})
    run(core, "a", "fail")
    if another_core:
        core.client.delete("ql:f:q-KeyError")
        core.client.srem("ql:failures", "q-KeyError")
        core.client.hset("ql:j:a", mapping={"state": "waiting", "failure": "{}"})
        core.client.zadd("ql:q:q-work", {"a": 0})
    assert core("unfail", "q", "q-DependencyFailed") == 2
    depends = {"b", "c"} if another_core else set()
    assert set(core.zset("q:q-depends")) == depends
    assert {state(core, jid) for jid in ("b", "c")} == {"depends" if another_core else "failed"}
    assert core.json("failed") == ({} if another_core else {"q-KeyError": 1, "q-DependencyFailed": 2})
    assert set(core.zset("q:q-work")) == ({"a"} if another_core else set())


def test_skipped_and_released_dependents(core: Core) -> None:
    chain(core, "a", "b", "c", policy="skip")
    core.put("after", depends=["c"])
    core.put("free", depends=["a"], outcome=outcome(policy="fail", **{"policy:a": "release"}), delay=5)
    run(core, "a", "fail")
    assert [state(core, jid) for jid in ("b", "c", "after", "free")] == ["complete", "complete", "waiting", "scheduled"]
    assert core.json("result", "b")["result"] == "null"
    assert [entry["what"] for entry in core.get("b")["history"]] == ["put", "skipped"]
    assert core.json("result", "b") == {
        **{"jid": "b", "state": "complete", "result": "null", "skipped": True},
        **{"progress": False, "message": False, "at": False},
    }
    assert core.get("a")["dependents"] == {}


def test_a_put_that_depends_on_a_failed_job(core: Core) -> None:
    core.put("a")
    run(core, "a", "fail")
    core.put("b", depends=["a"], outcome=outcome(policy="fail"))
    core.put("c", depends=["a"], outcome=outcome(policy="skip"))
    core.put("d", depends=["a"], outcome=outcome(policy="release"))
    core.put("e", depends=["a"])
    assert [state(core, jid) for jid in "bcde"] == ["failed", "complete", "waiting", "depends"]


def test_failures_by_another_core_reach_dependents(core: Core) -> None:
    chain(core, "a", "b", "c")
    core.client.hset("ql:j:a", mapping={"state": "failed", "failure": '{"message": "boom"}'})
    core.now += 11
    tidy(core)
    assert (state(core, "b"), state(core, "c")) == ("failed", "failed")
    assert core.get("c")["failure"]["message"].endswith("boom")
    core.client.delete("ql:j:a")
    core.put("x")
    core.put("y", depends=["x"], outcome=outcome(policy="fail"))
    core.client.delete("ql:j:x")
    core.now += 11
    tidy(core)
    assert core.get("y")["failure"]["message"].endswith("depends on x, which does not exist any more.")


def test_many_dependents_are_handled_in_bounded_steps(core: Core) -> None:
    core.put("a")
    for number in range(450):
        core.put(f"d{number}", depends=["a"], outcome=outcome(policy="fail"))
    core.put("last", depends=["d7"], outcome=outcome(policy="fail"))
    run(core, "a", "fail")
    assert len(core.zset("q:q-depends")) == 451
    tidy(core)
    assert core.zset("q:q-depends") == {}
    assert core.json("failed") == {"q-KeyError": 1, "q-DependencyFailed": 451}
    core("requeue", "c", "q", "a", "Klass", "{}", 0)
    tidy(core)
    assert len(core.zset("q:q-depends")) == 451
    assert core.json("failed") == {}
    run(core, "a")
    tidy(core)
    assert core("length", "q") == 450
    assert state(core, "last") == "depends"


def group(core: Core, *jids: str, **options: Any) -> None:
    core("group.open", "g", "name", *(argument for pair in options.items() for argument in pair))
    for jid in jids:
        core.put(jid, outcome=outcome(group="g"))


def test_a_group_and_the_jobs_that_wait_for_it(core: Core) -> None:
    group(core, "a", "b", success=[callback("s")], failure=[callback("f")], complete=[callback("c")])
    core.put("body", depends=["g"], outcome=outcome(policy="fail"))
    assert state(core, "body") == "depends"
    assert core("group.close", "g") == "running"
    run(core, "b")
    assert core.json("group.get", "g") == {
        **{"group": "g", "name": "name", "state": "running", "reason": False, "incomplete": False, "at": core.now},
        **{"total": 2, "done": 1, "failed": 0, "skipped": 0, "canceled": 0, "ended": 0, "left": 1},
    }
    assert core.json("group.jobs", "g") == [["a", "waiting"], ["b", "complete"]]
    run(core, "a")
    assert state(core, "body") == "waiting"
    assert (state(core, "s"), state(core, "f"), state(core, "c")) == ("waiting", None, "waiting")
    assert json.loads(core.get("s")["data"])["outcome"] == {
        **{"group": "g", "name": "name", "state": "complete", "reason": False},
        **{"total": 2, "done": 2, "failed": 0, "skipped": 0, "canceled": 0},
    }
    core.now += 8 * 86400
    tidy(core)
    assert core.client.keys("ql:g*") == []


def test_a_failed_member_fails_waiting_jobs_until_it_is_retried(core: Core) -> None:
    group(core, "a", "b")
    core.put("body", depends=["g"], outcome=outcome(policy="fail"))
    core.put("free", depends=["g"], outcome=outcome(policy="release"))
    core("group.close", "g")
    run(core, "b", "fail")
    assert (state(core, "body"), state(core, "free")) == ("failed", "depends")
    assert "depends on b (Klass)" in core.get("body")["failure"]["message"]
    run(core, "a")
    assert (core.json("group.get", "g")["state"], state(core, "free")) == ("failed", "waiting")
    core("requeue", "c", "q", "b", "Klass", "{}", 0)
    assert (core.json("group.get", "g")["state"], state(core, "body")) == ("running", "depends")
    core.popped()
    run(core, "b")
    assert (core.json("group.get", "g")["state"], state(core, "body")) == ("complete", "waiting")


def test_the_reason_of_a_group_is_the_next_failed_member_once_the_first_is_retried(core: Core) -> None:
    group(core, "a", "b", "c")
    core("group.close", "g")
    for jid in core.popped(count=3):  # c, b, a
        core("fail", jid, "w", jid, "broken")
        core.now += 1
    reasons = []
    for jid in ("b", "c", "a"):
        reasons.append(core.json("group.get", "g")["reason"])
        core("unfail", "q", jid)
        run(core, jid)
    assert [*reasons, core.json("group.get", "g")["reason"]] == ["c", "c", "a", False]
    core.now += 9 * 86400
    tidy(core)
    assert core.client.keys("ql:g:*") == []


def test_empty_canceled_and_abandoned_groups(core: Core) -> None:
    group(core, success=[callback("s")])
    assert core("group.close", "g") == "complete"
    assert state(core, "s") == "waiting"
    core("group.open", "h", "")
    core.put("m", outcome=outcome(group="h"))
    core("group.close", "h")
    core("cancel", "m")
    assert core.json("group.get", "h")["state"] == "failed"
    core("group.open", "i", "", "failure", [callback("f")])
    core.now += 3601
    tidy(core)
    assert (core.json("group.get", "i")["state"], state(core, "f")) == ("failed", "waiting")
    assert [entry["group"] for entry in core.json("groups")["groups"]] == ["i", "h", "g"]


def test_a_unique_job_is_a_member_of_two_groups(core: Core) -> None:
    core.put("u")
    for name in ("g", "h"):
        core("group.open", name, "")
        core.put("u", unique="pending", outcome=outcome(group=name))
        core("group.close", name)
    run(core, "u")
    assert [core.json("group.get", name)["state"] for name in "gh"] == ["complete", "complete"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sucess": "[]"}, "has an unknown field: sucess"),
        ({"policy": "explode"}, "not one of fail, skip, release, wait: explode"),
        ({"success": '[["a"]]'}, "not a JSON list of"),
        ({"success": "nonsense"}, "not a JSON list of"),
        ({"group": "nobody"}, "Group nobody does not exist"),
    ],
)
def test_bad_outcomes_change_nothing(core: Core, fields: dict[str, str], message: str) -> None:
    with pytest.raises(CoreError, match=message):
        core.put(outcome=outcome(**fields))
    with pytest.raises(CoreError, match=message):
        core("put.many", "c", "q", "j", "Klass", "{}", 0, {"outcome": fields})
    assert core.client.dbsize() == 0


def test_stuck_jobs_are_found(core: Core) -> None:
    for jid in "abcd":
        core.put(jid)
        core.put(f"{jid}-waits", depends=[jid])
    core.put("loop", depends=["loop"])
    core.client.delete("ql:j:a")
    core.client.hset("ql:j:b", "state", "complete")
    core.client.hset("ql:j:c", "state", "failed")
    assert core.json("stuck", "q") == {
        "jobs": [
            ["a-waits", "a", "gone"],
            ["b-waits", "b", "complete"],
            ["c-waits", "c", "failed"],
            ["loop", "loop", "itself"],
        ],
        "cursor": "",
    }
    assert core.json("stuck", "q", "", 1)["cursor"] == "1"


def test_a_callback_has_the_ids_of_the_put(core: Core) -> None:
    core.put(outcome=outcome(success=[callback("s", txid="t-1", request_id="r-1"), callback("plain", txid="t-2")]))
    run(core, "j")
    assert [core.get(jid)["txid"] for jid in ("s", "plain")] == ["t-1", "t-2"]
    assert [core.get(jid).get("request_id") for jid in ("s", "plain")] == ["r-1", None]
