"""`@cache_view`: which pages are cached, their variants and times to live, and which pages are never cached."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import django
import pytest
from django.contrib import messages
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import DisallowedHost
from django.http import (
    FileResponse,
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    QueryDict,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseRedirect
from django.middleware.csrf import get_token
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path, reverse
from django.utils import timezone, translation
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject, empty
from django.utils.http import http_date, parse_http_date
from django.utils.module_loading import import_string
from django.views import View
from django.views.decorators.cache import cache_control, never_cache
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import condition
from django.views.decorators.vary import vary_on_headers
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import api_view, authentication_classes, permission_classes
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from resty_django.cache import (
    LRU,
    BadOption,
    MLCache,
    ainvalidate_url,
    ainvalidate_view,
    cache_view,
    invalidate_url,
    invalidate_view,
    mlcaches,
)
from resty_django.shdict import shdicts
from tests.dictionaries import Clock
from tests.integration.cache.conftest import Shared
from tests.integration.cache.tools import Hub
from tests.servers import until
from tests.threads import together

requests = RequestFactory()
runs: list[str] = []

Answer = Callable[[HttpRequest], HttpResponseBase]


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"page {len(runs)}")


class Page:
    """A cached view, and requests to it."""

    def __init__(self, answer: Answer = plain, ttl: float = 60, **options: Any) -> None:
        def view(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            runs.append(request.get_full_path())
            return answer(request)

        self.view = cache_view(ttl, **options)(view)

    def get(self, url: str = "/page/", **headers: Any) -> Any:
        """`headers`: entries of META; `user`: of the request."""
        user = headers.pop("user", None)
        request = requests.get(url, **headers)
        if user is not None:
            request.user = user
        return self.view(request)


def ran() -> int:
    count = len(runs)
    runs.clear()
    return count


@pytest.fixture(autouse=True)
def _site(site: Any) -> None:
    site.ALLOWED_HOSTS = ["testserver", "other"]
    mlcaches["default"].lru.flush_all()  # of an earlier test, where it still lives
    runs.clear()


# --- what is kept ---


def test_a_page_is_made_once_with_its_status_headers_and_body() -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        response = HttpResponse(b"\x00\xff", content_type="image/x-tea", status=301, reason="Over There")
        response["X-Tea"] = "Assam"
        return response

    page = Page(answer)
    first, second = page.get(), page.get()
    assert ran() == 1
    for response in (first, second):
        assert (response.status_code, response.reason_phrase, response.content) == (301, "Over There", b"\x00\xff")
        assert (response["Content-Type"], response["X-Tea"]) == ("image/x-tea", "Assam")
    assert first["ETag"] == second["ETag"]


@pytest.mark.django_db  # the end of a response checks the connections that earlier tests have opened
def test_each_hit_is_a_separate_response() -> None:
    """It is like a new `HttpResponse`, and shares nothing with other hits that can be changed."""
    page = Page()
    page.get()
    before = mlcaches["default"].stats()
    hit = page.get()
    new = HttpResponse(hit.content, status=hit.status_code, reason=hit.reason_phrase, headers=dict(hit.items()))
    assert type(hit) is HttpResponse
    assert {name: type(value) for name, value in vars(hit).items()} == {
        name: type(value) for name, value in vars(new).items()
    }
    assert hit.serialize() == new.serialize()
    body, headers = hit.content, dict(hit.items())
    hit["X-Tea"] = "Assam"
    del hit["ETag"]
    hit.set_cookie("tea", "Assam")
    hit.write("more")
    hit.status_code = 500
    hit._resource_closers.append(hit)
    hit.close()
    again = page.get()
    assert (again.status_code, again.content, dict(again.items()), again.closed) == (200, body, headers, False)
    assert not again.cookies
    assert not again._resource_closers
    assert ran() == 1
    mlcaches["default"].counter.due_at = 0
    mlcaches["default"].counter.flush_due()
    assert mlcaches["default"].stats().l1 - before.l1 == 3 * 2, "two marks and the page, for each hit"


def test_a_host_that_is_not_allowed_is_refused_on_a_hit(settings: Any) -> None:
    page = Page()
    for _ in range(2):
        assert page.get(HTTP_HOST="other").status_code == 200
    with pytest.raises(DisallowedHost):
        page.get(HTTP_HOST="evil")
    settings.ALLOWED_HOSTS = ["testserver"]
    with pytest.raises(DisallowedHost):
        page.get(HTTP_HOST="other")


def test_parameters_that_a_middleware_has_replaced() -> None:
    page = Page()

    def get(query: str) -> Any:
        request = requests.get("/page/?tea=1")
        request.GET = QueryDict(query)  # type: ignore[misc]
        return page.view(request)

    for query in ("tea=2", "tea=3"):
        assert get(query).content == get(query).content
    assert get("tea=2").content != get("tea=3").content
    assert ran() == 2
    page.get("/page/?tea=1")
    assert ran() == 1


def test_a_view_that_changes_the_language_is_cached_for_the_language_of_the_request() -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        text = translation.get_language()
        translation.activate("fr")
        return HttpResponse(text)

    page = Page(answer)
    for language in ("de", "en", "de", "en"):
        with translation.override(language):
            assert page.get().content == language.encode()
    assert ran() == 2


def test_another_process_has_it_from_the_shared_dictionary() -> None:
    page = Page()
    page.get()
    mlcaches["default"].lru.flush_all()
    assert page.get().content == b"page 1"
    assert ran() == 1


@pytest.mark.parametrize(
    "urls", [("/a/", "/b/"), ("/a/?x=1", "/a/?x=2"), ("/a/", "/a/?x=1"), ("/a/?x=1&x=2", "/a/?x=2&x=1")]
)
def test_other_addresses_are_other_pages(urls: tuple[str, str]) -> None:
    page = Page()
    for url in urls * 2:
        page.get(url)
    assert ran() == 2


def test_pages_differ_by_scheme_and_host() -> None:
    page = Page()
    for _ in range(2):
        page.get()
        page.get(HTTP_HOST="other")
        page.get(**{"wsgi.url_scheme": "https"})
    assert ran() == 3


def test_two_views_at_one_address_are_two_pages() -> None:
    def first(request: HttpRequest) -> HttpResponse:
        return HttpResponse("first")

    def second(request: HttpRequest) -> HttpResponse:
        return HttpResponse("second")

    assert [cache_view(60)(view)(requests.get("/")).content for view in (first, second)] == [b"first", b"second"]


def test_the_order_of_parameters_does_not_matter_and_some_may_be_left_out() -> None:
    page = Page()
    assert page.get("/?a=1&b=2").content == page.get("/?b=2&a=1").content
    assert ran() == 1
    page = Page(query=["page"])
    assert page.get("/x/?page=1&utm=7").content == page.get("/x/?page=1").content
    page.get("/x/?page=2")
    assert ran() == 2
    page = Page(query=())
    assert page.get("/y/?page=1").content == page.get("/y/").content
    assert ran() == 1


def test_by_header() -> None:
    page = Page(headers=["Accept"])
    for _ in range(2):
        assert page.get(HTTP_ACCEPT="text/html")["Vary"] == "Accept"
        page.get(HTTP_ACCEPT="application/json")
        page.get(HTTP_X_OTHER="1", HTTP_ACCEPT="text/html")
    assert ran() == 2


def test_by_user() -> None:
    page = Page(user=True)
    for _ in range(2):
        for user in (AnonymousUser(), User(pk=1), User(pk=2)):
            response = page.get(user=user)
            assert "Cookie" in response["Vary"]
            assert "private" in response["Cache-Control"]
    assert ran() == 3
    with pytest.raises(BadOption, match="AuthenticationMiddleware"):
        page.get()


def test_by_language_and_time_zone() -> None:
    page = Page()
    for _ in range(2):
        for language, zone in (("en", "UTC"), ("de", "UTC"), ("de", "Asia/Tokyo")):
            with translation.override(language), timezone.override(zone):
                page.get()
    assert ran() == 3
    page = Page(language=False)
    for language in ("en", "de"):
        with translation.override(language):
            page.get("/other/")
    assert ran() == 1


def test_one_page_without_translations_and_time_zones(site: Any) -> None:
    site.USE_I18N = site.USE_TZ = False
    page = Page()
    for language, zone in (("en", "UTC"), ("de", "UTC"), ("de", "Asia/Tokyo")):
        with translation.override(language), timezone.override(zone):
            page.get()
    assert ran() == 1


def test_by_a_function_of_the_request() -> None:
    page = Page(key=lambda request: request.headers.get("X-Tenant"))
    for _ in range(2):
        for tenant in ("a", "b"):
            assert "Vary" not in page.get(HTTP_X_TENANT=tenant)
    assert ran() == 2
    with pytest.raises(TypeError, match="'key'"):
        Page(key=lambda request: [1]).get()


def test_pages_vary_on_the_headers_in_vary() -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        response = HttpResponse(f"{request.headers.get('X-A')} {request.headers.get('X-B')}")
        response["Vary"] = "X-A, X-B" if "X-B" in request.headers else "X-A"
        return response

    page = Page(answer)
    expected = [
        {"HTTP_X_A": "1"},
        {"HTTP_X_A": "2"},
        {"HTTP_X_A": "1", "HTTP_X_B": "3"},
        {"HTTP_X_A": "2", "HTTP_X_B": "3"},
    ]
    first = [page.get(**headers).content for headers in expected[:2]]
    assert [page.get(**headers).content for headers in expected[:2]] == first == [b"1 None", b"2 None"]
    assert ran() == 2


def test_a_page_that_varies_on_more_than_another_of_its_address() -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        kind = request.headers["X-A"]
        response = HttpResponse(f"{kind} {request.headers.get('X-B')}")
        response["Vary"] = "X-A" if kind == "short" else "X-A, X-B"
        return response

    page = Page(answer)
    for _ in range(2):
        assert page.get(HTTP_X_A="short").content == b"short None"
        for number in ("1", "2"):
            assert page.get(HTTP_X_A="long", HTTP_X_B=number).content == f"long {number}".encode()
    assert ran() == 3


def test_decorators_below_it() -> None:
    page = Page(gzip_page(lambda request: HttpResponse("tea " * 200)))
    for _ in range(2):
        packed = page.get(HTTP_ACCEPT_ENCODING="gzip")
        assert packed["Content-Encoding"] == "gzip"
        assert packed["Vary"] == "Accept-Encoding"
        assert page.get().content == b"tea " * 200
    assert ran() == 2


def test_head_uses_the_page_of_get_and_stores_nothing() -> None:
    page = Page()
    page.view(requests.head("/page/"))
    page.view(requests.head("/page/"))
    assert ran() == 2
    first = page.get()
    head = page.view(requests.head("/page/"))
    assert ran() == 1
    assert (head.status_code, head["ETag"], head["Content-Type"]) == (200, first["ETag"], first["Content-Type"])


def test_other_methods_go_to_the_view() -> None:
    page = Page()
    page.get()
    for method in ("post", "put", "delete", "options"):
        page.view(getattr(requests, method)("/page/"))
    assert ran() == 5
    assert page.get().content == b"page 1"


def test_a_template_response_is_rendered() -> None:
    def answer(request: HttpRequest) -> TemplateResponse:
        response = TemplateResponse(request, engines["django"].from_string("{{ tea }}"), {"tea": "Assam"})  # type: ignore[arg-type]
        response.add_post_render_callback(lambda response: bodies.append(response.content))
        return response

    bodies: list[bytes] = []
    page = Page(answer)
    assert page.get().content == page.get().content == b"Assam"
    assert bodies == [b"Assam"]


# --- what never is ---


def with_cookie(request: HttpRequest) -> HttpResponse:
    response = plain(request)
    response.set_cookie("flavour", "sweet")
    return response


REFUSED: dict[str, Answer] = {
    "a cookie": with_cookie,
    "private": cache_control(private=True)(plain),
    "no-store": cache_control(no_store=True)(plain),
    "no-cache": cache_control(no_cache=True)(plain),
    "never_cache": never_cache(plain),
    "max-age 0": cache_control(max_age=0)(plain),
    "s-maxage 0": cache_control(max_age=60, s_maxage=0)(plain),
    "expired": lambda request: HttpResponse(headers={"Expires": http_date(time.time() - 10)}),
    "a broken Expires": lambda request: HttpResponse(headers={"Expires": "0"}),
    "Vary *": lambda request: HttpResponse(headers={"Vary": "*"}),
    "a stream": lambda request: StreamingHttpResponse([b"a"]),
    "a file": lambda request: FileResponse([b"a"]),
    "404": lambda request: HttpResponse(status=404),
    "500": lambda request: HttpResponse(status=500),
    "302": lambda request: HttpResponseRedirect("/login/"),
    "a CSRF token": lambda request: HttpResponse(get_token(request)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_responses_that_are_never_cached(kind: str) -> None:
    page = Page(REFUSED[kind])
    responses = [page.get() for _ in range(3)]
    assert ran() == 3
    assert all("Age" not in response and "ETag" not in response for response in responses)
    assert len({response.status_code for response in responses}) == 1


class Nonce(SimpleLazyObject):
    """The nonce that the middleware of Django 6 adds to a request: true as soon as it was read."""

    def __init__(self) -> None:
        super().__init__(lambda: secrets.token_urlsafe(16))

    def __bool__(self) -> bool:
        return self._wrapped is not empty


def nonce() -> Any:
    """Return the nonce of the installed Django; ours before Django 6."""
    return import_string("django.utils.csp.LazyNonce")() if django.VERSION >= (6, 0) else Nonce()


@pytest.mark.parametrize("used", [False, True])
def test_a_page_with_a_nonce_of_its_content_security_policy_is_not_cached(used: bool) -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        with_nonce: Any = request
        return HttpResponse(f"<script nonce={with_nonce._csp_nonce}>" if used else "no script")

    page = Page(answer)
    got = set()
    for _ in range(3):
        request: Any = requests.get("/page/")
        request._csp_nonce = nonce()
        got.add(page.view(request).content)
    assert len(got) == ran() == (3 if used else 1)


@pytest.mark.skipif(django.VERSION < (6, 0), reason="Django has this middleware from 6.0 on")
def test_a_page_with_a_nonce_of_the_middleware_is_not_cached(settings: Any) -> None:
    settings.SECURE_CSP = {"script-src": ["'self'", import_string("django.utils.csp.CSP").NONCE]}
    get_nonce = import_string("django.middleware.csp.get_nonce")
    page = Page(lambda request: HttpResponse(f"<script nonce={get_nonce(request)}>"))
    middleware = import_string("django.middleware.csp.ContentSecurityPolicyMiddleware")(page.view)
    first, second = (middleware(requests.get("/page/")) for _ in range(2))
    assert first.content != second.content
    assert first.content.decode()[14:-1] in first["Content-Security-Policy"]
    assert ran() == 2


def test_a_request_with_authorization_goes_to_the_view() -> None:
    page = Page()
    page.get()
    assert page.get(HTTP_AUTHORIZATION="Basic eA==").content == b"page 2"
    assert page.get().content == b"page 1"


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("cookies", with_cookie),
        ("private", REFUSED["private"]),
        ("no-store", REFUSED["no-store"]),
        ("no-store", REFUSED["no-cache"]),
    ],
)
def test_allowed_exceptions_are_cached(word: str, answer: Answer) -> None:
    page = Page(answer, allow={word})
    first, second = page.get(), page.get()
    assert ran() == 1
    assert first.content == second.content
    assert not second.cookies, "a cookie is for one visitor alone"
    assert bool(first.cookies) == (word == "cookies")


def test_allowed_authorization_is_a_variant() -> None:
    page = Page(allow={"authorization"})
    for _ in range(2):
        for word in ("Basic eA==", "Basic eQ=="):
            assert page.get(HTTP_AUTHORIZATION=word)["Vary"] == "Authorization"
    assert ran() == 2


def test_statuses_of_the_argument() -> None:
    page = Page(REFUSED["404"], statuses=(200, 404))
    assert [page.get().status_code for _ in range(2)] == [404, 404]
    assert ran() == 1


def test_errors_of_a_view_are_raised_unchanged() -> None:
    def missing(request: HttpRequest) -> HttpResponse:
        raise Http404("no tea")

    page = Page(missing)
    for _ in range(2):
        with pytest.raises(Http404, match="no tea"):
            page.get()
    assert ran() == 2


# --- time ---


@pytest.fixture
def cache(shared: Shared, clock: Clock) -> MLCache:
    return MLCache("c", shared("values"), lru=LRU(100, clock), clock=clock, ipc=Hub().channel("A"))


def test_the_response_can_shorten_the_time_to_live(cache: MLCache, clock: Clock) -> None:
    page = Page(ttl=60, cache=cache)
    short = Page(cache_control(max_age=10)(plain), ttl=60, cache=cache)
    shared = Page(cache_control(max_age=60, s_maxage=10)(plain), ttl=60, cache=cache)
    ends = Page(lambda request: HttpResponse(headers={"Expires": http_date(time.time() + 10)}), ttl=60, cache=cache)
    for cached_page, expected in ((page, 2), (short, 3), (shared, 3), (ends, 3)):
        for seconds in (0, 5, 20, 50):
            clock.advance(seconds)
            cached_page.get(f"/{id(cached_page)}/")
        assert ran() == expected


def test_headers_for_browsers(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    page = Page(ttl=60)
    first = page.get()
    assert "Age" not in first
    now += 20
    second = page.get()
    assert second["Age"] == "20"
    for response in (first, second):
        assert response["Cache-Control"] == "max-age=60"
        assert parse_http_date(response["Expires"]) == int(now - 20 + 60)


def test_browsers_may_get_another_time() -> None:
    page = Page(max_age=0)
    for response in (page.get(), page.get()):
        assert response["Cache-Control"] == "max-age=0"
        assert "Age" not in response
    assert Page(ttl=0, max_age=5).get("/ever/")["Cache-Control"] == "max-age=5"
    assert ran() == 2


def test_a_stale_page_is_served_while_the_page_is_refreshed(cache: MLCache, clock: Clock) -> None:
    page = Page(ttl=60, cache=cache, stale_while_revalidate=30)
    page.get()
    clock.advance(70)
    assert page.get().content == b"page 1"
    until(lambda: page.get().content == b"page 2")
    assert ran() == 2


async def test_a_stale_page_of_an_async_view(cache: MLCache, clock: Clock) -> None:
    view = cache_view(60, cache, stale_while_revalidate=30)(plain_async)
    await view(requests.get("/page/"))
    clock.advance(70)
    assert (await view(requests.get("/page/"))).content == b"page 1"
    async with asyncio.timeout(20):
        while (await view(requests.get("/page/"))).content != b"page 2":
            await asyncio.sleep(0.01)
    assert ran() == 2


def test_a_stale_page_is_served_when_the_view_fails(cache: MLCache, clock: Clock) -> None:
    status = 200

    def answer(request: HttpRequest) -> HttpResponse:
        if status == 0:
            raise OSError("no route")
        return HttpResponse(f"{status}", status=status)

    page = Page(answer, ttl=60, cache=cache, resurrect_ttl=10, failures=(OSError,))
    assert page.get().status_code == 200
    for status in (503, 0):  # noqa: B007 - `answer` sees it
        clock.advance(70)
        assert page.get().content == b"200"
    with pytest.raises(OSError, match="no route"):
        page.get("/never/seen/")
    status = 503
    assert page.get("/never/seen/").status_code == 503


# --- conditional requests ---


def test_conditional_requests() -> None:
    moment = http_date(time.time() - 100)
    page = Page(lambda request: HttpResponse("page", headers={"Last-Modified": moment, "X-Tea": "Assam"}))
    etag = page.get()["ETag"]
    for headers in (
        {"HTTP_IF_NONE_MATCH": etag},
        {"HTTP_IF_NONE_MATCH": f"W/{etag}"},
        {"HTTP_IF_MODIFIED_SINCE": moment},
    ):
        response = page.get(**headers)
        assert (response.status_code, response.content) == (304, b"")
        assert response["ETag"] == etag
        assert response["Cache-Control"] == "max-age=60"
        assert {"Expires", "Last-Modified", "Age"} <= set(response.headers)
    for headers in ({"HTTP_IF_NONE_MATCH": '"other"'}, {"HTTP_IF_MODIFIED_SINCE": http_date(time.time() - 200)}):
        assert page.get(**headers).status_code == 200
    assert page.get(HTTP_IF_MATCH='"other"').status_code == 412
    assert ran() == 1


def test_a_conditional_request_that_comes_first_keeps_the_whole_page() -> None:
    page = Page(condition(etag_func=lambda request: '"tea"')(lambda request: HttpResponse("page")))
    assert page.get(HTTP_IF_NONE_MATCH='"tea"').status_code == 304
    assert page.get().content == b"page"
    assert page.get()["ETag"] == '"tea"'
    assert ran() == 1


def test_an_uncacheable_page_answers_conditional_requests_itself() -> None:
    page = Page(condition(etag_func=lambda request: '"tea"')(cache_control(private=True)(plain)))
    page.get()
    assert page.get(HTTP_IF_NONE_MATCH='"tea"').status_code == 304


# --- forgetting ---


def test_all_pages_of_a_path_are_forgotten() -> None:
    page = Page()
    urls = ("/tea/", "/tea/?page=2", "/coffee/", "/caf%C3%A9/")
    for url in urls:
        page.get(url)
    invalidate_url("/tea/")
    invalidate_url("http://testserver/caf%C3%A9/?x=1")
    runs.clear()
    for url in urls:
        page.get(url)
    assert runs == ["/tea/", "/tea/?page=2", "/caf%C3%A9/"]


def test_a_page_that_is_being_made_is_forgotten_too() -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        if len(runs) == 1:
            invalidate_url("/page/")
        return plain(request)

    page = Page(answer)
    assert [page.get().content for _ in range(3)] == [b"page 1", b"page 2", b"page 2"]


async def test_forgetting_in_async_code() -> None:
    view = cache_view(60)(plain_async)
    for forget in (ainvalidate_url("/page/"), ainvalidate_view(f"{__name__}.plain_async")):
        await view(requests.get("/page/"))
        runs.clear()
        await view(requests.get("/page/"))
        assert ran() == 0
        await forget
        await view(requests.get("/page/"))
        assert ran() == 1


# --- when the cache cannot ---


def test_no_request_fails_without_the_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    from resty_django.shdict import Unavailable

    page, careful_page = Page(), Page(on_error="raise")

    def gone(*args: Any, **kwargs: Any) -> Any:
        raise Unavailable("gone")

    for call in ("get", "get_stale", "add", "set"):
        monkeypatch.setattr(shdicts["default"], call, gone)
    assert [page.get().content for _ in range(2)] == [b"page 1", b"page 1"], "kept in this process"
    assert [careful_page.get("/other/").content for _ in range(2)] == [b"page 2", b"page 3"]


def test_a_lock_that_is_held_for_too_long_fails_no_request() -> None:
    inside = threading.Event()
    free = threading.Event()

    def slow(request: HttpRequest) -> HttpResponse:
        if not inside.is_set():
            inside.set()
            assert free.wait(30)
        return plain(request)

    page = Page(slow, lock_options={"timeout": 0})
    thread = threading.Thread(target=page.get)
    thread.start()
    assert inside.wait(30)
    assert page.get().status_code == 200
    free.set()
    thread.join()
    assert ran() == 2


def test_requests_for_uncacheable_pages_do_not_wait_for_each_other() -> None:
    barrier = threading.Barrier(3)

    def answer(request: HttpRequest) -> HttpResponse:
        if len(runs) > 1:
            barrier.wait(30)
        return with_cookie(request)

    page = Page(answer)
    page.get()
    together(*[page.get] * 3)
    assert ran() == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ttl": -1}, "ttl must be"),
        ({"ttl": 1, "jiter": 1}, "jiter is not an option"),
        ({"ttl": 1, "l1_serializer": str}, "l1_serializer is not an option"),
        ({"ttl": 1, "headers": "Accept"}, "tuples of names"),
        ({"ttl": 1, "query": [1]}, "query must be a tuple of names"),
        ({"ttl": 1, "allow": {"cookie"}}, "allow must be a set of some of authorization, cookies"),
        ({"ttl": 1, "allow": "private"}, "allow must be"),
        ({"ttl": 1, "max_age": -1}, "max_age must be"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        cache_view(**options)


# --- inside a site: middleware, classes, names of URLs ---


async def plain_async(request: HttpRequest) -> HttpResponse:
    runs.append(request.path)
    await asyncio.sleep(0.02)
    return HttpResponse(f"page {len(runs)}")


def with_form(request: HttpRequest) -> HttpResponse:
    return HttpResponse(engines["django"].from_string("{% csrf_token %}").render({}, request))


def with_name(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.session.get('name')} {len(runs)}")


def of_user(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.user} {len(runs)}")


def with_messages(request: HttpRequest) -> HttpResponse:
    return HttpResponse(" ".join(map(str, messages.get_messages(request))) or "none")


def say(request: HttpRequest) -> HttpResponse:
    messages.info(request, "saved")
    return HttpResponse()


def counted(request: HttpRequest) -> HttpResponse:
    runs.append(request.path)
    return plain(request)


@method_decorator(cache_view(60), name="dispatch")
class Listed(View):
    def get(self, request: HttpRequest, number: int) -> HttpResponse:
        return counted(request)


@method_decorator(cache_view(60), name="dispatch")
class AsyncListed(View):
    async def get(self, request: HttpRequest, number: int) -> HttpResponse:
        return counted(request)


class OneMethod(View):
    @method_decorator(cache_view(60))
    @method_decorator(vary_on_headers("X-A"))
    def get(self, request: HttpRequest) -> HttpResponse:
        return counted(request)


class TextRenderer(JSONRenderer):
    media_type = "text/plain"
    format = "text"


class ApiMethod(APIView):
    authentication_classes = ()
    permission_classes = ()
    renderer_classes = (JSONRenderer, TextRenderer)

    @method_decorator(cache_view(60))
    def get(self, request: Request) -> Response:
        runs.append(request.path)
        return Response({"run": len(runs)})


class ApiSet(ViewSet):
    authentication_classes = ()
    permission_classes = ()

    @method_decorator(cache_view(60))
    def list(self, request: Request) -> Response:
        runs.append(request.path)
        return Response({"run": len(runs)})


@api_view(["GET"])
@authentication_classes([])
@permission_classes([])
@cache_view(60)
def api_function(request: Request) -> Response:
    runs.append(request.path)
    return Response({"run": len(runs)})


class TokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, None]:
        return User(pk=int(request.headers["X-Token"])), None


@cache_view(60, user=True)
@api_view(["GET"])
@authentication_classes([TokenAuthentication])
@permission_classes([])
def of_one_token(request: Request) -> Response:
    runs.append(request.path)
    return Response({"user": request.user.pk})


@cache_view(60, user=True)
async def of_one_user_async(request: HttpRequest) -> HttpResponse:
    runs.append(request.path)
    return HttpResponse(f"{await request.auser()} {len(runs)}")


def asks_for_the_user(get_response: Answer) -> Answer:
    """Middleware after which the view can use the user without anybody noticing."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        assert request.user.pk is None or request.user.pk
        return get_response(request)

    return middleware


urlpatterns = [
    path("one-user-async/", of_one_user_async),
    path("one-token/", of_one_token),
    path("session/", Page(with_name).view),
    path("user/", Page(of_user).view),
    path("one-user/", Page(of_user, user=True).view),
    path("one-user-and-session/", Page(with_name, user=True).view),
    path("form/", Page(with_form).view),
    path("messages/", Page(with_messages, allow={"session"}).view),
    path("say/", say),
    path("listed/<int:number>/", Listed.as_view(), name="listed"),
    path("async-listed/<int:number>/", AsyncListed.as_view(), name="async-listed"),
    path("one-method/", OneMethod.as_view()),
    path("api-method/", ApiMethod.as_view()),
    path("api-set/", ApiSet.as_view({"get": "list"})),
    path("api-function/", api_function),
    path("async/", cache_view(60)(plain_async), name="async"),
]


@pytest.fixture
def web(settings: Any, client: Client) -> Client:
    settings.ROOT_URLCONF = __name__
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
    return client


@pytest.mark.parametrize("url", ["/api-method/", "/api-set/", "/api-function/"])
def test_a_method_of_django_rest_framework_is_cached(web: Client, url: str) -> None:
    runs.clear()
    replies = [web.get(url, headers={"accept": "application/json"}) for _ in range(3)]
    assert [reply.json() for reply in replies] == [{"run": 1}] * 3
    assert runs == [url]
    assert {reply["Content-Type"] for reply in replies} == {"application/json"}


def test_each_renderer_of_django_rest_framework_has_its_page(web: Client) -> None:
    runs.clear()
    for _ in range(2):
        assert web.get("/api-method/", headers={"accept": "application/json"}).json() == {"run": 1}
        assert web.get("/api-method/", headers={"accept": "text/plain"})["Content-Type"] == "text/plain"
    assert len(runs) == 2


@pytest.mark.parametrize("url", ["/session/", "/user/", "/form/"])
def test_pages_for_one_visitor_are_not_cached(web: Client, url: str) -> None:
    assert web.get(url).content != web.get(url).content or url == "/form/"
    assert ran() == 2
    assert "Age" not in web.get(url).headers


@pytest.mark.django_db
def test_pages_of_each_user(web: Client) -> None:
    for name in ("ana", "bob"):
        user = User.objects.create_user(name)
        second = Client()
        second.force_login(user)
        for _ in range(2):
            response = second.get("/one-user/")
            assert response.content.decode().startswith(name)
        assert "Cookie" in response["Vary"]
        assert "private" in response["Cache-Control"]
    assert web.get("/one-user/").content.decode().startswith("AnonymousUser")
    assert ran() == 3


def test_pages_of_each_user_that_the_view_authenticates(web: Client) -> None:
    runs.clear()
    for user in (1, 2, 1):
        assert web.get("/one-token/", headers={"x-token": str(user)}).json() == {"user": user}
    assert len(runs) == 2


@pytest.mark.django_db(transaction=True)
async def test_pages_of_each_user_of_an_async_view(web: Client) -> None:
    for name in ("ana", "bob"):
        client = AsyncClient()
        await client.aforce_login(await User.objects.acreate_user(name))
        for _ in range(2):
            response = await client.get("/one-user-async/")
            assert response.content.decode().startswith(name)
    assert ran() == 2


@pytest.mark.django_db
def test_a_user_that_middleware_has_read_is_noticed(web: Client, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.asks_for_the_user"]
    ana = Client()
    ana.force_login(User.objects.create_user("ana"))
    assert ana.get("/user/").content.startswith(b"ana")
    assert web.get("/user/").content.startswith(b"AnonymousUser")
    for client in (ana, web, ana):
        client.get("/one-user/")
    assert ran() == 4


def test_a_session_used_in_a_page_of_each_user_is_another_thing(web: Client) -> None:
    for _ in range(2):
        assert "Cookie" in web.get("/one-user-and-session/")["Vary"]
    assert ran() == 2


def test_messages_are_shown_once(web: Client) -> None:
    web.get("/say/")
    assert web.get("/messages/").content == b"saved"
    assert web.get("/messages/").content == b"none"


def test_views_that_are_classes_and_their_names(web: Client) -> None:
    for name in ("listed", "async-listed"):
        urls = [reverse(name, args=[number]) for number in (1, 2)]
        pages = [web.get(url).content for url in urls]
        assert [web.get(url).content for url in urls] == pages
        assert ran() == 2
        invalidate_view(name)
        for url in urls:
            web.get(url)
        assert ran() == 2
        invalidate_url(urls[0])
        for url in urls:
            web.get(url)
        assert ran() == 1


def test_one_method_of_a_class(web: Client) -> None:
    for _ in range(2):
        for value in ("1", "2"):
            assert "X-A" in web.get("/one-method/", headers={"X-A": value})["Vary"]
    assert ran() == 2


@pytest.mark.django_db
async def test_async_views(web: Client) -> None:
    client = AsyncClient()
    responses = await asyncio.gather(*(client.get("/async/") for _ in range(5)))
    assert {response.content for response in responses} == {b"page 1"}
    assert (await client.get("/async/", headers={"if-none-match": responses[0]["ETag"]})).status_code == 304
    assert (await client.get("/async-listed/1/")).content == (await client.get("/async-listed/1/")).content
    assert ran() == 2


def test_an_async_view_under_wsgi(web: Client) -> None:
    assert web.get("/async/").content == web.get("/async/").content == b"page 1"
