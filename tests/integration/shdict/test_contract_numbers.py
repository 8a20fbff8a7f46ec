"""`incr`, `update` and the list calls, on both engines, by both kinds of calls."""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from typing import Any

import pytest

from resty_django.shdict import BadValue, Item, Keep, NotANumber, NotFound, StoreOutcome, Update, WrongKind
from tests.dictionaries import Calls

pytestmark = pytest.mark.contract

BIG = 2**63 - 1
SMALL = -(2**63)

SUMS: list[tuple[Any, Any, Any]] = [
    (1, 2, 3),
    (0, -5, -5),
    (1, 0, 1),
    (BIG - 1, 1, BIG),
    (SMALL + 1, -1, SMALL),
    (BIG, SMALL, -1),
    (2**53, 1, 2**53 + 1),
    (1, 0.5, 1.5),
    (1.5, 1, 2.5),
    (0.1, 0.2, 0.1 + 0.2),
    (1.0, 1, 2.0),
    (1e308, 1e308, math.inf),
    (math.inf, 1, math.inf),
    (2**53 + 1, 1.0, float(2**53 + 1) + 1.0),
]


async def test_incr_adds_and_keeps_expiry_and_flags(calls: Calls) -> None:
    for before, by, after in SUMS:
        await calls.set("k", before, 8, 5)
        total = await calls.incr("k", by, init=1000, init_ttl=77)
        assert type(total) is type(after)
        assert total == after
        assert await calls.get_item("k") == Item(after, 5, False)
        assert await calls.ttl("k") == 8


async def test_infinities_cancel_to_nan(calls: Calls) -> None:
    await calls.set("k", math.inf)
    assert math.isnan(await calls.incr("k", -math.inf))
    assert math.isnan(await calls.get("k"))


async def test_a_sum_of_more_than_64_bits_changes_nothing(calls: Calls) -> None:
    for before, by in ((BIG, 1), (SMALL, -1), (1, BIG), (SMALL, SMALL)):
        await calls.set("k", before, 4)
        with pytest.raises(BadValue):
            await calls.incr("k", by)
        assert await calls.get("k") == before
        with pytest.raises(BadValue):
            await calls.incr("new", by, init=before)
        assert await calls.get_stale("new") is None


async def test_incr_by_more_than_64_bits_is_refused_even_where_the_sum_fits(calls: Calls) -> None:
    sums = [(SMALL, BIG + 1), (BIG, SMALL - 1), (1, 10**30), (1.5, 2**64), ("text", 2**64)]
    for before, by in sums:
        await calls.set("k", before, 4)
        for key, init in (("k", None), ("k", 1), ("new", 1), ("new", -by), ("new", None)):
            with pytest.raises(BadValue, match=r"(64|65|100) bits"):
                await calls.incr(key, by, init=init)
        assert await calls.get("k") == before
        assert await calls.ttl("k") == 4
        assert await calls.get_stale("new") is None


async def test_incr_of_an_absent_key(calls: Calls) -> None:
    with pytest.raises(NotFound, match="'k'"):
        await calls.incr("k", 1)
    assert await calls.incr("k", 5, init=10) == 15
    assert await calls.ttl("k") == 0
    assert await calls.incr("t", 1, init=0, init_ttl=3) == 1
    assert await calls.incr("t", 1, init=0, init_ttl=9) == 2
    assert await calls.ttl("t") == 3
    calls.clock.advance(3)
    with pytest.raises(NotFound):
        await calls.incr("t", 1)
    assert await calls.incr("t", 0.5, init=1, init_ttl=2) == 1.5
    assert await calls.ttl("t") == 2


async def test_incr_over_an_expired_item_has_no_flags(calls: Calls) -> None:
    await calls.set("k", "text", 1, 9)
    calls.clock.advance(1)
    assert await calls.incr("k", 1, init=1) == 2
    assert await calls.get_item("k") == Item(2, 0, False)


async def test_incr_of_a_value_that_is_not_a_number(calls: Calls) -> None:
    for value in ("1", b"1", True, [1], "", {"a": 1}):
        await calls.set("k", value, 5)
        with pytest.raises(NotANumber, match="'k'"):
            await calls.incr("k", 1, init=0)
        assert await calls.get("k") == value
        assert await calls.ttl("k") == 5


async def test_incr_of_a_list(calls: Calls) -> None:
    await calls.rpush("l", 1)
    with pytest.raises(NotANumber):
        await calls.incr("l", 1, init=0)
    assert await calls.llen("l") == 1


async def test_incr_by_something_other_than_a_number(calls: Calls) -> None:
    for by in ("1", None, True, b"1", [1], 1j):
        with pytest.raises(BadValue):
            await calls.incr("k", by, init=0)
        if by is not None:
            with pytest.raises(BadValue):
                await calls.incr("k", 1, init=by)
        assert await calls.get_stale("k") is None


async def test_init_ttl_without_init(calls: Calls) -> None:
    await calls.set("k", 1)
    with pytest.raises(ValueError, match="init_ttl"):
        await calls.incr("k", 1, init_ttl=5)
    assert await calls.get("k") == 1


# --- update ---


async def test_update_is_atomic(calls: Calls) -> None:
    assert await calls.update("k", lambda old: Update((old or 0) + 1, result=old)) is None
    assert await calls.update("k", lambda old: Update((old or 0) + 1, result=old)) == 1
    assert await calls.get("k") == 2
    assert await calls.ttl("k") == 0


async def test_update_keeps_the_expiry_by_default(calls: Calls) -> None:
    await calls.set("k", "a", 8, 6)
    await calls.update("k", lambda old: Update(old + "b"))
    assert await calls.get_item("k") == Item("ab", 6, False)
    assert await calls.ttl("k") == 8
    await calls.update("k", lambda old: Update("c", 2))
    assert await calls.ttl("k") == 2
    await calls.update("k", lambda old: Update("d", 20))
    assert await calls.ttl("k") == 20
    await calls.update("k", lambda old: Update("e", 0))
    assert await calls.ttl("k") == 0
    await calls.update("k", lambda old: Update("f", 1))
    calls.clock.advance(1)
    assert await calls.update("k", lambda old: Update("g", result=old)) is None
    assert await calls.ttl("k") == 0
    assert await calls.get_item("k") == Item("g", 0, False)


async def test_update_may_change_the_type(calls: Calls) -> None:
    """With values of the same length and of different lengths."""
    olds = [5, 2.5, b"abcdefgh", "abcdefgh", True, b"y", [3, 4]]
    news = [7, 0.5, b"12345678", "12345678", True, False, "x", b"x", [1, 2], {"a": 1}]
    for old, new in itertools.product(olds, news):
        await calls.set("k", old, 8, 6)
        assert await calls.update("k", lambda value, new=new: Update(new, result=value)) == old
        item = await calls.get_item("k")
        assert item == Item(new, 6, False)
        assert type(item.value) is type(new)
        assert await calls.ttl("k") == 8


async def test_update_that_keeps_or_deletes(calls: Calls) -> None:
    await calls.set("k", "v", 5, 1)
    assert await calls.update("k", lambda old: Keep(old * 2)) == "vv"
    assert await calls.update("k", lambda old: Keep()) is None
    assert await calls.get_item("k") == Item("v", 1, False)
    assert await calls.ttl("k") == 5
    assert await calls.update("k", lambda old: Update(None, result="gone")) == "gone"
    assert await calls.get_stale("k") is None
    assert await calls.update("k", lambda old: Update(None, result=old)) is None
    assert await calls.update("k", lambda old: Keep(old)) is None
    assert await calls.get_stale("k") is None


async def test_update_that_raises_changes_nothing(calls: Calls) -> None:
    def fails(old: Any) -> Update:
        raise ZeroDivisionError("on purpose")

    await calls.set("k", "v", 5, 1)
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        await calls.update("k", fails)
    with pytest.raises(BadValue):
        await calls.update("k", lambda old: Update(object()))
    with pytest.raises(ValueError, match="time to live"):
        await calls.update("k", lambda old: Update("w", -1))
    for nothing in (None, "text", 5):
        with pytest.raises(TypeError, match="Update"):
            await calls.update("k", lambda old, nothing=nothing: nothing)
    assert await calls.get_item("k") == Item("v", 1, False)
    assert await calls.ttl("k") == 5
    assert await calls.update("k", lambda old: Update("after", result=old)) == "v"


async def test_update_of_any_size_and_type(calls: Calls) -> None:
    for size in (10, 1900, 100_000):
        await calls.set("k", "x" * size)
        assert await calls.update("k", lambda old: Update({"length": len(old)}, result=len(old))) == size
        assert await calls.update("k", lambda old: Update(b"y" * old["length"])) is None
        assert await calls.get("k") == b"y" * size


async def test_update_of_a_list(calls: Calls) -> None:
    await calls.rpush("l", 1)
    with pytest.raises(WrongKind):
        await calls.update("l", lambda old: Update(1))
    assert await calls.llen("l") == 1


# --- lists ---


async def test_a_list_is_a_deque(calls: Calls) -> None:
    chance = random.Random(3)
    model: deque[int] = deque()
    for number in range(600):
        call = chance.choice(["lpush", "rpush", "lpush", "rpush", "lpop", "rpop", "llen"])
        if call.endswith("push"):
            (model.appendleft if call == "lpush" else model.append)(number)
            assert await getattr(calls, call)("l", number) == len(model)
        elif call == "llen":
            assert await calls.llen("l") == len(model)
        else:
            expected = (model.popleft if call == "lpop" else model.pop)() if model else None
            assert await getattr(calls, call)("l") == expected
    assert len(model) > 100
    while model:
        assert await calls.lpop("l") == model.popleft()
    assert (await calls.llen("l"), await calls.lpop("l"), await calls.rpop("l")) == (0, None, None)
    assert await calls.get_stale("l") is None
    assert await calls.add("l", "text") is StoreOutcome.STORED


async def test_items_of_a_list_come_back_as_they_were(calls: Calls) -> None:
    items = ["", "text", 0, -(2**63), 2**63 - 1, 1.5, math.inf, b"", b"\xff", "x" * 3000, "y" * 70000]
    await calls.rpush("l", "before")
    for item in items:
        await calls.rpush("l", item)
        popped = await calls.rpop("l")
        assert type(popped) is type(item)
        assert popped == item
        assert await calls.llen("l") == 1


async def test_values_that_a_list_rejects(calls: Calls) -> None:
    for item in (True, [1], {"a": 1}, None, object(), 2**63):
        for push in (calls.lpush, calls.rpush):
            with pytest.raises(BadValue):
                await push("l", item)
        assert await calls.llen("l") == 0


async def test_list_calls_reject_other_values(calls: Calls) -> None:
    await calls.set("k", "text", 5)
    for tried in (calls.lpush("k", 1), calls.rpush("k", 1), calls.lpop("k"), calls.rpop("k"), calls.llen("k")):
        with pytest.raises(WrongKind):
            await tried
    assert await calls.get("k") == "text"
    calls.clock.advance(5)
    assert await calls.llen("k") == 0
    assert await calls.lpop("k") is None
    assert await calls.lpush("k", 1) == 1
    assert await calls.ttl("k") == 0


async def test_storing_over_a_list_ends_it(calls: Calls) -> None:
    for number in range(5):
        await calls.rpush("l", number)
    assert await calls.set("l", "text") is StoreOutcome.STORED
    assert await calls.get("l") == "text"
    await calls.delete("l")
    assert await calls.rpush("l", "new") == 1
    assert await calls.replace("l", 1) is StoreOutcome.STORED
    assert await calls.incr("l") == 2
