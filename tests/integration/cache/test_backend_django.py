"""Django's own users of caches: sessions, pages, template fragments, models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.cache import caches
from django.core.cache.utils import make_template_fragment_key
from django.http import HttpRequest, HttpResponse
from django.middleware.cache import CacheMiddleware
from django.template import Context, Template
from django.test import Client, RequestFactory
from django.urls import path
from django.views.decorators.cache import cache_page

from tests.integration.cache.backends import fresh

runs: list[str] = []


def plain_view(request: HttpRequest) -> HttpResponse:
    runs.append(request.path)
    return HttpResponse(f"run {len(runs)}", headers={"X-Run": str(len(runs))})


@cache_page(60)
def cached_view(request: HttpRequest) -> HttpResponse:
    return plain_view(request)


@cache_page(60)
async def async_view(request: HttpRequest) -> HttpResponse:
    return plain_view(request)


urlpatterns = [path("plain", plain_view), path("cached", cached_view), path("async", async_view)]


@pytest.fixture(autouse=True, params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def kind(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> Iterator[str]:
    runs.clear()
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    for _ in fresh(request, settings, tmp_path, request.param):
        yield request.param


def forget() -> None:
    """Empty L1, and leave L2 as it is."""
    caches["default"].store.lru.flush_all()


# --- sessions --------------------------------------------------------------------------------------------------------


def session_class(engine: str) -> Any:
    return import_module(f"django.contrib.sessions.backends.{engine}").SessionStore


@pytest.mark.db
@pytest.mark.django_db
@pytest.mark.parametrize("engine", ["cache", "cached_db"])
def test_sessions(engine: str) -> None:
    store = session_class(engine)
    session = store()
    session["user"] = 7
    session["cart"] = [{"tea": 2}]
    session.save()
    key = session.session_key
    assert session.exists(key)
    loaded = store(key)
    assert loaded["cart"] == [{"tea": 2}]
    loaded["cart"][0]["tea"] = 3
    assert store(key)["cart"] == [{"tea": 2}], "it is not saved yet"
    loaded.save()
    forget()
    assert store(key)["cart"] == [{"tea": 3}]
    loaded.cycle_key()
    assert loaded.session_key != key
    assert not store().exists(key)
    assert store(loaded.session_key)["user"] == 7
    loaded.flush()
    assert store(key).get("user") is None


async def test_sessions_of_async_code() -> None:
    store = session_class("cache")
    session = store()
    await session.aset("user", 7)
    await session.asave()
    assert await session.aexists(session.session_key)
    loaded = store(session.session_key)
    assert await loaded.aget("user") == 7
    await loaded.aflush()
    assert not await store().aexists(session.session_key)


# --- pages, fragments, objects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["/cached", "/async"])
def test_a_view_that_is_cached(client: Client, address: str) -> None:
    first = client.get(address)
    second = client.get(address)
    forget()
    third = client.get(address)
    assert [response.content for response in (first, second, third)] == [b"run 1"] * 3
    assert third.headers["X-Run"] == "1"
    assert third.headers["Cache-Control"] == first.headers["Cache-Control"]
    assert client.get(f"{address}?other").content == b"run 2"
    caches["default"].clear()
    assert client.get(address).content == b"run 3"


async def test_a_view_that_is_cached_under_asgi(async_client: Any) -> None:
    for _ in range(2):
        assert (await async_client.get("/async")).content == b"run 1"


def test_a_site_that_is_cached(client: Client, settings: Any) -> None:
    settings.MIDDLEWARE = [
        "django.middleware.cache.UpdateCacheMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.cache.FetchFromCacheMiddleware",
    ]
    assert client.get("/plain").content == client.get("/plain").content == b"run 1"
    assert client.head("/plain").status_code == 200
    assert client.get("/plain", headers={"accept-language": "de"}).content == b"run 1"
    assert len(runs) == 1
    assert CacheMiddleware(plain_view)(RequestFactory().get("/x")).content == b"run 2"


def test_a_fragment_of_a_template() -> None:
    template = Template("{% load cache %}{% cache 60 menu user %}<b>{{ user }}</b>{% endcache %}")
    assert template.render(Context({"user": "a&b"})) == "<b>a&amp;b</b>"
    key = make_template_fragment_key("menu", ["a&b"])
    for _ in range(2):
        fragment = caches["default"].get(key)
        assert fragment == "<b>a&amp;b</b>"
        assert hasattr(fragment, "__html__"), "safe as it was"
    caches["default"].set(key, "<i>other</i>")
    assert template.render(Context({"user": "a&b"})) == "<i>other</i>"


@pytest.mark.django_db
def test_models_and_querysets() -> None:
    cache = caches["default"]
    group = Group.objects.create(name="tea")
    cache.set("group", group)
    cache.set("groups", Group.objects.all())
    for _ in range(2):
        cached_group = cache.get("group")
        assert (cached_group, cached_group.name) == (group, "tea")
        cached_group.name = "changed"
        assert list(cache.get("groups")) == [group]


def test_async_calls_leave_the_loop_free(kind: str) -> None:
    """With Redis each call waits for the network; meanwhile other tasks run."""
    if kind != "redis":
        pytest.skip("LMDB waits for nothing")

    async def main() -> list[str]:
        cache = caches["default"]
        await cache.aset("warm", 1)
        order: list[str] = []

        async def other() -> None:
            while "done" not in order:
                order.append("other")
                await asyncio.sleep(0)

        async def calls() -> None:
            for call in (
                cache.aset("k", "x"),
                cache.aget("k"),
                cache.aadd("a", 1),
                cache.aincr("a"),
                cache.atouch("k", 5),
                cache.adelete("k"),
                cache.aset_many({"b": 1}),
                cache.aclear(),
            ):
                before = len(order)
                await call
                order.append("call" if len(order) > before else "blocked")
            order.append("done")

        await asyncio.gather(other(), calls())
        return [step for step in order if step != "other"]

    assert asyncio.run(main()) == ["call"] * 8 + ["done"]
