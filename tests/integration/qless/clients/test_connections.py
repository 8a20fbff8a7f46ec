"""Where a client's connections come from, and what becomes of them: restarts, outages, forks, loops, settings."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from redis import Redis, RedisCluster
from redis import asyncio as aio

from resty_django.qless import Client, Events, InvalidArgument
from resty_django.qless import client as default
from resty_django.qless.clients.default import default_client
from resty_django.redis import StoreDown, StoreError
from tests import servers
from tests.integration.qless.conftest import Invoke
from tests.servers import Server, until

pytestmark = pytest.mark.contract

CLUSTER = "resty_django.redis.cluster.ClusterClient"


@pytest.fixture(params=["sync", "async"])
def invoke(request: pytest.FixtureRequest) -> Invoke:
    return Invoke(request.param)


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server that these tests may kill, if they start it again."""
    with servers.one() as server:
        yield server


@pytest.fixture
def server(own_server: Server) -> Server:
    own_server.call("FLUSHALL")
    own_server.call("SCRIPT", "FLUSH")
    return own_server


@pytest.fixture(scope="module")
def renewed_cluster() -> Iterator[servers.RenewedCluster]:
    renewed = servers.RenewedCluster()
    yield renewed
    renewed.close()


@pytest.fixture
def nodes(renewed_cluster: servers.RenewedCluster) -> list[Server]:
    return renewed_cluster.nodes()


def use(settings: Any, location: str | list[str], **options: Any) -> None:
    servers.forget_pools()
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "jobs": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location, "OPTIONS": options},
    }


async def round_trip(client: Client, invoke: Invoke) -> None:
    jid = await invoke(client.queues["q"].put, "K", {"n": 1})
    job = await invoke(client.queues["q"].pop)
    assert (job.jid, job.data) == (jid, {"n": 1})
    await invoke(job.complete)
    replies = await invoke(client.call_many, [("length", "q"), ("nix",)])
    assert [type(reply) for reply in replies] == [int, InvalidArgument]


@pytest.mark.parametrize("kind", ["alias", "url", "client", "factory", "two"])
async def test_ways_to_name_a_server(server: Server, settings: Any, invoke: Invoke, kind: str) -> None:
    use(settings, server.url)
    with Redis.from_url(server.url) as redis:
        async with aio.Redis.from_url(server.url) as async_redis:
            client = {
                "alias": lambda: Client("jobs"),
                "url": lambda: Client(server.url),
                "client": lambda: Client(redis),
                "factory": lambda: Client(lambda: Redis.from_url(server.url)),
                "two": lambda: Client(redis, async_redis=async_redis),
            }[kind]()
            await round_trip(client, invoke)
            client.close()
            await round_trip(client, invoke)
            client.close()


async def test_a_client_of_asyncio_alone(server: Server) -> None:
    async with aio.Redis.from_url(server.url) as redis:
        client = Client(redis)
        await round_trip(client, Invoke("async"))
        with pytest.raises(ImproperlyConfigured, match=r"Only a redis\.asyncio client"):
            client.queues["q"].length()
        await round_trip(Client(lambda: redis), Invoke("async"))
        await round_trip(Client(server.url, async_redis=lambda: redis), Invoke("async"))


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ("default", "not provide a Redis client for resty_django"),
        (42, r"A builtins\.int is not a Redis client"),
        (lambda: "text", r"A builtins\.str is not a Redis client"),
        (lambda: Redis(decode_responses=True), "decode_responses"),
    ],
)
async def test_clients_refuse_what_is_not_a_server(invoke: Invoke, settings: Any, origin: Any, message: str) -> None:
    use(settings, "redis://127.0.0.1:1")
    with pytest.raises(ImproperlyConfigured, match=message):
        await invoke(Client(origin).queues["q"].length)


async def test_the_core_is_loaded_again_where_the_server_has_lost_it(server: Server, invoke: Invoke) -> None:
    client = Client(server.url)
    await round_trip(client, invoke)
    server.call("SCRIPT", "FLUSH")
    await round_trip(client, invoke)
    server.call("SCRIPT", "FLUSH")
    requests = [("put", "w", "q", f"j{n}", "K", "{}", 0) for n in range(5)] + [("nix",), ("length", "q")]
    *jids, refused, length = await invoke(client.call_many, requests)
    assert (jids, length) == ([f"j{n}".encode() for n in range(5)], 5)
    assert isinstance(refused, InvalidArgument)
    server.call("SCRIPT", "FLUSH")
    refused, length = await invoke(client.call_many, [("nix",), ("length", "q")])
    assert (str(refused), length) == ("Unknown command nix", 5)
    client.close()


async def test_calls_during_an_outage_raise_and_succeed_afterwards(server: Server, invoke: Invoke) -> None:
    client = Client(server.url)
    await round_trip(client, invoke)
    server.kill()
    try:
        with pytest.raises(StoreDown):
            await invoke(client.queues["q"].put, "K")
        with pytest.raises(StoreDown):
            await invoke(client.call_many, [("length", "q")])
    finally:
        server.start()
    await round_trip(client, invoke)
    client.close()


async def test_a_refusal_by_the_server_is_not_an_error_of_the_queue(server: Server, invoke: Invoke) -> None:
    client = Client(server.url)
    server.call("SET", "ql:q:q-work", "not a sorted set")
    with pytest.raises(Exception, match="WRONGTYPE") as caught:
        await invoke(client.queues["q"].put, "K")
    assert type(caught.value).__name__ == "StoreError"
    client.close()


def test_one_client_in_many_loops_and_threads(server: Server) -> None:
    client = Client(server.url)

    async def calls() -> None:
        await asyncio.gather(*(client.queues["q"].aput("K") for _ in range(50)))

    def work() -> None:
        asyncio.run(calls())
        for _ in range(50):
            client.queues["q"].put("K")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert client.queues["q"].length() == 400
    client.close()


def test_a_forked_child_uses_separate_connections(server: Server) -> None:
    client = Client(server.url)
    client.queues["q"].put("K")
    parent = client.worker_name
    pid = os.fork()
    if not pid:
        try:
            client.queues["q"].put("K", client.worker_name)
            asyncio.run(client.queues["q"].aput("K"))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert client.queues["q"].length() == 3
    names = {job.data for job in client.queues["q"].peek(9)}
    assert parent.endswith(f"-{os.getpid()}")
    assert names == {None, parent.replace(str(os.getpid()), str(pid))}
    client.close()


async def test_the_default_client_follows_the_settings(server: Server, settings: Any, invoke: Invoke) -> None:
    use(settings, server.url)
    section = {"ALIAS": "jobs", "PREFIX": "{one}ql:", "WORKER_NAME": "me"}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": section}
    first = default_client()
    await round_trip(default, invoke)
    assert (default.worker_name, default.prefix) == ("me", "{one}ql:")
    assert default.queues["q"].client is first
    assert {key.partition(b"}")[0] for key in server.call("KEYS", "*")} == {b"{one"}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": server.url, "PREFIX": "{two}ql:"}}
    assert default_client() is not first
    await round_trip(default, invoke)
    assert b"{two}ql:queues" in server.call("KEYS", "*")
    default.close()


def test_the_default_client_is_recreated_after_a_fork(server: Server, settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": server.url}}
    parent_client = default_client()
    pid = os.fork()
    if not pid:
        same = True
        try:
            same = default_client() is parent_client
            default.queues["q"].put("K")
        finally:
            os._exit(1 if same else 0)
    assert os.waitpid(pid, 0)[1] == 0
    assert default_client() is parent_client
    assert default.queues["q"].length() == 1
    default.close()


@pytest.mark.parametrize("kind", ["alias", "client"])
async def test_a_client_works_on_a_cluster(nodes: list[Server], settings: Any, invoke: Invoke, kind: str) -> None:
    use(settings, [node.url for node in nodes], CLIENT_CLASS=CLUSTER)
    address = {"host": "127.0.0.1", "port": nodes[0].port}
    with RedisCluster(**address) as redis:
        async with aio.RedisCluster(**address) as async_redis:
            homes = set()
            for name in ("one", "two", "three", "four"):
                prefix = f"{{{name}}}ql:"
                origin = {"redis": "jobs"} if kind == "alias" else {"redis": redis, "async_redis": async_redis}
                client = Client(**origin, prefix=prefix)  # type: ignore[arg-type]
                for node in nodes:
                    node.call("FLUSHALL")
                    node.call("SCRIPT", "FLUSH")
                await round_trip(client, invoke)
                await invoke(client.queues["q"].recur, "K", {}, 60, jid="r", offset=60)
                assert await invoke(client.jobs.get("r").next) is not None  # type: ignore[union-attr]
                jids = await invoke(client.queues["q"].put_many, [{"klass": "K"}] * 3)
                await invoke(client.track, jids[0])
                await invoke(client.bulk_cancel, jids)
                events = client.events()
                heard: list[Any] = []
                events.on("untrack", heard.append)
                untracking = threading.Thread(target=untrack, args=(client, events, heard))
                events.on_ready(untracking.start)
                client.queues["q"].put("K", jid="j")
                client.track("j")
                await (asyncio.to_thread(events.listen) if invoke.kind == "sync" else events.alisten())
                untracking.join(30)
                assert heard == ["j"]
                homes |= {node.port for node in nodes if node.call("KEYS", f"{prefix}queues")}
            assert len(homes) > 1


def untrack(client: Client, events: Events, heard: list[Any]) -> None:
    client.untrack("j")
    until(lambda: heard)
    events.stop()


async def test_a_sync_client_of_a_cluster_does_not_serve_asyncio(nodes: list[Server]) -> None:
    address = {"host": "127.0.0.1", "port": nodes[0].port}
    with RedisCluster(**address) as redis, pytest.raises(ImproperlyConfigured, match="async_redis"):
        await Client(redis, prefix="{one}ql:").queues["q"].alength()


async def test_a_prefix_without_a_hash_tag_on_a_cluster_says_so(
    nodes: list[Server], settings: Any, invoke: Invoke
) -> None:
    use(settings, [node.url for node in nodes], CLIENT_CLASS=CLUSTER)
    with pytest.raises(ImproperlyConfigured, match="hash tag"):
        await invoke(Client("jobs").queues["q"].put, "K")


async def test_the_error_while_a_slot_moves_does_not_blame_the_prefix(nodes: list[Server], invoke: Invoke) -> None:
    with RedisCluster(host="127.0.0.1", port=nodes[0].port) as redis:
        async with aio.RedisCluster(host="127.0.0.1", port=nodes[0].port) as async_redis:
            client = Client(redis, async_redis=async_redis, prefix="{moving}ql:")
            client.queues["q"].put("K")
            slot = redis.keyslot(client.prefix)
            source = next(node for node in nodes if node.call("KEYS", "{moving}ql:queues"))
            target = next(node for node in nodes if node is not source)
            ids = {node.port: node.call("CLUSTER", "MYID").decode() for node in nodes}
            target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
            source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
            try:
                with pytest.raises(StoreError, match="moving"):
                    await invoke(client.queues["q"].put, "K")
                (reply,) = await invoke(client.call_many, [("pop", "q", "w", 1)])
                assert isinstance(reply, StoreError)
            finally:
                for node in (target, source):
                    node.call("CLUSTER", "SETSLOT", slot, "STABLE")
                target.call("FLUSHALL")


async def test_events_of_an_idle_cluster(nodes: list[Server], invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client pings the server now and then, and receives the events of any node."""
    monkeypatch.setattr("resty_django.redis.pubsub.SILENCE_SECONDS", 0.3)

    def asked() -> int:
        pings = [node.call("INFO", "commandstats").get("cmdstat_ping", {"calls": 0}) for node in nodes]
        return sum(int(stat["calls"]) for stat in pings)

    with RedisCluster(host="127.0.0.1", port=nodes[0].port) as redis:
        async with aio.RedisCluster(host="127.0.0.1", port=nodes[0].port) as async_redis:
            events = Client(redis, async_redis=async_redis, prefix="{idle}ql:").events()
            heard: list[Any] = []
            events.on("log", heard.append)

            def tell() -> None:
                try:
                    before = asked()
                    until(lambda: asked() >= before + 3)
                    for number, node in enumerate(nodes):
                        node.call("PUBLISH", "{idle}ql:log", str(number))
                    until(lambda: len(heard) == len(nodes))
                finally:
                    events.stop()

            telling = threading.Thread(target=tell)
            events.on_ready(telling.start)
            await (asyncio.to_thread(events.listen) if invoke.kind == "sync" else events.alisten())
            telling.join(30)
            assert sorted(heard) == ["0", "1", "2"]


def test_connections_made_from_a_url_are_closed(server: Server) -> None:
    client = Client(f"{server.url}?client_name=closing")
    client.queues["q"].length()
    assert server.clients("closing") == 1
    client.close()
    until(lambda: server.clients("closing") == 0)

    async def calls() -> int:
        await client.queues["q"].alength()
        return server.clients("closing")

    assert asyncio.run(calls()) == 1
    until(lambda: server.clients("closing") == 0)
    client.close()
