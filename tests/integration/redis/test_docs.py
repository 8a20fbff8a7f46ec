"""docs/production/redis.md: its settings are obeyed, and the rights that it names are enough."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import caches
from redis import asyncio as aio
from redis.sentinel import SentinelConnectionPool

from resty_django.redis import async_connection, connection
from resty_django.redis.cluster import ClusterClient
from resty_django.shdict import Update
from resty_django.shdict.redis import RedisDict
from tests import servers
from tests.docs_reader import execute, page

from .conftest import Use

PAGE = page("docs/production/redis.md")


@pytest.fixture
def examples(settings: Any) -> Iterator[list[dict[str, Any]]]:
    """The settings of the page's caches."""
    caches = []
    for block in PAGE.blocks:
        if "CACHES" in block.text:
            namespace: dict[str, Any] = {}
            execute(block.text, block.place, namespace)
            caches.append(namespace["CACHES"])
    servers.forget_pools()
    yield caches
    servers.forget_pools()


async def test_settings_of_caches_are_obeyed(examples: list[dict[str, Any]], settings: Any) -> None:
    single, sentinel, cluster = examples
    settings.CACHES = single
    kwargs = connection("resty").get_connection_kwargs()
    assert (kwargs["host"], kwargs["username"], kwargs["socket_timeout"]) == ("10.0.0.5", "resty", 1)
    options = async_connection("resty").get_connection_kwargs()  # type: ignore[no-untyped-call, union-attr]
    assert options["password"] == "secret"

    settings.CACHES = sentinel
    pool = connection("resty").connection_pool  # type: ignore[union-attr]
    assert isinstance(pool, SentinelConnectionPool)
    assert (pool.service_name, pool.is_master, len(pool.sentinel_manager.sentinels)) == ("mymaster", True, 3)
    twin = async_connection("resty").connection_pool  # type: ignore[union-attr]
    assert isinstance(twin, aio.sentinel.SentinelConnectionPool)
    assert (twin.service_name, twin.is_master, len(twin.sentinel_manager.sentinels)) == ("mymaster", True, 3)
    for sentinel_client in twin.sentinel_manager.sentinels:
        assert sentinel_client.get_connection_kwargs()["retry"].get_retries() == 0

    settings.CACHES = cluster
    client = caches["default"].client  # type: ignore[attr-defined]
    assert isinstance(client, ClusterClient)
    nodes, options = client.cluster()
    assert nodes == [("10.0.0.1", 6379), ("10.0.0.2", 6379)]
    assert options == {"socket_timeout": 1}
    assert isinstance(async_connection(), aio.RedisCluster)


def use_everything(shared: RedisDict) -> None:
    async def calls() -> None:
        await shared.aset("a", 1, 1)
        assert await shared.aget_keys() == ["a"]

    shared.set("a", 1, 1)
    assert shared.expire("a", 0)
    assert shared.incr("a") == 2
    shared.update("a", lambda value: Update(None))
    shared.rpush("l", 1)
    assert shared.lpop("l") == 1
    assert shared.add("a", 1)
    assert shared.get_keys() == ["a"]
    shared.flush_all()
    assert shared.stats().keys == 1
    assert shared.flush_expired() == 1
    assert shared.delete("a") is False
    asyncio.run(calls())


def rights() -> list[str]:
    (block,) = (block for block in PAGE.blocks if block.language == "text")
    return shlex.split(block.text)


def test_the_rights_are_enough(server: servers.Server, use: Use) -> None:
    server.call("FLUSHALL")
    server.call(*rights())
    use(server.url_of("resty"), PASSWORD="secret")
    use_everything(RedisDict("rights"))


def test_the_rights_are_enough_on_a_cluster(use: Use, nodes: list[servers.Server]) -> None:
    extra_rights = re.search(r"On a cluster, also add `([^`]+)`", PAGE.text)
    assert extra_rights is not None
    for node in nodes:
        node.call("FLUSHALL")
        node.call(*rights(), *extra_rights[1].split())
    use(nodes[0].url_of("resty"), CLIENT_CLASS="resty_django.redis.cluster.ClusterClient", PASSWORD="secret")
    use_everything(RedisDict("rights"))
