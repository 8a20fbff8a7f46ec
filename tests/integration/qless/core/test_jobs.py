"""The life of a job: what each command does to it, to the sets it is in, to its hash."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.integration.qless.conftest import NOW, Core, CoreError

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def test_a_new_job_in_every_key(core: Core) -> None:
    core.now += 0.25
    core.put(data='{"a": [1, 2]}', priority=5, tags=["x", "y"], retries=3)
    assert core.hash("j:j") == {
        **{"jid": "j", "klass": "Klass", "data": '{"a": [1, 2]}', "priority": "5", "tags": '["x","y"]'},
        **{"state": "waiting", "worker": "", "expires": "0", "queue": "q", "retries": "3", "remaining": "3"},
        "time": "1400000000.25000000000000000000",
    }
    assert core.client.lrange("ql:j:j-history", 0, -1) == [b'[1400000000,"put",{"q":"q"}]']
    assert core.zset("q:q-work") == {"j": 5 - core.now / 1e10}
    assert core.zset("queues") == {"q": core.now}
    assert core.zset("t:x") == core.zset("t:y") == {"j": core.now}
    assert core.zset("tags") == {"x": 1, "y": 1}
    assert core.client.lrange("ql:unindexed", 0, -1) == [b"j"]
    assert core.client.dbsize() == 8


def test_a_job_as_json(core: Core) -> None:
    core.put(data='{"a":[]}', priority=-1, tags=["x"])
    core.put("k", depends=["j"])
    core("track", "track", "j")
    core.now += 1.5
    (job,) = core.pop()
    assert job == {
        **{"jid": "j", "klass": "Klass", "state": "running", "queue": "q", "worker": "w", "priority": -1},
        **{"retries": 5, "remaining": 5, "expires": NOW + 61.5, "data": '{"a":[]}', "tags": ["x"]},
        **{"dependents": ["k"], "dependencies": {}, "failure": {}, "tracked": True, "spawned_from_jid": False},
        "history": [
            {"when": 1_400_000_000, "what": "put", "q": "q"},
            {"when": 1_400_000_001, "what": "popped", "worker": "w"},
        ],
    }
    assert core.get() == job
    assert core.json("multiget", "j", "nobody", "k")[0] == job
    assert core.get("k")["dependencies"] == ["j"]
    assert core.json("peek", "q", 5) == {}


def test_order_of_waiting_jobs(core: Core) -> None:
    core.put("a")
    core.put("b")
    core.now += 1
    core.put("late")
    core.put("high", priority=1)
    core.put("low", priority=-1)
    assert [job["jid"] for job in core.json("peek", "q", 9)] == ["high", "b", "a", "late", "low"]
    assert core("jobs", "waiting", "q") == ["high", "b", "a", "late", "low"]
    assert core("jobs", "waiting", "q", 1, 2) == ["b", "a"]
    assert core("jobs", "waiting", "q", 3, -1) == ["late", "low"]
    core("priority", "late", 0)
    assert core.zset("q:q-work")["late"] == 0
    assert core.popped(count=9) == ["high", "late", "b", "a", "low"]


def test_priority_of_jobs_that_do_not_wait(core: Core) -> None:
    core.put("s", delay=10)
    core.put("d", depends=["s"])
    core.put("c")
    core.popped()
    core.complete("c")
    for jid in ("s", "d", "c"):
        assert core("priority", jid, 7) == 7
        assert core.get(jid)["priority"] == 7
        assert core.zset("q:q-work") == {}


def test_put_again_keeps_what_is_not_given(core: Core) -> None:
    core.put("x")
    core.put("y")
    core.put(priority=3, tags=["a", "b"], retries=2, depends=["x"])
    core.put(queue="p", data='{"new":1}')
    job = core.get()
    assert (job["queue"], job["data"], job["state"]) == ("p", '{"new":1}', "depends")
    assert (job["priority"], job["tags"], job["retries"]) == (3, ["a", "b"], 2)
    assert job["dependencies"] == ["x"]
    assert core.zset("q:q-depends") == {}
    assert core.zset("q:p-depends") == {"j": core.now}
    assert core.zset("tags") == {"a": 1, "b": 1}
    core.put(tags=["c"], depends=["y"], priority=0, retries=0)
    job = core.get()
    assert (job["priority"], job["tags"], job["retries"], job["dependencies"]) == (0, ["c"], 0, ["y"])
    assert core.get("x")["dependents"] == {}
    assert core.zset("tags") == {"a": 0, "b": 0, "c": 1}
    core.put(depends=[])
    assert core.get()["dependencies"] == ["y"]


def test_put_takes_a_job_away_from_its_worker(core: Core) -> None:
    core.put()
    core.popped()
    core("requeue", "w", "p", "j", "Klass", "{}", 0)
    assert core.zset("w:w:jobs") == core.zset("q:q-locks") == {}
    job = core.get()
    assert (job["state"], job["worker"], job["expires"], job["remaining"]) == ("waiting", "", 0, 5)
    with pytest.raises(CoreError, match="is not currently running: waiting"):
        core.complete()


def test_put_of_complete_and_failed_jobs(core: Core) -> None:
    core.put("c")
    core.popped()
    core.complete("c")
    core.put("c")
    assert core.zset("completed") == {}
    assert core.get("c")["state"] == "waiting"
    core.popped()
    core("fail", "c", "w", "g", "m")
    assert core.stats()["failed"] == 1
    core.put("c")
    assert core.json("failed") == {}
    assert core.client.keys("ql:f*") == []
    assert core.get("c")["failure"] == {"group": "g", "message": "m", "when": NOW, "worker": "w"}
    assert (core.stats()["failed"], core.stats()["failures"]) == (0, 1)


def test_a_delay(core: Core) -> None:
    core.put(delay=60)
    assert core.get()["state"] == "scheduled"
    assert core.zset("q:q-scheduled") == {"j": NOW + 60}
    assert core("jobs", "scheduled", "q") == ["j"]
    assert core.popped() == []
    core.now += 60
    assert core.popped() == ["j"]
    assert core.get()["history"][-1]["when"] == NOW + 60


@pytest.mark.parametrize("look", [["queues"], ["queues", "q"], ["jobs", "scheduled", "q"], ["peek", "q", 1]])
def test_looking_moves_what_is_due(core: Core, look: list[Any]) -> None:
    core.put(delay=60, priority=2)
    core.now += 61
    core(*look)
    assert core.zset("q:q-scheduled") == {}
    assert core.zset("q:q-work") == {"j": 2 - core.now / 1e10}
    assert core.get()["state"] == "waiting"


def test_dependencies_hold_a_job_until_all_are_complete(core: Core) -> None:
    core.put("a")
    core.put("b")
    core.put(depends=["a", "b", "nobody"])
    assert sorted(core.get()["dependencies"]) == ["a", "b"]
    assert core.popped(count=5) == ["b", "a"]
    assert core.complete("a", next="q") == "waiting"
    assert core.get()["state"] == "depends"
    core.complete("b")
    core.popped()
    core.complete("a")
    assert core.get()["state"] == "waiting"
    assert core.get("a")["dependents"] == {}
    assert core.popped() == ["j"]
    core.put("late", depends=["a", "b"])
    assert core.get("late")["state"] == "waiting"


def test_failed_and_canceled_jobs_release_nobody(core: Core) -> None:
    core.put("a")
    core.put(depends=["a"])
    core.popped()
    core("fail", "a", "w", "g", "m")
    assert core.get()["state"] == "depends"
    core("cancel", "a", "j")
    assert core.get() is core.get("a") is None
    assert core.client.keys("ql:j:*") == []


def test_a_dependency_and_a_delay(core: Core) -> None:
    core.put("a")
    core.put("b", delay=100, depends=["a"])
    core.put("c", delay=1, depends=["a"])
    assert core.hash("j:b")["scheduled"] == str(int(NOW) + 100)
    core.now += 10
    core.popped()
    core.complete("a")
    assert core.zset("q:q-scheduled") == {"b": NOW + 100, "c": NOW + 1}
    assert core.get("b")["state"] == "scheduled"
    assert "scheduled" not in core.hash("j:b")
    assert core.popped(count=2) == ["c"]


def test_depends_on_and_off(core: Core) -> None:
    for jid in "abc":
        core.put(jid)
    core.put(depends=["a"], delay=50)
    assert core("depends", "j", "on", "b", "c", "nobody") == 1
    assert sorted(core.get()["dependencies"]) == ["a", "b", "c"]
    assert core("depends", "j", "off", "a", "nobody") == 1
    assert sorted(core.get()["dependencies"]) == ["b", "c"]
    assert core.get("a")["dependents"] == {}
    assert core("depends", "j", "off", "all") == 1
    assert core.get()["state"] == "waiting"
    assert "j" in core.zset("q:q-work")
    assert core.hash("j:j")["scheduled"] == str(int(NOW) + 50)
    core.put(depends=["a"])
    assert "scheduled" not in core.hash("j:j")


def test_complete(core: Core) -> None:
    core.put(tags=["x"])
    core.popped()
    core.now += 5
    assert core("complete", "j", "w", "q", '{"done": 1}') == "complete"
    job = core.get()
    assert (job["state"], job["queue"], job["worker"], job["data"]) == ("complete", "", "", '{"done": 1}')
    assert (job["expires"], job["remaining"], job["failure"], job["tags"]) == (0, 5, {}, ["x"])
    assert [entry["what"] for entry in job["history"]] == ["put", "popped", "done"]
    assert core.zset("completed") == {"j": NOW + 5}
    assert core.zset("q:q-locks") == core.zset("w:w:jobs") == {}
    assert core("jobs", "complete") == ["j"]
    assert core("cancel", "j") == ["j"]
    assert core.get() == job


@pytest.mark.parametrize(
    ("options", "reply", "state", "index"),
    [
        ({}, "waiting", "waiting", "work"),
        ({"delay": 5}, "scheduled", "waiting", "scheduled"),
        ({"depends": ["a"]}, "depends", "depends", "depends"),
        ({"depends": ["a"], "delay": 5}, "depends", "depends", "depends"),
        ({"depends": ["nobody"], "delay": 5}, "waiting", "waiting", "work"),
        ({"depends": [], "delay": 5}, "scheduled", "waiting", "scheduled"),
    ],
)
def test_advance(core: Core, options: dict[str, Any], reply: str, state: str, index: str) -> None:
    core.put("a", queue="other")
    core.put(priority=2, retries=3)
    core.popped()
    core("retry", "j", "q", "w")
    core.popped()
    assert core.complete(next="p", **options) == reply
    job = core.get()
    assert (job["state"], job["queue"], job["worker"], job["remaining"]) == (state, "p", "", 3)
    assert job["history"][-2:] == [{"what": "done", "when": NOW}, {"what": "put", "when": NOW, "q": "p"}]
    assert list(core.zset(f"q:p-{index}")) == ["j"]
    assert list(core.zset("queues")) == ["p", "q"] or set(core.zset("queues")) == {"other", "p", "q"}
    assert core.zset("completed") == {}
    assert ("scheduled" in core.hash("j:j")) == (reply == "depends" and "delay" in options)


def test_completed_jobs_expire(core: Core) -> None:
    core.config(jobs_history=100, jobs_history_count=3)
    jids = [f"j{n}" for n in range(6)]
    for jid in jids:
        core.put(jid, tags=["x"])
        core.popped()
        core.complete(jid)
        core.now += 1
    assert core("jobs", "complete") == ["j5", "j4", "j3"]
    assert [core.get(jid) is None for jid in jids] == [True] * 3 + [False] * 3
    assert core.zset("tags") == {"x": 3}
    assert core.client.exists("ql:j:j0-history") == 0
    core.now += 200
    core.put("last")
    core.popped()
    core.complete("last")
    assert core("jobs", "complete") == ["last"]
    core.config(jobs_history=0)
    core.put("gone")
    core.put("after", depends=["gone"])
    core.popped()
    core.complete("gone")
    assert core("jobs", "complete") == []
    assert core.get("after")["state"] == "waiting"


def test_fail_and_unfail(core: Core) -> None:
    core.now += 0.75
    for number in range(3):
        core.put(f"j{number}", retries=1)
        core.popped()
        core("fail", f"j{number}", "w", "g", f"m{number}", *(['{"why":1}'] if number else []))
        core.now += 1
    job = core.get("j0")
    assert (job["state"], job["worker"], job["expires"], job["remaining"]) == ("failed", "", 0, 1)
    assert core.hash("j:j0")["expires"] == ""
    assert job["failure"] == {"group": "g", "message": "m0", "when": 1_400_000_000, "worker": "w"}
    assert job["history"][-1] == {"what": "failed", "when": 1_400_000_000, "worker": "w", "group": "g"}
    assert [core.get(f"j{n}")["data"] for n in range(2)] == ["{}", '{"why":1}']
    assert core.json("failed") == {"g": 3}
    assert core.json("failed", "g") == {"total": 3, "jobs": ["j2", "j1", "j0"]}
    assert core.json("failed", "g", 1, 1) == {"total": 3, "jobs": ["j1"]}
    assert core("unfail", "p", "g", 2) == 2
    assert core.json("failed", "g")["jobs"] == ["j2"]
    job = core.get("j0")
    assert (job["state"], job["queue"], job["remaining"]) == ("waiting", "p", 1)
    assert job["history"][-1] == {"what": "put", "when": 1_400_000_003, "q": "p"}
    assert job["failure"]["group"] == "g"
    assert core.popped(queue="p", count=9) == ["j1", "j0"]
    assert (core("unfail", "p", "g"), core("unfail", "p", "g")) == (1, 0)
    assert core.json("failed") == {}
    assert "p" not in core.zset("queues")


def test_retry(core: Core) -> None:
    core.put(retries=2)
    for retries_left in (1, 0):
        core.popped()
        assert core("retry", "j", "q", "w") == retries_left
        assert core.get()["state"] == "waiting"
        assert core.get()["worker"] == "w"
        assert core.zset("q:q-locks") == core.zset("w:w:jobs") == {}
    core.now += 0.123456
    core.popped()
    assert core("retry", "j", "q", "w") == -1
    job = core.get()
    assert (job["state"], job["worker"], job["remaining"]) == ("failed", "", -1)
    assert job["failure"] == {
        **{"group": "failed-retries-q", "message": 'Job exhausted retries in queue "q"'},
        **{"when": 1_400_000_000.1235, "worker": ""},
    }
    assert job["history"][-1] == {"what": "failed", "when": 1_400_000_000, "group": "failed-retries-q"}
    assert core.json("failed") == {"failed-retries-q": 1}
    assert (core.stats()["failed"], core.stats()["failures"], core.stats()["retries"]) == (1, 1, 0)


def test_retry_with_delay_and_reason(core: Core) -> None:
    core.now += 0.5
    core.put(retries=1)
    core.popped()
    assert core("retry", "j", "q", "w", 10, "g", "m") == 0
    job = core.get()
    assert (job["state"], job["failure"]) == (
        "scheduled",
        {"group": "g", "message": "m", "when": 1_400_000_000, "worker": "w"},
    )
    assert core.zset("q:q-scheduled") == {"j": core.now + 10}
    core.now += 10
    core.popped()
    assert core("retry", "j", "q", "w", 0, "late", "too late") == -1
    assert core.get()["failure"] == {"group": "late", "message": "too late", "when": 1_400_000_010, "worker": "w"}
    core.put(retries=0)
    core.popped()
    core("retry", "j", "q", "w", 0, "alone")
    assert core.get()["failure"]["group"] == "alone"
    assert core.get()["failure"]["message"] == 'Job exhausted retries in queue "q"'


def test_heartbeat(core: Core) -> None:
    core.config(heartbeat=20)
    core.put()
    core.popped()
    assert core.get()["expires"] == NOW + 20
    core.now += 30.5
    assert core("heartbeat", "j", "w", '{"so": "far"}') == NOW + 50
    core("config.set", "q-heartbeat", 100)
    assert core("heartbeat", "j", "w") == NOW + 130
    expires = NOW + 130.5
    assert core.zset("q:q-locks") == core.zset("w:w:jobs") == {"j": expires}
    assert core.zset("workers") == {"w": NOW + 30.5}
    assert (core.get()["expires"], core.get()["data"]) == (expires, '{"so": "far"}')


def test_timeout(core: Core) -> None:
    core.put("a", priority=99)
    core.put("b")
    core.put("c")
    core.popped(count=3)
    with pytest.raises(CoreError, match=r"Timeout\(\): Job nobody does not exist"):
        core("timeout", "b", "nobody", "c")
    job = core.get("b")
    assert (job["state"], job["worker"], job["expires"], job["remaining"]) == ("stalled", "w", 0, 5)
    assert core.zset("q:q-work") == {"b": math.inf}
    assert list(core.zset("q:q-locks")) == ["a", "c"]
    assert set(core.zset("w:w:jobs")) == {"a", "b", "c"}
    assert core.get("c")["state"] == "running"
    core.put("d", priority=10**6)
    assert core.popped("v") == ["b"]


def test_cancel(core: Core) -> None:
    core.put("run", tags=["x"])
    core.popped()
    core.put("wait")
    core.put("later", delay=9)
    core.put("dep", depends=["wait"])
    core.put("bad")
    core.now += 1
    core.put("first", priority=9)
    core.popped(count=1)
    core("cancel", "first")
    core.popped()
    core("fail", "wait", "w", "g", "m")
    core.now += 86400
    jids = ["run", "wait", "later", "dep", "bad", "nobody"]
    assert core("cancel", *jids) == jids
    assert core.json("multiget", *jids) == {}
    for index in ("work", "locks", "scheduled", "depends"):
        assert core.zset(f"q:q-{index}") == {}
    assert core.json("failed") == {}
    assert core.zset("tags") == {"x": 0}
    assert core.client.keys("ql:j:*") == core.client.keys("ql:t:*") == []
    core.now -= 86400
    assert (core.stats()["failed"], core.stats()["failures"]) == (0, 1)


def test_cancel_unties_what_the_job_waited_for(core: Core) -> None:
    core.put("a")
    core.put("b", depends=["a"])
    core("cancel", "b")
    assert core.get("a")["dependents"] == {}
    core("cancel", "a")


def test_tags(core: Core) -> None:
    core.put(tags=["a", "b"])
    core.now += 1
    core.put("k", tags=["b"])
    assert core.json("tag", "add", "k", "c", "a", "c", "b") == ["b", "c", "a"]
    assert core.zset("tags") == {"a": 2, "b": 3, "c": 2}
    assert core.json("tag", "get", "b") == {"total": 2, "jobs": ["j", "k"]}
    assert core.json("tag", "get", "b", 1, 5) == {"total": 2, "jobs": ["k"]}
    assert core.json("tag", "top") == ["b", "c", "a"]
    assert core.json("tag", "top", 1, 1) == ["c"]
    assert core.json("tag", "remove", "k", "b", "zero", "c") == ["a"]
    assert core.zset("tags") == {"a": 2, "b": 2, "c": 1, "zero": -1}
    assert core.json("tag", "get", "b") == {"total": 1, "jobs": ["j"]}


def test_track(core: Core) -> None:
    core.put("a")
    core.put("b")
    core("track", "track", "b")
    core.now += 1
    core("track", "track", "a")
    tracked = core.json("track")
    assert [job["jid"] for job in tracked["jobs"]] == ["b", "a"]
    assert all(job["tracked"] for job in tracked["jobs"])
    core("cancel", "b")
    tracked = core.json("track")
    assert ([job["jid"] for job in tracked["jobs"]], tracked["expired"]) == (["a"], ["b"])
    core("track", "untrack", "a")
    assert core.get("a")["tracked"] is False


def test_history_is_trimmed_and_keeps_the_first(core: Core) -> None:
    core.config(max_job_history=5)
    core.put()
    for number in range(10):
        core("log", "j", f"m{number}")
    assert [entry["what"] for entry in core.get()["history"]] == ["put", "m6", "m7", "m8", "m9"]
    core.config(max_job_history=0)
    for number in range(200):
        core("log", "j", f"n{number}")
    assert len(core.get()["history"]) == 205
    core("config.unset", "max-job-history")
    core("log", "j", "last")
    history = core.get()["history"]
    assert (len(history), history[0]["what"], history[1]["what"]) == (100, "put", "n102")


def test_history_of_an_old_core_is_adopted(core: Core) -> None:
    legacy = [
        {"q": "old", "put": 10.7, "popped": 20.2, "worker": "w1", "done": 30},
        {"q": "newer", "put": 30, "popped": 40, "worker": "w2", "failed": 50},
    ]
    expected = [
        {"when": 10, "what": "put", "q": "old"},
        {"when": 20, "what": "popped", "worker": "w1"},
        {"when": 30, "what": "done"},
        {"when": 30, "what": "put", "q": "newer"},
        {"when": 40, "what": "popped", "worker": "w2"},
        {"when": 50, "what": "failed"},
    ]
    for look in (lambda: core.get(), lambda: core.pop()[0], lambda: core("log", "j", "m")):
        core.client.flushdb()
        core.put()
        core.client.delete("ql:j:j-history")
        core.client.hset("ql:j:j", "history", json.dumps(legacy))
        look()
        assert core.get()["history"][:6] == expected
        assert "history" not in core.hash("j:j")


def test_numbers_keep_their_digits(core: Core) -> None:
    core.now = 1_400_000_000.123456
    core.put(priority=0.1, delay=0)
    assert float(core.hash("j:j")["priority"]) == 0.1
    core.popped()
    assert core.hash("j:j")["expires"] == "1400000060.123456"
    assert float(core.hash("j:j")["time"]) == core.now
    assert core.zset("q:q-locks") == {"j": core.now + 60}


def test_config(core: Core) -> None:
    defaults = {
        **{"application": "qless", "heartbeat": 60, "grace-period": 10, "jobs-history": 604800},
        **{"jobs-history-count": 50000, "stats-history": 30, "histogram-history": 7},
    }
    assert core.json("config.get") == defaults
    core("config.set", "heartbeat", 5)
    core("config.set", "mine", "x")
    assert core.json("config.get") == {**defaults, "heartbeat": "5", "mine": "x"}
    core("config.unset", "heartbeat")
    assert core.hash("config") == {"mine": "x"}


def test_workers(core: Core) -> None:
    for jid in "abc":
        core.put(jid)
    core.popped("old", count=2)
    core.now += 30
    core.popped("new")
    assert core.json("workers") == [{"name": "new", "jobs": 1, "stalled": 0}, {"name": "old", "jobs": 2, "stalled": 0}]
    core.now += 40
    assert core.json("workers", "old") == {"jobs": {}, "stalled": ["c", "b"]}
    assert core.json("workers", "new") == {"jobs": ["a"], "stalled": {}}
    core.now += 86400 - 69
    assert [worker["name"] for worker in core.json("workers")] == ["new"]
    assert core.client.exists("ql:w:old:jobs") == 0
    core("config.set", "max-worker-age", 10)
    assert core.json("workers", "new") == {"jobs": {}, "stalled": {}}
    assert core.json("workers") == {}
    core.popped("w")
    core("worker.deregister", "w", "nobody")
    assert core.json("workers") == {}


def test_queues(core: Core) -> None:
    core.put("a", queue="second")
    core.now += 1
    for jid in "abcd":
        core.put(jid)
    core.put("e", depends=["a"])
    core.put("f", delay=99)
    core("recur", "q", "r", "K", "{}", "interval", 60, 60)
    core.popped(count=1)
    core.now += 60
    core.popped("v", count=1)
    core("pause", "q", "p")
    counts = {"waiting": 3, "stalled": 0, "running": 2, "scheduled": 1, "depends": 1, "recurring": 1}
    assert core.json("queues", "q") == {"name": "q", "paused": True, **counts}
    assert [queue["name"] for queue in core.json("queues")] == ["second", "q"]
    core.now += 10
    assert core.json("queues", "q")["stalled"] == 1
    assert core("length", "q") == 6
    assert core.popped() == []
    core("unpause", "q")
    assert core.popped()
    core("queue.forget", "q")
    assert [queue["name"] for queue in core.json("queues")] == ["second"]
    assert core.json("queues", "q")["depends"] == 1


def test_jobs_of_a_kind(core: Core) -> None:
    for number in range(6):
        core.put(f"j{number}")
        core.popped()
        core.now += 10
    core.now = NOW + 80
    assert core("jobs", "running", "q") == ["j2", "j3", "j4", "j5"]
    assert core("jobs", "stalled", "q") == ["j0", "j1", "j2"]
    assert core("jobs", "running", "q", 1, -1) == ["j3", "j4", "j5"]
    assert core("jobs", "running", "q", 1, 2) == ["j3", "j4"]
    assert core("jobs", "stalled", "q", 1, -1) == ["j1", "j2"]
    for number in range(3):
        core.complete(f"j{number}")
        core.now += 1
        core.put(f"d{number}", depends=["j5"])
        core.put(f"s{number}", delay=10)
        core("recur", "q", f"r{number}", "K", "{}", "interval", 60, number)
    assert core("jobs", "complete") == ["j2", "j1", "j0"]
    assert core("jobs", "complete", 0, -1) == ["j2", "j1"]
    assert core("jobs", "depends", "q", 0, -1) == ["d0", "d1"]
    assert core("jobs", "scheduled", "q", 1, 1) == ["s1"]
    assert core("jobs", "recurring", "q", 0, -1) == ["r0", "r1", "r2"]
