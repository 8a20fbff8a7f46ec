"""Addresses of servers for people: never with a password."""

from __future__ import annotations

import pytest
from redis import BlockingConnectionPool, Redis
from redis.sentinel import Sentinel

from resty_django.redis import connection
from resty_django.redis.servers import address
from tests.servers import Server

from .conftest import Use


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://10.0.0.5:6380/3", "redis://10.0.0.5:6380/3"),
        ("redis://10.0.0.5", "redis://10.0.0.5:6379/0"),
        ("redis://:hunter2@10.0.0.5/1", "redis://10.0.0.5:6379/1"),
        ("rediss://app:hunter2@jobs.example:7000/2", "rediss://jobs.example:7000/2"),
        ("redis://app:hun%40ter2%2F@jobs.example/2", "redis://jobs.example:6379/2"),
        ("redis://jobs.example/0?password=hunter2&db=4", "redis://jobs.example:6379/4"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("unix://:hunter2@/run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        ("unix:///run/redis.sock?password=hunter2", "unix:///run/redis.sock?db=0"),
    ],
)
def test_an_address_has_no_password(url: str, expected: str) -> None:
    assert address(Redis.from_url(url)) == expected
    assert address(Redis(connection_pool=BlockingConnectionPool.from_url(url))) == expected


def test_an_address_contains_the_defaults() -> None:
    assert address(Redis(password="hunter2")) == "redis://localhost:6379/0"
    assert address(Redis(host="10.0.0.5", db=7, ssl=True)) == "rediss://10.0.0.5:6379/7"


def test_the_address_of_sentinel_is_the_name_of_the_service() -> None:
    sentinel = Sentinel([("10.0.0.5", 26379)], sentinel_kwargs={"password": "hunter2"})
    assert address(sentinel.master_for("mymaster", db=3, password="hunter2")) == "redis://mymaster/3 (Sentinel)"


@pytest.mark.redis
def test_the_address_of_a_cluster_lists_all_nodes(nodes: list[Server], use: Use) -> None:
    use([nodes[0].url], CLIENT_CLASS="resty_django.redis.cluster.ClusterClient")
    assert address(connection()) == ", ".join(sorted(f"127.0.0.1:{node.port}" for node in nodes))
