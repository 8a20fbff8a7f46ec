"""A Redis Cluster of three nodes: distributed keys, the cache alias itself, moved slots, a node that dies."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.core.cache import cache, caches
from django.core.exceptions import ImproperlyConfigured
from redis import RedisCluster
from redis.crc import key_slot

from resty_django.redis import LuaScript, async_connection, connection
from resty_django.shdict import StoreOutcome, Unavailable, Update
from resty_django.shdict.redis import RedisDict
from tests import servers
from tests.dictionaries import Calls
from tests.servers import Server, until

from .conftest import Use
from .test_connections import in_child

pytestmark = pytest.mark.slow

CLIENT = "resty_django.redis.cluster.ClusterClient"
KEYS = [f"key {number}" for number in range(60)]


@pytest.fixture
def shared(nodes: list[Server], use: Use) -> RedisDict:
    for node in nodes:
        node.call("FLUSHALL")
    use([node.url for node in nodes[:2]], CLIENT_CLASS=CLIENT)
    return RedisDict("spread")


def test_keys_spread_over_the_nodes(shared: RedisDict, nodes: list[Server]) -> None:
    for key in KEYS:
        assert shared.set(key, key)
    assert all(node.call("DBSIZE") > 5 for node in nodes)
    assert sum(node.call("DBSIZE") for node in nodes) == len(KEYS)
    assert [shared.get(key) for key in KEYS] == KEYS
    assert sorted(shared.get_keys()) == sorted(KEYS)
    assert len(shared.get_keys(7)) == 7


async def test_keys_spread_over_the_nodes_in_asyncio(shared: RedisDict, nodes: list[Server]) -> None:
    assert all(await asyncio.gather(*(shared.aset(key, key) for key in KEYS)))
    assert all(node.call("DBSIZE") > 5 for node in nodes)
    assert await asyncio.gather(*(shared.aget(key) for key in KEYS)) == KEYS
    assert sorted(await shared.aget_keys()) == sorted(KEYS)


@pytest.mark.parametrize("twins", [False, True])
async def test_many_keys_need_one_round_trip_to_each_node(shared: RedisDict, nodes: list[Server], twins: bool) -> None:
    calls = Calls(shared, None, twins)  # type: ignore[arg-type]
    values = {key: key.encode() for key in KEYS}

    def batches() -> list[int]:
        """Return the number of reads of each node from a connection, including the reads of this call."""
        return [node.call("INFO", "stats")["total_reads_processed"] for node in nodes]

    for _ in range(2):  # the first time, the nodes learn the scripts
        before = batches()
        assert await calls.set_many(values, 60) == []
        assert await calls.get_many([*KEYS, "absent"]) == values
        assert await calls.delete_many([*KEYS[:10], "absent"]) == 10
        reads = [after - count for after, count in zip(batches(), before, strict=True)]

    def own() -> list[int]:
        before = batches()
        return [after - count for after, count in zip(batches(), before, strict=True)]

    assert [count - of_batches for count, of_batches in zip(reads, own(), strict=True)] == [3, 3, 3]
    keys = [key async for key in shared.aiter_keys("key 1*")] if twins else list(shared.iter_keys("key 1*"))
    assert sorted(keys) == sorted(key for key in KEYS[10:] if key.startswith("key 1"))


def test_braces_choose_the_node_in_a_key_but_not_in_a_name(shared: RedisDict, nodes: list[Server]) -> None:
    for number in range(20):
        shared.set(f"{{same}}{number}", number)
        RedisDict("{name}").set(str(number), number)
    slots = {key_slot(key) for node in nodes for key in node.call("KEYS", "resty:dict:spread:*")}
    assert len(slots) == 1
    assert sum(bool(node.call("KEYS", "resty:dict:%7Bname%7D:*")) for node in nodes) > 1


@pytest.mark.parametrize("flushed", [False, True])
async def test_calls_for_the_whole_dictionary_reach_all_nodes(
    shared: RedisDict, nodes: list[Server], flushed: bool
) -> None:
    for key in KEYS:
        shared.set(key, 1)
    if flushed:
        for node in nodes:
            node.call("SCRIPT", "FLUSH")
    shared.flush_all()
    assert shared.get_keys() == await shared.aget_keys() == []
    assert shared.get_stale(KEYS[0]).stale  # type: ignore[union-attr]
    assert shared.flush_expired(5) == 5
    assert await shared.aflush_expired(5) == 5
    assert shared.stats().keys == (await shared.astats()).keys == len(KEYS) - 10
    assert await shared.aflush_expired() == len(KEYS) - 10
    assert shared.stats().keys == 0
    await shared.aset("k", 1)
    await shared.aflush_all()
    assert shared.flush_expired() == 1


async def test_memory_is_the_sum_of_all_nodes(shared: RedisDict, nodes: list[Server]) -> None:
    assert shared.capacity() == 0
    for node in nodes:
        node.call("CONFIG", "SET", "maxmemory", 50_000_000)
    assert shared.capacity() == await shared.acapacity() == 150_000_000
    assert 90_000_000 < shared.free_space() < 150_000_000
    assert 90_000_000 < await shared.afree_space() < 150_000_000
    for node in nodes:
        node.call("CONFIG", "SET", "maxmemory", 0)


async def test_calls_of_one_key_work_on_each_node(shared: RedisDict) -> None:
    for key in KEYS[:10]:
        assert shared.incr(key, 2, init=1) == 3
        assert await shared.aincr(key, 0.5) == 3.5
        assert shared.add(key, 1) is await shared.aadd(key, 1) is StoreOutcome.EXISTS
        assert shared.update(key, lambda value: Update(value * 2, 10, value)) == 3.5
        assert await shared.aupdate(key, lambda value: Update(value * 2, None, value)) == 7.0
        assert 9 < (shared.ttl(key) or 0) <= 10
        assert shared.delete_if(key, 14.0)
        assert shared.rpush(key, "a") == 1
        assert await shared.alpush(key, "b") == 2
        assert (await shared.alpop(key), shared.lpop(key), shared.rpop(key)) == ("b", "a", None)


async def test_a_slot_that_moves_is_followed(shared: RedisDict, nodes: list[Server]) -> None:
    shared.set("moving", 1)
    await shared.aset("moving", 1)
    shared.delete("moving")
    slot = key_slot(b"resty:dict:spread:moving")
    owner = nodes[slot * len(nodes) // 16384]
    target = next(node for node in nodes if node is not owner)
    for node, holder in ((target, target), (owner, target)):
        node.call("CLUSTER", "SETSLOT", slot, "NODE", holder.call("CLUSTER", "MYID"))
    try:
        assert shared.set("moving", 2)
        assert await shared.aincr("moving", 1) == 3
        assert target.call("DBSIZE") == 1
    finally:
        shared.delete("moving")
        for node, holder in ((owner, owner), (target, owner)):
            node.call("CLUSTER", "SETSLOT", slot, "NODE", holder.call("CLUSTER", "MYID"))
    await asyncio.to_thread(until, lambda: all(servers.is_whole(node, len(nodes)) for node in nodes))


def test_calls_succeed_again_after_a_node_was_killed_and_started(shared: RedisDict, nodes: list[Server]) -> None:
    def set_all(value: int) -> bool:
        return all(shared.set(key, value) for key in KEYS)

    async def aset_all(value: int) -> bool:
        return all([await shared.aset(key, value) for key in KEYS])

    async def calls() -> None:
        assert set_all(1)
        assert await aset_all(2)
        nodes[2].kill()
        try:
            with pytest.raises(Unavailable, match=r"'spread'.* cache 'default'"):
                set_all(3)
            with pytest.raises(Unavailable, match=r"'spread'.* cache 'default'"):
                await aset_all(3)
        finally:
            nodes[2].start()
        for _ in range(200):
            try:
                assert set_all(4)
                assert await aset_all(5)
                break
            except Unavailable:
                await asyncio.sleep(0.05)
        assert [shared.get(key) for key in KEYS] == [5] * len(KEYS)
        assert set_all(6)
        assert await asyncio.gather(*(shared.aget(key) for key in KEYS)) == [6] * len(KEYS)

    asyncio.run(calls())


def test_the_cache_itself_works_on_the_cluster(shared: RedisDict, nodes: list[Server]) -> None:
    numbers = {f"n{number}": number for number in range(30)}
    cache.set_many(numbers)
    assert cache.get_many([*numbers, "absent"]) == numbers
    assert cache.get_many([]) == {}
    assert (cache.add("n1", 0), cache.add("new", [1, "a"]), cache.get("new")) == (False, True, [1, "a"])
    assert (cache.incr("n1"), cache.decr("n1", 5), cache.has_key("n1")) == (2, -3, True)
    assert cache.touch("n2", 100)
    assert 99 <= cache.ttl("n2") <= 100  # type: ignore[attr-defined]
    assert cache.delete("n1")
    assert not cache.delete("n1")
    cache.delete_many(["n2", "n3"])
    remaining = {"new", *(f"n{number}" for number in (0, *range(4, 30)))}
    assert set(cache.iter_keys("n*")) == set(cache.keys("n*")) == remaining  # type: ignore[attr-defined]
    assert cache.delete_pattern("n1*") == 10  # type: ignore[attr-defined]
    assert cache.get_or_set("made", lambda: 7) == 7
    cache.set("new", 1, version=7)
    shared.set("also", 1)
    cache.clear()
    assert (cache.keys("*"), cache.has_key("new", version=7)) == ([], False)  # type: ignore[attr-defined]
    assert shared.get("also") == 1, "clear() empties no database that others use as well"


def test_caches_of_all_threads_share_one_client(shared: RedisDict, settings: Any) -> None:
    settings.CACHES = {**settings.CACHES, "other": settings.CACHES["default"]}
    client = connection()
    assert isinstance(client, RedisCluster)
    assert connection("other") is client
    assert caches["other"].client.get_client() is client  # type: ignore[attr-defined]
    clients: list[object] = []
    thread = threading.Thread(target=lambda: clients.append(cache.client.get_client()))  # type: ignore[attr-defined]
    thread.start()
    thread.join()
    assert clients == [client]


async def test_many_calls_at_once_wait_for_each_other(shared: RedisDict, nodes: list[Server]) -> None:
    replies = await asyncio.gather(*(shared.aincr("n", 1, init=0) for _ in range(500)))
    assert sorted(replies) == list(range(1, 501))


def test_a_loop_closes_its_connections_to_all_nodes(nodes: list[Server], use: Use) -> None:
    use(nodes[0].url, CLIENT_CLASS=CLIENT, CONNECTION_POOL_KWARGS={"client_name": "looping"})
    shared = RedisDict("spread")

    async def calls() -> list[int]:
        await asyncio.gather(*(shared.aset(key, 1) for key in KEYS))
        return [node.clients("looping") for node in nodes]

    assert min(asyncio.run(calls())) > 1
    assert until(lambda: not any(node.clients("looping") for node in nodes))


def test_a_forked_child_works_on_the_cluster(shared: RedisDict) -> None:
    for key in KEYS:
        shared.set(key, 1)

    def work() -> None:
        for key in KEYS:
            shared.incr(key)
        asyncio.run(awork())

    async def awork() -> None:
        for key in KEYS:
            await shared.aincr(key)

    assert in_child(work) == 0
    assert [shared.get(key) for key in KEYS] == [3] * len(KEYS)


def test_a_database_number_is_refused_on_a_cluster(use: Use, nodes: list[Server]) -> None:
    use(f"redis://ann:sesame@127.0.0.1:{nodes[0].port}/3", CLIENT_CLASS=CLIENT)
    with pytest.raises(ImproperlyConfigured, match="LOCATION") as caught:
        connection()
    assert "sesame" not in str(caught.value)


async def test_user_password_and_options_are_obeyed(use: Use, nodes: list[Server], count: LuaScript) -> None:
    for node in nodes:
        node.call("ACL", "SETUSER", "bob", "on", ">pass word", "~*", "+@all")
    use(
        f"{nodes[0].url_of('bob')},{nodes[1].url_of('bob')}",
        CLIENT_CLASS=CLIENT,
        PASSWORD="pass word",
        SOCKET_TIMEOUT=3,
        CONNECTION_POOL_KWARGS={"client_name": "shop"},
    )
    assert count(connection(), ("bob",), (1,)) == 1
    assert await count.run(async_connection(), ("bob",), (1,)) == 2
    connections = [line for node in nodes for line in node.call("CLIENT", "LIST").decode().splitlines()]
    assert sum("name=shop" in line and "user=bob" in line for line in connections) >= 2
