"""Extensions of this core: many jobs in one call, search, results, limits, server time."""

from __future__ import annotations

import json
import time
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from resty_django.qless.core import source
from tests.integration.qless.conftest import NOW, Core, CoreError, Events

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def test_put_many_puts_jobs_with_their_options(core: Core, events: Any) -> None:
    core.put("old", queue="p", tags=["x"], priority=4)
    events()
    options = {"priority": 2, "tags": ["a"], "retries": 1, "depends": ["j1"], "txid": "t1"}
    jobs = [
        ["j1", "K1", '{"n":1}', 0, ""],
        ["j2", "K2", '{"n":2}', 0, json.dumps(options)],
        ["j3", "K3", "{}", 60, "{}"],
        ["old", "K4", "{}", 0, ""],
    ]
    assert core("put.many", "w", "q", *(argument for job in jobs for argument in job)) == 4
    assert [(channel, payload["jid"]) for channel, payload in events()] == [
        ("ql:log", jid) for jid in ("j1", "j2", "j3", "old")
    ]
    second = core.get("j2")
    assert (second["priority"], second["tags"], second["retries"], second["txid"]) == (2, ["a"], 1, "t1")
    assert (second["state"], second["dependencies"], second["klass"]) == ("depends", ["j1"], "K2")
    assert core.get("j3")["state"] == "scheduled"
    assert (core.get("old")["queue"], core.get("old")["tags"]) == ("q", ["x"])
    assert core.popped(count=9) == ["old", "j1"]
    core.put("alone")
    batched, same = core.hash("j:j1"), core.hash("j:alone")
    assert {name: batched[name] for name in batched if name not in ("jid", "klass", "data")}.keys() <= same.keys()
    assert core("put.many", "w", "q") == 0


TRAITS = st.sampled_from(["plain", "plain", "delayed", "dependents", "tracked", "member", "callback", "other", "gone"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    traits=st.lists(TRAITS, min_size=1, max_size=8),
    results=st.lists(st.sampled_from(["", "", "1", '"x"', "{?"]), min_size=8, max_size=8),
    options=st.dictionaries(
        st.sampled_from(["jobs-history", "jobs-history-count", "max-payload", "index-classes"]),
        st.sampled_from([0, 1, 2]),
    ),
    again=st.booleans(),
)
def test_jobs_completed_together_end_as_if_completed_one_by_one(
    valkey: Redis, traits: list[str], results: list[str], options: dict[str, int], again: bool
) -> None:
    def end(together: bool) -> tuple[list[str], dict[str, Any], list[Any]]:
        valkey.flushdb()
        core = Core(valkey)
        prepare(core, traits)
        for name, value in options.items():
            core("config.set", name, value)
        entries = [(f"j{n}", '{"a":[]}', results[n], "") for n in range(len(traits))]
        entries += entries[:1] if again else []
        core.now += 3.5
        events = Events(valkey)
        if together:
            replies = core("complete.many", "w", "q", *(argument for entry in entries for argument in entry))
        else:
            replies = one_by_one(core, entries, late={"dependents", "tracked", "member", "callback"})
        heard = events()
        events.heard.close()
        figures = {str(key): plain_of(valkey, key) for key in valkey.keys("ql:*")}
        return replies, figures, heard

    def one_by_one(core: Core, entries: list[tuple[str, ...]], late: set[str]) -> list[str]:
        def is_late(n: int) -> bool:
            return n == len(traits) or "tracked" in traits or traits[n] in late

        replies = [""] * len(entries)
        for n in sorted(range(len(entries)), key=is_late):
            jid, data, result, _ = entries[n]
            try:
                replies[n] = core("complete", jid, "w", "q", data, *(["result", result] if result else []))
            except CoreError as error:
                replies[n] = str(error)
        return replies

    assert end(together=True) == end(together=False)


def prepare(core: Core, traits: list[str]) -> None:
    """Jobs `j0`, `j1`, ..., which the worker `w` runs."""
    core("group.open", "g", "")
    for n, trait in enumerate(traits):
        jid = f"j{n}"
        outcome: dict[str, Any] = {}
        if trait == "member":
            outcome = {"outcome": {"group": "g"}}
        elif trait == "callback":
            outcome = {"outcome": {"success": json.dumps([[f"c{n}", "q", "K", "{}", {}]])}}
        core.put(jid, **outcome)
        core.now += 0.01
    core.now += 2
    core.pop(count=len(traits))
    for n, trait in enumerate(traits):
        jid = f"j{n}"
        if trait == "delayed":
            core.put(f"d{n}", delay=60)
        elif trait == "dependents":
            core.put(f"d{n}", depends=[jid])
        elif trait == "tracked":
            core("track", "track", jid)
        elif trait == "other":
            core("timeout", jid)
            core("take", jid, "v")
        elif trait == "gone":
            core("cancel", jid)


def plain_of(valkey: Redis, key: bytes) -> Any:
    kind = valkey.type(key)
    if kind == b"hash":
        return valkey.hgetall(key)
    if kind == b"zset":
        return valkey.zrange(key, 0, -1, withscores=True)
    return valkey.smembers(key) if kind == b"set" else valkey.lrange(key, 0, -1)


def test_ten_thousand_jids_in_one_call(core: Core) -> None:
    core.put("j")
    jids = [f"{n}" for n in range(10_000)]
    assert [job["jid"] for job in core.json("multiget", *jids, "j")] == ["j"]
    assert core("cancel", *jids) == jids


def test_a_thousand_in_one_call(core: Core) -> None:
    parts = [argument for n in range(1000) for argument in (f"j{n}", "K", "{}", 0, "")]
    assert core("put.many", "w", "q", *parts) == 1000
    assert len(core.popped(count=5000)) == 1000
    assert core("length", "q") == 1000
    core.config(heartbeat=1, grace_period=0)
    core.now += 100
    assert len(core.popped("v", count=5000)) == 1000
    assert core("cancel", *(f"j{n}" for n in range(1000)))
    assert core("length", "q") == 0


def test_txid_is_a_field_that_other_clients_never_see(core: Core) -> None:
    core.put("a")
    core.put("b", txid="0123")
    assert "txid" not in core.get("a")
    assert "txid" not in core.hash("j:a")
    assert core.get("b")["txid"] == core.hash("j:b")["txid"] == "0123"
    assert "request_id" not in core.get("b")
    core.put("b", txid="0123", request_id="r-1")
    assert core.get("b")["request_id"] == core.hash("j:b")["request_id"] == "r-1"
    assert {job["jid"]: job.get("request_id") for job in core.pop(count=2)} == {"a": None, "b": "r-1"}
    core.put("b")
    assert core.get("b")["request_id"] == "r-1"
    core.put("b", txid="4567")
    assert "request_id" not in core.hash("j:b")


def test_search_filters_and_continues_with_its_cursor(core: Core) -> None:
    for number in range(4):
        core("put", "w", "q", f"w{number}", f"K{number % 2}", "{}", 0)
        core("put", "w", "p", f"p{number}", f"K{number % 2}", "{}", 60)
    core("put", "w", "q", "d", "K1", "{}", 0, "depends", ["w0"])
    core("recur", "q", "r", "K1", "{}", "interval", 60, 60)
    core.popped(count=3)
    core.complete("w3")
    core("fail", "w2", "w", "g", "m")

    def search(**options: Any) -> Any:
        page = core.json("search", *(argument for pair in options.items() for argument in pair))
        assert page.pop("cursor") == ""
        return page["jobs"]

    assert sorted(search(klass="K1")) == ["d", "p1", "p3", "r", "w1", "w3"]
    assert sorted(search(klass="K1", queue="q")) == ["d", "r", "w1"]
    assert search(klass="K1", state="running") == ["w1"]
    assert search(klass="K0", state="running") == {}
    assert search(state="waiting") == ["w0"]
    assert search(state="scheduled", klass="K1", queue="p") == ["p1", "p3"]
    assert search(state="failed") == ["w2"]
    assert search(state="complete", klass="K1") == ["w3"]
    assert search(state="recurring") == ["r"]
    assert search(state="depends") == ["d"]
    assert len(search()) == 10


def test_search_examines_at_most_the_requested_number(core: Core) -> None:
    parts = [argument for n in range(250) for argument in (f"{n:03d}", f"K{n % 50}", "{}", 0, "")]
    core("put.many", "w", "q", *parts)
    jids: list[str] = []
    cursor, calls = "1:0", 0
    while cursor:
        answer = core.json("search", "klass", "K7", "scan", 60, "cursor", cursor)
        jids += answer["jobs"] or []
        cursor, calls = answer["cursor"], calls + 1
    assert sorted(jids) == [f"{n:03d}" for n in range(7, 250, 50)]
    assert 5 <= calls <= 12
    jids, cursor = [], "1:0"
    while cursor:
        answer = core.json("search", "count", 7, "cursor", cursor)
        assert len(answer["jobs"]) <= 7
        jids += answer["jobs"] or []
        cursor = answer["cursor"]
    assert sorted(jids) == [f"{n:03d}" for n in range(250)]


def test_results_and_progress(core: Core, valkey: Redis) -> None:
    core.put()
    assert core.json("result", "j") == {
        **{"jid": "j", "state": "waiting", "result": False},
        **{"progress": False, "message": False, "at": False},
    }
    core.popped()
    core.now += 2
    assert core("progress", "j", "w", 0.5, "half") == 1
    assert valkey.ttl("ql:x:j") == pytest.approx(604800 + 86400, abs=5)
    core.complete(result='{"sum": [1,2]}')
    outcome = core.json("result", "j")
    assert (outcome["state"], outcome["result"]) == ("complete", '{"sum": [1,2]}')
    assert (outcome["progress"], outcome["message"], outcome["at"]) == (0.5, "half", NOW + 2)
    core.put()
    assert core.json("result", "j")["result"] is False
    core.popped()
    core("progress", "j", "w", 1)
    core("cancel", "j")
    assert valkey.keys("ql:x:*") == []
    core.config(jobs_history=0)
    core.put("k")
    core.popped()
    core.complete("k", result="1")
    assert valkey.keys("ql:x:*") == []


def test_payloads_have_a_limit(core: Core) -> None:
    core.put("j", data='{"long":"long"}')
    core.config(max_payload=10)
    core.popped()
    text = '{"a":"567"}'
    calls = [
        ("Put", "data", ["put", "w", "q", "x", "K", text, 0]),
        ("Put", "data", ["put.many", "w", "q", "x", "K", "{}", 0, "", "y", "K", text, 0, ""]),
        ("Complete", "data", ["complete", "j", "w", "q", text]),
        ("Complete", "result", ["complete", "j", "w", "q", "{}", "result", text]),
        ("Fail", "data", ["fail", "j", "w", "g", "m", text]),
        ("Heartbeat", "data", ["heartbeat", "j", "w", text]),
        ("Log", "data", ["log", "j", "m", text]),
        ("Recur", "data", ["recur", "q", "r", "K", text, "interval", 1, 0]),
    ]
    for title, name, arguments in calls:
        with pytest.raises(CoreError) as caught:
            core(*arguments)
        assert str(caught.value) == f'{title}(): Arg "{name}" longer than max-payload, 10: 11'
    assert core("length", "q") == 1
    core("heartbeat", "j", "w", '{"a":"56"}')


def test_time_of_the_server(core: Core) -> None:
    core("config.set", "server-time", "1")
    start = time.time()
    core.put()
    core.now = 5.0
    (job,) = core.pop()
    assert start - 1 <= job["expires"] - 60 <= time.time() + 1
    core.now = 9e9
    assert core.popped("thief") == []
    assert core("heartbeat", "j", "w") <= time.time() + 62
    core.complete()
    assert abs(core.zset("completed")["j"] - time.time()) < 60
    core("config.set", "server-time", "0")
    core.now = 50.0
    core.put("k")
    assert float(core.hash("j:k")["time"]) == 50
    core.now = float("nan")
    with pytest.raises(CoreError, match='Arg "now"'):
        core.put("k")


# --- latency ---


def latency(core: Core, *queues: str) -> list[float | None]:
    return [age if age is None else round(float(age), 3) for age in core("latency", *(queues or ["q"]))]


def test_latency_is_the_age_of_the_oldest_runnable_job(core: Core) -> None:
    assert latency(core) == [None]
    core.put("old", priority=-3)
    core.now += 100
    core.put("urgent", priority=7)
    core.now += 10
    core.put("plain")
    assert latency(core, "q", "empty") == [110, None]
    assert core.popped(count=2) == ["urgent", "plain"]
    assert latency(core) == [110]
    assert core.popped() == ["old"]
    assert latency(core) == [None]


def test_latency_counts_expired_locks_and_due_jobs(core: Core) -> None:
    core.config(heartbeat=50, grace_period=0)
    core.put("later", delay=20)
    core.put("lost")
    assert core.popped() == ["lost"]
    assert latency(core) == [None]
    core.now += 30
    assert latency(core) == [10]
    core.now += 70
    assert core.popped("v", count=1) == ["lost"]
    assert latency(core) == [80]


def test_latency_of_jobs_that_were_put_first(core: Core) -> None:
    core.put("j")
    core.now += 5
    core.popped()
    core("timeout", "j")
    assert latency(core) == [0]  # its age is not known
    core.put("k")
    core.now += 5
    assert latency(core) == [5]


@settings(deadline=None, max_examples=40)
@given(
    puts=st.lists(
        st.tuples(st.integers(min_value=-5, max_value=5), st.integers(min_value=0, max_value=1000)),
        min_size=1,
        max_size=15,
    )
)
def test_latency_is_exact_for_integer_priorities(valkey_url: str, puts: list[tuple[int, int]]) -> None:
    with Redis.from_url(valkey_url) as client:
        client.flushdb()
        core = Core(client)
        start = core.now
        for number, (priority, span) in enumerate(puts):
            core.put(f"j{number}", priority=priority)
            core.now += span
        assert latency(core) == [pytest.approx(core.now - start, abs=0.01)]


# --- the command -------------------------------------------------------------------------------------------------


def test_the_command_prints_the_core(valkey: Redis) -> None:
    def printed(*arguments: str) -> str:
        output = StringIO()
        call_command("qless_core", *arguments, stdout=output)
        return output.getvalue()

    assert printed("--print") == source()
    assert valkey.script_load(printed("--print")) == printed().strip()
    other_source = printed("--print", "--prefix", "{jobs}ql:")
    assert other_source == source("{jobs}ql:")
    assert valkey.eval(other_source, 0, "put", NOW, "w", "q", "j", "K", "{}", 0) == b"j"
    assert all(key.startswith(b"{jobs}ql:") for key in valkey.keys("*"))
    with pytest.raises(CommandError, match="--prefix"):
        printed("--prefix", "a b")
