"""Jobs in their keys, pages of lists, and histories. test_oracle.py compares what each command does to all keys."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.integration.qless.conftest import NOW, Core, CoreError

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def test_a_put_writes_a_new_job_into_its_keys(core: Core) -> None:
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
    assert core.client.dbsize() == 7


def test_a_job_is_returned_as_json(core: Core) -> None:
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


@pytest.mark.parametrize("look", [["queues"], ["queues", "q"], ["jobs", "scheduled", "q"], ["peek", "q", 1]])
def test_reads_move_due_jobs(core: Core, look: list[Any]) -> None:
    core.put(delay=60, priority=2)
    core.now += 61
    core(*look)
    assert core.zset("q:q-scheduled") == {}
    assert core.zset("q:q-work") == {"j": 2 - core.now / 1e10}
    assert core.get()["state"] == "waiting"


def test_failed_jobs_are_listed_and_unfailed_oldest_first(core: Core) -> None:
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


def test_timeout_takes_jobs_from_their_workers(core: Core) -> None:
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


def test_cancel_removes_a_job_from_every_key(core: Core) -> None:
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


def test_tags_are_added_removed_and_counted(core: Core) -> None:
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


def test_options_are_set_and_unset(core: Core) -> None:
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


def test_jobs_are_listed_by_state_in_pages(core: Core) -> None:
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
