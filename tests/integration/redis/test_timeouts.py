"""Socket timeouts: all our connections have one, and a check names the caches that set none."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django_redis.pool import ConnectionFactory
from redis import Redis

from resty_django.checks import check_caches
from resty_django.redis import ClientSource, StoreDown, async_connection, connection, timeouts
from resty_django.redis.cluster import ClusterClient
from resty_django.shdict import Unavailable
from resty_django.shdict.redis import RedisDict
from tests import servers

pytestmark = pytest.mark.contract

DJANGO_REDIS = "django_redis.cache.RedisCache"
DJANGO = "django.core.cache.backends.redis.RedisCache"
NONE: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": None}
"""No timeouts, the default of redis-py before version 8."""


@pytest.fixture
def deaf() -> Iterator[int]:
    """The port of a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def pools() -> Iterator[None]:
    servers.forget_pools()
    yield
    servers.forget_pools()


def cache(settings: Any, url: str, backend: str = DJANGO_REDIS, **options: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": url, "OPTIONS": options}}


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "django-redis": (DJANGO_REDIS, {"CONNECTION_POOL_KWARGS": NONE}),
    "Django": (DJANGO, NONE),
}


@pytest.mark.parametrize(("backend", "options"), OPTIONS.values(), ids=OPTIONS)
def test_connections_of_a_cache_without_a_timeout_have_ours(
    settings: Any, backend: str, options: dict[str, Any]
) -> None:
    cache(settings, "redis://127.0.0.1:1/0", backend, **options)
    conn = connection().connection_pool.make_connection()  # type: ignore[union-attr]
    assert conn.socket_timeout == conn.socket_connect_timeout == timeouts.TIMEOUT_SECONDS


async def test_clients_for_asyncio_get_timeouts(settings: Any) -> None:
    cache(settings, "redis://127.0.0.1:1/0", CONNECTION_POOL_KWARGS=NONE)
    kwargs = async_connection().get_connection_kwargs()  # type: ignore[no-untyped-call, union-attr]
    assert kwargs["socket_timeout"] == kwargs["socket_connect_timeout"] == timeouts.TIMEOUT_SECONDS


async def test_clients_from_a_url_get_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "default", lambda: None)
    source = ClientSource("redis://127.0.0.1:1/0")
    for kwargs in (source.sync().get_connection_kwargs(), source.asynchronous().get_connection_kwargs()):  # type: ignore[union-attr, no-untyped-call]
        assert kwargs["socket_timeout"] == kwargs["socket_connect_timeout"] == timeouts.TIMEOUT_SECONDS
    kwargs = ClientSource("redis://127.0.0.1:1/0?socket_timeout=2.5").sync().get_connection_kwargs()  # type: ignore[union-attr]
    assert kwargs["socket_timeout"] == 2.5


def test_sentinels_and_clusters_get_timeouts(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "default", lambda: None)
    settings.DJANGO_REDIS_CONNECTION_FACTORY = "django_redis.pool.SentinelConnectionFactory"
    cache(
        settings,
        "redis://mymaster/0",
        CLIENT_CLASS="django_redis.client.SentinelClient",
        CONNECTION_FACTORY="django_redis.pool.SentinelConnectionFactory",
        SENTINELS=[("127.0.0.1", 1)],
        SENTINEL_KWARGS={"socket_timeout": None},
    )
    pool = connection().connection_pool  # type: ignore[union-attr]
    sentinel_pool = pool.sentinel_manager.sentinels[0].connection_pool
    for kwargs in (pool.connection_kwargs, sentinel_pool.connection_kwargs):
        assert kwargs["socket_timeout"] == kwargs["socket_connect_timeout"] == timeouts.TIMEOUT_SECONDS
    del settings.DJANGO_REDIS_CONNECTION_FACTORY
    _nodes, kwargs = ClusterClient("redis://127.0.0.1:1", {"OPTIONS": {}}, None).cluster()
    assert kwargs["socket_timeout"] == timeouts.TIMEOUT_SECONDS


def test_idle_connections_from_before_are_not_used_again(settings: Any, valkey_url: str) -> None:
    cache(settings, valkey_url, CONNECTION_POOL_KWARGS=NONE)
    pool = ConnectionFactory({"CONNECTION_POOL_KWARGS": NONE}).connect(valkey_url).connection_pool
    Redis(connection_pool=pool).ping()
    timeouts.add_client_timeouts(Redis(connection_pool=pool))
    idle = pool.get_connection()
    assert idle.socket_timeout == timeouts.TIMEOUT_SECONDS
    pool.release(idle)


def test_a_server_that_went_silent_is_given_up(settings: Any, deaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "TIMEOUT_SECONDS", 0.2)
    cache(settings, f"redis://127.0.0.1:{deaf}/0", CONNECTION_POOL_KWARGS=NONE)
    ended = threading.Event()

    def ask() -> None:
        with pytest.raises(Unavailable):
            RedisDict("one").get("k")
        with pytest.raises((StoreDown, OSError, Exception)):
            ClientSource(f"redis://127.0.0.1:{deaf}/0?socket_timeout=0.2").sync().ping()
        ended.set()

    started = time.monotonic()
    threading.Thread(target=ask, daemon=True).start()
    assert ended.wait(30), f"still waiting after {time.monotonic() - started:.0f} s"


CHECKED: dict[str, tuple[dict[str, Any], bool]] = {
    "no options": ({"BACKEND": DJANGO_REDIS, "LOCATION": "redis://h/0"}, True),
    "Django's": ({"BACKEND": DJANGO, "LOCATION": "redis://h/0"}, True),
    "an option": ({"BACKEND": DJANGO_REDIS, "LOCATION": "redis://h/0", "OPTIONS": {"SOCKET_TIMEOUT": 1}}, False),
    "of the pool": (
        {"BACKEND": DJANGO_REDIS, "LOCATION": "r://h", "OPTIONS": {"CONNECTION_POOL_KWARGS": {"socket_timeout": 1}}},
        False,
    ),
    "None": ({"BACKEND": DJANGO, "LOCATION": "r://h", "OPTIONS": {"socket_timeout": None}}, True),
    "Django's option": ({"BACKEND": DJANGO, "LOCATION": "r://h", "OPTIONS": {"socket_timeout": 2}}, False),
    "in the URL": ({"BACKEND": DJANGO_REDIS, "LOCATION": "redis://h/0?socket_timeout=3"}, False),
    "in a list": ({"BACKEND": DJANGO_REDIS, "LOCATION": ["redis://h/0?socket_timeout=3"]}, False),
    "no Redis": ({"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}, False),
    "no backend": ({"BACKEND": "no.such.backend"}, False),
}


@pytest.mark.parametrize(("entry", "is_named"), CHECKED.values(), ids=CHECKED)
def test_the_check_names_caches_without_one(
    settings: Any, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], is_named: bool
) -> None:
    monkeypatch.setattr(timeouts, "default", lambda: None)
    settings.CACHES, settings.RESTY_DJANGO = {"default": entry}, {"QLESS": {"EAGER": True}}
    messages = check_caches()
    assert [message.id for message in messages] == (["resty_django.W005"] if is_named else [])
    assert all("'default'" in message.msg for message in messages)


def test_the_default_of_redis_py_counts(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "default", lambda: 5)
    settings.CACHES = {"default": {"BACKEND": DJANGO_REDIS, "LOCATION": "redis://h/0"}}
    settings.RESTY_DJANGO = {"QLESS": {"EAGER": True}}
    assert check_caches() == []
