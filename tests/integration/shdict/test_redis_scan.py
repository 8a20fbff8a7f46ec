"""The Redis engine as a whole: many keys, and a server that is full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from resty_django.shdict import Item, NoMemory, StoreOutcome, Update
from resty_django.shdict.base import StreamEntry
from resty_django.shdict.redis import RedisDict
from tests import servers

pytestmark = [pytest.mark.redis, pytest.mark.contract]


@pytest.fixture
def shared(redis_cache: str) -> RedisDict:
    return RedisDict("own", alias=redis_cache)


async def test_many_keys(shared: RedisDict, valkey: Redis) -> None:
    keys = [f"k{number}" for number in range(1300)]
    with valkey.pipeline() as pipe:
        for key in keys:
            pipe.hset(f"resty:dict:own:{key}", mapping={"t": 0, "v": key, "f": 0, "e": 0})
        pipe.execute()
    valkey.set("other", 1)
    assert sorted(shared.get_keys(0)) == sorted(await shared.aget_keys(0)) == sorted(keys)
    assert len(set(shared.get_keys())) == len(set(await shared.aget_keys())) == 1024
    assert len(shared.get_keys(1)) == len(await shared.aget_keys(1)) == 1
    shared.flush_all()
    assert shared.get_keys() == []
    assert shared.get_stale("k7") == Item("k7", 0, True)
    assert shared.flush_expired(700) == 700
    assert await shared.aflush_expired(1) == 1
    assert shared.stats().keys == (await shared.astats()).keys == 599
    assert await shared.aflush_expired() == 599
    assert valkey.keys() == [b"other"]


@pytest.fixture
def alone(settings: Any) -> Iterator[servers.Server]:
    """A separate server for the test, as the cache `alone`."""
    with servers.one() as server:
        settings.CACHES = {
            **settings.CACHES,
            "alone": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url},
        }
        yield server


async def test_a_full_server_without_eviction(alone: servers.Server) -> None:
    shared = RedisDict("full", alias="alone")
    shared.set("k", 1)
    shared.set("gone", 1)
    for number in range(3):
        shared.rpush("list", number)
    alone.call("CONFIG", "SET", "maxmemory", 1)
    storing = {
        "set": ("k", 2),
        "safe_set": ("new", 2),
        "add": ("new", 2),
        "safe_add": ("new", 2),
        "replace": ("k", 2),
        "incr": ("k", 1),
        "rpush": ("list", 4),
        "lpush": ("newlist", 4),
        "update": ("k", lambda value: Update(value + 1)),
    }
    for name, args in storing.items():
        with pytest.raises(NoMemory, match=r"no space .*'full': .* cache 'alone' .*maxmemory-policy"):
            getattr(shared, name)(*args)
        with pytest.raises(NoMemory):
            await getattr(shared, f"a{name}")(*args)
    assert (shared.get("k"), shared.get("new"), shared.llen("list")) == (1, None, 3)
    assert shared.lpop("list") == 0
    assert shared.rpop("list") == 2
    assert shared.delete("gone")
    assert shared.expire("k", 100)
    assert shared.update("list2", lambda value: Update(None, None, "nothing to write")) == "nothing to write"
    shared.flush_all()
    assert shared.get_keys() == []
    assert shared.flush_expired() == 2


async def test_a_full_server_appends_the_entries_of_deletions(alone: servers.Server) -> None:
    shared = RedisDict("full", alias="alone")
    entry = StreamEntry(b"stream", b"e", b"record", 100)
    alone.call("CONFIG", "SET", "maxmemory", 1)
    shared.delete("absent", entry)
    assert shared.delete_many(["absent", "gone"], entry) == 0
    assert await shared.adelete_many(["absent", "gone"], entry) == 0
    assert shared.set_many({"absent": None}, entry=entry) == []
    shared.flush_all(entry)
    await shared.aflush_all(entry)
    assert alone.call("XLEN", "stream") == 6


def test_entries_for_lmdb_are_refused(shared: RedisDict) -> None:
    shared.set("k", 1)
    calls = [
        lambda: shared.set("k", 2, entry=b"record"),
        lambda: shared.delete("k", b"record"),
        lambda: shared.delete_many(["k"], b"record"),
        lambda: shared.set_many({"k": 2}, entry=b"record"),
        lambda: shared.flush_all(b"record"),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"cannot append b'record'\. Pass a StreamEntry"):
            call()
    assert shared.get("k") == 1


def test_a_server_that_evicts(alone: servers.Server) -> None:
    shared = RedisDict("small", alias="alone")
    alone.call("CONFIG", "SET", "maxmemory", 5_000_000, "maxmemory-policy", "allkeys-lru")
    outcomes = {shared.safe_set(str(number), "x" * 50_000) for number in range(200)}
    assert outcomes == {StoreOutcome.STORED}
    stats = shared.stats()
    assert stats.keys is not None
    assert 10 < stats.keys < 110
    assert stats.capacity == shared.capacity() == 5_000_000
    assert stats.free_space < 1_000_000
    assert stats.forcible is None


async def test_free_space_is_the_free_memory_of_the_server(alone: servers.Server) -> None:
    shared = RedisDict("space", alias="alone")
    assert shared.capacity() == await shared.acapacity() == 0
    assert shared.free_space() > 10_000_000
    alone.call("CONFIG", "SET", "maxmemory", 50_000_000)
    before = shared.free_space()
    assert 40_000_000 < before < 50_000_000
    shared.set("k", b"x" * 8_000_000)
    assert 7_000_000 < before - shared.free_space() < 20_000_000
    assert before - await shared.afree_space() > 7_000_000
    assert (await shared.astats()).capacity == 50_000_000


async def test_closing_leaves_the_connections_to_the_cache(shared: RedisDict) -> None:
    shared.set("k", 1)
    shared.close()
    assert shared.get("k") == 1
    await shared.aset("k", 2)
    await shared.aclose()
    assert await shared.aget("k") == 2
