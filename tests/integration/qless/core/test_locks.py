"""Who holds a job, how a lock is lost in two steps, how many may run; recurring jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.qless.conftest import NOW, Core, CoreError

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def test_a_lock_is_lost_in_two_steps(core: Core) -> None:
    core.put(retries=5)
    assert core.popped("a") == ["j"]
    core.now += 60
    assert core.popped("b") == []
    assert core.zset("q:q-locks") == {"j": core.now + 10}
    assert core.hash("j:j")["grace"] == "1"
    assert core.zset("w:a:jobs") == {}
    job = core.get()
    assert (job["state"], job["worker"], job["expires"], job["remaining"]) == ("running", "a", NOW + 60, 5)
    assert job["history"][-1] == {"what": "timed-out", "when": NOW + 60}
    assert core.stats()["retries"] == 1
    core.now += 9
    assert core.popped("b") == []
    core.now += 1
    assert core.popped("b") == ["j"]
    job = core.get()
    assert (job["worker"], job["remaining"], job["expires"]) == ("b", 4, core.now + 60)
    assert "grace" not in core.hash("j:j")
    with pytest.raises(CoreError, match="handed out to another worker: b"):
        core.complete(worker="a")


def test_the_holder_may_still_end_the_job_in_the_time_of_grace(core: Core) -> None:
    for jid in "abcd":
        core.put(jid)
    core.popped(count=4)
    core.now += 60
    assert core.popped("v", count=4) == []
    assert core("heartbeat", "a", "w") == core.now + 60
    assert core.complete("b") == "complete"
    assert core("fail", "c", "w", "g", "m") == "c"
    assert core("retry", "d", "q", "w") == 4
    assert "grace" not in core.hash("j:d")


def test_who_clears_the_mark_of_the_notice(core: Core) -> None:
    """A heartbeat does not: the next loss of the lock takes the job away at once."""
    core.put()
    core.popped("a")
    core.now += 60
    core.popped("b")
    core("heartbeat", "j", "a")
    assert core.hash("j:j")["grace"] == "1"
    core.now += 60
    assert core.popped("b") == ["j"]
    core.put()
    core.client.hset("ql:j:j", "grace", 1)
    core.put()
    assert core.hash("j:j")["grace"] == "1"


def test_without_grace_a_lock_is_lost_at_once(core: Core) -> None:
    for grace in (0, -5):
        core.config(grace_period=grace)
        core.put()
        core.popped("a")
        core.now += 60
        assert core.popped("b") == ["j"]
        assert core.get()["remaining"] == 4
        assert [entry["what"] for entry in core.get()["history"]][-2:] == ["timed-out", "popped"]
        assert "grace" not in core.hash("j:j")


def test_retries_run_out_by_lost_locks(core: Core) -> None:
    """With n retries a job runs at most n + 1 times."""
    core.config(grace_period=0)
    core.put(retries=2)
    runs = 0
    while core.popped(f"w{runs}"):
        runs += 1
        core.now += 60.123456
    assert runs == 3
    job = core.get()
    assert (job["state"], job["remaining"], job["worker"], job["expires"]) == ("failed", -1, "", 0)
    assert job["failure"]["when"] == pytest.approx(core.now, abs=1e-3)
    assert job["failure"]["when"] != int(core.now)
    assert (job["failure"]["group"], job["failure"]["worker"]) == ("failed-retries-q", "")
    assert job["failure"]["message"] == 'Job exhausted retries in queue "q"'
    assert job["history"][-1]["group"] == "failed-retries-q"
    assert core.zset("q:q-locks") == {}
    stats = core.stats()
    assert (stats["failed"], stats["failures"], stats["retries"]) == (1, 1, 3)


def test_lost_locks_come_before_any_waiting_job(core: Core) -> None:
    core.config(grace_period=0)
    core.put("low", priority=-100)
    core.popped("a")
    core.put("high", priority=100)
    core.now += 60
    assert [job["jid"] for job in core.json("peek", "q", 5)] == ["low", "high"]
    assert core.get("low")["remaining"] == 5
    assert core.popped("b", count=2) == ["low", "high"]


def test_a_pop_that_gives_notice_takes_from_those_that_wait(core: Core) -> None:
    core.put("a")
    core.popped("v")
    core.put("b")
    core.now += 60
    assert core.popped("w", count=1) == ["b"]


def test_concurrency(core: Core) -> None:
    core("config.set", "q-max-concurrency", 2)
    for jid in "abcd":
        core.put(jid)
    assert len(core.popped(count=9)) == 2
    assert core.popped("v") == []
    assert "v" in core.zset("workers")
    core.complete("d")
    assert core.popped("v", count=5) == ["b"]
    core.now += 61
    assert len(core.popped("x", count=5)) == 1
    core.put("other", queue="p")
    assert core.popped(queue="p") == ["other"]


def test_length_of_a_lock(core: Core) -> None:
    for options, seconds in (({}, 60), ({"heartbeat": 7}, 7), ({"q-heartbeat": 9}, 9)):
        for name, value in options.items():
            core("config.set", name, value)
        core.put()
        assert core.pop()[0]["expires"] == core.now + seconds


def test_a_paused_queue_gives_nothing_and_writes_nothing(core: Core) -> None:
    core.put()
    core("pause", "q")
    keys = core.client.keys("*")
    assert core.popped() == []
    assert sorted(core.client.keys("*")) == sorted(keys)
    assert core.zset("workers") == {}
    assert [job["jid"] for job in core.json("peek", "q", 1)] == ["j"]


# --- recurring jobs ----------------------------------------------------------------------------------------------


def recur(core: Core, interval: float = 60, offset: float = 0, jid: str = "r", **options: Any) -> None:
    pairs = [argument for name, value in options.items() for argument in (name, value)]
    assert core("recur", "q", jid, "Klass", '{"a":1}', "interval", interval, offset, *pairs) == jid


def test_a_recurring_job_in_its_keys(core: Core) -> None:
    recur(core, offset=30, tags=["x"], priority=2, retries=3, backlog=4)
    assert core.hash("r:r") == {
        **{"jid": "r", "klass": "Klass", "data": '{"a":1}', "priority": "2", "tags": '["x"]', "state": "recur"},
        **{"queue": "q", "type": "interval", "count": "0", "interval": "60", "retries": "3", "backlog": "4"},
    }
    assert core.zset("q:q-recur") == {"r": NOW + 30}
    assert core.zset("tags") == {}
    assert core.json("recur.get", "r") == {
        **{"jid": "r", "klass": "Klass", "state": "recur", "queue": "q", "priority": 2, "interval": 60},
        **{"retries": 3, "count": 0, "data": '{"a":1}', "tags": ["x"], "backlog": 4},
    }
    recur(core)
    assert core.json("recur.get", "r")["retries"] == 0


def test_children(core: Core) -> None:
    core.config(heartbeat=1000)
    core.now += 0.75
    recur(core, tags=["x"], priority=2, retries=3)
    (job,) = core.pop(count=9)
    assert (job["jid"], job["spawned_from_jid"], job["klass"], job["data"]) == ("r-1", "r", "Klass", '{"a":1}')
    assert (job["priority"], job["retries"], job["remaining"], job["tags"]) == (2, 3, 3, ["x"])
    core.now += 130.5
    (job, late) = core.json("peek", "q", 9)
    assert [job["jid"], late["jid"]] == ["r-2", "r-3"]
    assert job["history"] == [{"what": "put", "q": "q", "when": NOW + 60}]
    assert float(core.hash("j:r-2")["time"]) == NOW + 60
    assert core.zset("q:q-work") == {"r-2": 2 - (NOW + 60) / 1e10, "r-3": 2 - (NOW + 120) / 1e10}
    assert core.zset("t:x") == {"r-1": NOW + 0.75, "r-2": core.now, "r-3": core.now}
    assert core.zset("q:q-recur") == {"r": NOW + 180}
    assert core.json("recur.get", "r")["count"] == 3


def test_no_more_children_than_asked_for(core: Core) -> None:
    recur(core, 10)
    core.now += 95
    assert core.popped(count=3) == ["r-1", "r-2", "r-3"]
    assert core.popped(count=99) == [f"r-{n}" for n in range(4, 11)]


@pytest.mark.parametrize(
    ("backlog", "late", "spawned"), [(0, 100, 11), (1, 100, 2), (1, 105, 1), (5, 100, 6), (5, 105, 5), (20, 105, 11)]
)
def test_backlog(core: Core, backlog: int, late: int, spawned: int) -> None:
    """At most so many and one, the latest."""
    recur(core, 10, backlog=backlog)
    core.now += late
    jobs = core.pop(count=99)
    assert len(jobs) == spawned
    assert jobs[-1]["history"][0]["when"] == NOW + 100


def test_recur_again_keeps_the_count_and_moves(core: Core) -> None:
    recur(core)
    core.popped()
    core("recur", "p", "r", "Other", "{}", "interval", 5, 1)
    assert core.zset("q:q-recur") == {}
    assert core.zset("q:p-recur") == {"r": NOW + 1}
    core.now += 1
    assert core.popped(queue="p") == ["r-2"]


def test_recur_update(core: Core) -> None:
    recur(core, 60, 60, tags=["x"])
    assert core("recur.update", "r", "interval", 100) == 1
    assert core.zset("q:q-recur") == {"r": NOW + 100}
    core("recur.update", "r", "queue", "p", "priority", 3, "retries", 7, "data", '{"b":2}', "klass", "K2", "backlog", 1)
    assert core.zset("q:q-recur") == {}
    assert core.zset("q:p-recur") == {"r": NOW + 100}
    assert set(core.zset("queues")) == {"q", "p"}
    recurring = core.json("recur.get", "r")
    assert (recurring["queue"], recurring["priority"], recurring["retries"], recurring["backlog"]) == ("p", 3, 7, 1)
    assert (recurring["data"], recurring["klass"], recurring["interval"]) == ('{"b":2}', "K2", 100)


def test_tags_of_a_recurring_job_are_those_of_its_children(core: Core) -> None:
    recur(core, tags=["a"])
    assert core.json("recur.tag", "r", "b", "a", "c") == ["a", "b", "c"]
    assert core.json("recur.untag", "r", "b", "zero") == ["a", "c"]
    assert core.zset("tags") == {}
    assert core.pop()[0]["tags"] == ["a", "c"]
    assert core.zset("tags") == {"a": 1, "c": 1}


def test_unrecur(core: Core) -> None:
    recur(core)
    core.popped()
    assert core("unrecur", "r") == 1
    assert core("recur.get", "r") is None
    assert core.zset("q:q-recur") == {}
    assert core.get("r-1")["state"] == "running"


# --- events ------------------------------------------------------------------------------------------------------


def test_events_of_a_job_that_nobody_tracks(core: Core, events: Any) -> None:
    core.put()
    core.popped("a")
    core("heartbeat", "j", "a")
    core("retry", "j", "q", "a")
    core("tag", "add", "j", "x")
    core("pause", "q")
    core("unpause", "q")
    assert events() == [("ql:log", {"event": "put", "jid": "j", "queue": "q"})]
    core.popped("a")
    core.complete(worker="a", next="p")
    core.popped("b", queue="p")
    core.complete(worker="b", queue="p")
    assert events() == [
        ("ql:log", {"event": "advanced", "jid": "j", "queue": "q", "to": "p"}),
        ("ql:log", {"event": "completed", "jid": "j", "queue": "p"}),
    ]
    core("config.set", "a", "1")
    core("config.unset", "a")
    assert events() == [
        ("ql:log", {"event": "config_set", "option": "a", "value": "1"}),
        ("ql:log", {"event": "config_unset", "option": "a"}),
    ]


def test_events_of_a_tracked_job_in_their_order(core: Core, events: Any) -> None:
    core.put()
    core("track", "track", "j")
    core.popped("a")
    assert events()[1:] == [("ql:track", "j"), ("ql:popped", "j")]
    core("requeue", "client", "q", "j", "K", "{}", 0)
    lost = {"event": "lock_lost", "jid": "j", "worker": "a"}
    assert events() == [
        ("ql:log", {"event": "put", "jid": "j", "queue": "q"}),
        ("ql:w:a", lost),
        ("ql:log", lost),
        ("ql:put", "j"),
    ]
    core.popped("a")
    core.complete(worker="a", next="q")
    assert [channel for channel, _ in events()] == ["ql:popped", "ql:completed", "ql:log"]
    core.popped("a")
    core("fail", "j", "a", "g", "m")
    failed = {"event": "failed", "jid": "j", "worker": "a", "group": "g", "message": "m"}
    assert events()[1:] == [("ql:log", failed), ("ql:failed", "j")]
    core("unfail", "q", "g")
    assert events() == []
    core.popped("a")
    core("timeout", "j")
    assert events()[1:] == [("ql:w:a", lost), ("ql:log", lost)]
    core.popped("a")
    core("cancel", "j")
    canceled = {"event": "canceled", "jid": "j", "worker": "a", "queue": "q"}
    assert events()[1:] == [("ql:log", canceled), ("ql:w:a", canceled), ("ql:canceled", "j")]


def test_events_of_a_lost_lock(core: Core, events: Any) -> None:
    core.put(retries=0)
    core("track", "track", "j")
    core.popped("a")
    core.now += 60
    events()
    core.popped("b")
    lost = {"event": "lock_lost", "jid": "j", "worker": "a"}
    assert events() == [("ql:stalled", "j"), ("ql:w:a", lost), ("ql:log", lost)]
    core.now += 10
    core.popped("b")
    failed = {"event": "failed", "jid": "j", "worker": "a", "group": "failed-retries-q"}
    failed["message"] = 'Job exhausted retries in queue "q"'
    assert events() == [("ql:failed", "j"), ("ql:log", failed)]
    core.put(retries=0)
    core.popped("a")
    events()
    core("retry", "j", "q", "a")
    core("track", "untrack", "j")
    assert events() == [("ql:failed", "j"), ("ql:untrack", "j")]


def test_idle_workers_are_told_of_jobs_that_wait_or_will(core: Core, events: Any) -> None:
    def wakes() -> list[tuple[str, float]]:
        events()
        return [(channel.removeprefix("ql:wake:"), due - NOW) for channel, due in events.wakes]

    core.put("a")
    core.put("b", delay=5)
    core.put("c", depends=["a"])
    assert wakes() == [("q", 0), ("q", 5)]
    core.popped()
    core.complete("a")
    assert wakes() == [("q", 0)]
    recur(core, 60, 30)
    core.popped()
    core("retry", "c", "q", "w", 7)
    core("unpause", "q")
    assert wakes() == [("q", 30), ("q", 7), ("q", 0)]
    assert float(core("due", "q", "other")) == NOW + 5
    core.now += 5
    assert float(core("due", "q")) == NOW + 5
    core.popped()
    assert float(core("due", "q")) == NOW + 7
    core("pause", "q")
    assert core("due", "q") is None


# --- statistics --------------------------------------------------------------------------------------------------


def test_statistics_of_a_day(core: Core) -> None:
    waits = [0, 0.5, 59.9, 60, 3599, 3600, 7200, 86399, 86400, 86400 * 6.5, 86400 * 7, -1]
    midnight = NOW - NOW % 86400
    for number, wait in enumerate(waits):
        core.now = midnight + 86400 * 10 - wait
        core.put(f"j{number}")
        core.now = midnight + 86400 * 10
        core.popped()
    core("config.set", "x", "y")
    stats = core.json("stats", "q", core.now + 5000)
    mean = sum(waits) / len(waits)
    deviation = (sum((wait - mean) ** 2 for wait in waits) / (len(waits) - 1)) ** 0.5
    assert stats["wait"]["count"] == len(waits)
    assert stats["wait"]["mean"] == pytest.approx(mean)
    assert stats["wait"]["std"] == pytest.approx(deviation)
    histogram = stats["wait"]["histogram"]
    assert len(histogram) == 148
    nonzero = {index: count for index, count in enumerate(histogram) if count}
    assert nonzero == {0: 2, 59: 1, 60: 1, 118: 1, 119: 1, 120: 1, 141: 1, 142: 1, 147: 1}
    stored = core.hash(f"s:wait:{midnight + 86400 * 10:.0f}:q")
    assert (stored["d7"], stored["s-1"]) == ("1", "1")
    assert stats["run"] == {"count": 0, "mean": 0, "std": 0, "histogram": [0] * 148}
    assert core.json("stats", "q", midnight)["wait"]["count"] == 0


def test_run_is_measured_on_completion_and_advance(core: Core) -> None:
    core.put()
    core.popped()
    core.now += 4
    core.complete(next="p")
    core.now += 1
    core.popped(queue="p")
    core.now += 6
    core.complete(queue="p")
    assert core.stats("q")["run"]["mean"] == 4
    assert core.stats("p")["run"]["mean"] == 6
    assert core.stats("p")["wait"]["mean"] == 1
    core.put("k")
    core.popped()
    core.now += 9
    core("fail", "k", "w", "g", "m")
    assert core.stats("q")["run"]["count"] == 1
    assert json.loads(core("stats", "q", core.now))["failures"] == 1
