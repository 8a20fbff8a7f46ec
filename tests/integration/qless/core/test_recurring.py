"""Recurring jobs, wake-up calls and the statistics of a day. test_oracle.py compares locks, grace and events."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.qless.conftest import NOW, Core

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def recur(core: Core, interval: float = 60, offset: float = 0, jid: str = "r", **options: Any) -> None:
    pairs = [argument for name, value in options.items() for argument in (name, value)]
    assert core("recur", "q", jid, "Klass", '{"a":1}', "interval", interval, offset, *pairs) == jid


def test_a_recurring_job_is_written_into_its_keys(core: Core) -> None:
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


def test_a_recurring_job_spawns_jobs_in_step_with_its_interval(core: Core) -> None:
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


@pytest.mark.parametrize(
    ("backlog", "late", "spawned"), [(0, 100, 11), (1, 100, 2), (1, 105, 1), (5, 100, 6), (5, 105, 5), (20, 105, 11)]
)
def test_a_late_recurring_job_spawns_at_most_its_backlog(core: Core, backlog: int, late: int, spawned: int) -> None:
    """At most the backlog and one more, the latest."""
    recur(core, 10, backlog=backlog)
    core.now += late
    jobs = core.pop(count=99)
    assert len(jobs) == spawned
    assert jobs[-1]["history"][0]["when"] == NOW + 100


def test_a_recurring_job_can_be_changed(core: Core) -> None:
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


def test_children_have_the_tags_of_their_recurring_job(core: Core) -> None:
    recur(core, tags=["a"])
    assert core.json("recur.tag", "r", "b", "a", "c") == ["a", "b", "c"]
    assert core.json("recur.untag", "r", "b", "zero") == ["a", "c"]
    assert core.zset("tags") == {}
    assert core.pop()[0]["tags"] == ["a", "c"]
    assert core.zset("tags") == {"a": 1, "c": 1}


def test_idle_workers_are_notified_of_jobs(core: Core, events: Any) -> None:
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


def test_statistics_of_a_day_have_mean_deviation_and_histogram(core: Core) -> None:
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
