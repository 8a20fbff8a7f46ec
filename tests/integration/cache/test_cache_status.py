"""The response header `Cache-Status` of `@cache_view`, as RFC 9211 defines it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from resty_django.cache import MLCache, cache_view, mlcaches
from resty_django.cache.decorators.cache_status import identifier_of

TOKEN = r"[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*"
STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
VALUE = rf"(?:-?\d+|{TOKEN}|{STRING})"
ITEM = rf"(?:{TOKEN}|{STRING})(?:; [a-z*][a-z0-9_.*-]*(?:={VALUE})?)*"
LIST = re.compile(rf"{ITEM}(?:, {ITEM})*")
"""The syntax of RFC 8941 for a list of items with parameters."""

Get = Callable[..., HttpResponse]


@pytest.fixture(params=["call", "twin"])
def get(request: pytest.FixtureRequest, site: Any) -> Iterator[Get]:
    """Request a page from a view that is decorated with these arguments; the view may be sync or async."""
    views: dict[Any, Any] = {}

    def get(page: Callable[[HttpRequest], HttpResponse], method: str = "get", /, **options: Any) -> HttpResponse:
        headers = options.pop("headers_of_request", {})
        if page not in views:
            name = f"{page.__qualname__}-{request.param}"

            async def acalled(request: HttpRequest) -> HttpResponse:
                return page(request)

            def called(request: HttpRequest) -> HttpResponse:
                return page(request)

            view = acalled if request.param == "twin" else called
            view.__qualname__ = name
            views[page] = cache_view(options.pop("ttl", 60), **options)(view)
        django_request = getattr(RequestFactory(), method)(f"/{page.__name__}/", headers=headers)
        response = views[page](django_request)
        response = asyncio.run(response) if request.param == "twin" else response
        assert LIST.fullmatch(response["Cache-Status"]), response["Cache-Status"]
        return response  # type: ignore[no-any-return]

    yield get
    mlcaches["default"].lru.flush_all()


def status(response: HttpResponse) -> str:
    return str(response["Cache-Status"])


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse("x")


def test_a_miss_and_a_hit(get: Get) -> None:
    assert status(get(page)) == "resty-default; fwd=miss; stored; ttl=60"
    assert re.fullmatch("resty-default; hit; ttl=(60|59|58)", status(get(page)))
    mlcaches["default"].lru.flush_all()
    hit = get(page)
    assert re.fullmatch("resty-default; hit; ttl=(60|59|58)", status(hit))
    etag = {"headers_of_request": {"If-None-Match": hit["ETag"]}}
    not_modified = get(page, **etag)
    assert not_modified.status_code == 304
    assert status(not_modified).startswith("resty-default; hit")
    assert status(get(page, "head")).startswith("resty-default; hit")


def test_requests_that_bypass_the_cache(get: Get) -> None:
    assert status(get(page, "post")) == "resty-default; fwd=method"
    assert status(get(page, headers_of_request={"Authorization": "x"})) == "resty-default; fwd=bypass"
    assert status(get(page, "head")) == "resty-default; fwd=miss"


def test_uncacheable_pages(get: Get) -> None:
    def page(request: HttpRequest) -> HttpResponse:
        response = HttpResponse("x")
        response.set_cookie("a", "b")
        return response

    assert status(get(page)) == "resty-default; fwd=miss; detail=uncacheable"
    assert status(get(page)) == "resty-default; fwd=bypass; detail=uncacheable"

    def failing(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=503)

    assert status(get(failing)) == "resty-default; fwd=miss; detail=uncacheable"


def test_a_stale_page_because_the_view_fails(get: Get) -> None:
    codes = [200, 500]

    def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse("x", status=codes.pop(0))

    get(page, ttl=0.001, resurrect_ttl=60)
    while codes:
        response = get(page)
    assert response.status_code == 200
    assert status(response).startswith("resty-default; fwd=stale")


def test_max_age_of_browsers_is_not_the_time_to_live(get: Get) -> None:
    assert status(get(page, max_age=5)) == "resty-default; fwd=miss; stored"
    assert status(get(page)) == "resty-default; hit"


def test_other_caches_come_first(get: Get) -> None:
    def page(request: HttpRequest) -> HttpResponse:
        return HttpResponse("x", headers={"Cache-Status": "Origin; fwd=miss"})

    assert status(get(page)) == "Origin; fwd=miss, resty-default; fwd=miss; stored; ttl=60"
    assert status(get(page)).startswith("Origin; fwd=miss, resty-default; hit; ttl=")

    shared = HttpResponse("x")

    def same(request: HttpRequest) -> HttpResponse:
        return shared

    for _ in range(3):
        assert status(get(same, "post")) == "resty-default; fwd=method"


def test_names_of_caches(site: Any) -> None:
    for name, identifier in {
        "pages": "resty-pages",
        "my pages": '"resty-my pages"',
        'a"b\\c': '"resty-a\\"b\\\\c"',
        "é, x; y=1\r\n": '"resty-?, x; y=1??"',
    }.items():
        assert identifier_of(name) == identifier
        assert LIST.fullmatch(identifier)

        @cache_view(60, MLCache(name, "default"), key=lambda request, name=name: name)
        def page(request: HttpRequest) -> HttpResponse:
            return HttpResponse("x")

        assert page(RequestFactory().get("/names/"))["Cache-Status"].startswith(f"{identifier}; ")
