"""Many keys at once: `get_many`, `set_many`, `delete_many`, `get_bulk` need one call of L2 and one event."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from resty_django.cache import LRU, BadKey, BadValue, MLCache, NoChannel, SerializerFailed
from resty_django.cache.broadcasts.channel import MAX_KEYS_PER_BROADCAST
from resty_django.shdict import Unavailable, WrongKind
from resty_django.shdict.redis import RedisDict
from tests.dictionaries import Clock
from tests.integration.cache.conftest import Make, Shared, fails, value
from tests.integration.cache.tools import Hub

VALUES: dict[Any, Any] = {"a": {"id": 1}, "b": None, 7: (1, 2)}
STORED: dict[Any, Any] = {"a": {"id": 1}, "b": None, 7: [1, 2]}


async def test_many_values_in_both_levels(make: Make, clock: Clock) -> None:
    a, b = make("A", ttl=10, neg_ttl=2), make("B")
    assert await a.do("set_many", VALUES) == []
    for process, level in ((a, 1), (b, 2), (b, 1)):
        before = replace(process.cache.counter.now)
        assert await process.do("get_many", ["absent", *VALUES]) == STORED
        counts = process.cache.counter.now
        assert (counts.l1 - before.l1, counts.l2 - before.l2) == ((3, 0) if level == 1 else (0, 3))
        assert counts.misses - before.misses == 1
    clock.advance(2.001)
    assert await b.do("get_many", VALUES) == {"a": {"id": 1}, 7: [1, 2]}
    clock.advance(8)
    assert await a.do("get_many", VALUES) == {}
    assert await a.do("get_many", []) == {}
    assert await a.do("set_many", {}) == []
    await a.do("delete_many", [])


async def test_an_option_of_a_call_applies_to_all_its_keys(make: Make) -> None:
    a = make("A")
    await a.do("set_many", {"a": 1, "b": 2}, l1_serializer=str)
    assert await a.do("get_many", "ab") == {"a": "1", "b": "2"}


async def test_values_stored_together_do_not_expire_together(make: Make) -> None:
    a = make("A", ttl=100, jitter=0.5)
    await a.do("set_many", {f"k{number}": number for number in range(20)})
    times = {(await a.do("peek", f"k{number}")).ttl for number in range(20)}
    assert len(times) > 10
    assert all(50 <= seconds <= 100 for seconds in times)


async def test_one_event_for_up_to_500_keys(make: Make, hub: Hub) -> None:
    a, b = make("A"), make("B")
    await a.do("set_many", VALUES)
    await a.do("delete_many", ["a", "a", "\udcff"])
    many = [f"k{number}" for number in range(MAX_KEYS_PER_BROADCAST + 1)]
    await a.do("delete_many", many)
    assert {name for _, name, _ in hub.broadcasts} == {"mlcache:many:c"}
    keys = [json.loads(data) for _, _, data in hub.broadcasts]
    assert keys == [["a", "b", "7"], ["a", "\udcff"], many[:MAX_KEYS_PER_BROADCAST], many[MAX_KEYS_PER_BROADCAST:]]
    b.cache.lru.set("\udcff", 1)
    assert await b.update() is None
    assert b.cache.lru.get("\udcff") is None


async def test_a_second_dictionary_for_none(make: Make, shared: Shared) -> None:
    a = make("A", shm_miss=shared("misses"))
    await a.do("set_many", {"a": None, "b": 1})
    await a.do("set_many", {"a": 1, "b": None, "c": None})
    assert sorted(shared("values").get_keys()) == ["c:a"]
    assert sorted(shared("misses").get_keys()) == ["c:b", "c:c"]
    a.cache.lru.flush_all()
    assert await a.do("get_many", "abcd") == {"a": 1, "b": None, "c": None}
    await a.do("delete_many", "abc")
    assert shared("values").get_keys() + shared("misses").get_keys() == []


async def test_tags_of_many_values(make: Make, shared: Shared) -> None:
    a, b = make("A"), make("B")
    await a.do("set_many", {"a": 1, "b": 2}, tags=["red", "round"])
    await a.do("set_many", {"c": 3}, tags=["blue"])
    await a.do("set", "d", 4)
    everything = {"a": 1, "b": 2, "c": 3, "d": 4}
    assert await a.do("get_many", "abcd") == await b.do("get_many", "abcd") == everything
    await b.do("invalidate_tags", "round")
    assert await a.update() is None
    assert await a.do("get_many", "abcd") == await b.do("get_many", "abcd") == {"c": 3, "d": 4}
    bulk = b.cache.new_bulk()
    for key in "abc":
        bulk.add(key, b.callback(value("new")), tags=["red"])
    assert [(result.value, result.level) for result in await b.do("get_bulk", bulk)] == [("new", 3), ("new", 3), (3, 1)]


async def test_calls_for_many_keys_raise_like_those_for_one(make: Make, shared: Shared, hub: Hub) -> None:
    a = make("A")
    for values, error in (({"a": 1, None: 2}, BadKey), ({"a": 1, "b": object()}, BadValue)):
        with pytest.raises(error):
            await a.do("set_many", values)
    assert await a.do("get_many", ["a"]) == {}

    def only_numbers(stored: Any) -> Any:
        return stored + 1

    strict = make("B", l1_serializer=only_numbers)
    with pytest.raises(SerializerFailed):
        await strict.do("set_many", {"a": 1, "b": "text", "c": 3})
    assert [json.loads(data) for _, _, data in hub.broadcasts] == [["a", "b", "c"]]
    assert await a.do("get_many", "abc") == {"a": 1, "b": "text", "c": 3}
    assert await strict.do("get_many", "ac") == {"a": 2, "c": 4}
    with pytest.raises(SerializerFailed):
        await strict.do("get_many", "ab")
    shared("values").rpush("c:list", 1)
    with pytest.raises(WrongKind):
        await a.do("get_many", ["list"])
    silent = make("C", ipc=None)
    for call, argument in (("set_many", {"a": 1}), ("delete_many", ["a"])):
        with pytest.raises(NoChannel, match=call):
            await silent.do(call, argument)


@pytest.mark.parametrize("engine", ["lmdb"], indirect=True)
async def test_keys_without_space_keep_their_values(make: Make, shared: Shared) -> None:
    a = make("A")
    await a.do("set", "large", "old")
    assert await a.do("set_many", {"a": 1, "large": "x" * 3_500_000}) == ["large"]
    assert await a.do("get_many", ["a", "large"]) == {"a": 1, "large": "old"}
    a.cache.lru.flush_all()
    assert await a.do("get_many", ["a", "large"]) == {"a": 1, "large": "old"}


async def test_keys_that_share_a_version_in_l1(make: Make, clock: Clock) -> None:
    a = make("A", lru=LRU(5000, clock))
    keys = {f"k{number}": number for number in range(1000)}
    await a.do("set_many", keys)
    assert len(a.cache.lru) == 1000


# --- get_bulk --------------------------------------------------------------------------------------------------------


async def test_a_bulk_reads_l2_once(shared: Shared, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = make("A"), make("B")
    await a.do("set_many", {f"k{number}": number for number in range(20)})
    calls: list[str] = []
    dictionary = shared("values")
    for name in ("get", "aget", "get_many", "aget_many"):
        original = getattr(dictionary, name)

        def counted(*args: Any, _name: str = name, _original: Any = original) -> Any:
            calls.append(_name)
            return _original(*args)

        monkeypatch.setattr(dictionary, name, counted)
    bulk = b.cache.new_bulk()
    for number in range(20):
        bulk.add(f"k{number}", fails("not called"))
    bulk.add("k7", fails("not called"))
    results = await b.do("get_bulk", bulk)
    assert [result.value for result in results] == [*range(20), 7]
    assert {result.level for result in results} == {2}
    assert calls == (["aget_many"] if b.twins else ["get_many"])
    assert (b.cache.counter.now.l2, b.cache.counter.now.misses) == (21, 0)


async def test_a_bulk_over_items_of_others(shared: Shared, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    a = make("A")
    shared("values").set("c:junk", b"junk")
    shared("values").rpush("c:list", 1)
    bulk = a.cache.new_bulk()
    for key in ("junk", "list", "new"):
        bulk.add(key, a.callback(value("v")))
    with caplog.at_level(logging.WARNING, "resty_django.cache"):
        junk, listed, new = await a.do("get_bulk", bulk)
    assert (junk.value, junk.level, new.value) == ("v", 3, "v")
    assert isinstance(listed.error, WrongKind)
    assert "'junk'" in caplog.text


@pytest.mark.redis
@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize("on_error", ["source", "raise"])
async def test_many_keys_are_kept_in_l1_while_l2_is_down(
    clock: Clock, settings: Any, hub: Hub, twins: bool, on_error: str
) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {"default": cache}
    channel = hub.channel("A")
    down = MLCache(
        "c", RedisDict("down"), clock=clock, lru=LRU(10, clock), ipc=channel, on_error=on_error, outage_ttl=3
    )
    down.lru.set("kept", 1)

    async def do(name: str, *args: Any) -> Any:
        return await getattr(down, f"a{name}")(*args) if twins else getattr(down, name)(*args)

    bulk = down.new_bulk().add("kept", value(2)).add("k", value(2))
    kept, other = await do("get_bulk", bulk)
    assert (kept.value, kept.level) == (1, 1)
    if on_error == "raise":
        assert isinstance(other.error, Unavailable)
        for call, argument in (("get_many", ["new"]), ("set_many", {"a": 1}), ("delete_many", ["a"])):
            with pytest.raises(Unavailable):
                await do(call, argument)
        assert hub.broadcasts == []
        return
    assert (other.value, other.level) == (2, 3)
    assert await do("set_many", {"a": 1, "b": 2}) == []
    assert await do("get_many", ["a", "b", "absent"]) == {"a": 1, "b": 2}
    await do("delete_many", ["a", "absent"])
    assert await do("get_many", ["a", "b"]) == {"b": 2}
    assert [json.loads(data) for _, _, data in hub.broadcasts] == [["a", "b"], ["a", "absent"]]
    clock.advance(3.001)
    down.lru.set("stale", 1, 0)
    clock.advance(1)
    assert await do("get_many", ["stale", "b", "absent"]) == {"stale": 1}


@pytest.mark.redis
async def test_a_call_for_many_keys_is_one_round_trip(redis_cache: str, valkey: Redis) -> None:
    cache = MLCache("c", RedisDict("own", alias=redis_cache), lru=LRU(100), ipc=Hub().channel("A"))
    values = {f"k{number}": number for number in range(20)}

    def work() -> None:
        cache.set_many(values)
        cache.lru.flush_all()
        assert cache.get_many(values) == values
        cache.lru.flush_all()
        bulk = cache.new_bulk()
        for key in values:
            bulk.add(key, fails("not called"))
        assert [result.value for result in cache.get_bulk(bulk)] == list(values.values())
        cache.delete_many(values)

    work()
    cache.counter.due_at = float("inf")
    valkey.config_resetstat()
    work()
    assert valkey.info("commandstats")["cmdstat_evalsha"]["calls"] == 4
