"""A store that goes and comes back, for each `on_error`; and keys that hold something else."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from resty_django import circuit_breaker as circuit_breaker_module
from resty_django.limits import (
    Concurrency,
    Decision,
    FixedWindow,
    ForeignData,
    LeakyBucket,
    SlidingWindow,
    StoreFailed,
    TokenBucket,
    acombine,
    combine,
)
from resty_django.limits.algorithms import FRAME
from resty_django.limits.stores import circuit_breaker, store_of
from resty_django.shdict import SharedDict, UnknownDict
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.redis import RedisDict
from tests import servers
from tests.dictionaries import MIB, Clock
from tests.limiting import Bench
from tests.servers import Server

LOG = "resty_django.limits"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.one() as server:
        yield server


@pytest.fixture
def store(server: Server) -> Iterator[RedisDict]:
    """A dictionary on a server that the test may kill."""
    servers.forget_pools()
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}
    with override_settings(CACHES={"default": cache}):
        server.call("FLUSHALL")
        yield RedisDict("limits")
    if server.process is None:
        server.start()


def rested(store: Any) -> None:
    """Let the pause between two tries be over."""
    store_of(store).breaker.retry_at = 0.0


@pytest.mark.redis
async def test_open_lets_requests_pass(store: RedisDict, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    count = FixedWindow(3, 3600, store=store, on_error="open")
    assert count.hit("k") == Decision(True, 0.0, 2, 3, 2, 3600.0)
    server.kill()
    for decision in (count.hit("k"), count.peek("k"), await count.ahit("k"), count.hit("k", 3)):
        assert decision == Decision(True, limit=3, remaining=3, failed=True)
    assert count.uncommit("k") == await count.auncommit("k") == 0
    outage = store_of(store).breaker.outage()
    assert outage is not None
    assert outage in circuit_breaker.current_outages()
    assert (outage.store, outage.calls) == ("limits", 4)
    assert outage.error
    assert abs(time.time() - outage.since) < 60
    server.start()
    rested(store)
    assert (await count.ahit("k")).state == 2
    assert store_of(store).breaker.outage() is None
    assert outage not in circuit_breaker.current_outages()
    texts = [record.getMessage() for record in caplog.records if record.name == LOG]
    assert len(texts) == 2
    assert texts[0].startswith("The store 'limits' of limits does not answer")
    assert texts[1].startswith("The store 'limits' of limits answers again after")
    assert texts[1].endswith("4 decisions without it")


@pytest.mark.redis
async def test_a_store_that_only_answers_reads_is_down(
    store: RedisDict, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    count = FixedWindow(3, 3600, store=store, on_error="open")
    server.call("REPLICAOF", "127.0.0.1", 1)
    for _ in range(3):
        assert count.hit("k").failed
        assert (await count.ahit("k")).failed
        rested(store)
        assert not count.peek("k").failed
        assert not (await count.apeek("k")).failed
    server.call("REPLICAOF", "NO", "ONE")
    assert count.hit("k").state == 2
    texts = [record.getMessage() for record in caplog.records if record.name == LOG]
    assert ["answers again" in text for text in texts] == [False, True]


@pytest.mark.redis
async def test_closed_refuses_requests(store: RedisDict, server: Server) -> None:
    count = FixedWindow(3, 3600, store=store, on_error="closed")
    server.kill()
    for decision in (count.hit("k"), await count.ahit("k")):
        assert decision == Decision(False, limit=3, retry_after=circuit_breaker.BYPASS_SECONDS, failed=True)
    server.start()
    rested(store)
    assert count.hit("k").allowed


@pytest.mark.redis
async def test_local_counts_in_the_process(store: RedisDict, server: Server) -> None:
    count = FixedWindow(3, 3600, store=store, on_error="local")
    slots = Concurrency(2, store=store, on_error="local", prefix="c:")
    free = Concurrency(1, store=store, on_error="local", prefix="f:", lease=None)
    server.kill()
    assert [count.hit("k").allowed, (await count.ahit("k")).allowed, count.hit("k").allowed] == [True] * 3
    last = count.hit("k")
    assert (last.allowed, last.failed, last.limit) == (False, True, 3)
    decision = slots.hit("k")
    assert decision.failed
    assert decision.token.startswith("local:")
    assert slots.is_committed()
    assert (await slots.ahit("k")).state == 2
    assert not slots.hit("k")
    assert not slots.is_committed()
    assert slots.renew("k", decision.token)
    loose = free.hit("k")
    assert not free.hit("k")
    assert await free.aleaving("k", token=loose.token) == 0
    server.start()
    rested(store)
    assert slots.hit("k").state == 1
    assert slots.leaving("k", token=decision.token) == 1  # in this process; the slot in the store is held by another
    assert slots.peek("k").state == 2


@pytest.mark.redis
async def test_taking_what_is_available(store: RedisDict, server: Server) -> None:
    server.kill()
    for on_error, expected in (("open", [4, 4, 4]), ("closed", [0, 0, 0]), ("local", [4, 1, 0])):
        bucket = TokenBucket.from_interval(3_600_000, 5, store=store, on_error=on_error)
        got = [bucket.take_available("k", 4), await bucket.atake_available("k", 4), bucket.take_available("k", 4)]
        assert got == expected
    with pytest.raises(StoreFailed):
        TokenBucket.from_interval(1, 5, store=store, on_error="raise").take_available("k", 4)


@pytest.mark.redis
async def test_an_awaited_change_meets_the_outage_first(
    store: RedisDict, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = TokenBucket.from_interval(3_600_000, 5, store=store, on_error="open")
    breaker = store_of(store).breaker
    for call, result in ((bucket.atake_available, 5), (bucket.auncommit, 0)):
        server.kill()
        assert await call("k", 5) == result
        assert breaker.outage() is not None
        server.start()
        rested(store)
        await bucket.atake_available("k", 1)
        assert breaker.outage() is None
    texts = [record.getMessage() for record in caplog.records if record.name == LOG]
    assert ["answers again" in text for text in texts] == [False, True] * 2


@pytest.mark.redis
async def test_raise_raises_on_each_call(store: RedisDict, server: Server) -> None:
    slots = Concurrency(3, store=store, on_error="raise")
    server.kill()
    for call in (slots.hit, slots.peek, slots.leaving, slots.uncommit):
        with pytest.raises(StoreFailed, match=r"'limits' cannot be decided.* 'default'"):
            call("k")
    for acall in (slots.ahit, slots.apeek, slots.aleaving, slots.auncommit):
        with pytest.raises(StoreFailed, match="'limits'"):
            await acall("k")
    assert not slots.is_committed()
    server.start()
    assert slots.hit("k").state == 1  # at once: it does not pause


@pytest.mark.redis
async def test_a_store_that_is_down_is_left_alone(store: RedisDict, server: Server, monkeypatch: Any) -> None:
    count = FixedWindow(3, 3600, store=store, on_error="open")
    kept_store = store_of(store)
    tries = []
    decide, adecide = type(kept_store).decide, type(kept_store).adecide
    monkeypatch.setattr(type(kept_store), "decide", lambda *args: tries.append(1) or decide(*args))
    monkeypatch.setattr(type(kept_store), "adecide", lambda *args: tries.append(1) or adecide(*args))
    monkeypatch.setattr(circuit_breaker_module, "BYPASS_SECONDS", 3600.0)
    server.kill()
    for _ in range(20):
        count.hit("k")
        await count.ahit("k")
    assert len(tries) == 1
    rested(store)
    for _ in range(5):
        count.hit("k")
    assert len(tries) == 2
    assert kept_store.breaker.calls == 45


@pytest.mark.redis
async def test_combined_limits_follow_their_on_error(store: RedisDict, server: Server) -> None:
    def limits(on_error: str) -> list[Any]:
        return [
            FixedWindow(2, 3600, store=store, on_error=on_error, prefix="f:"),
            Concurrency(5, store=store, on_error=on_error, prefix="c:"),
        ]

    keys = ["k", "k"]
    assert combine(limits("open"), keys).allowed
    server.kill()
    combined = combine(limits("open"), keys)
    assert (combined.allowed, combined.failed, combined.token) == (True, True, "")
    assert not (await acombine(limits("closed"), keys)).allowed
    mixed = [limits("local")[0], limits("open")[1]]
    assert [combine(mixed, keys).allowed for _ in range(3)] == [True, True, False]
    with pytest.raises(StoreFailed):
        combine(limits("raise"), keys)
    with pytest.raises(StoreFailed):
        await acombine(limits("raise"), keys)
    server.start()
    rested(store)
    combine(limits("open"), keys)
    combined = await acombine(limits("raise"), keys)
    assert [decision and decision.state for decision in combined.decisions] == [0, 2]


async def test_lmdb_that_cannot_be_opened(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    store = LmdbDict("gone", 8 * MIB, "/proc/nowhere", clock)
    for on_error, allowed in (("open", True), ("closed", False), ("local", True)):
        for cls, numbers in ((LeakyBucket, (1, 1)), (SlidingWindow, (2, 1)), (Concurrency, (2,))):
            limiter: Any = cls(*numbers, store=store, on_error=on_error)
            for decision in (limiter.hit("k"), await limiter.ahit("k")):
                assert (decision.allowed, decision.failed, decision.limit) == (allowed, True, 2)
    with pytest.raises(StoreFailed, match="gone"):
        FixedWindow(1, 1, store=store, on_error="raise").hit("k")
    assert "gone" in [outage.store for outage in circuit_breaker.current_outages()]
    assert len([record for record in caplog.records if record.name == LOG]) == 1
    assert caplog.records[0].levelno == logging.ERROR


def test_the_setting_decides_where_the_limiter_does_not(settings: Any) -> None:
    settings.RESTY_DJANGO = {
        "SHARED_DICTS": {"gone": {"PATH": "/proc/nowhere"}},
        "LIMITS": {"STORE": "gone", "ON_ERROR": "closed"},
    }
    assert FixedWindow(1, 1).hit("k") == Decision(
        False, limit=1, retry_after=circuit_breaker.BYPASS_SECONDS, failed=True
    )
    settings.RESTY_DJANGO = {"LIMITS": {"STORE": "default"}}
    limiter = FixedWindow(1, 1, prefix="test_outage:")
    assert limiter.hit("k") == Decision(True, 0.0, 0, 1, 0, 1.0)
    assert limiter.reset("k")


async def test_an_unknown_store_is_not_an_outage() -> None:
    limiter = FixedWindow(1, 1, store="nobody")
    with pytest.raises(UnknownDict, match="'nobody'"):
        limiter.hit("k")
    with pytest.raises(UnknownDict, match="'nobody'"):
        await limiter.ahit("k")


FOREIGN: list[Any] = ["text", 7, b"1234567", b"", 1.5, {"a": 1}, True]
KINDS: list[tuple[type[Any], tuple[Any, ...]]] = [
    (LeakyBucket, (1,)),
    (FixedWindow, (1, 1)),
    (SlidingWindow, (1, 1)),
    (Concurrency, (1,)),
    (TokenBucket.from_interval, (1, 1)),
]


def framed(value: Any) -> Any:
    return bytes(FRAME) + value if isinstance(value, bytes) else value


def put(store: Any, key: str, value: Any) -> None:
    if isinstance(store, SharedDict):
        store.set(key, value)
    else:
        store.revise(key, lambda old: (framed(value), 0, None))


def kept(store: Any, key: str) -> Any:
    if isinstance(store, SharedDict):
        return store.get(key)
    state = store.revise(key, lambda old: (None, None, old))
    return state[FRAME:] if isinstance(state, bytes) else state


async def test_foreign_data(stored: Bench) -> None:
    for cls, numbers in KINDS:
        limiter = stored.make(cls, *numbers)
        name = limiter.limiter.key("k")
        for value in FOREIGN:
            put(stored.store, name, value)
            for call in (limiter.hit, limiter.peek, limiter.uncommit):
                with pytest.raises(ForeignData, match="abused"):
                    await call("k")
            with pytest.raises(ForeignData):
                await stored.combine([stored.make(FixedWindow, 9, 9, prefix="o:"), limiter], ["k", "k"])
            assert kept(stored.store, name) == value
        stored.store.delete(name)
        if isinstance(stored.store, SharedDict):
            stored.store.rpush(name, "item")
            with pytest.raises(ForeignData):
                await limiter.hit("k")
            stored.store.delete(name)
    assert store_of(stored.store).breaker.outage() is None


def test_impossible_numbers_are_foreign_data(tmp_path: Any) -> None:
    store = LmdbDict("shared", 8 * MIB, str(tmp_path))
    limiter = SlidingWindow(1, 60, store=store, on_error="raise")
    state = struct.pack("<qqq", 2**56, -(2**63), -(2**63))  # their sum does not fit into the new state
    store.set(limiter.key("k"), state)
    others = FixedWindow(9, 9, store=store, on_error="raise")
    for call in (
        lambda: limiter.hit("k"),
        lambda: limiter.incoming("k", True),
        lambda: combine([others, limiter], "kk"),
    ):
        with pytest.raises(ForeignData, match="numbers that no limiter stores"):
            call()
    assert store.get(limiter.key("k")) == state
    assert store_of(store).breaker.outage() is None
    store.close()


def test_foreign_data_follows_on_error_and_is_logged_once(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = LmdbDict("shared", 8 * MIB, str(tmp_path))
    limiter = FixedWindow(1, 60, store=store, on_error="closed")
    store.set(limiter.key("k"), "text")
    assert [limiter.hit("k").allowed for _ in range(3)] == [False] * 3
    assert limiter.hit("other").state == 0  # other keys are not concerned
    assert len([record for record in caplog.records if record.name == LOG]) == 1
    store.close()
