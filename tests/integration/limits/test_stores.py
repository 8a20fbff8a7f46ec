"""States in a shared dictionary: their expiry, their kind, clusters, and calls that were cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from resty_django.limits import (
    Concurrency,
    FixedWindow,
    LeakyBucket,
    SlidingWindow,
    TokenBucket,
    acombine,
    combine,
)
from resty_django.limits.algorithms import FRAME
from resty_django.limits.stores import store_of
from resty_django.shdict import BadKey
from resty_django.shdict.lmdb import records
from resty_django.shdict.redis import RedisDict
from tests import servers
from tests.limiting import Bench
from tests.servers import Server, until

pytestmark = pytest.mark.contract


async def test_states_are_items_that_are_kept_as_long_as_they_matter(stores: Bench) -> None:
    if stores.kind == "local":
        return
    limiters = {
        (120, 200): stores.make(LeakyBucket, 1, 5, prefix="l:"),
        (11, 11): stores.make(FixedWindow, 5, 10, prefix="f:"),
        (11, 21): stores.make(SlidingWindow, 5, 10, prefix="s:"),
        (120, 240): stores.make(Concurrency, 5, lease=60, prefix="c:"),
        (95, 101): stores.make(TokenBucket.from_interval, 1000, 5, idle=30, prefix="t:"),
    }
    for (least, most), limiter in limiters.items():
        await limiter.hit("k")
        ttl = stores.store.ttl(limiter.limiter.key("k"))
        assert least <= ttl <= most, limiter.limiter
        assert type(stores.store.get(limiter.limiter.key("k"))) is bytes
    for limiter in (
        stores.make(LeakyBucket, 1, 5, idle=None),
        stores.make(TokenBucket.from_interval, 1000, 5),
        stores.make(Concurrency, 1, lease=None),
    ):
        await limiter.hit("k")
        assert stores.store.ttl(limiter.limiter.key("k")) == 0


async def test_a_hot_key_outlives_its_first_expiry(stores: Bench) -> None:
    """The expiry is not set with each request, but often enough."""
    leaky = stores.make(LeakyBucket, 1 / 9, 0, idle=0, prefix="l:")
    slots = stores.make(Concurrency, 3, lease=8, prefix="c:")
    tokens = stores.make(TokenBucket.from_interval, 10_000, 1, 1, 0, idle=0, prefix="t:")
    held = [await slots.hit("k"), await slots.hit("k")]
    for _ in range(100):
        assert (await leaky.hit("k")).allowed
        assert (await tokens.hit("k")).allowed
        for pause in (3, 3, 2.999):
            stores.clock.advance(pause)
            held.append(await slots.hit("k"))
            assert held[-1].state == 3
            assert await slots.leaving("k", token=held.pop(0).token) == 2
            assert not await leaky.hit("k")
            assert not await tokens.hit("k")
        stores.clock.advance(1.001)


async def test_a_bucket_that_owes_tokens_is_kept_until_it_has_them(stores: Bench) -> None:
    """However many they are; once it is full it lives for as long as `idle` says, and a little more."""
    tokens = stores.make(TokenBucket.from_interval, 1000, 5, idle=30, prefix="t:")
    assert (await tokens.hit("k", 1005)).delay == 1000
    stores.clock.advance(999)
    assert (await tokens.hit("k")).delay == 2
    stores.clock.advance(7 + 30)
    assert (await tokens.hit("k")).state == 4
    if stores.kind != "local":
        assert 30 <= stores.store.ttl(tokens.limiter.key("k")) <= 1100
    stores.clock.advance(1200)
    assert (await tokens.peek("k")).reset_after == 0


async def test_a_key_without_requests_is_as_new(stores: Bench) -> None:
    leaky = stores.make(LeakyBucket, 1, 5, prefix="l:")
    slots = stores.make(Concurrency, 2, lease=10, prefix="c:")
    await leaky.hit("k", 5)
    await slots.hit("k")
    stores.clock.advance(3600)
    assert (await leaky.hit("k", 6)).delay == 0
    assert (await slots.hit("k")).state == 1


async def test_slots_that_no_lease_gives_back_are_kept(stores: Bench) -> None:
    """Also where limiters with and without leases use one key."""
    leased = stores.make(Concurrency, 5, lease=10)
    held = stores.make(Concurrency, 5, lease=None)
    await leased.hit("k")
    await held.hit("k")
    await leased.hit("k")
    stores.clock.advance(10_000)
    assert (await held.peek("k")).state == 2
    assert await held.leaving("k") == 0
    assert await held.leaving("k") == -1
    stores.clock.advance(10_000)
    assert (await leased.hit("k")).state == 0
    stores.clock.advance(10_000)
    assert (await held.hit("k")).state == 0
    assert (await held.hit("k")).state == 1


@pytest.mark.redis
async def test_one_round_trip(redis_cache: str, valkey: Any) -> None:
    store = RedisDict("trips", alias=redis_cache)
    count = FixedWindow(9, 60, store=store, prefix="f:", on_error="raise")
    slots = Concurrency(9, store=store, prefix="c:", on_error="raise")
    leaky = LeakyBucket(9, 9, store=store, prefix="l:", on_error="raise")

    def evals() -> int:
        stats = valkey.info("commandstats")
        return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("evalsha", "eval"))

    for call in (
        lambda: count.hit("k"),
        lambda: slots.hit("k"),
        lambda: leaky.peek("k"),
        lambda: count.uncommit("k"),
        lambda: combine([leaky, count, slots], ["k", "k", "k"]),
    ):
        call()
        before = evals()
        call()
        assert evals() - before == 1


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Server]]:
    with servers.cluster() as nodes:
        yield nodes


@pytest.mark.redis
async def test_on_a_cluster(nodes: list[Server], settings: Any) -> None:
    servers.forget_pools()
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": [node.url for node in nodes],
            "OPTIONS": {"CLIENT_CLASS": "resty_django.redis.cluster.ClusterClient"},
        }
    }
    store = RedisDict("spread")
    redis_store: Any = store_of(store)
    keys = [f"{number}" for number in range(20)]
    spread = [FixedWindow(50, 60, store=store, prefix=f"{name}:", on_error="raise") for name in "ab"]
    slots = Concurrency(50, store=store, prefix="c:", on_error="raise")
    for key in keys:
        assert (spread[0].hit(key).state, (await spread[0].ahit(key)).state) == (49, 48)
    assert redis_store.together([*spread, slots], ["a:k", "b:k", "c:k"]) is None
    assert await redis_store.atogether([*spread, slots], ["a:k", "b:k", "c:k"]) is None
    for _ in range(50):
        assert combine([*spread, slots], ["k", "k", "k"])
    assert combine([*spread, slots], ["k", "k", "k"]).refused_by == 0
    assert (await acombine([*spread, slots], ["k", "k", "k"])).refused_by == 0
    assert slots.peek("k").remaining == 0
    tagged = ["{t}k", "{t}j", "{t}i"]
    assert redis_store.together([*spread, slots], ["a:{t}", "b:{t}", "c:{t}"]) is not None
    assert [decision.state for decision in combine([*spread, slots], tagged).decisions if decision] == [49, 49, 1]
    assert [decision.state for decision in (await acombine([*spread, slots], tagged)).decisions if decision] == [
        48,
        48,
        2,
    ]


@pytest.mark.redis
async def test_a_cluster_that_cannot_be_reached(settings: Any) -> None:
    servers.forget_pools()
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": [f"redis://127.0.0.1:{servers.free_port()}"],
            "OPTIONS": {"CLIENT_CLASS": "resty_django.redis.cluster.ClusterClient"},
        }
    }
    store = RedisDict("unreachable")
    limits = [FixedWindow(5, 60, store=store, prefix=f"{name}:", on_error="open") for name in "ab"]
    assert combine(limits, ["k", "k"]).failed
    assert (await acombine(limits, ["k", "k"])).failed
    assert limits[0].hit("k").failed


@pytest.mark.redis
async def test_a_cancelled_call_holds_no_slot(redis_cache: str, valkey: Any) -> None:
    slots = Concurrency(3, store=RedisDict("cancelled", alias=redis_cache), on_error="raise")
    first = await slots.ahit("k")
    valkey.client_pause(500)
    task = asyncio.create_task(slots.ahit("k"))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert until(lambda: slots.peek("k").state == 2)
    assert slots.leaving("k", token=first.token) == 0


def framed(body: bytes, old: Any = None) -> bytes:
    return (old if isinstance(old, bytes) else b"")[:FRAME].ljust(FRAME, b"\0") + body


def content(value: Any) -> Any:
    return value[FRAME:] if isinstance(value, bytes) else value


def test_the_frame_has_the_size_of_a_record_head() -> None:
    assert records.HEAD_BYTES == FRAME


def test_what_is_changed_together_in_lmdb(tmp_path: Any, clock: Any) -> None:
    """`revise_many`: every kind of record that may be there before, and nothing changes where the function raises."""
    from resty_django.shdict.lmdb import LmdbDict
    from tests.dictionaries import MIB

    store = LmdbDict("together", 8 * MIB, str(tmp_path), clock)
    long = "x" * 2000
    keys = ["absent", "bytes", "text", "big", "over", long, "kept"]
    store.set("bytes", b"1234", ttl=50, flags=7)
    store.set("text", "text", ttl=50, flags=7)
    store.set("big", b"b" * 10_000)
    store.set("over", b"1234", ttl=1, flags=7)
    store.set(long, b"1234", ttl=50)
    store.set("kept", b"1234")
    clock.advance(1)
    calls_made: list[Any] = []

    def change(values: list[Any]) -> Any:
        calls_made.append(list(map(content, values)))
        return [
            (framed(b"5678", values[0]), None, None),
            (framed(b"5678", values[1]), None, None),
            (framed(b"5678"), None, None),
            (framed(b"5678", values[3]), None, None),
            (framed(b"5678", values[4]), 9, None),
            (framed(b"5678", values[5]), None, None),
            (None, None, None),
        ], "done"

    assert store.revise_many(keys, change) == "done"
    assert calls_made == [[None, b"1234", "text", b"b" * 10_000, None, b"1234", b"1234"]]
    assert [store.get(key) for key in keys] == [b"5678"] * 6 + [b"1234"]
    assert [store.ttl(key) for key in keys] == [0, 49, 49, 0, 9, 49, 0]
    assert [store.get_item(key).flags for key in keys] == [0, 7, 7, 0, 0, 0, 0]  # type: ignore[union-attr]
    assert set(store.get_keys()) == set(keys)

    def fail(values: list[Any]) -> Any:
        raise LookupError

    with pytest.raises(LookupError):
        store.revise_many(keys, fail)
    store.flush_all()
    assert store.revise_many(["bytes"], lambda values: ([(framed(b"9999"), None, None)], values)) == [None]
    assert (store.get("bytes"), store.ttl("bytes")) == (b"9999", 0)
    with pytest.raises(RuntimeError, match="forked or closed it"):
        store.revise_many(["bytes"], lambda values: store.close() or ([(b"", None, None)], None))
    store.close()


def test_bytes_revised_in_lmdb(tmp_path: Any, clock: Any) -> None:
    """`revise`: the quick way and the long one come to the same."""
    from resty_django.shdict.lmdb import LmdbDict
    from tests.dictionaries import MIB

    store = LmdbDict("revised", 8 * MIB, str(tmp_path), clock)
    long = "x" * 2000
    for key in ("bytes", "text", "big", "over", long, "\udc80"):
        value: Any = {"text": "text", "big": b"b" * 10_000}.get(key, b"1234")
        store.set(key, value, ttl=1 if key == "over" else 50, flags=7)
    clock.advance(1)
    calls_made = []
    for key in ("absent", "bytes", "text", "big", "over", long, "\udc80"):
        assert store.revise(key, lambda old: calls_made.append(content(old)) or (None, None, "kept")) == "kept"
        assert store.revise(key, lambda old: (framed(b"5678", old), None, content(old))) == calls_made[-1]
        assert (store.get(key), store.ttl(key)) == (b"5678", 0 if key in {"absent", "over"} else 49)
        assert store.revise(key, lambda old: (framed(b"90", old), 9, content(old))) == b"5678"
        assert (store.get(key), store.ttl(key)) == (b"90", 9)
        assert store.revise(key, lambda old: (framed(b"12", old), 0, content(old))) == b"90"
        assert (store.get(key), store.ttl(key)) == (b"12", 0)
        assert store.get_item(key).flags == (0 if key in {"absent", "over"} else 7)  # type: ignore[union-attr]
    store.flush_all()
    assert store.revise("bytes", lambda old: (framed(b"34", old), None, content(old))) is None

    def fail(old: Any) -> Any:
        raise LookupError

    with pytest.raises(LookupError) as failure:
        store.revise("bytes", fail)
    store.set("after", 1)  # the traceback is still there, its transaction is not
    assert failure.value.__traceback__ is not None
    with pytest.raises(UnicodeEncodeError):
        store.revise("bytes", lambda old: "\udc80".encode())
    for key in ("", None):
        with pytest.raises(BadKey):
            store.revise(key, fail)
    with pytest.raises(RuntimeError, match="was written to while this thread"):
        store.revise("bytes", lambda old: store.set("other", 1))
    with pytest.raises(RuntimeError, match="forked or closed it"):
        store.revise("bytes", lambda old: store.close() or (b"56", None, None))
    assert store.get("bytes") == b"34"
    store.close()
