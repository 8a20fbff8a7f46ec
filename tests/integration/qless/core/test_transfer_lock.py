"""A job that is taken by its jid; puts that leave a job as it is; results that are kept for a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.qless.conftest import NOW, Core, CoreError

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def test_a_waiting_job_is_taken(core: Core, events: Any) -> None:
    core.put("a", tags=["t"], priority=3)
    core.put("b")
    core.put("later", delay=1000)
    core("track", "track", "a")
    events()
    core.now += 5
    for jid in ("a", "later"):
        job = core.json("take", jid, "w")
        assert (job["jid"], job["state"], job["worker"], job["expires"]) == (jid, "running", "w", NOW + 65)
    assert job["history"][-1] == {"when": int(NOW) + 5, "what": "popped", "worker": "w"}
    assert events() == [("ql:popped", "a")]
    assert core.zset("q:q-work").keys() == {"b"}
    assert core.zset("q:q-scheduled") == {}
    assert core.zset("q:q-locks") == core.zset("w:w:jobs") == {"a": NOW + 65, "later": NOW + 65}
    assert core.zset("workers") == {"w": NOW + 5}
    assert core.stats()["wait"]["count"] == 2
    assert core.popped() == ["b"]
    assert core.complete("a") == "complete"
    assert core.get("a")["state"] == "complete"


def test_a_running_job_is_taken_over(core: Core, events: Any) -> None:
    core.config(q_heartbeat=20)
    core.put()
    core.pop("old")
    events()
    core.now += 5
    job = core.json("take", "j", "new", "old")
    assert (job["worker"], job["expires"], job["remaining"]) == ("new", NOW + 25, 5)
    assert [entry["what"] for entry in job["history"]] == ["put", "popped", "taken"]
    assert events() == [("ql:w:old", {"event": "lock_lost", "jid": "j", "worker": "old"})]
    assert core.zset("w:old:jobs") == {}
    assert core.zset("w:new:jobs") == core.zset("q:q-locks") == {"j": NOW + 25}
    assert core.stats()["wait"]["count"] == 1
    with pytest.raises(CoreError, match="given out to another worker: new"):
        core("heartbeat", "j", "old")
    with pytest.raises(CoreError, match=r"Take\(\): Job j given out to another worker: new"):
        core("take", "j", "third", "old")  # the message came twice
    core.now += 10
    assert core.complete(worker="new") == "complete"
    assert core.stats()["run"]["mean"] == 15


def test_a_job_that_was_taken_is_lost_in_two_steps_as_any(core: Core) -> None:
    core.put()
    core.pop("old")
    core.now += 61
    assert core.popped("other") == []  # the notice to the holder
    core.json("take", "j", "new", "old")  # who hands it over all the same
    core.now += 61
    assert core.popped("other") == []
    core.now += 11
    assert core.popped("other") == ["j"]


@pytest.mark.parametrize(
    ("state", "arguments", "message"),
    [
        ("", ("x", "w"), "Take(): Job x does not exist"),
        ("", ("x", "w", "old"), "Take(): Job x does not exist"),
        ("waiting", ("j", "w", "old"), "Take(): Job j not currently running: waiting"),
        ("running", ("j", "w"), "Take(): Job j is neither waiting nor scheduled: running"),
        ("complete", ("j", "w"), "Take(): Job j is neither waiting nor scheduled: complete"),
        ("depends", ("k", "w"), "Take(): Job k is neither waiting nor scheduled: depends"),
        ("", (), 'Take(): Arg "jid" missing'),
        ("", ("j",), 'Take(): Arg "worker" missing'),
    ],
)
def test_a_job_that_cannot_be_taken(core: Core, state: str, arguments: tuple[str, ...], message: str) -> None:
    if state:
        core.put()
    if state in ("running", "complete"):
        core.pop()
    if state == "complete":
        core.complete()
    if state == "depends":
        core.put("k", depends=["j"])
    before = core.client.dump("ql:j:j")
    with pytest.raises(CoreError) as caught:
        core("take", *arguments)
    assert str(caught.value) == message
    assert core.client.dump("ql:j:j") == before


def test_any_job_of_a_holder_is_taken(core: Core) -> None:
    for jid in ("a", "b", "c"):
        core.put(jid)
        core.pop("old")
        core.now += 1
    core("heartbeat", "a", "old")
    core("timeout", "b")  # stays in the list of the worker, but is nobody's
    assert core.json("take", "", "new", "old")["jid"] == "c"
    assert core.json("take", "", "new", "old")["jid"] == "a"
    assert core("take", "", "new", "old") is None
    assert core("take", "", "new", "nobody") is None
    with pytest.raises(CoreError, match="does not exist"):
        core("take", "", "new")


def test_a_stalled_job_is_taken(core: Core) -> None:
    core.put()
    core.pop()
    core("timeout", "j")
    assert core.json("take", "j", "w")["state"] == "running"
    assert core.popped() == []


@pytest.mark.parametrize("word", ["pending", "ever"])
def test_a_unique_put_leaves_an_existing_job_unchanged(core: Core, events: Any, word: str) -> None:
    def put(data: str) -> list[Any]:
        events()
        assert core.put(data=data, priority=7, tags=["new"], unique=word) == "j"
        return list(events())

    assert put('"first"')
    for act in (lambda: None, core.pop):
        act()
        before = core.client.dump("ql:j:j")
        assert put('"second"') == []
        assert core.client.dump("ql:j:j") == before
    core.complete()
    assert bool(put('"third"')) == (word == "pending")
    assert core.get()["data"] == ('"third"' if word == "pending" else "{}")
    if word == "pending":
        core.pop()
        core("fail", "j", "w", "group", "message")
        assert put('"fourth"')
        assert core.get()["state"] == "waiting"


def test_unique_puts_among_many(core: Core) -> None:
    core.put("a", data='"old"')
    options = json.dumps({"unique": "pending"})
    jobs = [argument for jid in ("a", "b", "b") for argument in (jid, "K", '"new"', 0, options)]
    assert core("put.many", "w", "q", *jobs) == 3
    assert (core.get("a")["data"], core.get("b")["data"]) == ('"old"', '"new"')
    assert [entry["what"] for entry in core.get("b")["history"]] == ["put"]


def test_the_life_of_a_result(core: Core) -> None:
    for jid in ("a", "b"):
        core.put(jid)
    core.pop(count=2)
    core.complete("a", result="1", ttl=3)
    core.complete("b", result="2")
    assert 0 < core.client.ttl("ql:x:a") <= 3
    assert 604_800 < core.client.ttl("ql:x:b") <= 604_800 + 86_400
    assert core.json("result", "a")["result"] == "1"
    core.put("c")
    core.pop()
    with pytest.raises(CoreError, match='"ttl" not a number: soon'):
        core.complete("c", result="1", ttl="soon")
