"""The index of jobs: which jobs are listed, how they are found, and that no call does more than a bounded part."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.qless.conftest import Core, CoreError

from .test_bounded import inner_calls, put_many

pytestmark = [pytest.mark.redis, pytest.mark.contract]

CLASS = "c:Klass"


@pytest.fixture(autouse=True)
def _all_classes(core: Core) -> None:
    """All jobs are in the index, unless a test says otherwise."""
    core("config.set", "index-classes", "*")


def take(core: Core, count: int = 100) -> dict[str, list[Any]]:
    """The jobs to index, by jid, and without it."""
    return {job[0]: job[1:] for job in core.json("index.take", count) or []}


def index(core: Core, jid: str, *terms: str, mark: str = "2") -> int:
    return int(core("index.put", jid, mark, sorted([CLASS, *terms])))


def find(core: Core, *lists: list[list[str]], **options: Any) -> list[str]:
    pairs = [argument for name, value in options.items() for argument in (name, value)]
    jids, cursor = [], ""
    while True:
        page = core.json("index.find", list(lists), *pairs, *(("cursor", cursor) if cursor else ()))
        jids += page["jobs"] or []
        cursor = page["cursor"]
        if not cursor:
            return jids


def entries(core: Core) -> list[bytes]:
    return list(core.client.zrange("ql:index", 0, -1))


def sweep(core: Core) -> int:
    calls = 1
    while core("index.sweep"):
        calls += 1
    return calls


def test_new_jobs_are_taken_once(core: Core) -> None:
    core.put("a", txid="T", tags=["x"], data='{"n":1}')
    core.put("gone")
    core("cancel", "gone")
    (parts,) = take(core).values()
    assert parts[1:] == ["Klass", '{"n":1}', "T", False, '["x"]']
    assert take(core) == {}


def test_changed_jobs_are_taken_again(core: Core) -> None:
    core.put("a")
    index(core, "a", mark=take(core)["a"][0])
    core("tag", "add", "a", "x")
    assert take(core)["a"][-1] == '["x"]'
    core.pop()
    core("fail", "a", "w", "g", "KeyError: 1")
    *_, failure, _tags = take(core)["a"]
    assert json.loads(failure)["message"] == "KeyError: 1"
    core.put("a", data='{"more":1}')
    assert take(core)["a"][2:5] == ['{"more":1}', False, False]


def test_jobs_of_other_sources_are_taken(core: Core) -> None:
    core("recur", "q", "r", "K", "{}", "interval", 60, 0)
    core.put("a", outcome=json.dumps({"success": json.dumps([["next", "q", "K", "{}"]])}))
    assert take(core).keys() == {"a"}
    core.now += 1
    assert sorted(core.popped(count=5)) == ["a", "r-1"]
    core.complete("a")
    assert take(core).keys() == {"next", "r-1"}


def test_long_data_are_left_out(core: Core) -> None:
    core.put("a", data=json.dumps({"text": "x" * 20_000}))
    first = take(core)["a"]
    assert first[1:3] == ["Klass", False]
    core.put("a", data=json.dumps({"text": "y" * 20_001}))
    assert take(core)["a"][0] != first[0]


def test_found_by_class_word_prefix_and_path(core: Core) -> None:
    for number, jid in enumerate("abc"):
        core.put(jid, queue="q" if jid != "c" else "p")
        core.now += 10
        assert index(core, jid, f"w:{number}\x1forder.id", "w:anna\x1fname") == 1
    assert find(core, [["c:Klass\0", ""]]) == ["c", "b", "a"]
    assert find(core, [["c:Klas\0", ""]]) == []
    assert find(core, [["w:ann", ""]]) == ["c", "b", "a"]
    assert find(core, [["w:ann", "name"]], queue="q") == ["b", "a"]
    assert find(core, [["w:ann", "nam"]]) == []
    assert find(core, [["w:1\x1forder", "order"]]) == ["b"]
    assert find(core, [["w:1\x1f", ""]], [["w:ann", ""]]) == ["b"]
    assert find(core, [["w:1\x1f", ""]], [["w:2\x1f", ""]]) == []
    assert find(core, [["w:1\x1f", ""], ["w:2\x1f", ""]]) == ["b", "c"]
    assert find(core, [["w:1\x1f", ""], ["w:ann", ""]]) == ["b", "c", "a"]
    assert core.json("index.count", [["w:ann", ""], ["w:1\x1f", ""], ["x", ""]])["counts"] == [3, 1, 0]
    core.pop()
    assert find(core, [["c:Klass\0", ""]], state="running") == ["a"]
    assert find(core, [["c:Klass\0", ""]], state="waiting") == ["c", "b"]


def test_a_job_with_several_fitting_terms_is_one_result(core: Core) -> None:
    core.put("a")
    index(core, "a", "w:anna\x1fname", "w:anna\x1fother", "w:anne\x1fname")
    assert find(core, [["w:ann", ""]], count=1) == ["a"]


def test_new_terms_replace_the_old_ones(core: Core) -> None:
    core.put("a")
    index(core, "a", "w:old\x1f")
    core.now += 100
    index(core, "a", "w:new\x1f")
    assert find(core, [["w:old", ""]]) == []
    assert find(core, [["w:new", ""]]) == ["a"]
    assert len(entries(core)) == 2


def test_terms_leave_with_the_job(core: Core) -> None:
    for jid in "abc":
        core.put(jid)
        index(core, jid, "w:x\x1f")
    take(core)
    core("cancel", "a")
    core.popped(count=2)
    core.complete("b")
    core.config(jobs_history=5)
    core.now += 10
    core.complete("c")
    assert [entry[-1:] for entry in entries(core)] == [b"c", b"c"]
    assert core.client.keys("ql:i:*") == [b"ql:i:c"]


def test_jobs_that_other_cores_delete_leave_when_they_are_met(core: Core) -> None:
    for jid in "abc":
        core.put(jid)
        index(core, jid, "w:x\x1f", f"w:{jid}\x1f")
    core.client.delete("ql:j:a")
    core.client.delete("ql:j:b", "ql:i:b")
    assert find(core, [["w:x", ""]]) == ["c"]
    assert not any(entry.endswith(b"a") for entry in entries(core))
    sweep(core)
    assert not any(entry.endswith(b"b") and entry.startswith(b"c:") for entry in entries(core))
    assert core.client.keys("ql:i:*") == [b"ql:i:c"]


def test_the_pass_finds_what_other_cores_have_put_failed_and_changed(core: Core) -> None:
    for jid in ("put", "failed", "changed", "same", "done"):
        core.put(jid)
    for jid, parts in take(core).items():
        index(core, jid, mark=parts[0])
    core.client.delete("ql:unindexed", "ql:i:put")
    core.client.hset("ql:j:changed", "data", "[]")  # as long as before
    core.client.zrem("ql:q:q-work", "failed", "done")
    core.client.hset("ql:j:failed", mapping={"state": "failed", "failure": '{"group":"g","message":"m"}'})
    core.client.sadd("ql:failures", "g")
    core.client.lpush("ql:f:g", "failed")
    core.client.zadd("ql:completed", {"done": core.now})
    core.client.delete("ql:i:done")
    assert not core.json("index.count", [])["complete"]
    assert sweep(core) == 1
    assert core.json("index.count", [])["complete"]
    assert take(core).keys() == {"put", "failed", "changed", "done"}
    index(core, "put")
    core.client.delete("ql:i:put")
    assert sweep(core) == 1
    assert take(core) == {}, "the next pass begins after a minute"
    core.now += 61
    sweep(core)
    assert "put" in take(core)


def test_the_pass_is_bounded(core: Core) -> None:
    jids = [f"j{number}" for number in range(1200)]
    put_many(core, jids)
    core.client.delete("ql:unindexed")
    assert inner_calls(core, "index.sweep") < 1500
    calls = sweep(core)
    assert 3 <= calls <= 10
    assert core.client.llen("ql:unindexed") == 1200
    assert inner_calls(core, "index.take", 10_000) < 1500
    assert core.client.llen("ql:unindexed") == 700


def test_a_search_examines_a_bounded_part(core: Core) -> None:
    jids = [f"j{number:04}" for number in range(1500)]
    put_many(core, jids)
    for first in range(0, 1500, 100):
        core("index.put", *(word for jid in jids[first : first + 100] for word in (jid, "2", [CLASS])))
    page = core.json("index.find", [[["c:Klass\0", ""]], [["w:none", ""]]])
    assert (page["jobs"], page["examined"]) == ({}, 1000)
    assert page["cursor"]
    assert inner_calls(core, "index.find", [[["c:Klass\0", ""]], [["w:none", ""]]]) < 2100
    assert inner_calls(core, "index.find", [[["w:none", ""]]]) <= 3
    assert find(core, [["c:Klass\0", ""]], count=7) == jids
    assert find(core, [["c:Klass\0", ""]], scan=13) == jids


def test_the_size_of_the_index_is_bounded(core: Core) -> None:
    core("config.set", "max-index", 5)
    for jid in "abcd":
        core.put(jid)
    assert [index(core, jid, "w:x\x1f") for jid in "abcd"] == [1, 1, 1, 0]
    assert len(entries(core)) == 6
    assert take(core) == {}
    sweep(core)
    assert core.client.llen("ql:unindexed") == 0
    core("cancel", "a")
    assert index(core, "d", "w:x\x1f") == 1
    core("config.set", "max-index", 0)
    sweep(core)
    assert entries(core) == core.client.keys("ql:i*") == core.client.keys("ql:classes") == []
    core.put("e")
    assert core.client.llen("ql:unindexed") == 0
    assert core.json("index.count", [["c:", ""]])["limit"] == 0


def test_the_list_of_jobs_to_index_is_bounded(core: Core) -> None:
    core.client.rpush("ql:unindexed", *range(100_000))
    core.put("a")
    assert core.client.llen("ql:unindexed") == 100_000
    assert core.client.lrange("ql:unindexed", -1, -1) == [b"a"]


def test_classes_are_listed(core: Core) -> None:
    for number, jid in enumerate("ab"):
        core.put(jid)
        core.now += 1
        core("index.put", jid, "2", [f"c:K{number}"])
    assert core("index.classes") == ["K1", "K0"]


def test_wrong_arguments_are_named(core: Core) -> None:
    core.put("a")
    for arguments, message in (
        (["index.put", "a", "2"], "a job is three arguments"),
        (["index.put", "a", "2", ["x"] * 51], "more than 50 terms"),
        (["index.put", "a", "2", ["x\ny"]], "control characters"),
        (["index.count", [1]], "not a JSON list of"),
        (["index.count", "1"], "not a JSON list of"),
        (["index.find", [[["x"]]]], "not a JSON list of"),
        (["index.find", [], "cursor", "x"], "cursor"),
        (["index.find", [], "count", 0], "1 or more"),
    ):
        with pytest.raises(CoreError, match=message):
            core(*arguments)
    assert entries(core) == []


@pytest.mark.parametrize("jid", ["a b", "x\ny", "\x00\x01", "é\u202e", "j:\x1f", "0" * 300])
def test_any_jid_is_found(core: Core, jid: str) -> None:
    core.put(jid)
    index(core, jid, "w:x\x1fpath")
    assert find(core, [["w:x", "path"]]) == [jid]
    core("cancel", jid)
    assert entries(core) == []


def test_failed_jobs_and_jobs_of_named_classes_are_indexed(core: Core) -> None:
    core("config.set", "index-classes", "")
    core.put("a")
    core("recur", "q", "r", "K", "{}", "interval", 60, 0)
    core.put("f")
    core.now += 1
    core.popped(count=5)
    core("fail", "f", "w", "g", "m")
    assert take(core).keys() == {"f"}
    sweep(core)
    assert take(core).keys() == {"f"}, "the pass finds it again, since it was not put into the index"
    for text in ("Klass", "Other, Klass", "Other Klass\nK2", "Klass,", "x,*"):
        core("config.set", "index-classes", text)
        core.put("b")
        core("put", "w", "q", "c", "Kla", "{}", 0)
        assert take(core).keys() == {"b"} | ({"c"} if "*" in text else set())
        assert core.json("index.count", [])["classes"] == text


def test_jobs_that_the_index_must_not_contain_are_removed(core: Core) -> None:
    core.put("a")
    index(core, "a", "w:x\x1f")
    core.client.zadd("ql:index", {b"c:Klas\x0000000000a": 0, b"c:Klass\x0000000000a": 0})
    sweep(core)
    assert len(entries(core)) == 2, "members that the terms of the job do not name are removed"
    core("config.set", "index-classes", "")
    core.now += 61
    sweep(core)
    assert entries(core) == core.client.keys("ql:i:*") == []


@pytest.mark.parametrize("fixes", ["none", "shared", "all"])
def test_data_that_a_job_changes_are_taken_again(core: Core, fixes: str) -> None:
    core.config(fixes=fixes)
    core.put("a", data='{"n":1}')
    core.popped()
    index(core, "a", mark=take(core)["a"][0])
    core("heartbeat", "a", "w", '{"n":1}')
    assert take(core) == {}
    core("heartbeat", "a", "w", '{"n":2}')
    assert take(core)["a"][2] == '{"n":2}'
    core("complete", "a", "w", "q", '{"n":3}')
    assert take(core)["a"][2] == '{"n":3}'
