"""`set`, `delete`, `purge`, `peek`, a second dictionary for None, many operations at once."""

from __future__ import annotations

import asyncio
import enum
import logging
import threading
from typing import Any

import pytest

from resty_django.cache import (
    LRU,
    BadOption,
    Bulk,
    CacheStats,
    CallbackFailed,
    GetResult,
    Level,
    MLCache,
    NoChannel,
    SerializerFailed,
    SourceError,
)
from resty_django.cache.circuit_breaker.breaker import breaker_of
from resty_django.cache.statistics.reporter import MAX_RUNS, CacheCounter, listed
from resty_django.cache.storage import records
from resty_django.lock import Lock
from resty_django.minute_series.top_keys import FrequentKey
from resty_django.sansio import run
from resty_django.shdict import NoMemory, Unavailable, UnknownDict
from tests.dictionaries import MIB, Clock
from tests.integration.cache.cancelling import Slow, cancelled, settle
from tests.integration.cache.conftest import Make, Process, Shared, fails, raises, value
from tests.integration.cache.tools import Hub, callback_took, flushed
from tests.pauses import Pauses
from tests.servers import until

# --- set, delete, purge ---


async def test_a_purge_empties_the_dictionary_for_other_caches_too(make: Make, shared: Shared) -> None:
    a = make("A", ttl=0)
    neighbour = MLCache("other", shared("values"), clock=a.cache.clock, lru=LRU(9, a.cache.clock))
    neighbour.set("k", "of another cache")
    neighbour.lru.flush_all()
    await a.do("purge")
    assert neighbour.get("k") is None


async def test_writes_need_a_channel(make: Make) -> None:
    a = make(ipc=None)
    for call in (("set", "k", 1), ("delete", "k"), ("purge",), ("update",)):
        with pytest.raises(NoChannel, match=call[0]):
            await a.do(*call)
    assert await a.lookup("k", value("v")) == ("v", None, 3)


# --- what differs from lua-resty-mlcache, as docs/reference/cache/cache.md lists it ---


async def test_a_set_whose_serializer_fails_has_set_the_value(make: Make) -> None:
    a, b = make("A", l1_serializer=lambda raw: None), make("B")
    await b.do("set", "k", "old")
    with pytest.raises(SerializerFailed):
        await a.do("set", "k", "new")
    assert a.cache.lru.get("k") is None
    await b.update()
    assert await b.lookup("k") == ("new", None, 2)


async def test_a_fresh_nil_next_to_a_stale_value(make: Make, shared: Shared, clock: Clock) -> None:
    settings = {"shm_miss": shared("misses"), "ttl": 1, "neg_ttl": 100, "resurrect_ttl": 10, "lru": None}
    a = make("A", **{**settings, "lru": LRU(10, clock)})
    await a.lookup("k", value("v"))
    second = make("B", **{**settings, "lru": LRU(10, clock)})
    clock.advance(2)
    shared("misses").set("c:k", records.encode(None, clock(), 100, False))
    assert await second.lookup("k", fails("down")) == (None, None, 2)


async def test_a_stale_value_that_cannot_be_serialized_is_an_error(make: Make, shared: Shared, clock: Clock) -> None:
    a = make("A", ttl=1)
    await a.lookup("k", value("v"))
    clock.advance(2)
    b = make("B", ttl=1, resurrect_ttl=10, l1_serializer=lambda raw: None, lock_options={"timeout": 0})
    lock = Lock(shared("values"))
    lock.acquire("lua-resty-mlcache:lock:c:k")
    reply = await b.lookup("k", value("new"))
    assert reply == (
        None,
        "l1_serializer returned None; it must return a value.",
        None,
    )
    assert b.runs == 0
    lock.release()


async def test_reading_an_expired_item_of_l1_leaves_its_place(make: Make, clock: Clock) -> None:
    a = make("A", ttl=1)
    await a.lookup("first", value("1"))
    await a.lookup("second", value("2"))
    clock.advance(2)
    await a.lookup("first")
    assert list(a.cache.lru.items) == ["first", "second"]
    a.cache.lru.get("first")
    assert list(a.cache.lru.items) == ["second", "first"]


# --- a second dictionary ---


async def test_a_dictionary_for_none(make: Make, shared: Shared) -> None:
    a = make("A", shm_miss=shared("misses"))
    values, misses = shared("values"), shared("misses")
    await a.lookup("k", value("v"))
    await a.lookup("none", value(None))
    assert (values.get("c:k") is None, misses.get("c:k")) == (False, None)
    assert (values.get("c:none"), misses.get("c:none") is None) == (None, False)
    await a.do("set", "k", None)
    assert (values.get("c:k"), misses.get("c:k") is None) == (None, False)
    await a.do("set", "k", "w")
    assert (values.get("c:k") is None, misses.get("c:k")) == (False, None)
    await a.do("delete", "none")
    assert misses.get("c:none") is None


# --- many at once ---


async def test_a_bulk_returns_values_levels_and_errors_in_order(make: Make, clock: Clock) -> None:
    a, b = make("A"), make("B")
    await a.lookup("in l1", value(1))
    await b.lookup("in l2", value(2))
    bulk = a.cache.new_bulk()
    bulk.add("in l1", raises(ValueError("not called")))
    bulk.add("in l2", raises(ValueError("not called")))
    bulk.add("new", lambda number: number, 3)
    bulk.add("raises", raises(ValueError("boom")))
    bulk.add("fails", fails("down"))
    bulk.add("none", value(None))
    bulk.add("new", raises(ValueError("not called")))
    bulk.add("short", value("s"), ttl=1)
    results = await a.do("get_bulk", bulk, concurrency=1)
    assert [(result.value, result.level) for result in results] == [
        (1, Level.L1),
        (2, Level.L2),
        (3, Level.L3),
        (None, None),
        (None, None),
        (None, Level.L3),
        (3, Level.L2),
        ("s", Level.L3),
    ]
    assert isinstance(results[3].error, CallbackFailed)
    assert isinstance(results[4].error, SourceError)
    assert [result.error is None for result in results] == [True] * 3 + [False] * 2 + [True] * 3
    clock.advance(1.001)
    assert (await a.lookup("short"))[2] == -1
    assert await a.do("get_bulk", Bulk()) == []


async def test_a_bulk_runs_callbacks_concurrently(make: Make) -> None:
    a = make()
    together, atogether = threading.Barrier(3), asyncio.Barrier(3)

    def meet(number: int) -> int:
        together.wait(20)  # for all three, or nobody
        return number

    async def ameet(number: int) -> int:
        await asyncio.wait_for(atogether.wait(), 20)
        return number

    bulk = Bulk()
    for number in range(9):
        bulk.add(number, (ameet if a.twins else meet) if number % 3 == 0 else (lambda own: own), number)
    results = await a.do("get_bulk", bulk)
    assert results == [GetResult(number, None, Level.L3) for number in range(9)]


async def test_wrong_arguments_of_a_bulk(make: Make) -> None:
    a = make()
    for concurrency in (0, -1, 1.5, True, None):
        with pytest.raises(BadOption, match="concurrency"):
            await a.do("get_bulk", Bulk(), concurrency=concurrency)
    with pytest.raises(BadOption, match="bulk"):
        await a.do("get_bulk", [("k", len)])


# --- putting a cache together ---


def test_caches_of_one_name_share_one_l1(shared: Shared) -> None:
    first, second = MLCache("same", shared("values"), lru_size=3), MLCache("same", shared("values"), lru_size=9)
    renamed = MLCache("other", shared("values"))
    assert first.lru is second.lru is not renamed.lru
    assert second.lru.capacity() == 3
    first.get("k", value("v"))
    assert second.lookup("k").level == Level.L1
    assert renamed.lookup("k").level == Level.MISS


def test_keys_of_two_caches_never_meet(shared: Shared) -> None:
    first, second = MLCache("a", shared("values")), MLCache("ab", shared("values"))
    first.get("bc", value(1))
    assert second.lookup("c").level == Level.MISS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name must be"),
        ({"name": "a:b"}, "name must be"),
        ({"name": 7}, "name must be"),
        ({"lru_size": 0}, "lru_size must be"),
        ({"ttl": -1}, "ttl must be"),
        ({"lru_sice": 7}, "lru_sice is not an option"),
        ({"ipc_shm": "default"}, "ipc_shm is not an option"),
        ({"ipc": "redis"}, "ipc must be"),
        ({"ipc": object()}, "ipc must be"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=f"^{message}"):
        MLCache(**{"name": "c", **options})


def test_the_size_of_l1_may_be_a_constant_of_the_site(shared: Shared) -> None:
    sizes = enum.IntEnum("sizes", {"SMALL": 3})
    assert MLCache("c", shared("values"), lru_size=sizes.SMALL).lru.max_items == 3


def test_an_unknown_dictionary_is_named_with_its_option() -> None:
    for option in ("dictionary", "shm_miss", "shm_locks", "shm_stats"):
        with pytest.raises(UnknownDict, match=f"'nowhere'.*{option}"):
            MLCache("c", **{option: "nowhere"})


# --- a writer that is cancelled ---


WRITERS = pytest.mark.parametrize("writer", ["set", "delete", "refresh"])


@WRITERS
@pytest.mark.parametrize("lets_go", [True, False])
async def test_a_writer_that_is_cancelled_leaves_no_old_value_in_l1(
    shared: Shared, clock: Clock, hub: Hub, monkeypatch: pytest.MonkeyPatch, writer: str, lets_go: bool
) -> None:
    a, b = (Process(shared, clock, hub, who, True, {"ttl": 100}) for who in "AB")
    await a.do("set", "k", "old")
    await b.update()
    assert [(await b.lookup("k"))[2] for _ in range(2)] == [2, 1]
    args = {"set": ("k", "new"), "delete": ("k",), "refresh": ("k", value("new"))}[writer]
    with monkeypatch.context() as patch:
        slow = Slow(patch, shared("values"), "adelete" if writer == "delete" else "aset")
        await cancelled(getattr(a.cache, f"a{writer}")(*args), slow, lets_go)
    now = None if writer == "delete" else "new"
    assert (await a.lookup("k"))[0] == now
    if lets_go:
        await b.update()
        assert (await b.lookup("k"))[0] == now


async def test_a_writer_that_is_cancelled_and_fails_then_is_a_line_in_the_log(
    shared: Shared, clock: Clock, hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a = Process(shared, clock, hub, "A", True, {})
    slow = Slow(monkeypatch, shared("values"), "aset")

    def fails(name: str, data: str) -> None:
        raise OSError("the line is dead")

    async def afails(name: str, data: str) -> None:
        fails(name, data)

    monkeypatch.setattr(a.cache.channel, "abroadcast", afails)
    with caplog.at_level(logging.WARNING, "resty_django.cache"):
        await cancelled(a.cache.aset("k", "new"), slow, lets_go=True)
        await settle(lambda: "the line is dead" in caplog.text)
    assert "The cache write of a cancelled task failed" in caplog.text


# --- what was counted ---


async def test_counts_are_summed_up_over_processes(make: Make, clock: Clock) -> None:
    a, b = make("A", ttl=1, resurrect_ttl=5), make("B", ttl=1)
    for _ in range(3):
        await a.lookup("k", value("v"))
    await a.do("get", "k")
    await b.lookup("k")
    await b.lookup("absent")
    await b.lookup("wrong", raises(ValueError("boom")))
    clock.advance(1.001)
    await a.lookup("k", fails("down"))
    await b.do("stats")
    stats = await a.do("stats")
    assert stats.callback_seconds > 0
    stats.callback_seconds = 0
    assert stats == CacheStats(l1=3, l2=1, l3=1, stale=1, misses=1, errors=1, callbacks=3, callback_errors=2, new=2)
    later = await a.do("stats")
    later.callback_seconds = 0
    assert later == stats, "nothing is counted twice"


async def test_misses_are_counted_by_reason(make: Make, shared: Shared, clock: Clock) -> None:
    a, b = make("A", lru=LRU(1, clock=clock), ttl=60), make("B", ttl=60)
    names = ("expired", "invalidated", "evicted", "new")

    async def reason(process: Process, key: str = "k", callback: Any = "v", **options: Any) -> str:
        before = tuple(process.cache.counter.now)
        await process.lookup(key, value(callback) if callback == "v" else callback, **options)
        changes = zip(CacheStats.__slots__, before, process.cache.counter.now, strict=True)
        return " ".join(name for name, old, new in changes if new > old and name in names)

    assert await reason(a) == "new"
    assert await reason(a) == await reason(b) == ""
    clock.advance(61)
    assert await reason(b) == "expired"
    await a.do("update")
    await b.do("delete", "k")
    await a.do("update")
    assert await reason(a) == "invalidated"
    await b.do("purge")
    await a.do("update")
    assert await reason(a) == "invalidated"
    assert await reason(a, "tagged", tags=("t",)) == "new"  # also leaves L1 no place for "k"
    await a.do("invalidate_tags", "t")
    assert await reason(a, "tagged", tags=("t",)) == "invalidated"
    shared("values").delete("c:k")  # as if it had no place
    assert await reason(a, callback=None) == "evicted"
    assert await reason(a) == "evicted"
    clock.advance(61)
    shared("values").delete("c:k")
    assert await reason(a, callback=None) == "expired"
    assert await reason(a, "k", resurrect_ttl=5, callback=fails("down")) == ""


async def test_counts_are_flushed_by_other_calls_once_a_second(make: Make, shared: Shared) -> None:
    a = make()
    a.cache.counter.clock = now = Clock()
    a.cache.counter.due_at = now() + 1
    await a.lookup("k", value("v"))
    assert flushed("c", shared("values")) == CacheStats()
    now.advance(1)
    await a.lookup("k")
    assert flushed("c", shared("values")) == CacheStats(), "a hit of L1 asks no dictionary"
    await a.lookup("l")
    stats = flushed("c", shared("values"))
    assert (stats.l1, stats.l3, stats.misses) == (1, 1, 1)
    now.advance(1)
    await a.update()
    assert flushed("c", shared("values")) == stats, "nothing is new"


async def test_callbacks_are_merged_if_no_flush_comes(make: Make) -> None:
    a = make()
    counter = a.cache.counter
    counter.due_at = float("inf")
    for number in range(MAX_RUNS + 1):
        await a.lookup(f"k{number}", value("v"))
    assert (len(counter.runs), counter.now.callbacks) == (0, MAX_RUNS + 1)


def test_counts_that_could_not_be_flushed_are_kept(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = CacheCounter("c", shared("values"))
    counter.now.l1 = 7
    callback_took(counter, "k", 2.0)
    with monkeypatch.context() as patch:

        def down(*args: Any) -> None:
            raise Unavailable("down")

        patch.setattr(shared("values"), "update", down)
        run(counter.flush())
        assert not counter.is_due()
    until(lambda: not breaker_of(shared("values")).down)
    callback_took(counter, "k", 1.0)
    history = run(counter.history())
    assert (history.total.l1, history.total.callbacks) == (7, 2)
    assert [(slow.key, slow.seconds, slow.times) for slow in history.slow] == [("k", 2.0, 2)]
    assert history.missed == [FrequentKey("k", 2)]
    assert run(counter.history()).total == history.total, "nothing is counted twice"


def test_a_cache_is_listed_again_after_its_dictionary_was_emptied(shared: Shared) -> None:
    counters = [CacheCounter(name, shared("values")) for name in "ab"]
    for counter in counters * 2:
        counter.now.l1 += 1
        run(counter.flush())
    assert listed(shared("values")) == ["a", "b"]
    shared("values").flush_all()
    assert listed(shared("values")) == []
    counters[1].now.l1 += 1
    history = run(counters[1].history())
    assert listed(shared("values")) == ["b"]
    assert history.total == CacheStats(l1=1)


def test_counts_belong_to_the_minute_in_which_they_are_flushed(shared: Shared) -> None:
    wall = Clock(1_800_000_000.0005)
    a, b = (CacheCounter("c", shared("values"), wall=wall) for _ in range(2))
    for minutes, counter in ((0, a), (0, b), (2, a), (57, b), (3, a)):
        wall.advance(60 * minutes)
        counter.now.l2 += 1
        run(counter.flush())
    history = run(a.history())
    assert [span.counts.l2 for span in history.minutes if span.counts.calls] == [1, 1]
    assert [span.counts.l2 for span in history.hours[-2:]] == [4, 1]
    assert history.minutes[-1].start == 1_800_000_000 + 62 * 60


# --- stale while it is refreshed ---


async def test_a_stale_value_is_served_while_one_call_refreshes_it(make: Make, clock: Clock) -> None:
    a, b = make("A", ttl=1, stale_while_revalidate=5), make("B", ttl=1, stale_while_revalidate=5)
    await a.lookup("k", value("old"))
    clock.advance(1.001)
    assert await a.lookup("k", value("new")) == ("old", None, 4)
    await settle(lambda: a.cache.peek("k") is not None)
    await settle(lambda: not a.cache.loader.refresher.keys)
    assert await a.lookup("k") == ("new", None, 1)
    assert await b.lookup("k") == ("new", None, 2)
    assert a.runs == 2


async def test_after_that_time_it_is_asked_for_as_ever(make: Make, clock: Clock) -> None:
    a = make("A", ttl=1, stale_while_revalidate=5)
    await a.lookup("k", value("old"))
    clock.advance(6)
    assert await a.lookup("k", value("new")) == ("new", None, 3)


async def test_a_purged_value_is_not_served_while_it_is_refreshed(make: Make) -> None:
    a = make("A", ttl=100, stale_while_revalidate=100)
    await a.lookup("k", value("old"))
    await a.do("purge")
    assert await a.lookup("k", value("new")) == ("new", None, 3)


async def test_a_refresh_that_fails_is_logged_and_tried_again(
    make: Make, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    a = make("A", ttl=1, stale_while_revalidate=5)
    await a.lookup("k", value("old"))
    clock.advance(1.001)
    for _ in range(2):
        assert await a.lookup("k", raises(ValueError("boom"))) == ("old", None, 4)
        await settle(lambda: not a.cache.loader.refresher.keys)
    assert caplog.text.count("could not be refreshed: callback threw an error: boom") == 2
    assert a.runs == 3


async def test_one_caller_refreshes_and_none_waits(make: Make, shared: Shared, clock: Clock, naps: Pauses) -> None:
    a = make("A", ttl=1, stale_while_revalidate=5)
    await a.lookup("k", value("old"))
    clock.advance(1.001)
    shared("values").add("lua-resty-mlcache:lock:c:k", "another process", 30)
    assert await a.lookup("k", value("new")) == ("old", None, 4)
    await settle(lambda: not a.cache.loader.refresher.keys)
    assert a.runs == 1
    assert naps.slept == []


# --- L2 is full ---


async def test_a_value_without_room_in_l2(
    make: Make, shared: Shared, clock: Clock, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    shm = shared("values", MIB)
    if shm.engine == "redis":
        request.getfixturevalue("valkey").config_set("maxmemory", 1)
    try:
        locks = shared("locks") if shm.engine == "lmdb" else shared_locks(request, make)
        a = make(shm_locks=locks)
        large = "x" * MIB
        assert await a.lookup("k", value(large)) == (large, None, 3)
        logged = {"lmdb": "The key 'k' of 'c' was not stored in L2", "redis": "of caches cannot be used"}
        assert logged[shm.engine] in caplog.text
        assert await a.lookup("k") == (large, None, 1)
        with pytest.raises(NoMemory):
            await a.do("set", "k", large, on_error="raise")
        await a.do("set", "k", large)
        assert await a.lookup("k") == (large, None, 1)
        clock.advance(5.001)
        assert await a.lookup("k") == (None, None, -1)
    finally:
        if shm.engine == "redis":
            request.getfixturevalue("valkey").config_set("maxmemory", 0)


def shared_locks(request: pytest.FixtureRequest, make: Make) -> Any:
    """A dictionary next to a Redis that is full."""
    from resty_django.shdict.lmdb import LmdbDict

    locks = LmdbDict("locks", MIB, str(request.getfixturevalue("tmp_path") / "locks"))
    request.addfinalizer(locks.close)
    return locks
