"""Flaws of qless-core under each profile of the option `fixes`."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from tests.integration.qless.conftest import NOW, Core, CoreError

pytestmark = [pytest.mark.redis, pytest.mark.contract]

PROFILES = ("none", "shared", "all")
EACH = pytest.mark.parametrize("profile", PROFILES)


def configure(core: Core, profile: str, first: str) -> bool:
    """Choose a profile. Return whether it has the fixes that `first` is the first profile to have."""
    core.config(fixes=profile)
    return PROFILES.index(profile) >= PROFILES.index(first)


def data_and_worker(core: Core) -> tuple[str, str]:
    """Return what a fix of `shared` and one of `all` change."""
    core.put()
    core.popped()
    core("heartbeat", "j", "w", "[ ]")
    data = core.get()["data"]
    core("retry", "j", "q", "w")
    return data, core.get()["worker"]


def test_the_profile_is_shared_by_default(core: Core) -> None:
    assert data_and_worker(core) == ("[ ]", "w")


def test_other_values_are_refused(core: Core) -> None:
    for value in ("", "cycles", "keep-text cycles", "none shared", "ALL"):
        with pytest.raises(CoreError, match=r'option "fixes" must be "none", "shared" or "all": ' + value):
            core.config(fixes=value)
    assert core("config.get", "fixes") is None


def test_a_value_that_another_core_has_stored_counts_as_shared(core: Core, valkey: Redis) -> None:
    valkey.hset("ql:config", "fixes", "cycles")
    assert data_and_worker(core) == ("[ ]", "w")


@EACH
def test_advance_with_a_delay_is_scheduled(core: Core, profile: str) -> None:
    mended = configure(core, profile, "all")
    core.put()
    core.popped()
    assert core.complete(next="p", delay=5) == "scheduled"
    assert core.get()["state"] == ("scheduled" if mended else "waiting")
    core.now += 5
    assert core.popped(queue="p") == ["j"]


@EACH
def test_advance_keeps_its_delay_without_dependencies(core: Core, profile: str) -> None:
    mended = configure(core, profile, "all")
    core.put()
    core.popped()
    assert core.complete(next="p", delay=5, depends=["nobody"]) == ("scheduled" if mended else "waiting")
    assert core.zset("q:p-scheduled") == ({"j": NOW + 5} if mended else {})


@EACH
def test_put_of_a_failed_job_counts_in_the_queue_it_failed_in(core: Core, profile: str) -> None:
    mended = configure(core, profile, "all")
    core.put()
    core.popped()
    core("fail", "j", "w", "g", "m")
    core.put(queue="p")
    assert (core.stats("q")["failed"], core.stats("p")["failed"]) == ((0, 0) if mended else (1, -1))


@EACH
def test_retry_leaves_nothing_of_the_worker(core: Core, profile: str) -> None:
    recorded = configure(core, profile, "shared")
    core.put()
    core.popped()
    core("retry", "j", "p", "w")
    job = core.get()
    assert job["queue"] == ("p" if recorded else "q")
    assert (job["worker"], job["expires"]) == (("", 0) if profile == "all" else ("w", NOW + 60))
    assert ("p" in core.zset("queues")) == recorded
    assert core.popped(queue="p") == ["j"]


@EACH
@pytest.mark.parametrize("delay", [0, 5])
def test_cancel_finds_a_job_that_was_retried_in_another_queue(core: Core, profile: str, delay: float) -> None:
    mended = configure(core, profile, "shared")
    core.put()
    core.popped()
    core("retry", "j", "p", "w", delay)
    core("cancel", "j")
    assert (core.zset("q:p-work") | core.zset("q:p-scheduled") == {}) == mended


@EACH
def test_a_pop_records_the_queue_to_which_another_core_has_moved_the_job(core: Core, profile: str) -> None:
    mended = configure(core, profile, "shared")
    core.put()
    core.client.zrem("ql:q:q-work", "j")
    core.client.zadd("ql:q:p-work", {"j": 0})
    (job,) = core.pop(queue="p")
    core.complete(queue=job["queue"])
    assert (core.zset("q:p-locks") == {}) == mended  # otherwise the complete job runs again


@EACH
def test_timeout_takes_the_job_from_its_worker(core: Core, profile: str) -> None:
    mended = configure(core, profile, "all")
    core.put()
    core.popped()
    core("timeout", "j")
    assert core.zset("w:w:jobs") == ({} if mended else {"j": NOW + 60})


@EACH
def test_data_keeps_its_text(core: Core, profile: str) -> None:
    mended = configure(core, profile, "shared")
    core.put()
    core.popped()
    text = '{"list": [], "id": 12345678901234567}'
    core("heartbeat", "j", "w", text)
    assert (core.get()["data"] == text) == mended
    core("fail", "j", "w", "g", "m", "[]")
    assert core.get()["data"] == ("[]" if mended else "{}")


@EACH
def test_tags_are_counted_as_they_change(core: Core, profile: str) -> None:
    mended = configure(core, profile, "all")
    core.put(tags=["a"])
    core("tag", "add", "j", "a", "b", "b")
    core("tag", "remove", "j", "zero")
    assert core.zset("tags") == ({"a": 1, "b": 1} if mended else {"a": 2, "b": 2, "zero": -1})
    core("tag", "remove", "j", "b")
    core("cancel", "j")
    assert core.zset("tags") == ({} if mended else {"a": 1, "b": 1, "zero": -1})


@EACH
def test_cancel_of_an_unknown_job_is_silent(core: Core, events: Any, profile: str) -> None:
    mended = configure(core, profile, "shared")
    events()
    core("cancel", "nobody")
    payload = {"event": "canceled", "jid": "nobody", "worker": False, "queue": False}
    assert events() == ([] if mended else [("ql:log", payload)])


@EACH
def test_statistics_expire(core: Core, valkey: Redis, profile: str) -> None:
    mended = configure(core, profile, "shared")
    core.put("a")
    core.put("b")
    core.popped(count=2)
    core.complete("a")
    core("fail", "b", "w", "g", "m")
    day = f"{NOW - NOW % 86400:.0f}"
    keys = [f"ql:s:{kind}:{day}:q" for kind in ("wait", "run", "stats")]
    lives = [valkey.ttl(key) for key in keys]
    assert lives == pytest.approx([31 * 86400] * 3, abs=5) if mended else lives == [-1] * 3


def test_statistics_expire_as_configured(core: Core, valkey: Redis) -> None:
    day = f"{NOW - NOW % 86400:.0f}"
    core.config(stats_history=2, histogram_history=4)
    core.put()
    core.popped()
    assert valkey.ttl(f"ql:s:wait:{day}:q") == pytest.approx(5 * 86400, abs=5)
    core("fail", "j", "w", "g", "m")
    assert valkey.ttl(f"ql:s:stats:{day}:q") == pytest.approx(3 * 86400, abs=5)
    core.config(stats_history=0, histogram_history=0)
    core.put("k", queue="p")
    core.popped(queue="p")
    assert valkey.ttl(f"ql:s:wait:{day}:p") == -1


@EACH
@pytest.mark.parametrize(("limit", "mended", "upstream"), [(1, ["put"], ["put", "m8"]), (2, ["put", "m8"], None)])
def test_a_short_history_is_trimmed_to_its_limit(
    core: Core, profile: str, limit: int, mended: list[str], upstream: list[str] | None
) -> None:
    expected = mended if configure(core, profile, "shared") else upstream or ["put", *(f"m{n}" for n in range(9))]
    core.config(max_job_history=limit)
    core.put()
    for number in range(9):
        core("log", "j", f"m{number}")
    assert [entry["what"] for entry in core.get()["history"]] == expected


@EACH
def test_a_new_priority_keeps_the_age(core: Core, profile: str) -> None:
    mended = configure(core, profile, "all")
    core.put("a")
    core.now += 10
    core.put("b", priority=-5)
    core.put("stalled")
    core("priority", "b", 0)
    assert core.popped(count=1) == (["a"] if mended else ["b"])
    if mended:
        assert core.zset("q:q-work")["b"] == pytest.approx(-core.now / 1e10, abs=1e-15)
    core.popped(count=9)
    core("timeout", "stalled")
    core("priority", "stalled", 3)
    assert core.zset("q:q-work") == {"stalled": float("inf") if mended else 3}


@EACH
def test_unfail_leaves_nothing_of_the_failure(core: Core, profile: str) -> None:
    mended = configure(core, profile, "all")
    for jid in "abc":
        core.put(jid)
    for jid in core.popped(count=3)[::-1]:
        core("fail", jid, "w", "g", "m")
    assert core("unfail", "p", "g", 2) == 2
    assert core.json("failed", "g") == {"total": 1, "jobs": ["c"]}
    assert core.get("a")["failure"] == ({} if mended else {"group": "g", "message": "m", "when": NOW, "worker": "w"})
    assert core.stats()["failed"] == (1 if mended else 3)
    assert ("p" in core.zset("queues")) == mended


@EACH
def test_jobs_that_are_gone_are_not_tracked(core: Core, profile: str) -> None:
    mended = configure(core, profile, "all")
    core.config(jobs_history=10)
    for jid in "ab":
        core.put(jid)
        core("track", "track", jid)
    core.popped(count=1)
    core.complete("b")
    core("cancel", "a")
    core.now += 11
    core.put("c")
    core.popped()
    core.complete("c")
    assert core.json("track")["expired"] == ({} if mended else ["a", "b"])
    if mended:
        assert core("track", "untrack", "a") == "0"
    else:
        with pytest.raises(CoreError, match="does not exist"):
            core("track", "untrack", "a")


@EACH
def test_expiry_leaves_no_key(core: Core, valkey: Redis, profile: str) -> None:
    mended = configure(core, profile, "shared")
    core.config(jobs_history=0)
    core.put()
    core.popped()
    valkey.sadd("ql:j:j-dependencies", "old")
    core.complete()
    assert valkey.keys("ql:j:*") == ([] if mended else [b"ql:j:j-dependencies"])


@EACH
def test_negative_numbers_of_jobs_are_refused(core: Core, profile: str) -> None:
    mended = configure(core, profile, "shared")
    for jid in "abcd":
        core.put(jid)
    if mended:
        for arguments in (["pop", "q", "w", -1], ["peek", "q", -1]):
            with pytest.raises(CoreError, match=r'(Pop|Peek)\(\): Arg "count" must not be negative: -1'):
                core(*arguments)
    else:
        assert len(core.json("peek", "q", -1)) == 3
        assert core.popped(count=-1) == ["d", "c", "b"]
        assert core.popped(count=-2) == []


@EACH
def test_fractions_of_intervals_are_kept(core: Core, profile: str) -> None:
    mended = configure(core, profile, "shared")
    core("recur", "q", "r", "K", "{}", "interval", 0.5, 0.25)
    for step in range(8):
        core.now = NOW + 0.25 + step * 0.5
        core.popped(count=9)
    assert core.json("recur.get", "r")["count"] == (8 if mended else 12)
    assert core.zset("q:q-recur")["r"] == NOW + (4.25 if mended else 4.0)


@EACH
def test_a_job_that_would_wait_for_itself_is_refused(core: Core, profile: str) -> None:
    mended = configure(core, profile, "all")
    core.put("a")
    core.put("b", depends=["a"])
    core.put("c", depends=["b"])
    core.put("d")
    calls = [
        ["put", "w", "q", "new", "K", "{}", 0, "depends", ["new"]],
        ["put", "w", "q", "a", "K", "{}", 0, "depends", ["d", "c"]],
        ["put.many", "w", "q", "d", "K", "{}", 0, '{"depends":["d"]}'],
        ["put.many", "w", "q", "x", "K", "{}", 0, '{"depends":["y"]}', "y", "K", "{}", 0, '{"depends":["x"]}'],
        ["depends", "b", "on", "d", "c"],
        ["complete", "e", "w", "q", "{}", "next", "p", "depends", ["c", "e"]],
    ]
    core.put("e", queue="q", priority=9)
    assert core.popped() == ["e"]
    for arguments in calls:
        if mended:
            with pytest.raises(CoreError, match=r"\(\): Job \w+ would wait for itself"):
                core(*arguments)
        else:
            core(*arguments)
    assert (core.get("new") is None) == mended
    if not mended:
        assert core.get("a")["state"] == core.get("d")["state"] == "depends"
        core("cancel", "a", "b", "c", "d", "e", "new", "x", "y")
        assert core.client.keys("ql:j:*") == []


@pytest.mark.parametrize(("length", "refused"), [(1001, True), (1003, False)])
def test_a_cycle_shows_in_the_first_1000_jobs(core: Core, length: int, refused: bool) -> None:
    core.config(fixes="all")
    core.put("j0")
    for number in range(1, length):
        core.put(f"j{number}", depends=[f"j{number - 1}"])
    if refused:
        with pytest.raises(CoreError, match="Job j0 would wait for itself"):
            core.put("j0", depends=[f"j{length - 1}"])
    else:
        core.put("j0", depends=[f"j{length - 1}"])


@EACH
def test_a_child_takes_no_jid_that_is_taken(core: Core, profile: str) -> None:
    """A recurring job that is declared again after unrecur starts to count from 0."""
    mended = configure(core, profile, "shared")
    core("recur", "q", "r", "K", "{}", "interval", 60, 0)
    assert core.popped() == ["r-1"]
    core("unrecur", "r")
    core("recur", "q", "r", "K", "{}", "interval", 60, 0)
    assert core.popped() == (["r-2"] if mended else ["r-1"])
    assert len(core.get("r-1")["history"]) == (2 if mended else 4)


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_a_pop_returns_the_trimmed_history(core: Core, limit: int) -> None:
    core("config.set", "max-job-history", limit)
    core.put()
    (popped,) = core.pop()
    assert popped["history"] == core.get()["history"]
    assert popped["history"][0]["what"] == "put"


@EACH
def test_fixes_that_all_profiles_have_apply(core: Core, profile: str) -> None:
    core.config(fixes=profile)
    core.put("first")
    core.put("second", depends=["first"], delay=500)
    assert "scheduled" in core.hash("j:second")
    core.put("second", depends=["first"])
    assert "scheduled" not in core.hash("j:second")
    core.pop()
    core.complete("first")
    assert core.get("second")["state"] == "waiting"
    core("recur", "q", "r", "Klass", "{}", "interval", 60, 0, "tags", ["a"])
    assert core.json("recur.tag", "r", "a", "b", "b") == ["a", "b"]
