"""The Redis engine: its keys, their expiry, round trips, and conflicting updates."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from redis import Redis

from resty_django.shdict import (
    Item,
    Keep,
    SharedDict,
    Unavailable,
    Update,
    WrongKind,
    shdicts,
)
from resty_django.shdict.redis import RedisDict
from tests.dictionaries import Clock

pytestmark = [pytest.mark.redis, pytest.mark.contract]


@pytest.fixture
def shared(redis_cache: str) -> RedisDict:
    return RedisDict("own", alias=redis_cache)


# --- keys --------------------------------------------------------------------------------------------------------


def test_a_dictionary_of_the_settings(redis_cache: str, settings: Any, valkey: Redis) -> None:
    settings.RESTY_DJANGO = {
        "SHARED_DICTS": {
            "plain": {"ENGINE": "redis", "ALIAS": redis_cache},
            "named": {"ENGINE": "redis", "ALIAS": redis_cache, "PREFIX": "shop/", "STALE": 5},
        }
    }
    for name in ("plain", "named"):
        assert isinstance(shdicts[name], RedisDict)
        assert shdicts[name].set("k", name, ttl=10)
    assert sorted(valkey.keys()) == [b"resty:dict:plain:k", b"shop/k"]
    assert 14_000 < valkey.pttl("shop/k") <= 15_000  # type: ignore[operator]
    assert 69_000 < valkey.pttl("resty:dict:plain:k") <= 70_000  # type: ignore[operator]


NAMES = ["a", "a:b", "a%3Ab", "ab", "a*", "a?", "a[ab]", "[ab]", "a\\", "ä", "{a}", "*"]


async def test_dictionaries_do_not_see_each_other(redis_cache: str) -> None:
    dicts = [RedisDict(name, alias=redis_cache) for name in NAMES]
    for number, shared_dict in enumerate(dicts):
        for key in ("k", "b:k", ":", "*"):
            assert shared_dict.add(key, number)
    for number, shared_dict in enumerate(dicts):
        assert sorted(shared_dict.get_keys()) == sorted(await shared_dict.aget_keys()) == ["*", ":", "b:k", "k"]
        assert shared_dict.get("b:k") == number
        assert shared_dict.stats().keys == 4
    dicts[NAMES.index("*")].flush_all()
    await dicts[NAMES.index("a?")].aflush_all()
    assert [name for name, shared_dict in zip(NAMES, dicts, strict=True) if not shared_dict.get_keys()] == ["a?", "*"]


async def test_foreign_keys_under_the_prefix_are_not_items(shared: RedisDict, valkey: Redis) -> None:
    valkey.set("resty:dict:own:text", "x")
    valkey.rpush("resty:dict:own:list", "x")
    shared.set("k", 1)
    assert shared.get_keys() == await shared.aget_keys() == ["k"]
    shared.flush_all()
    assert shared.flush_expired() == 1
    with pytest.raises(Unavailable, match=r"(?i)'own'.*wrong kind of value"):
        shared.get("text")


# --- expiry ------------------------------------------------------------------------------------------------------


def test_the_server_decides_when_an_item_expires(redis_cache: str, valkey: Redis) -> None:
    shared = RedisDict("own", alias=redis_cache, stale=0.2)
    shared.set("k", 1, ttl=0.1)
    assert shared.get("k") == 1
    assert 0 < (shared.ttl("k") or 0) <= 0.1
    time.sleep(0.11)
    assert shared.get("k") is None
    assert shared.get_item("k") is None
    assert shared.get_stale("k") == Item(1, 0, True)
    assert shared.ttl("k") is None
    time.sleep(0.2)
    assert shared.get_stale("k") is None
    assert valkey.dbsize() == 0


def test_without_stale_an_item_goes_at_once(redis_cache: str, valkey: Redis) -> None:
    shared = RedisDict("own", alias=redis_cache, stale=0)
    shared.set("k", 1)
    shared.set("short", 1, ttl=0.02)
    shared.flush_all()
    time.sleep(0.03)
    assert valkey.dbsize() == 0
    assert shared.get_stale("k") is None


def test_the_key_lives_as_long_as_the_item(shared: RedisDict, valkey: Redis) -> None:
    def life(key: str = "k") -> int:
        remaining = valkey.pttl(f"resty:dict:own:{key}")
        assert isinstance(remaining, int)
        return round(remaining / 1000)

    shared.set("k", 1, ttl=100)
    assert life() == 160
    shared.incr("k")
    assert life() == 160
    shared.expire("k", 10)
    assert life() == 70
    shared.expire("k", 0)
    assert valkey.pttl("resty:dict:own:k") == -1
    shared.update("k", lambda value: Update(value, 30))
    assert life() == 90
    shared.update("k", lambda value: Update(value, None))
    assert life() == 90
    shared.set("k", 1)
    assert valkey.pttl("resty:dict:own:k") == -1
    shared.incr("new", 1, init=0, init_ttl=5)
    assert life("new") == 65
    shared.rpush("list", 1)
    shared.expire("list", 20)
    shared.rpush("list", 2)
    assert life("list") == 80
    shared.delete("list")
    shared.rpush("list", 3)
    assert valkey.pttl("resty:dict:own:list") == -1


def test_the_clock_can_be_replaced(redis_cache: str, clock: Clock) -> None:
    shared = RedisDict("own", alias=redis_cache, clock=clock)
    shared.set("k", "@123", ttl=1000)
    clock.advance(999.999)
    assert shared.get("k") == "@123"
    assert shared.ttl("k") == 0.001
    clock.advance(0.001)
    assert shared.get("k") is None
    shared.rpush("list", "@5")
    assert shared.lpop("list") == "@5"


# --- round trips -------------------------------------------------------------------------------------------------


def calls_of(valkey: Redis) -> dict[str, int]:
    counts = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in valkey.info("commandstats").items()}
    valkey.config_resetstat()
    return {name: calls for name, calls in counts.items() if name in {"eval", "evalsha", "script|load", "ping"}}


ONCE: dict[str, tuple[Any, ...]] = {
    "get": ("k",),
    "get_item": ("k",),
    "get_stale": ("k",),
    "ttl": ("k",),
    "set": ("k", "v", 10, 7),
    "safe_set": ("k", "v"),
    "add": ("k", "v", 10),
    "safe_add": ("k", "v"),
    "add_or_get": ("k", "v", 10),
    "replace": ("k", 1),
    "incr": ("k", 1, 0, 10),
    "expire": ("k", 10),
    "expire_if": ("k", 1, 10),
    "delete_if": ("k", 2),
    "delete": ("k",),
    "rpush": ("list", "v"),
    "lpush": ("list", 1),
    "llen": ("list",),
    "lpop": ("list",),
    "rpop": ("list",),
    "set_many": ({"k": 1, "n": 2}, 10, 7),
    "get_many": (("k", "n", "absent"),),
    "delete_many": (("k", "n", "absent"),),
}


async def test_a_call_is_one_round_trip(shared: RedisDict, valkey: Redis) -> None:
    for name, args in ONCE.items():
        getattr(shared, name)(*args)  # from now on the server knows the script
        calls_of(valkey)
        getattr(shared, name)(*args)
        assert calls_of(valkey) == {"evalsha": 1}, name
        await getattr(shared, f"a{name}")(*args)
        assert calls_of(valkey) == {"evalsha": 1}, name


def test_every_call_is_in_the_table_and_has_a_twin_that_does_not_block() -> None:
    on_all_keys = {"get_keys", "iter_keys", "flush_all", "flush_expired", "free_space", "stats", "close", "update"}
    twins = {name for name in vars(SharedDict) if hasattr(SharedDict, f"a{name}")}
    assert twins - {"capacity"} == set(ONCE) | on_all_keys
    assert [name for name in twins if f"a{name}" not in vars(RedisDict)] == []


async def test_update_is_two_round_trips_and_one_without_a_write(shared: RedisDict, valkey: Redis) -> None:
    shared.update("k", lambda value: Update(1))
    calls_of(valkey)
    assert shared.update("k", lambda value: Update(value + 1, None, value)) == 1
    assert calls_of(valkey) == {"evalsha": 2}
    assert await shared.aupdate("k", lambda value: Update(value + 1, None, value)) == 2
    assert calls_of(valkey) == {"evalsha": 2}
    assert shared.update("k", Keep) == 3
    assert await shared.aupdate("k", Keep) == 3
    assert calls_of(valkey) == {"evalsha": 2}


# --- update meets others -----------------------------------------------------------------------------------------


class Meddler:
    """A function for `update` that lets another process write before it returns, `times` times."""

    def __init__(self, rival: RedisDict, times: int, write: Any) -> None:
        self.other = rival
        self.left = times
        self.write = write
        self.got: list[Any] = []

    def __call__(self, value: Any) -> Update:
        self.got.append(value)
        if self.left:
            self.left -= 1
            self.write(self.other)
        return Update((value or 0) + 1, None, value)


@pytest.mark.parametrize("twin", [False, True])
async def test_a_conflict_calls_the_function_again(shared: RedisDict, twin: bool) -> None:
    async def update(function: Any) -> Any:
        return await shared.aupdate("k", function) if twin else shared.update("k", function)

    meddler = Meddler(shared, 3, lambda rival: rival.incr("k", 10, init=0))
    assert await update(meddler) == 30
    assert meddler.got == [None, 10, 20, 30]
    assert shared.get("k") == 31
    meddler = Meddler(shared, 1, lambda rival: rival.delete("k"))
    assert await update(meddler) is None
    assert (meddler.got, shared.get("k")) == ([31, None], 1)
    meddler = Meddler(shared, 1, lambda rival: rival.set("k", 1.0))
    assert await update(meddler) == 1.0
    assert list(map(repr, meddler.got)) == ["1", "1.0"]
    meddler = Meddler(shared, 1, lambda rival: rival.expire("k", 5))
    await update(meddler)
    assert meddler.got == [2.0], "a new expiry is not another value"
    assert 4 < (shared.ttl("k") or 0) <= 5


async def test_a_list_stored_during_an_update(shared: RedisDict) -> None:
    def make_list(rival: RedisDict) -> None:
        rival.delete("k")
        rival.rpush("k", 1)

    with pytest.raises(WrongKind):
        shared.update("k", Meddler(shared, 1, make_list))
    assert shared.llen("k") == 1


async def test_after_too_many_conflicts_update_gives_up(shared: RedisDict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resty_django.shdict.redis.engine.MAX_UPDATE_TRIES", 5)
    meddler = Meddler(shared, 100, lambda rival: rival.incr("k", 1, init=0))
    with pytest.raises(Unavailable, match=r"update\(\) of the key 'k' in .*'own'.* 5 times"):
        shared.update("k", meddler)
    assert len(meddler.got) == 5
    with pytest.raises(Unavailable, match=r"5 times"):
        await shared.aupdate("k", meddler)


# --- numbers and lists -------------------------------------------------------------------------------------------


def test_sums_equal_the_sums_of_python(shared: RedisDict) -> None:
    chance = random.Random(7)
    numbers = [0.1, -0.0, 1e308, 1e-320, 2**53 + 1, -(2**62), 3, float("inf"), float("nan"), 1e16, 0.30000000000000004]
    numbers += [chance.uniform(-1e9, 1e9) for _ in range(20)] + [chance.getrandbits(62) for _ in range(20)]
    for _ in range(200):
        old, by = chance.choice(numbers), chance.choice(numbers)
        shared.set("n", old)
        want = old + by
        got = shared.incr("n", by)
        assert repr(got) == repr(want), (old, by)
        assert repr(shared.get("n")) == repr(want)
        assert repr(shared.incr("new", by, init=old)) == repr(want)
        shared.delete("new")


@pytest.mark.parametrize("store", ["set", "replace", "update"])
def test_a_value_over_a_list_leaves_nothing_of_it(shared: RedisDict, valkey: Redis, store: str) -> None:
    for number in range(10):
        shared.rpush("k", number)
    if store == "update":
        shared.expire("k", 0.001)
        time.sleep(0.01)
        shared.update("k", lambda value: Update("text"))
    else:
        getattr(shared, store)("k", "text")
    assert valkey.hgetall("resty:dict:own:k") == {b"t": b"0", b"v": b"text", b"f": b"0", b"e": b"0"}


def test_a_list_over_an_expired_value_leaves_nothing_of_it(shared: RedisDict, valkey: Redis) -> None:
    shared.set("k", "text", 0.001, 7)
    time.sleep(0.01)
    assert shared.rpush("k", 1) == 1
    fields = {b"t": b"6", b"f": b"0", b"e": b"0", b"a": b"0", b"l": b"1"}
    assert fields.items() < valkey.hgetall("resty:dict:own:k").items()  # type: ignore[union-attr]
    assert valkey.pttl("resty:dict:own:k") == -1
    assert shared.ttl("k") == 0
