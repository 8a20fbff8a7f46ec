"""The fixed answers: two processes A and B over both engines, sync and async, under one clock."""

from __future__ import annotations

import pytest

from resty_django.cache import Fresh
from tests.dictionaries import Clock
from tests.integration.cache.conftest import Make, Process, Shared, fails, raises, value
from tests.integration.cache.tools import Hub
from tests.pauses import Pauses

LOCK = "lua-resty-mlcache:lock:c:k"


@pytest.fixture
def pair(make: Make) -> tuple[Process, Process]:
    return make("A", ttl=1, resurrect_ttl=10), make("B", ttl=1, resurrect_ttl=10)


Pair = tuple[Process, Process]


async def test_each_level_in_its_turn(pair: Pair) -> None:
    a, b = pair
    assert await a.lookup("k", value("v")) == ("v", None, 3)
    assert await a.lookup("k", value("v")) == ("v", None, 1)
    assert await b.lookup("k") == ("v", None, 2)


async def test_at_the_end_of_its_time_l1_still_answers_and_l2_does_not(pair: Pair, clock: Clock) -> None:
    a, b = pair
    await a.lookup("k", value("v"))
    clock.advance(1)
    assert await a.lookup("k") == ("v", None, 1)
    assert await b.lookup("k") == (None, None, -1)
    clock.advance(0.001)
    assert await a.lookup("k") == (None, None, -1)


async def test_a_callback_that_raises_never_brings_back_what_expired_and_one_that_fails_does(
    pair: Pair, clock: Clock
) -> None:
    a, b = pair
    await a.lookup("k", value("v"))
    clock.advance(1.5)
    assert await a.lookup("k", raises(ValueError("boom"))) == (None, "callback threw an error: boom", None)
    assert await a.lookup("k", fails("down")) == ("v", None, 4)
    assert await a.lookup("k", fails("down")) == ("v", None, 1)
    assert await b.lookup("k") == ("v", None, 4)
    assert await b.lookup("k") == ("v", None, 1)


async def test_after_the_time_of_what_was_brought_back_the_source_is_asked_again(pair: Pair, clock: Clock) -> None:
    a, b = pair
    await a.lookup("k", value("v"))
    clock.advance(1.5)
    await a.lookup("k", fails("down"))
    clock.advance(10.001)
    assert await a.lookup("k", value("new")) == ("new", None, 3)
    assert await b.lookup("k") == ("new", None, 2)


async def test_a_lock_that_stays_held_with_a_stale_value(
    pair: Pair, shared: Shared, clock: Clock, naps: Pauses
) -> None:
    a, b = pair
    await a.lookup("k", value("v"))
    clock.advance(1.5)
    shared("values").add(LOCK, "a third", 30)
    for _ in range(2):
        began = clock()
        assert await b.lookup("k", value("new")) == ("v", None, 4)
        assert clock() - began == pytest.approx(5)
    assert b.runs == 0


async def test_a_lock_that_stays_held_without_resurrection(
    make: Make, shared: Shared, clock: Clock, naps: Pauses
) -> None:
    a, b = make("A", ttl=1), make("B", ttl=1)
    await a.lookup("k", value("v"))
    clock.advance(1.5)
    shared("values").add(LOCK, "a third", 30)
    began = clock()
    got, error, level = await b.lookup("k", value("new"))
    assert (got, level) == (None, None)
    assert error is not None
    assert error.startswith("could not acquire callback lock: timeout")
    assert clock() - began == pytest.approx(5)
    assert b.runs == 0


async def test_a_lock_that_is_freed_after_the_value_was_stored(
    pair: Pair, shared: Shared, clock: Clock, naps: Pauses
) -> None:
    a, b = pair
    shared("values").add(LOCK, "a third", 30)

    def store() -> None:
        a.cache.set("k", "of the third")
        shared("values").delete(LOCK)

    naps.after(200, store)
    began = clock()
    assert await b.lookup("k", value("own")) == ("of the third", None, 2)
    assert clock() - began == pytest.approx(0.255)
    assert b.runs == 0


async def test_none_is_a_value(pair: Pair) -> None:
    a, b = pair
    assert await a.lookup("k", value(None)) == (None, None, 3)
    assert await b.lookup("k") == (None, None, 2)
    assert await b.lookup("k") == (None, None, 1)


async def test_a_set_is_seen_after_an_update(pair: Pair) -> None:
    a, b = pair
    await a.lookup("k", value(1))
    await b.do("set", "k", 2)
    assert await a.lookup("k") == (1, None, 1)
    assert await a.update() is None
    assert await a.lookup("k") == (2, None, 2)


async def test_a_ttl_below_0_is_not_cached(pair: Pair) -> None:
    a, _ = pair
    for _ in range(2):
        assert await a.lookup("k", value(Fresh("n", -1))) == ("n", None, 3)
    assert a.runs == 2


async def test_a_failing_source_with_nothing_stale(pair: Pair) -> None:
    a, _ = pair
    assert await a.lookup("k", fails("down", "partial")) == ("partial", "down", None)


async def test_an_update_that_cannot_hear_leaves_l1_until_the_next_one(pair: Pair, hub: Hub) -> None:
    a, b = pair
    await a.lookup("k", value(1))
    await b.do("set", "k", 2)
    hub.fault = TimeoutError("timeout")
    assert await a.update() == "could not poll ipc events: timeout"
    assert await a.lookup("k") == (1, None, 1)
    hub.fault = None
    assert await a.update() is None
    assert await a.lookup("k") == (2, None, 2)
