"""Outcomes under hostile names, wrong values, other cores, cut histories and races with deferred work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.qless.conftest import Core, CoreError

from .test_bounded import inner_calls, put_many, tidy
from .test_outcomes import callback, chain, group, outcome, run, state

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def foreign_put(core: Core, jid: str, queue: str = "q") -> None:
    """Put a failed or complete job again, as other cores do."""
    job = core.hash(f"j:{jid}")
    core.client.rpush(f"ql:j:{jid}-history", f'[{int(core.now)},"put",{{"q":"{queue}"}}]')
    core.client.hset(f"ql:j:{jid}", mapping={"state": "waiting", "queue": queue, "worker": "", "remaining": 5})
    if job["state"] == "failed":
        failures = json.loads(job["failure"])["group"]
        core.client.lrem(f"ql:f:{failures}", 0, jid)
        if not core.client.exists(f"ql:f:{failures}"):
            core.client.srem("ql:failures", failures)
    core.client.zadd(f"ql:q:{queue}-work", {jid: 0})


# --- everything is checked before the first write ---


WRONG_CALLBACKS: list[tuple[list[Any], str]] = [
    (callback("c", data="nonsense"), "data is not a JSON object"),
    (callback("c", data='{"a'), "data is not a JSON object"),
    (callback("c", data="[1]"), "data is not a JSON object"),
    (callback("c", data='{"outcome":1}'), "data is not a JSON object"),
    (callback(""), "not a JSON list of"),
    (["c", "", "K", "{}"], "not a JSON list of"),
    (callback("c", tags="x"), 'wrong option "tags"'),
    (callback("c", tags=[{"a": 1}]), 'wrong option "tags"'),
    (callback("c", priority="high"), 'wrong option "priority"'),
    (callback("c", delay=float("nan")), 'wrong option "delay"'),
    (callback("c", retries=[1]), 'wrong option "retries"'),
    (callback("c", txid=[1]), 'wrong option "txid"'),
    (callback("c", request_id=[1]), 'wrong option "request_id"'),
    (callback("c", depends=["a"]), 'wrong option "depends"'),
    (callback("c", outcome="success"), 'Arg "outcome" not a JSON object'),
    (callback("c", outcome={"policy": "x"}), "not one of fail, skip"),
    (callback("c", outcome={"success": '[["d","q","K","{}",{"tags":1}]]'}), 'wrong option "tags"'),
]


@pytest.mark.parametrize("command", ["put", "put.many", "group.open"])
def test_wrong_callbacks_change_nothing(core: Core, command: str) -> None:
    for value, message in WRONG_CALLBACKS:
        text = json.dumps([value])
        arguments = {
            "put": ("put", "w", "q", "j", "K", "{}", 0, "outcome", {"complete": text}),
            "put.many": ("put.many", "w", "q", "j", "K", "{}", 0, {"outcome": {"complete": text}}),
            "group.open": ("group.open", "g", "", "complete", text),
        }
        with pytest.raises(CoreError, match=message):
            core(*arguments[command])
        assert core.client.dbsize() == 0


def test_an_end_puts_at_most_a_hundred_callbacks(core: Core) -> None:
    with pytest.raises(CoreError, match="more than 100 callbacks"):
        core.put(outcome=outcome(success=[callback(f"c{n}") for n in range(101)]))
    core.put(outcome=outcome(success=[callback(f"c{n}") for n in range(100)]))
    run(core, "j")
    assert core("length", "callbacks") == 100


def test_a_job_cannot_wait_for_its_own_group(core: Core) -> None:
    core("group.open", "g", "")
    with pytest.raises(CoreError, match="would wait for its own group g"):
        core.put(outcome=outcome(group="g"), depends=["g"])
    core("group.open", "h", "")
    core.put(outcome=outcome(group="h"), depends=["g"])
    core.client.hset("ql:o:j", "group", "h g")  # as another client could
    assert core.json("stuck", "q")["jobs"] == [["j", "g", "itself"]]


def test_empty_and_many_fields(core: Core) -> None:
    core.put("a")
    core.put("b", depends=["a"], outcome=outcome(success=[callback("s", data="{}")]))
    core.put("c", outcome="{}")
    core.put("d", outcome="[]")
    assert core.client.keys("ql:o:*") == [b"ql:o:b"]
    core.put("e", depends=["a"], outcome=outcome(policy="wait", **{f"policy:x:{n}": "fail" for n in range(9000)}))
    assert core.client.hlen("ql:o:e") == 9002
    for _ in range(2):
        for jid in core.popped(count=3):
            core.complete(jid)
    assert json.loads(core.get("s")["data"]).keys() == {"outcome"}


# --- names ---


@pytest.mark.parametrize("jid", ["a b", 'say "hi"', "é\U0001f600", "a:b:c", "policy", "o:j", "\\", "x-y-1"])
def test_any_jid_may_have_callbacks_and_groups(core: Core, jid: str) -> None:
    core("group.open", "g", 'the "name"')
    core.put(jid, outcome=outcome(group="g", complete=[callback(jid)]))
    core.put("waits", depends=[jid], outcome=outcome(policy="wait", **{f"policy:{jid}": "fail"}))
    core("group.close", "g")
    run(core, jid, "fail")
    assert core.json("group.get", "g")["reason"] == jid
    assert core.json("group.jobs", "g") == [[jid, "failed"]]
    assert state(core, "waits") == "failed"
    assert core.get("waits")["failure"]["message"].startswith(f"This job did not run, because it depends on {jid} (")
    assert json.loads(core.get(f"{jid}-2")["data"])["outcome"]["jid"] == jid
    core("requeue", "c", "q", jid, "Klass", "{}", 0)
    assert state(core, "waits") == "depends"
    run(core, jid)
    assert state(core, f"{jid}-3") == "waiting"
    assert core.json("group.get", "g")["state"] == "complete"


def test_messages_are_cut_at_a_character(core: Core) -> None:
    chain(core, "a", "b")
    core.popped()
    core("fail", "a", "w", "g", "first line\n" + "é" * 5000 + "\n \n")
    message = core.get("b")["failure"]["message"]
    assert message.endswith("é…")
    assert len(message.encode()) < 400
    core.put("x")
    core.put("y", depends=["x"], outcome=outcome(policy="fail"))
    core.popped()
    core("fail", "x", "w", "g", "\n".join([" " * 9000] * 20))
    assert state(core, "y") == "failed"


def test_a_callback_that_is_its_own_callback(core: Core) -> None:
    core.put("c", "callbacks", outcome=outcome(complete=[callback("c", outcome={"complete": "[]", "policy": "fail"})]))
    assert core.popped(queue="callbacks") == ["c"]
    core.complete("c", queue="callbacks")
    assert state(core, "c-2") == "waiting"
    assert core.hash("o:c-2")["policy"] == "fail"
    core.put(outcome=outcome(complete=[callback("j", outcome={"success": json.dumps([callback("last")])})]))
    core.client.delete("ql:j:j", "ql:j:j-history")
    core.now += 11
    tidy(core)
    assert json.loads(core.get("j")["data"])["outcome"]["state"] == "canceled"
    for _ in range(2):
        core("complete", *core.popped(queue="callbacks"), "w", "callbacks", "{}")
    assert state(core, "last") == "waiting"


def test_many_ends_of_a_job_find_a_free_jid_soon(core: Core) -> None:
    core.client.hset("ql:j:c", "jid", "c")
    for n in range(2, 3000):
        core.client.hset(f"ql:j:c-{n}", "jid", f"c-{n}")
    core.put(outcome=outcome(success=[callback("c")]))
    core.popped()
    assert inner_calls(core, "complete", "j", "w", "q", "{}") < 200
    assert core.popped(queue="callbacks") == ["c-3000"]


def test_a_callback_joins_a_group_that_has_not_ended(core: Core) -> None:
    core("group.open", "g", "")
    inner = {"group": "g"}
    core.put("a", outcome=outcome(group="g", success=[callback("b", outcome=inner)]))
    core.put("late", "p", outcome=outcome(success=[callback("c", outcome=inner)]))
    core("group.close", "g")
    run(core, "a")
    assert core.json("group.get", "g")["left"] == 1
    assert core.popped(queue="callbacks") == ["b"]
    core.complete("b", queue="callbacks")
    assert core.json("group.get", "g")["state"] == "complete"
    assert core.popped(queue="p") == ["late"]
    core.complete("late", queue="p")
    assert core.json("group.get", "g")["total"] == 2
    assert state(core, "c") == "waiting"


# --- values that another program has left ---


def test_garbage_breaks_nothing_for_others(core: Core) -> None:
    core("group.open", "bad", "")
    core.config(grace_period=0)
    for number, name in enumerate(("text", "fields", "lists", "expiring")):
        core.put(name, retries=0, outcome=outcome(group="bad", success=[callback(f"c{number}")], policy="fail"))
    core.put("good", outcome=outcome(success=[callback("ok")]))
    core.client.set("ql:o:text", "nonsense")
    core.client.hset("ql:o:fields", mapping={"success": "[[1]]", "policy": "explode", "at": "x", "group": "bad no"})
    core.client.hset("ql:o:lists", mapping={"success": "nonsense", "complete": '[["a","b","c","{}",{"tags":"x"}]]'})
    core.client.delete("ql:o:expiring")
    core.client.rpush("ql:o:expiring", "x")
    core.client.hset("ql:g:bad", mapping={"total": "x", "done": "y", "failed": "z"})
    core.client.zadd("ql:outcomes", {"nobody": 1, "": 2})
    core.client.zadd("ql:open-groups", {"nobody": 1})
    core.client.zadd("ql:ended-groups", {"nobody": 1})
    core.client.set("ql:g:string", "x")
    core.client.zadd("ql:groups", {"string": 1})
    core.put("waits", depends=["string", "good"])
    assert core.popped(count=9) == ["text", "lists", "good", "fields", "expiring"]
    for jid in ("text", "fields", "lists", "good"):
        core.complete(jid)
    core.now += 100
    core.pop()
    assert state(core, "expiring") == "failed"
    assert state(core, "waits") == "running"
    tidy(core)
    core.now += 10_000
    tidy(core)
    assert state(core, "ok") == "waiting"
    assert core.json("groups")["total"] == 2
    assert core.client.exists("ql:g:nobody") == 0


@pytest.mark.parametrize("life", ["1e15", "inf", "nan", "0", "-5", "x", "5.5"])
def test_any_life_of_complete_jobs(core: Core, life: str) -> None:
    core.config(jobs_history=life)
    group(core, "a", complete=json.dumps([callback("c")]))
    core("group.close", "g")
    run(core, "a")
    chain(core, "x", "y", policy="skip")
    run(core, "x", "fail")
    assert core.json("group.get", "g")["state"] == "complete"
    assert state(core, "c") == "waiting"


# --- histories, and whose put it is ---


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
@pytest.mark.parametrize("fixes", ["none", "shared", "all"])
def test_ends_count_although_the_history_is_cut(core: Core, limit: int, fixes: str) -> None:
    core.config(max_job_history=limit, fixes=fixes)
    core.put(outcome=outcome(success=[callback("s")], failure=[callback("f")]))
    for _ in range(3):
        core.popped()
        core("retry", "j", "q", "w")
    run(core, "j", "fail")
    core("requeue", "c", "q", "j", "Klass", "{}", 0)
    run(core, "j", "fail")
    core("unfail", "q", "q-KeyError")
    run(core, "j")
    assert [state(core, jid) for jid in ("s", "f", "f-2", "f-3")] == ["waiting", "waiting", "waiting", None]
    core.put()
    core.popped()
    core("complete", "j", "w", "q", "{}")
    assert state(core, "s-2") is None


def test_a_log_entry_is_not_a_put(core: Core) -> None:
    core.put(outcome=outcome(success=[callback("s")]))
    core("log", "j", "put", {"outcome": True})
    run(core, "j")
    assert state(core, "s") == "waiting"
    core.put("k", outcome=outcome(success=[callback("t")]))
    core.client.rpush("ql:j:k-history", '[1.4e+09,"put",{"q":"q"}]')
    core("log", "k", "put", {"outcome": True})
    run(core, "k")
    assert state(core, "t") is None


@pytest.mark.parametrize("again", ["requeue", "unfail"])
def test_stale_callbacks_do_not_come_back(core: Core, again: str) -> None:
    core.put(outcome=outcome(success=[callback("s")], failure=[callback("f")]))
    core.popped()
    core("fail", "j", "w", "g", "m")
    foreign_put(core, "j")
    core.client.zrem("ql:q:q-work", "j")
    core.client.hset("ql:j:j", mapping={"state": "failed", "failure": '{"group":"g","when":1}'})
    core.client.lpush("ql:f:g", "j")
    if again == "requeue":
        core("requeue", "c", "q", "j", "Klass", "{}", 0)
    else:
        assert core("unfail", "q", "g") == 1
    run(core, "j")
    assert (state(core, "f"), state(core, "f-2"), state(core, "s")) == ("waiting", None, None)
    assert core.client.exists("ql:o:j") == 0


@pytest.mark.parametrize("again", ["put", "requeue", "unfail"])
def test_an_end_by_another_core_counts_even_if_the_job_is_put_again_at_once(core: Core, again: str) -> None:
    group(core, "j")
    core.put("k")
    core.put("j", unique="pending", outcome=outcome(group="g"))
    core.client.hset("ql:o:j", "complete", json.dumps([callback("c")]))
    core("group.close", "g")
    core.popped()
    core.client.hset("ql:j:j", mapping={"state": "failed", "failure": '{"group":"g","when":1}'})
    core.client.lpush("ql:f:g", "j")
    if again == "unfail":
        core("unfail", "q", "g")
    else:
        core(again, "c", "q", "j", "Klass", "{}", 0)
    assert json.loads(core.get("c")["data"])["outcome"]["state"] == "failed"
    counts = core.json("group.get", "g")
    assert (counts["failed"], counts["canceled"]) == (0, 2 if again == "put" else 0)


def test_a_job_deleted_by_another_core_and_put_again_leaves_its_group(core: Core) -> None:
    group(core, "j")
    core("group.close", "g")
    core.client.delete("ql:j:j", "ql:j:j-history")
    core.client.zrem("ql:q:q-work", "j")
    core.put(outcome=outcome(success=[callback("s")]))
    assert core.json("group.get", "g")["state"] == "failed"
    run(core, "j")
    assert state(core, "s") == "waiting"


def test_a_unique_put_does_not_bind_stale_callbacks(core: Core) -> None:
    core.put(outcome=outcome(success=[callback("s")]))
    foreign_put(core, "j")
    core("group.open", "g", "")
    core.put(unique="pending", outcome=outcome(group="g"))
    core("group.close", "g")
    run(core, "j")
    assert state(core, "s") is None
    assert core.json("group.get", "g")["state"] == "complete"


def test_retried_and_completed_by_another_core(core: Core) -> None:
    group(core, "a")
    core.put("body", depends=["g"], outcome=outcome(policy="fail"))
    core("group.close", "g")
    run(core, "a", "fail")
    assert state(core, "body") == "failed"
    core.client.hset("ql:j:a", mapping={"state": "complete", "failure": "{}"})
    core.now += 700
    tidy(core)
    assert core.json("group.get", "g")["state"] == "complete"
    assert state(core, "body") == "waiting"
    assert core.json("failed").get("q-DependencyFailed") is None


def test_a_dependency_put_again_by_another_core_releases_the_jobs_that_it_had_failed(core: Core) -> None:
    chain(core, "a", "b", "c")
    run(core, "a", "fail")
    foreign_put(core, "a")
    run(core, "a")
    assert [state(core, jid) for jid in "abc"] == ["complete", "waiting", "depends"]
    assert core.json("failed") == {}
    chain(core, "x", "y", "z")
    run(core, "x", "fail")
    run(core, "b")
    foreign_put(core, "x")
    core.now += 700
    tidy(core)
    assert [state(core, jid) for jid in "xyz"] == ["waiting", "depends", "depends"]
    assert core.json("failed") == {}


def test_a_job_that_failed_without_a_run_and_is_run_by_another_core(core: Core) -> None:
    chain(core, "a", "b")
    core.client.hset("ql:o:b", "failure", json.dumps([callback("f")]))
    run(core, "a", "fail")
    assert state(core, "f") == "waiting"
    core.client.hset("ql:j:b", mapping={"state": "complete", "failure": "{}"})
    core.now += 700
    tidy(core)
    assert core.json("failed") == {"q-KeyError": 1}
    assert core.client.exists("ql:o:b") == 0


@pytest.mark.parametrize("dependencies", [1, 150])
@pytest.mark.parametrize("history", [False, True])
def test_a_job_that_another_core_lets_run_does_not_wait_any_more(core: Core, history: bool, dependencies: int) -> None:
    others = [f"other{n}" for n in range(dependencies)]
    for jid in ("a", *others):
        core.put(jid)
    core.put("b", depends=["a", *others], outcome={"policy": "fail"})
    tidy(core)
    core("fail", core.popped()[0], "w", "KeyError", "broken")
    assert state(core, "b") == "failed"
    core.client.lrem("ql:f:q-DependencyFailed", 0, "b")
    core.client.srem("ql:failures", "q-DependencyFailed")
    core.client.hset("ql:j:b", mapping={"state": "waiting"})
    core.client.zadd("ql:q:q-work", {"b": 0})
    if history:
        core.client.rpush("ql:j:b-history", f'[{int(core.now)},"put",{{"q":"q"}}]')
    core.now += 700
    tidy(core)
    assert state(core, "b") == "waiting"
    assert core.client.exists("ql:j:b-dependencies") == 0
    assert not any(core.client.sismember(f"ql:j:{jid}-dependents", "b") for jid in ("a", *others))
    core("cancel", "a")


def test_a_dependency_skipped_while_the_job_had_failed(core: Core) -> None:
    chain(core, "a", "b")
    core.put("c", depends=["b"], outcome={"policy": "skip"})
    core("depends", "b", "on", "c")  # a circle, if the server does not refuse those
    run(core, "a", "fail")
    assert (state(core, "b"), state(core, "c")) == ("failed", "complete")
    core.client.delete("ql:f:q-DependencyFailed")
    core.client.srem("ql:failures", "q-DependencyFailed")
    core.client.rpush("ql:j:b-history", f'[{int(core.now)},"put",{{"q":"q"}}]')
    core.client.hset("ql:j:b", mapping={"state": "depends"})
    core.client.zadd("ql:q:q-depends", {"b": 0})
    core.now += 700
    tidy(core)
    assert core.get("b")["dependencies"] == ["a"]


# --- races with deferred work ---


def waiting_jobs(core: Core, count: int = 450, policy: str = "fail") -> list[str]:
    jids = [f"d{n}" for n in range(count)]
    core.put("a")
    put_many(core, jids, depends=["a"], outcome={"policy": policy})
    return jids


def test_retries_while_a_cascade_is_pending(core: Core) -> None:
    jids = waiting_jobs(core)
    for _ in range(4):
        run(core, "a", "fail")
        core("tidy", "w")
        core("requeue", "c", "q", "a", "Klass", "{}", 0)
        assert core.client.zcard("ql:pending") <= 1
    assert tidy(core) < 10
    assert {state(core, jid) for jid in jids} == {"depends"}
    assert core.json("failed") == {}
    run(core, "a", "fail")
    core("requeue", "c", "q", "a", "Klass", "{}", 0)
    run(core, "a")  # both tasks are pending
    tidy(core)
    assert {state(core, jid) for jid in jids} == {"waiting"}
    assert core.json("failed") == {}
    assert core.client.keys("ql:p*") == []


def test_puts_while_a_cascade_is_pending(core: Core) -> None:
    waiting_jobs(core, 300)
    run(core, "a", "fail")
    core.put("b")
    core.put("d0", depends=["b"], outcome=outcome(policy="fail"))
    core.put("d1")
    core("requeue", "c", "q", "d2", "Klass", "{}", 0, "depends", ["b"])
    core("cancel", "d3")
    core.put("new", depends=["a"], outcome=outcome(policy="skip"))
    tidy(core)
    assert [state(core, jid) for jid in ("d0", "d1", "d2", "d3", "d4", "new")] == [
        *("depends", "depends", "depends", None, "failed", "complete")
    ]
    assert core.json("stuck", "q")["jobs"] == [["d1", "a", "failed"]]


def test_a_skipped_job_with_many_dependents_may_expire_or_be_put_again_meanwhile(core: Core) -> None:
    for again in (False, True):
        core.client.flushdb()
        core.config(jobs_history_count=0)
        core.put("top")
        core.put("a", depends=["top"], outcome=outcome(policy="skip"))
        put_many(core, [f"s{n}" for n in range(300)], depends=["a"], outcome={"policy": "fail"})
        put_many(core, [f"n{n}" for n in range(300)], depends=["a"])
        run(core, "top", "fail")
        if again:
            core.put("a", "other")
        tidy(core)
        if again:
            assert {state(core, f"n{n}") for n in range(300)} <= {"waiting", "depends"}
            assert core.popped(queue="other") == ["a"]
            core.complete("a", queue="other")
            tidy(core)
        assert {state(core, f"n{n}") for n in range(300)} == {"waiting"}
        assert core.zset("q:q-depends") == {}
        assert core.client.keys("ql:p*") == []


def test_two_failed_dependencies_call_back_once(core: Core) -> None:
    core.put("a")
    core.put("b")
    core.put("c", depends=["a", "b"], outcome=outcome(policy="fail", failure=[callback("f")]))
    run(core, "b", "fail")
    run(core, "a", "fail")
    core("requeue", "c", "q", "b", "Klass", "{}", 0)
    assert state(core, "c") == "failed"
    assert core("length", "callbacks") == 1
    core("requeue", "c", "q", "a", "Klass", "{}", 0)
    assert state(core, "c") == "depends"


def test_members_canceled_together_with_waiting_jobs(core: Core) -> None:
    group(core, "a")
    core.put("b", depends=["g"], outcome=outcome(policy="fail", failure=[callback("f")], complete=[callback("c")]))
    core("group.close", "g")
    core("cancel", "a", "b")
    assert state(core, "f") is None
    assert json.loads(core.get("c")["data"])["outcome"] == {
        **{"jid": "b", "klass": "Klass", "state": "canceled", "failure": None, "result": None}
    }
    assert core.client.keys("ql:o*") == []


def test_a_dependency_added_later(core: Core) -> None:
    core.put("a")
    run(core, "a", "fail")
    core.put("b")
    core.put("c", depends=["b"], outcome=outcome(policy="skip"))
    core("depends", "c", "on", "a")
    assert state(core, "c") == "complete"
    core.put("d", "other", outcome=outcome(policy="fail"))
    core.popped(queue="other")
    assert core("complete", "d", "w", "other", "{}", "next", "q", "depends", ["a"]) == "depends"
    assert state(core, "d") == "failed"


def test_a_group_is_kept_while_jobs_wait_for_it(core: Core) -> None:
    group(core, "a")
    core.put("body", depends=["g"], outcome=outcome(policy="fail"))
    core("group.close", "g")
    run(core, "a", "fail")
    core.now += 8 * 86400
    tidy(core)
    core("requeue", "c", "q", "a", "Klass", "{}", 0)
    run(core, "a")
    assert state(core, "body") == "waiting"
    core.now += 8 * 86400
    tidy(core)
    assert core.client.keys("ql:g*") == []


def test_a_group_that_takes_long_to_fill_is_not_abandoned(core: Core) -> None:
    core("group.open", "g", "")
    for number in range(5):
        core.now += 3000
        core.put(f"m{number}", outcome=outcome(group="g"))
        tidy(core)
    assert core.json("group.get", "g")["state"] == "open"
    core.now += 3601
    tidy(core)
    assert core.json("group.get", "g")["state"] == "running"


def test_waiting_for_many_of_which_another_core_fails_one(core: Core) -> None:
    jids = [f"d{n}" for n in range(1000)]
    put_many(core, jids)
    core.put("last", depends=jids, outcome=outcome(policy="fail"))
    tidy(core)
    core.client.hset("ql:j:d777", "state", "failed")
    core.now += 11
    assert max(inner_calls(core, "tidy", "w") for _ in range(3)) < 1000
    tidy(core)
    assert state(core, "last") == "failed"


def test_a_deep_chain_ends_in_bounded_steps(core: Core) -> None:
    chain(core, *(f"c{n}" for n in range(1000)))
    core.popped()
    assert inner_calls(core, "fail", "c0", "w", "g", "m") < 6000
    tidy(core)
    assert core.json("failed") == {"g": 1, "q-DependencyFailed": 999}
    core("requeue", "c", "q", "c0", "Klass", "{}", 0)
    tidy(core)
    assert core.json("failed") == {}


def test_a_job_that_fails_again_at_once_stays_in_its_failure_group(core: Core) -> None:
    chain(core, "a", "b")
    run(core, "a", "fail")
    core("requeue", "c", "q", "b", "Klass", "{}", 0)
    assert state(core, "b") == "failed"
    assert core.json("failed", "q-DependencyFailed")["jobs"] == ["b"]
