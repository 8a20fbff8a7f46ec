"""Calls for the whole dictionary, on both engines, sync and async."""

from __future__ import annotations

import contextlib

import pytest

from resty_django.shdict import Item, Keep, SharedDictError, StoreOutcome, Update
from tests.dictionaries import MIB, Calls

pytestmark = pytest.mark.contract


async def test_get_keys_returns_live_keys(calls: Calls) -> None:
    assert await calls.get_keys() == []
    for number in range(5):
        await calls.set(f"k{number}", number, number)
    await calls.rpush("l", 1)
    calls.clock.advance(2)
    assert sorted(await calls.get_keys()) == ["k0", "k3", "k4", "l"]
    assert len(await calls.get_keys(2)) == 2
    assert len(await calls.get_keys(100)) == 4


async def test_get_keys_returns_1024_keys_by_default(calls: Calls) -> None:
    names = {f"k{number}" for number in range(1500)}
    for name in names:
        await calls.set(name, 1)
    keys = await calls.get_keys()
    assert len(keys) == len(set(keys)) == 1024
    assert set(keys) < names
    assert set(await calls.get_keys(0)) == names
    assert len(await calls.get_keys(1499)) == 1499


async def test_flush_all_makes_everything_stale(calls: Calls) -> None:
    await calls.set("k", "v", 50, 3)
    await calls.set("ever", "v")
    await calls.rpush("l", 1)
    await calls.set("n", 1)
    assert await calls.flush_all() is None
    assert await calls.get_keys(0) == []
    for key in ("k", "ever", "n", "l"):
        assert await calls.get(key) is None
        assert await calls.get_item(key) is None
        assert await calls.ttl(key) is None
        assert await calls.expire(key, 5) is False
        assert await calls.delete_if(key, "v") is False
    assert await calls.llen("l") == 0
    assert await calls.get_stale("k") == Item("v", 3, True)
    assert await calls.get_stale("ever") == Item("v", 0, True)
    assert await calls.lpop("l") is None
    assert await calls.replace("k", "w") is StoreOutcome.NOT_FOUND
    assert await calls.update("k", Keep) is None
    assert await calls.incr("n", 1, init=10) == 11
    assert await calls.add("k", "w") is StoreOutcome.STORED
    assert await calls.get_stale("k") == Item("w", 0, False)
    assert await calls.rpush("l", "new") == 1
    assert await calls.delete("ever") is False
    assert sorted(await calls.get_keys(0)) == ["k", "l", "n"]


async def test_flush_all_twice_and_for_nothing(calls: Calls) -> None:
    await calls.flush_all()
    await calls.set("k", 1)
    await calls.flush_all()
    await calls.flush_all()
    assert await calls.get("k") is None
    await calls.set("k", 2)
    assert await calls.get("k") == 2


async def test_flush_expired_frees_expired_items(calls: Calls) -> None:
    assert await calls.flush_expired() == 0
    for number in range(20):
        await calls.set(f"short{number}", number, 1)
    await calls.set("long", "v", 10)
    await calls.set("ever", "v")
    assert await calls.flush_expired() == 0
    calls.clock.advance(1)
    assert await calls.get_stale("short0") == Item(0, 0, True)
    assert await calls.flush_expired(5) == 5
    assert await calls.flush_expired(14) == 14
    assert await calls.flush_expired() == 1
    assert await calls.flush_expired() == 0
    assert await calls.get_stale("short0") is None
    assert sorted(await calls.get_keys(0)) == ["ever", "long"]
    await calls.flush_all()
    assert await calls.flush_expired() == 2
    assert await calls.get_stale("ever") is None


async def test_flush_expired_keeps_items_whose_expiry_was_postponed(calls: Calls) -> None:
    for key in ("set", "expire", "ever", "update", "gone"):
        await calls.set(key, "v", 1)
    await calls.set("set", "v", 100)
    await calls.expire("expire", 100)
    await calls.expire("ever", 0)
    await calls.update("update", lambda old: Update(old, 100))
    calls.clock.advance(50)
    assert await calls.flush_expired() == 1
    assert sorted(await calls.get_keys(0)) == ["ever", "expire", "set", "update"]
    calls.clock.advance(50)
    assert await calls.flush_expired() == 3
    assert await calls.get_keys(0) == ["ever"]


async def test_flush_expired_of_many(calls: Calls) -> None:
    for number in range(1200):
        await calls.set(f"k{number}", number, 1)
    calls.clock.advance(1)
    assert await calls.flush_expired(700) == 700
    assert await calls.flush_expired() == 500


async def test_figures(calls: Calls) -> None:
    before = await calls.stats()
    assert before.keys == 0
    await calls.set("k", "v" * 100_000)
    await calls.set("l", "v")
    after = await calls.stats()
    assert after.keys == 2
    assert after.capacity == before.capacity
    if calls.engine == "lmdb":
        assert calls.dictionary.capacity() == 8 * MIB
        assert 0.7 < after.capacity / (8 * MIB) < 0.76
        assert before.free_space / before.capacity > 0.98  # an empty dictionary is not a quarter full
        assert before.free_space - after.free_space >= 100_000
        assert await calls.free_space() == after.free_space
        assert (before.forcible, after.forcible) == (0, 0)
    else:
        assert after.capacity == calls.dictionary.capacity()
        assert after.forcible is None


async def test_close_loses_no_items(calls: Calls) -> None:
    await calls.set("k", "v", 5)
    await calls.close()
    await calls.close()
    assert await calls.get("k") == "v"
    assert await calls.ttl("k") == 5
    await calls.close()
    assert await calls.incr("n", 1, init=0) == 1


async def test_calls_work_after_an_error(calls: Calls) -> None:
    await calls.rpush("l", 1)
    for number in range(200):
        with contextlib.suppress(SharedDictError):
            await calls.get("l")
        with contextlib.suppress(SharedDictError):
            await calls.incr("absent")
        assert await calls.incr("n", 1, init=0) == number + 1


async def test_the_repr_contains_the_name(calls: Calls) -> None:
    assert "'contract'" in repr(calls.dictionary)
    with pytest.raises(AttributeError):
        await calls.nothing()
