"""LMDB: evictions when there is no space, and what calls return."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from resty_django.shdict import Item, NoMemory, StoreOutcome, Update
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import MIB, Clock

from .structure import check, check_pages

Stored = list[str]


def fill(dictionary: LmdbDict, size: int = 1000, ttl: float = 0, prefix: str = "k") -> Stored:
    """Store items until the first is evicted, and return the keys in order. The last one caused the eviction."""
    keys: Stored = []
    for number in itertools.count():
        keys.append(f"{prefix}{number}")
        if dictionary.set(keys[-1], "x" * size, ttl).forcible:
            return keys
    raise AssertionError


def fill_safely(dictionary: LmdbDict, ttl: float = 0) -> Stored:
    """Store items until one would be evicted, and return the keys in order."""
    keys: Stored = []
    while True:
        key = f"k{len(keys)}"
        try:
            assert dictionary.safe_set(key, "x" * 1000, ttl) is StoreOutcome.STORED
        except NoMemory:
            return keys
        keys.append(key)


def there(dictionary: LmdbDict) -> set[str]:
    return set(dictionary.get_keys(0))


@pytest.mark.parametrize("size", [1, 100, 1000, 1900, 5000, 40_000])
def test_the_least_recently_used_items_are_evicted_first(small: LmdbDict, size: int) -> None:
    keys = fill(small, size)
    assert small.stats().forcible == len(keys) - len(there(small)) > 0
    for number in range(len(keys) // 2):
        small.set(f"new{number}", "x" * size)
    remaining = small.get_keys(0)
    gone = len(keys) + len(keys) // 2 - len(remaining)
    assert small.stats().forcible == gone
    assert remaining == [*keys[gone:], *(f"new{number}" for number in range(len(keys) // 2))]
    check(small)


def test_three_quarters_of_it_hold_items(tmp_path: Path, clock: Clock) -> None:
    large = LmdbDict("large", 8 * MIB, str(tmp_path), clock)
    keys = fill(large, 4000)
    assert 0.65 < len(keys) * 4096 / (8 * MIB) < 0.76
    large.close()


def test_writing_to_an_item_keeps_it(small: LmdbDict) -> None:
    keys = fill(small)
    small.set("kept", "", 1000)
    for number in range(5 * len(keys)):
        assert small.incr("hits", 1, init=0) == number + 1
        assert small.update("updated", lambda old: Update((old or 0) + 1, result=old or 0)) == number
        small.set("written", number)
        small.set(f"new{number}", "x" * 1000)
    assert small.get("written") == number
    assert small.get("kept") is None
    assert not there(small) & set(keys)


def test_reading_an_item_keeps_it(small: LmdbDict) -> None:
    keys = fill(small)
    small.set("read", "still there", flags=5)
    small.set("item", "still there too", 1000)
    small.set("other", "not read")
    for number in range(5 * len(keys)):
        small.get("read")
        small.get_item("item")
        small.ttl("other")
        small.set(f"new{number}", "x" * 1000)
    assert small.get_item("read") == Item("still there", 5, False)
    assert small.get("item") == "still there too"
    assert small.get("other") is None
    check(small)


def test_expired_items_are_evicted_before_others(small: LmdbDict, clock: Clock) -> None:
    small.set("ever", 1)
    for number in range(110):
        small.set(f"short{number}", "x" * 1000, ttl=1)
        small.set(f"long{number}", "x" * 1000, ttl=100)
    assert small.stats().forcible == 0
    clock.advance(1)
    for number in range(100):
        assert small.set(f"new{number}", "x" * 1000) is StoreOutcome.STORED
    assert small.stats().forcible == 0
    assert there(small) >= {"ever", *(f"long{number}" for number in range(110))}
    assert fill(small, prefix="more")
    assert all(small.get_stale(f"short{number}") is None for number in range(110))
    check(small)


@pytest.mark.parametrize("before", [0, 5, 500])
def test_eviction_knows_an_expiry_set_by_update_or_expire(small: LmdbDict, clock: Clock, before: float) -> None:
    for number in range(100):
        small.set(f"updated{number}", "x" * 1000, before)
        small.set(f"expired{number}", "x" * 1000, before)
        small.set(f"ever{number}", "x" * 1000)
    for number in range(100):
        small.update(f"updated{number}", lambda old: Update("y" * 1000, 50))
        assert small.expire(f"expired{number}", 50)
    check(small)
    clock.advance(49)
    assert small.flush_expired() == 0
    clock.advance(1)
    for number in range(150):
        assert small.set(f"new{number}", "x" * 1000) is StoreOutcome.STORED
    assert small.stats().forcible == 0
    assert there(small) == {f"ever{number}" for number in range(100)} | {f"new{number}" for number in range(150)}
    small.flush_expired()
    assert check(small) == 250


@pytest.mark.parametrize("before", [0, 5, 500])
def test_an_expiry_set_by_update_is_known_without_an_eviction(small: LmdbDict, clock: Clock, before: float) -> None:
    for number in range(10):
        small.set(f"k{number}", number, before)
        small.update(f"k{number}", lambda old: Update(old + 1, 50))
    assert check(small) == 10
    clock.advance(49)
    assert small.flush_expired() == 0
    clock.advance(1)
    assert small.flush_expired() == 10


def test_flushed_items_are_evicted_before_others(small: LmdbDict) -> None:
    keys = fill(small)
    before = small.stats().forcible
    small.flush_all()
    assert len([key for key in keys if small.get_stale(key)]) > 100
    for number in range(len(keys) // 2):
        assert small.set(f"new{number}", "x" * 1000) is StoreOutcome.STORED
        assert small.safe_set(f"new{number}", "y" * 1000) is StoreOutcome.STORED
    assert small.stats().forcible == before
    assert len(there(small)) == len(keys) // 2
    check(small)


def test_an_expired_item_that_is_stored_again_does_not_hide_the_others(small: LmdbDict, clock: Clock) -> None:
    """It expired first, and must not be evicted to make space for its own new value."""
    ever = [f"ever{number}" for number in range(50)]
    for key in ever:
        small.set(key, "x" * 1000)
    small.set("first", "x", ttl=1)
    assert len(fill_safely(small, ttl=10)) > 50
    clock.advance(10)
    assert small.set("first", "x" * 3000) is StoreOutcome.STORED
    assert small.stats().forcible == 0
    assert small.get("first") == "x" * 3000
    assert there(small) == {*ever, "first"}
    check(small)


def test_safe_calls_evict_no_live_items(small: LmdbDict, clock: Clock) -> None:
    keys = [f"short{number}" for number in range(100)]
    for key in keys:
        assert small.safe_set(key, "x" * 1000, ttl=1) is StoreOutcome.STORED
    keys += fill_safely(small)
    for _ in range(3):
        for call in (small.safe_set, small.safe_add):
            with pytest.raises(NoMemory, match=re.escape("""SHARED_DICTS"]["small"]. Raise its SIZE (1048576).""")):
                call("more", "x" * 3000)
        for push in (small.lpush, small.rpush):
            with pytest.raises(NoMemory):
                push("list", "x" * 3000)
    assert small.get_keys(0) == keys
    assert small.safe_set("k0", "y" * 1000) is StoreOutcome.STORED
    clock.advance(1)
    for number in range(50):
        assert small.safe_add(f"more{number}", "x" * 1000) is StoreOutcome.STORED
        assert small.rpush("list", "x" * 100) == number + 1
    assert small.stats().forcible == 0
    assert there(small) >= set(keys[100:])
    check(small)


def test_a_value_that_can_never_fit(small: LmdbDict) -> None:
    keys = fill(small)
    remaining = there(small)
    for call in (small.set, small.add, small.safe_set, small.replace):
        with pytest.raises(NoMemory):
            call(keys[-1] if call == small.replace else "huge", b"x" * 900_000)
    with pytest.raises(NoMemory):
        small.update(keys[-1], lambda old: Update(b"x" * 900_000))
    assert small.get(keys[-1]) == "x" * 1000
    assert there(small) == remaining
    check(small)


def test_space_for_a_large_value_is_freed_in_several_transactions(small: LmdbDict) -> None:
    keys = fill(small, 50)
    assert len(keys) > 1000
    assert small.set("large", b"x" * 250_000) is StoreOutcome.FORCED
    assert small.get("large") == b"x" * 250_000
    remaining = small.get_keys(0)
    assert remaining == [*keys[len(keys) - len(remaining) + 1 :], "large"]
    assert small.set("large", b"y" * 250_000) is StoreOutcome.STORED
    assert small.delete("large")
    check(small)


def test_update_does_not_evict_its_own_item(small: LmdbDict) -> None:
    fill(small, 300)
    small.set("grows", "", flags=3)
    for length in range(0, 200_000, 20_000):
        assert small.update("grows", lambda old: Update(old + "x" * 20_000, result=len(old))) == length
    assert small.get_item("grows") == Item("x" * 200_000, 3, False)
    check(small)


def test_storing_over_an_item_of_the_same_length_evicts_nothing(small: LmdbDict) -> None:
    fill(small)
    before = small.stats().forcible
    for _ in range(20):
        for key in small.get_keys(0):
            assert small.set(key, "y" * 1000) is StoreOutcome.STORED
    assert small.stats().forcible == before
    check(small)


@pytest.mark.parametrize("size", [1, 10, 3000])
def test_long_lists_may_fill_a_dictionary(small: LmdbDict, size: int) -> None:
    length = 0
    for _ in range(100_000):
        try:
            length = small.rpush("list", "x" * size)
        except NoMemory:
            break
    assert length > 100
    assert small.llen("list") == length
    assert small.lpop("list") == "x" * size
    assert StoreOutcome.FORCED in (small.set("other", "x" * 3000), small.set("one more", "x" * 3000))
    assert small.get_keys() == ["other", "one more"]
    assert check(small) == 2
    for _ in range(100_000):
        try:
            length = small.lpush("list", "x" * size)
        except NoMemory:
            break
    assert small.delete("list") is True
    assert small.stats().free_space > 500_000
    check(small)


SIZES: dict[str, Callable[[random.Random], int]] = {
    "even": lambda chance: chance.randint(1, 100 * 1024),
    "mostly small": lambda chance: int(2 ** chance.uniform(0, 16.6)),
    "small": lambda chance: chance.randint(1, 100),
}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("size", [MIB, 8 * MIB], ids=["1 MiB", "8 MiB"])
def test_values_of_many_sizes_are_stored_in_a_full_dictionary(
    tmp_path: Path, clock: Clock, size: int, sizes: str
) -> None:
    chance = random.Random(f"{size} {sizes}")
    dictionary = LmdbDict("any", size, str(tmp_path), clock)
    none = 0
    count = 4000 if sizes != "even" else 1500
    for number in range(count):
        if number == 500 and sizes == "small":
            dictionary.set("most of it", b"x" * (size * 2 // 8))
            dictionary.set("more of it", b"x" * (size * 2 // 8))
        clock.advance(0.01)
        key = f"k{chance.randrange(2000)}"
        value = b"x" * SIZES[sizes](chance)
        try:
            assert dictionary.set(key, value, chance.choice((0, 0, 0.1, 10)))
        except NoMemory:
            none += 1
        else:
            assert dictionary.get(key) == value
        dictionary.get(f"k{chance.randrange(2000)}")
        if number % 500 == 0:
            check(dictionary)
            dictionary.flush_all() if number == count - 1000 else None
    assert none <= count // 1000
    check(dictionary)
    check_pages(dictionary, tmp_path / "copy")
    dictionary.close()


def test_the_keys_come_in_the_order_of_their_use(small: LmdbDict) -> None:
    large = ["large", "too"]
    for name in large:
        small.set(name, b"x" * 200_000)
    names = [f"k{number}" for number in range(100)]
    for name in names:
        small.set(name, 1)
    assert small.get_keys(0) == large + names
    assert small.get_keys(7) == large + names[:5]
    for name in names[:10]:
        small.incr(name)
    assert small.get_keys(0) == large + names[10:] + names[:10]
    for name in names[10:13]:
        small.get(name)
    small.set("new", 1)
    assert small.get_keys(5) == large + names[13:16]
    assert set(small.get_keys(0)[-4:]) == {"k10", "k11", "k12", "new"}


def test_recency_is_tracked_once_half_of_the_space_is_used(small: LmdbDict) -> None:
    for number in range(3):
        small.set(f"k{number}", number)
    small.incr("k0")
    assert small.get_keys() == ["k0", "k1", "k2"], "in the order of their making"
    for name in ("large", "too"):
        small.set(name, b"x" * 200_000)
    small.incr("k0")
    assert small.get_keys() == ["k1", "k2", "large", "too", "k0"]


def test_expired_items_are_freed_coldest_first(small: LmdbDict, clock: Clock) -> None:
    for number in range(10):
        small.set(f"k{number}", number, ttl=10 - number)
    clock.advance(10)
    assert small.flush_expired(4) == 4
    assert [number for number in range(10) if small.get_stale(f"k{number}") is None] == [6, 7, 8, 9]
    small.flush_all()
    assert small.flush_expired(2) == 2
    assert [number for number in range(10) if small.get_stale(f"k{number}") is None] == [0, 1, 6, 7, 8, 9]
