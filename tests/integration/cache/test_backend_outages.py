"""The backend for Django's `CACHES` while its store is down."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import caches
from django.template import Context, Template

from resty_django.cache import MLCache, current_outages
from resty_django.cache.admin import items
from resty_django.events import runtime as events_process
from resty_django.shdict import NoMemory, Unavailable
from tests import servers
from tests.integration.cache.backends import OURS, Api
from tests.integration.cache.cancelling import settle
from tests.servers import Server

pytestmark = pytest.mark.redis


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.one() as server:
        yield server


@pytest.fixture
def site(server: Server, settings: Any) -> Iterator[Any]:
    servers.forget_pools()
    options = {"SOCKET_TIMEOUT": 0.3, "SOCKET_CONNECT_TIMEOUT": 0.3}
    names = ("pages", "default", "events", "local")
    dicts = {name: {"ENGINE": "redis", "ALIAS": "redis"} for name in names}
    settings.RESTY_DJANGO = {"SHARED_DICTS": dicts}
    settings.CACHES = {
        "default": {"BACKEND": OURS, "LOCATION": "pages", "OPTIONS": {"LRU_SIZE": 0}},
        "local": {"BACKEND": OURS, "LOCATION": "local"},
        "careful": {"BACKEND": OURS, "LOCATION": "default", "OPTIONS": {"ON_ERROR": "raise"}},
        "redis": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url, "OPTIONS": options},
    }
    events_process.reset()
    server.call("FLUSHALL")
    yield server
    events_process.reset()
    if server.process is None:
        server.start()
    server.process.send_signal(signal.SIGCONT)


@pytest.fixture(params=["call", "twin"])
def api(request: pytest.FixtureRequest, site: Any) -> Api:
    return Api("redis", request.param == "twin")


async def test_reads_miss_and_writes_return_false(api: Api, site: Server) -> None:
    await api.set("old", 1)
    site.kill()
    assert await api.get("old") is None
    assert await api.get("old", "default") == "default"
    assert await api.get_many(["old", "new"]) == {}
    assert await api.has_key("old") is False
    assert await api.set("new", 1) is None
    assert await api.add("new", 1) is False
    assert await api.touch("old") is False
    assert await api.delete("old") is False
    assert await api.set_many({"a": 1, "b": 2}) == ["a", "b"]
    assert await api.delete_many(["a"]) is None
    with pytest.raises(ValueError, match="not found"):
        await api.incr("old")
    assert await api.get_or_set("new", 7) == 7
    assert await api.get_or_set("new", lambda: 8) == 8
    assert await api.ttl("old") == 0
    assert await api.keys("*") == []
    assert await api.update() is None
    assert await api.clear() is None
    with pytest.raises(Unavailable):
        caches["default"].lock("k").acquire()
    (outage,) = current_outages()
    assert outage.store == "redis:redis"
    assert outage.calls >= 14


async def test_raise(site: Server) -> None:
    cache = caches["careful"]
    cache.set("k", 1)
    site.kill()
    with pytest.raises(Unavailable):
        cache.get("k")
    calls: list[tuple[str, tuple[Any, ...]]] = [
        *(("get", ("k",)), ("set", ("k", 1)), ("add", ("k", 1)), ("delete", ("k",)), ("touch", ("k",))),
        *(("get_many", (["k"],)), ("set_many", ({"k": 1},)), ("delete_many", (["k"],)), ("incr", ("k",))),
        *(("clear", ()), ("ttl", ("k",)), ("keys", ("*",)), ("get_or_set", ("k", lambda: 1))),
    ]
    for name, args in calls:
        with pytest.raises(Unavailable, match="is bypassed"):
            getattr(cache, name)(*args)
        with pytest.raises(Unavailable, match="is bypassed"):
            await getattr(cache, f"a{name}")(*args)


async def test_a_server_without_space(api: Api, site: Server) -> None:
    await api.set("n", 1)
    site.call("CONFIG", "SET", "maxmemory", 1)
    try:
        for _ in range(2):  # the first call finds out, the second one bypasses the server
            with pytest.raises(ValueError, match="not found"):
                await api.incr("n")
        assert await api.get("n") == 1
        assert await api.add("k", 1) is False
        with pytest.raises(NoMemory):
            caches["careful"].incr("n")
    finally:
        site.call("CONFIG", "SET", "maxmemory", 0)
    await settle(lambda: not current_outages())
    assert await api.incr("n") == 2


async def test_a_server_without_space_carries_all_invalidations(site: Server) -> None:
    for cache in (MLCache("c", "pages", on_error="raise"), caches["local"]):
        cache.set("k", "old", tags=["t"])
        site.call("CONFIG", "SET", "maxmemory", 1)
        before = site.call("XLEN", events_process.channel().key)
        try:
            cache.delete("absent")
            cache.delete_many(["absent", "gone"])
            cache.invalidate_tags("t", "u")
            await cache.ainvalidate_tags("u")
            assert cache.get("k") is None
            await (cache.apurge(True) if isinstance(cache, MLCache) else cache.aclear())
            assert site.call("XLEN", events_process.channel().key) == before + 5
        finally:
            site.call("CONFIG", "SET", "maxmemory", 0)


def test_the_admin_reports_a_deletion_that_is_put_off(site: Server) -> None:
    store = caches["local"].store
    items.delete(store, "k")
    store.breaker.fail(NoMemory("no space"), reading=True)  # as of a full server for which other deletions wait
    with pytest.raises(NoMemory, match="is bypassed"):
        items.delete(store, "k")


async def test_a_changed_value_does_not_come_back(api: Api, site: Server) -> None:
    for key in ("set", "deleted", "many", "gone", "kept"):
        await api.set(key, "old")
    assert site.process is not None
    site.process.send_signal(signal.SIGSTOP)
    await api.set("set", "new")
    await api.delete("deleted")
    await api.set_many({"many": "new"})
    await api.delete_many(["gone"])
    assert site.process is not None
    site.process.send_signal(signal.SIGCONT)
    await settle(lambda: not current_outages())
    assert await api.get_many(["set", "deleted", "many", "gone", "kept"]) == {"kept": "old"}
    site.process.send_signal(signal.SIGSTOP)
    await api.clear()
    site.process.send_signal(signal.SIGCONT)
    await settle(lambda: not current_outages())
    assert await api.get("kept") is None


def test_a_template_fragment_is_rendered(site: Server) -> None:
    template = Template("{% load cache %}{% cache 500 price %}{{ price }}{% endcache %}")
    assert template.render(Context({"price": 1})) == "1"
    assert template.render(Context({"price": 2})) == "1"
    site.kill()
    assert template.render(Context({"price": 3})) == "3"
    assert template.render(Context({"price": 4})) == "4"


async def test_tags(api: Api, site: Server) -> None:
    await api.set("tagged", "old", tags=["t"])
    assert await api.get("tagged") == "old"
    assert site.process is not None
    site.process.send_signal(signal.SIGSTOP)
    await api.invalidate_tags("t")
    assert await api.set("new", 1, tags=["t"]) is None
    assert await api.add("new", 1, tags=["t"]) is False
    assert await api.set_many({"new": 1}, tags=["t"]) == ["new"]
    site.process.send_signal(signal.SIGCONT)
    await settle(lambda: not current_outages())
    assert await api.get_many(["tagged", "new"]) == {}


async def test_the_error_of_an_outage_does_not_grow_with_calls(api: Api, site: Server) -> None:
    site.kill()
    for _ in range(5):
        await api.set("k", 1)
        await api.delete_many(["k", "l"])
        await api.clear()
    (outage,) = current_outages()
    assert "bypassed" not in outage.error
