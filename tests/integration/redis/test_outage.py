"""A server killed and started again, and a failover by Sentinel: clear errors meanwhile, then everything works."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis.asyncio import RedisCluster
from redis.backoff import NoBackoff
from redis.retry import Retry

from resty_django.redis import LuaScript, StoreDown, async_connection, connection
from resty_django.redis.asynchronous import open_clients
from resty_django.redis.source import ClientSource
from resty_django.shdict import Unavailable
from resty_django.shdict.redis import RedisDict
from tests import servers
from tests.servers import Server, until

from .conftest import Use, refused


async def test_calls_succeed_again_after_the_server_was_killed_and_started(
    server: Server, use: Use, count: LuaScript
) -> None:
    use(server.url)
    for _ in range(3):
        assert count(connection(), ("k",), (1,)) == 1
        assert await count.run(async_connection(), ("k",), (1,)) == 2
        server.kill()
        await refused(StoreDown, ".", count, ("k",), (1,))
        server.start()


def close_all(server: Server) -> None:
    """Have the server close the connections of all clients."""
    server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def restart(server: Server) -> None:
    server.kill()
    server.start()


def time_out(server: Server) -> None:
    """Wait until the server has closed idle connections."""
    server.call("CONFIG", "SET", "timeout", 1)
    until(lambda: server.call("INFO", "clients")["connected_clients"] == 1)
    server.call("CONFIG", "SET", "timeout", 0)


def busy_loop(action: Callable[[Server], None]) -> Callable[[list[Server]], Any]:
    """Have the servers close connections, unnoticed by the event loop."""

    async def act(closing: list[Server]) -> None:
        for server in closing:
            action(server)
        time.sleep(0.1)

    return act


def idle_loop(action: Callable[[Server], None]) -> Callable[[list[Server]], Any]:
    async def act(closing: list[Server]) -> None:
        for server in closing:
            await asyncio.to_thread(action, server)
        await asyncio.sleep(0.1)

    return act


async def reset(_: list[Server]) -> None:
    """Let the event loop see the end of the connections, so that it closes their sockets, as after a TCP reset."""
    for (loop, _), client in list(open_clients.items()):
        if loop is asyncio.get_running_loop():
            nodes = client.get_nodes() if isinstance(client, RedisCluster) else []
            pools = [node._free for node in nodes] or [client.connection_pool._available_connections]
            for idle in itertools.chain(*pools):
                if idle._writer is not None:
                    idle._writer.transport.abort()
    await asyncio.sleep(0.1)


CLOSINGS: dict[str, Callable[[list[Server]], Any]] = {
    "killed": busy_loop(close_all),
    "killed while idle": idle_loop(close_all),
    "server restarted": busy_loop(restart),
    "timed out while idle": idle_loop(time_out),
    "reset while idle": reset,
}
NOT_ALONE = ("cluster", "server restarted")


COUNT_EACH = LuaScript(
    "local r = {} for i, key in ipairs(KEYS) do r[i] = redis.call('INCRBY', key, ARGV[1]) end return r"
)
KEYS = [f"k{n}" for n in range(20)]


# A node of a cluster that is started again has to be found by the others first: see test_cluster.py.
@pytest.mark.parametrize(
    ("kind", "closing"),
    [(kind, closing) for kind in ("alias", "url", "cluster") for closing in CLOSINGS if (kind, closing) != NOT_ALONE],
)
async def test_closed_connections_are_opened_again(
    kind: str, closing: str, server: Server, request: pytest.FixtureRequest, use: Use, count: LuaScript
) -> None:
    """The first calls after it succeed, and are carried out once, in async code as in sync code."""
    closed = request.getfixturevalue("nodes") if kind == "cluster" else [server]
    options = {"CLIENT_CLASS": "resty_django.redis.cluster.ClusterClient"} if kind == "cluster" else {}
    use([node.url for node in closed], **options)
    source = ClientSource(server.url if kind == "url" else "default")

    async def count_all(number: int) -> list[Any]:
        """Add to all keys, in as many calls at once as there are keys."""
        return await asyncio.gather(*(count.run(source.asynchronous(), (key,), (number,)) for key in KEYS))

    async def count_each(number: int) -> list[Any]:
        """Add to all keys, in one call or pipeline."""
        return list((await COUNT_EACH.run_each(source.asynchronous(), KEYS, (number,))).values())

    rounds = 1 if "timed out" in closing else 3  # each takes two seconds
    for call in (count_all, count_each) * rounds:
        before = await call(0)
        await CLOSINGS[closing](closed)
        assert await call(1) == [1 if "restarted" in closing else value + 1 for value in before]
        assert count(source.sync(), (KEYS[0],), (0,)) == (1 if "restarted" in closing else before[0] + 1)


def test_the_error_of_a_dictionary_names_the_cache_that_is_down(server: Server, use: Use) -> None:
    use(server.url)
    shared = RedisDict("carts")
    shared.set("k", 1)
    server.kill()
    try:
        with pytest.raises(Unavailable, match=r"'carts'.* cache 'default'") as caught:
            shared.get("k")
        assert isinstance(caught.value.__cause__, StoreDown)
        with pytest.raises(Unavailable, match="'default'"):
            shared.get_keys()
        with pytest.raises(Unavailable, match="'default'"):
            asyncio.run(shared.aflush_all())
    finally:
        server.start()
    assert shared.get("k") is None


def use_sentinel(use: Use, watched: servers.Watched) -> None:
    use(
        f"redis://{servers.NAME}/0",
        CLIENT_CLASS="django_redis.client.SentinelClient",
        CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory",
        SENTINELS=[sentinel.place for sentinel in watched.sentinels],
        SENTINEL_KWARGS={"retry": Retry(NoBackoff(), 0), "socket_timeout": 1},
        SOCKET_TIMEOUT=1,
    )


@pytest.fixture
def watched(use: Use) -> Iterator[servers.Watched]:
    with servers.sentinel(3) as watched:
        use_sentinel(use, watched)
        yield watched


@pytest.fixture
def watched_by_one(use: Use) -> Iterator[servers.Watched]:
    with servers.sentinel(1) as watched:
        use_sentinel(use, watched)
        yield watched


class Callers:
    """A thread and a thread with a loop that count continuously, and the results of their calls."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.made: dict[str, list[tuple[float, Any]]] = {"sync": [], "async": []}
        self.threads = [threading.Thread(target=self.sync), threading.Thread(target=asyncio.run, args=(self.loop(),))]

    def sync(self) -> None:
        shared = RedisDict("callers")
        while not self.stop.is_set():
            self.note("sync", lambda: shared.incr("sync", 1, init=0))
            time.sleep(0.005)

    async def loop(self) -> None:
        shared = RedisDict("callers")
        while not self.stop.is_set():
            try:
                self.made["async"].append((time.monotonic(), await shared.aincr("async", 1, init=0)))
            except Unavailable as error:
                self.made["async"].append((time.monotonic(), error))
            await asyncio.sleep(0.005)

    def note(self, who: str, call: Any) -> None:
        try:
            self.made[who].append((time.monotonic(), call()))
        except Unavailable as error:
            self.made[who].append((time.monotonic(), error))

    def works_since(self, who: str, moment: float) -> int:
        """The calls that succeeded afterwards."""
        return sum(1 for when, what in self.made[who] if when > moment and isinstance(what, int))

    def __enter__(self) -> Callers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(20)


def test_calls_follow_a_failover_by_sentinel(watched: servers.Watched) -> None:
    """The master dies by SIGKILL, and one sentinel with it, while calls go on."""
    with Callers() as callers:
        until(lambda: min(callers.works_since(who, 0) for who in callers.made) > 50)
        old = watched.master()
        killed = time.monotonic()
        old.kill()
        watched.sentinels[0].kill()
        watched.sentinels.append(watched.sentinels.pop(0))
        until(lambda: watched.master() is not old)
        elected = time.monotonic()
        until(lambda: min(callers.works_since(who, elected) for who in callers.made) > 50)
    for who, calls in callers.made.items():
        assert any(isinstance(what, Unavailable) for when, what in calls if when > killed), who
        after = [what for when, what in calls if when > elected and isinstance(what, int)]
        assert after == list(range(after[0], after[0] + len(after))), "each call counted once"
    assert isinstance(watched.master().call("HGET", "resty:dict:callers:sync", "v"), bytes)


def test_clients_leave_a_master_that_became_a_replica(watched_by_one: servers.Watched) -> None:
    """A connection to the old master, which became a replica, is replaced by one to the new master."""
    watched = watched_by_one
    shared = RedisDict("handover")

    async def work() -> None:
        shared.set("k", 1)
        await shared.aset("k", 2)
        old = watched.master()
        await asyncio.to_thread(until, lambda: watched.sentinels[0].call("SENTINEL", "FAILOVER", servers.NAME))
        await asyncio.to_thread(until, lambda: watched.master() is not old)
        old.call("REPLICAOF", *watched.master().place)  # sentinels would get to it within ten seconds
        await asyncio.to_thread(until, lambda: works(lambda: shared.set("k", 3)))
        for _ in range(100):
            with contextlib.suppress(Unavailable):
                await shared.aset("k", 4)
                break
        assert await shared.aget("k") == shared.get("k") == 4
        assert watched.master().call("HGET", "resty:dict:handover:k", "v") == b"4"

    asyncio.run(work())


def works(call: Callable[[], Any]) -> bool:
    with contextlib.suppress(Unavailable):
        return bool(call())
    return False
