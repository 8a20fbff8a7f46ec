"""Times to live, to the millisecond; stale items; calls that depend on the stored item."""

from __future__ import annotations

import math

import pytest

from resty_django.shdict import Item, StoreOutcome, WrongKind
from tests.dictionaries import Calls

pytestmark = pytest.mark.contract

LIVES: list[tuple[float, float]] = [
    (1, 1.0),
    (0.25, 0.25),
    (0.57, 0.57),
    (1.001, 1.001),
    (0.0019, 0.001),
    (0.0001, 0.001),
    (86400 * 365, 86400.0 * 365),
    (True, 1.0),
]
"""Times to live, and after how many seconds an item expires."""


async def test_an_item_expires_at_its_time_to_the_millisecond(calls: Calls) -> None:
    for ttl, lives in LIVES:
        await calls.set("k", "v", ttl)
        assert await calls.ttl("k") == lives
        calls.clock.advance(lives - 0.001)
        assert await calls.get("k") == "v"
        assert await calls.ttl("k") == 0.001
        calls.clock.advance(0.001)
        assert await calls.get("k") is None
        assert await calls.get("k", "other") == "other"
        assert await calls.get_item("k") is None
        assert await calls.ttl("k") is None


async def test_zero_means_forever(calls: Calls) -> None:
    await calls.set("k", "v")
    await calls.set("zero", "v", 0)
    await calls.set("float", "v", 0.0)
    calls.clock.advance(10 * 365 * 86400)
    for key in ("k", "zero", "float"):
        assert await calls.ttl(key) == 0
        assert await calls.get(key) == "v"


async def test_a_new_value_has_its_own_time(calls: Calls) -> None:
    await calls.set("k", "v", 5)
    await calls.set("k", "w", 2)
    assert await calls.ttl("k") == 2
    await calls.set("k", "x", 7)
    assert await calls.ttl("k") == 7
    await calls.set("k", "y")
    assert await calls.ttl("k") == 0
    calls.clock.advance(100)
    assert await calls.get("k") == "y"


async def test_a_time_out_of_range_is_refused_and_changes_nothing(calls: Calls) -> None:
    for ttl in (-1, -1e-9, math.nan, math.inf, -math.inf, 1.1e11):
        await calls.set("k", 1, 9)
        for tried in (
            calls.set("k", "v", ttl),
            calls.safe_set("k", "v", ttl),
            calls.add("new", "v", ttl),
            calls.safe_add("new", "v", ttl),
            calls.replace("k", "v", ttl),
            calls.expire("k", ttl),
            calls.expire_if("k", 1, ttl),
            calls.incr("k", 1, init=1, init_ttl=ttl),
        ):
            with pytest.raises(ValueError, match="time to live"):
                await tried
        assert await calls.get("k") == 1
        assert await calls.ttl("k") == 9
        assert await calls.get("new") is None


async def test_stale_values_are_seen_by_get_stale_alone(calls: Calls) -> None:
    assert await calls.get_stale("k") is None
    await calls.set("k", "v", 1, flags=3)
    assert await calls.get_stale("k") == Item("v", 3, False)
    calls.clock.advance(1)
    assert await calls.get("k") is None
    assert await calls.get_stale("k") == Item("v", 3, True)
    assert await calls.get_stale("k") == Item("v", 3, True)
    assert await calls.set("k", "w")
    assert await calls.get_stale("k") == Item("w", 0, False)


async def test_get_stale_of_a_list(calls: Calls) -> None:
    await calls.rpush("l", 1)
    for call in (calls.get, calls.get_item, calls.get_stale):
        with pytest.raises(WrongKind):
            await call("l")


async def test_expire_sets_another_time_to_live(calls: Calls) -> None:
    assert await calls.expire("k", 5) is False
    await calls.set("k", "v", 5, flags=9)
    assert await calls.expire("k", 2) is True
    assert await calls.ttl("k") == 2
    assert await calls.expire("k", 50) is True
    calls.clock.advance(49)
    assert await calls.expire("k", 0) is True
    calls.clock.advance(1000)
    assert await calls.get_item("k") == Item("v", 9, False)
    assert await calls.expire("k", 1) is True
    calls.clock.advance(1)
    assert await calls.expire("k", 5) is False
    assert await calls.get("k") is None


async def test_expire_of_a_list(calls: Calls) -> None:
    await calls.rpush("l", "a")
    assert await calls.expire("l", 3) is True
    await calls.rpush("l", "b")
    assert await calls.ttl("l") == 3
    await calls.lpop("l")
    assert await calls.ttl("l") == 3
    calls.clock.advance(3)
    assert await calls.llen("l") == 0
    assert await calls.lpop("l") is None
    assert await calls.rpush("l", "new") == 1
    assert await calls.ttl("l") == 0
    assert await calls.lpop("l") == "new"


async def test_add_stores_only_missing_keys(calls: Calls) -> None:
    for add in (calls.add, calls.safe_add):
        assert await add("k", "v", 5, 1) is StoreOutcome.STORED
        assert await add("k", "w", 7, 2) is StoreOutcome.EXISTS
        assert not StoreOutcome.EXISTS
        assert await calls.get_item("k") == Item("v", 1, False)
        assert await calls.ttl("k") == 5
        calls.clock.advance(5)
        assert await add("k", "x") is StoreOutcome.STORED
        assert await calls.get_item("k") == Item("x", 0, False)
        assert await calls.ttl("k") == 0
        await calls.rpush("l", 1)
        assert await add("l", "v") is StoreOutcome.EXISTS
        assert await calls.llen("l") == 1
        await calls.delete_many(["k", "l"])


async def test_add_or_get_returns_the_existing_value(calls: Calls) -> None:
    assert await calls.add_or_get("k", "v", 5) is StoreOutcome.STORED
    assert await calls.add_or_get("k", "w", 7) == "v"
    assert await calls.ttl("k") == 5
    calls.clock.advance(5)
    assert await calls.add_or_get("k", b"x") is StoreOutcome.STORED
    assert await calls.get_item("k") == Item(b"x", 0, False)
    assert await calls.ttl("k") == 0
    for value in ("", 0, False, 1.5, b"", [1, "a"], {"a": None}, "x" * 5000):
        await calls.set("k", value, 0, 7)
        stored = await calls.add_or_get("k", "new")
        assert (type(stored), stored) == (type(value), value)
    assert await calls.get_item("k") == Item("x" * 5000, 7, False)
    await calls.rpush("l", 1)
    with pytest.raises(WrongKind):
        await calls.add_or_get("l", "v")
    assert await calls.llen("l") == 1


async def test_replace_stores_only_over_an_existing_value(calls: Calls) -> None:
    assert await calls.replace("k", "v") is StoreOutcome.NOT_FOUND
    assert not StoreOutcome.NOT_FOUND
    assert await calls.get_stale("k") is None
    await calls.set("k", "v", 5, 1)
    assert await calls.replace("k", "w", 3, 2) is StoreOutcome.STORED
    assert await calls.get_item("k") == Item("w", 2, False)
    assert await calls.ttl("k") == 3
    calls.clock.advance(3)
    assert await calls.replace("k", "x") is StoreOutcome.NOT_FOUND
    assert await calls.get_stale("k") == Item("w", 2, True)


async def test_safe_set_stores(calls: Calls) -> None:
    assert await calls.safe_set("k", "v", 2, 4) is StoreOutcome.STORED
    assert await calls.safe_set("k", "w", 3, 5) is StoreOutcome.STORED
    assert await calls.get_item("k") == Item("w", 5, False)
    assert await calls.ttl("k") == 3


async def test_delete_returns_whether_the_key_existed(calls: Calls) -> None:
    assert await calls.delete("k") is False
    await calls.set("k", "v")
    assert await calls.delete("k") is True
    assert await calls.delete("k") is False
    await calls.set("k", "v", 1)
    calls.clock.advance(1)
    assert await calls.delete("k") is False
    assert await calls.get_stale("k") is None
    await calls.rpush("l", 1)
    assert await calls.delete("l") is True
    assert await calls.llen("l") == 0


LIKE_ONE = [1, 1.0, True, "1", b"1", [1], "\x01"]


async def test_delete_if_and_expire_if_compare_value_and_type(calls: Calls) -> None:
    for held in LIKE_ONE:
        await calls.set("k", held, 9)
        for unequal in LIKE_ONE:
            if type(unequal) is not type(held) or unequal != held:
                assert await calls.expire_if("k", unequal, 5) is False
                assert await calls.delete_if("k", unequal) is False
        assert await calls.ttl("k") == 9
        assert await calls.expire_if("k", held, 5) is True
        assert await calls.ttl("k") == 5
        assert await calls.delete_if("k", held) is True
        assert await calls.get_stale("k") is None
        assert await calls.delete_if("k", held) is False
        assert await calls.expire_if("k", held, 5) is False


async def test_delete_if_and_expire_if_of_an_expired_item(calls: Calls) -> None:
    await calls.set("k", "v", 1)
    calls.clock.advance(1)
    assert await calls.expire_if("k", "v", 5) is False
    assert await calls.delete_if("k", "v") is False


async def test_delete_if_and_expire_if_of_long_values(calls: Calls) -> None:
    for size in (1896, 1897, 5000, 100_000):
        await calls.set("k", "x" * size)
        assert await calls.delete_if("k", "x" * (size - 1) + "y") is False
        assert await calls.expire_if("k", "x" * size, 5) is True
        assert await calls.get("k") == "x" * size
        assert await calls.delete_if("k", "x" * size) is True


async def test_delete_if_of_a_list(calls: Calls) -> None:
    await calls.rpush("l", 1)
    assert await calls.delete_if("l", 1) is False
    assert await calls.expire_if("l", 1, 4) is False
    assert await calls.llen("l") == 1
