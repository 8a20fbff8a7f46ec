"""Requests, views and stores for the tests of what limits do to views."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.dispatch import Signal
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory, override_settings
from rest_framework.response import Response
from rest_framework.views import APIView

from resty_django.limits.bans.registry import dictionary
from resty_django.shdict import shdicts
from tests.dictionaries import ALIAS
from tests.servers import free_port

from . import served_urls

sync_requests = RequestFactory()
async_requests = AsyncRequestFactory()


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def limits_store(request: pytest.FixtureRequest) -> Iterator[str]:
    """The dictionary "limits" of the site, empty: on each engine."""
    section: dict[str, Any] = {}
    if request.param == "redis":
        request.getfixturevalue("redis_cache")
        section = {"SHARED_DICTS": {"limits": {"ENGINE": "redis", "ALIAS": ALIAS}}}
    with override_settings(RESTY_DJANGO=section):
        shdicts["limits"].flush_all()
        yield request.param
        shdicts["limits"].close()


@pytest.fixture
def bans_store(limits_store: str) -> Iterator[str]:
    """Dictionaries for limits and bans of the site, empty: on each engine."""
    redis = {"ENGINE": "redis", "ALIAS": ALIAS}
    section = {"SHARED_DICTS": {"bans": redis, "limits": redis}} if limits_store == "redis" else {}
    with override_settings(RESTY_DJANGO=section):
        dictionary().flush_all()
        yield limits_store
        dictionary().flush_all()


@pytest.fixture
def empty_limits() -> None:
    """The dictionary "limits" of the site, empty, on LMDB."""
    shdicts["limits"].flush_all()


@pytest.fixture(params=["sync", "async"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(request.param == "async")


class Site:
    """Views of one kind, and requests for them: one test for both twins."""

    def __init__(self, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        self.factory = async_requests if asynchronous else sync_requests

    def view(self, *decorators: Callable[[Any], Any], body: Callable[..., Any] | None = None) -> Any:
        """A view with these decorators, the first of them outside. `body` is called with the request."""
        work = body or (lambda request, **kwargs: HttpResponse(b"done"))
        view: Any
        if self.asynchronous:

            async def view(request: HttpRequest, **kwargs: Any) -> Any:
                answer = work(request, **kwargs)
                return await answer if inspect.isawaitable(answer) else answer
        else:

            def view(request: HttpRequest, **kwargs: Any) -> Any:
                return work(request, **kwargs)

        view.__name__ = view.__qualname__ = f"view_{next(_numbers)}"
        for decorator in reversed(decorators):
            view = decorator(view)
        return view

    async def get(self, view: Any, path: str = "/", ip: str = "192.0.2.1", **options: Any) -> Any:
        """Return the response of a view to a GET or another `method`. `kwargs`: of its URL. `user`: of the request."""
        kwargs, user = options.pop("kwargs", {}), options.pop("user", None)
        request = self.factory.generic(options.pop("method", "GET"), path, **options)
        request.META["REMOTE_ADDR"] = ip
        if user is not None:
            request.user = user
        assert iscoroutinefunction(view) == self.asynchronous
        answer = view(request, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    async def statuses(self, view: Any, count: int, **options: Any) -> list[int]:
        return [(await self.get(view, **options)).status_code for _ in range(count)]


_numbers = itertools.count()


class Asking:
    """Requests by a handler of Django, sync or async."""

    def __init__(self, asynchronous: bool) -> None:
        self.asynchronous = asynchronous

    def statuses(self, url: str, count: int, method: str = "get", **options: Any) -> list[int]:
        return [response.status_code for response in self.responses(url, count, method, **options)]

    def responses(self, url: str, count: int = 1, method: str = "get", user: Any = None, **options: Any) -> list[Any]:
        if not self.asynchronous:
            client = Client(raise_request_exception=False)
            if user is not None:
                client.force_login(user)
            return [getattr(client, method)(url, **options) for _ in range(count)]

        async def ask() -> list[Any]:
            client = AsyncClient(raise_request_exception=False)
            if user is not None:
                await client.aforce_login(user)
            return [await getattr(client, method)(url, **options) for _ in range(count)]

        return asyncio.run(ask())


def change(settings: Any, **section: Any) -> None:
    """Change settings of limits."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {**settings.RESTY_DJANGO.get("LIMITS", {}), **section}}


@contextmanager
def heard(signal: Signal) -> Iterator[list[dict[str, Any]]]:
    """Collect the arguments that the signal sends during the block."""
    sent: list[dict[str, Any]] = []

    def receive(**named: Any) -> None:
        sent.append(named)

    signal.connect(receive)
    try:
        yield sent
    finally:
        signal.disconnect(receive)


@contextmanager
def serving(settings: Any, urlpatterns: list[Any], middleware: Sequence[str] = ()) -> Iterator[None]:
    """Views under URLs, for a client or a server. `settings`: the fixture, which restores them after the test."""
    before, served_urls.urlpatterns = served_urls.urlpatterns, urlpatterns
    settings.ROOT_URLCONF, settings.MIDDLEWARE = served_urls.__name__, list(middleware)
    try:
        yield
    finally:
        served_urls.urlpatterns = before


def on_dead_redis(*names: str, **limits: Any) -> override_settings:
    """Settings by which these dictionaries are on a Redis that does not answer."""
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"redis://127.0.0.1:{free_port()}/0"}
    section = {"SHARED_DICTS": {name: {"ENGINE": "redis"} for name in names}, "LIMITS": limits}
    return override_settings(CACHES={"default": cache}, RESTY_DJANGO=section)


def drf_view(*throttles: Any, **attributes: Any) -> Any:
    """A view of Django REST framework with these throttles, for everybody."""

    def get(self: Any, request: Any, **kwargs: Any) -> Any:
        return Response("done")

    values = {"authentication_classes": (), "permission_classes": (), "throttle_classes": throttles, "get": get}
    return type("AView", (APIView,), {**values, **attributes}).as_view()
