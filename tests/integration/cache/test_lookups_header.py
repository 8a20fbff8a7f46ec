"""The header `Cache-Status` for the lookups of a request, with the setting `CACHE_STATUS["LOOKUPS"]`."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from resty_django.cache import MLCache, cache_view, cached, mlcaches
from resty_django.cache.lookups_header import MAX_BYTES, add_lookups
from resty_django.cache.middleware import UpdateMiddleware
from resty_django.cache.statistics import recording
from resty_django.cache.statistics.counts import Stats
from resty_django.cache.statistics.recording import MAX_LOOKUPS, Lookups, RecordedStats, recorded_lookups, switch

TCHAR = "!#$%&'*+-.^_`|~"
Member = tuple[str, dict[str, Any]]


class Parser:
    """A strict parser of lists of items in RFC 8941, section 4.2, without decimals, byte sequences and inner lists."""

    def __init__(self, text: str) -> None:
        self.text = text

    def members(self) -> list[Member]:
        members = [self.item()]
        while self.text:
            self.text = self.text.lstrip(" \t")
            assert self.take() == ","
            self.text = self.text.lstrip(" \t")
            members.append(self.item())
        return members

    def item(self) -> Member:
        return self.bare(), self.parameters()

    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        while self.text[:1] == ";":
            self.text = self.text[1:].lstrip(" ")
            name = self.take()
            assert name.islower() or name == "*"
            while self.text and (self.text[0].islower() or self.text[0].isdigit() or self.text[0] in "_-.*"):
                name += self.take()
            assert name not in parameters
            parameters[name] = True
            if self.text[:1] == "=":
                self.take()
                parameters[name] = self.bare()
        return parameters

    def bare(self) -> Any:
        first = self.take()
        if first == '"':
            return self.string()
        if first == "-" or first.isdigit():
            while self.text[:1].isdigit():
                first += self.take()
            return int(first)
        assert first.isascii()
        assert first.isalpha() or first == "*"
        while self.text and self.text[0].isascii() and (self.text[0].isalnum() or self.text[0] in TCHAR + ":/"):
            first += self.take()
        return first

    def string(self) -> str:
        value = ""
        while (character := self.take()) != '"':
            if character == "\\":
                character = self.take()
                assert character in '"\\'
            assert " " <= character <= "~"
            value += character
        return value

    def take(self) -> str:
        assert self.text, "the header ends too early"
        character, self.text = self.text[0], self.text[1:]
        return character


def members(response: Any) -> list[Member]:
    return Parser(response["Cache-Status"]).members()


View = Callable[[HttpRequest], HttpResponse]
Get = Callable[[View], HttpResponse]


@pytest.fixture(params=["call", "twin"])
def get(request: pytest.FixtureRequest, site: Any) -> Iterator[Get]:
    """Request a view through the middleware, sync or as a coroutine function."""

    def get(view: View) -> HttpResponse:
        if request.param == "call":
            return UpdateMiddleware(view)(RequestFactory().get("/"))  # type: ignore[return-value]

        async def aview(request: HttpRequest) -> HttpResponse:
            response: Any = view(request)
            return await response if asyncio.iscoroutine(response) else response  # type: ignore[no-any-return]

        return asyncio.run(UpdateMiddleware(aview)(RequestFactory().get("/")))  # type: ignore[arg-type]

    yield get
    switch(False)


def set_mode(settings: Any, mode: str) -> None:
    settings.RESTY_DJANGO = {**getattr(settings, "RESTY_DJANGO", {}), "CACHE_STATUS": {"LOOKUPS": mode}}


@pytest.fixture
def hits(site: Any, settings: Any) -> None:
    set_mode(settings, "hits")


@pytest.fixture
def keys(site: Any, settings: Any) -> None:
    set_mode(settings, "keys")


def cache_named(name: str) -> MLCache:
    return MLCache(name, "default", ttl=60)


def value() -> str:
    return "value"


def test_counts_by_cache(get: Get, hits: None) -> None:
    first, second = cache_named("first"), cache_named("second")
    second.set("a", 1)

    def view(request: HttpRequest) -> HttpResponse:
        second.get("a")
        first.get("a", value)
        first.get("b", value)
        first.get("b", value)
        first.get("nothing")
        first.lru.delete("a")
        first.get("a", value)
        return HttpResponse("x")

    response = get(view)
    assert members(response) == [
        ("resty-second", {"hit": True, "detail": "L1 1"}),
        ("resty-first", {"fwd": "miss", "detail": "L1 1, L2 1, source 2, none 1"}),
    ]
    assert "key" not in response["Cache-Status"]


def test_calls_for_many_keys_and_nested_lookups(get: Get, hits: None) -> None:
    outer, inner = cache_named("outer"), cache_named("inner")

    def failing() -> None:
        raise ValueError("source")

    def view(request: HttpRequest) -> HttpResponse:
        outer.get("a", lambda: inner.get("b", value))
        outer.get_many(["a", "c"])
        bulk = outer.new_bulk()
        for key in ("a", "d", "e", "f"):
            bulk.add(key, inner.get, key, value)
        outer.get_bulk(bulk)
        with pytest.raises(Exception, match="source"):
            outer.get("failing", failing)
        return HttpResponse("x")

    assert dict(members(get(view))) == {
        "resty-inner": {"fwd": "miss", "detail": "source 4"},
        "resty-outer": {"fwd": "miss", "detail": "L1 2, source 4, none 1, error 1"},
    }


def test_async_lookups(hits: None) -> None:
    cache = cache_named("twins")

    async def view(request: HttpRequest) -> HttpResponse:
        await asyncio.gather(*(cache.aget(key, value) for key in ("a", "b", "c")))
        await cache.alookup("a")
        await asyncio.to_thread(cache.get, "b")
        await cache.aget_many(["a", "b"])
        return HttpResponse("x")

    response = asyncio.run(UpdateMiddleware(view)(RequestFactory().get("/")))  # type: ignore[arg-type]
    assert members(response) == [("resty-twins", {"fwd": "miss", "detail": "L1 4, source 3"})]
    switch(False)


@cached(ttl=60, name="lookups_header.double")
def double(number: int) -> int:
    return 2 * number


def test_cached_functions(get: Get, keys: None) -> None:
    mlcaches["default"].purge()
    double.invalidate(4)

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(double(4) + double(4)))

    (_, parameters) = members(get(view))[0]
    assert parameters["detail"] == "L1 1, source 1"
    assert parameters["key"] == double.key(4)


def test_django_cache(get: Get, keys: None, settings: Any) -> None:
    settings.CACHES = {
        **settings.CACHES,
        "lookups": {
            "BACKEND": "resty_django.cache.backend.MLCacheBackend",
            "LOCATION": "default",
            "OPTIONS": {"LRU_SIZE": 9},
        },
    }
    cache = caches["lookups"]
    cache.set("a", "x")

    def view(request: HttpRequest) -> HttpResponse:
        cache.get("a")
        cache.get("a")
        cache.get("missing")
        cache.get_many(["a", "gone"])
        return HttpResponse("x")

    get(view)
    cache.set("a", "y")
    found = {parameters.get("key"): parameters["detail"] for _, parameters in members(get(view))}
    assert found == {":1:a": "L1 2, L2 1", ":1:missing": "none 1", ":1:gone": "none 1"}
    assert {name for name, _ in members(get(view))} == {"resty-django-cache/default"}


def test_keys_of_nested_lookups(get: Get, keys: None) -> None:
    outer, inner = cache_named("outer-keys"), cache_named("inner-keys")

    def view(request: HttpRequest) -> HttpResponse:
        outer.get("a", lambda: inner.get("b", value))
        outer.get_many(["a", "c"])
        return HttpResponse("x")

    assert members(get(view)) == [
        ("resty-inner-keys", {"fwd": "miss", "key": "b", "detail": "source 1"}),
        ("resty-outer-keys", {"fwd": "miss", "key": "a", "detail": "L1 1, source 1"}),
        ("resty-outer-keys", {"fwd": "miss", "key": "c", "detail": "none 1"}),
    ]


HOSTILE = [
    '"; fwd=hit',
    "a\\",
    "é",
    "a\r\nSet-Cookie: x=1",
    "\x00\x7f",
    "😀" * 500,
    "a, resty-b; hit",
    '"' * 500,
    "\udc80",
]


def test_hostile_keys_and_names(site: Any) -> None:
    for key in HOSTILE:
        response, lookups = HttpResponse(), Lookups()
        lookups.note('a "b\\"; é', key, "l1", 1)
        add_lookups(response, lookups, "keys")
        ((name, parameters),) = members(response)
        assert name == 'resty-a "b\\"; ?'
        assert set(parameters) == {"hit", "key", "detail"}
        escaped = key.encode("unicode_escape").decode()
        assert parameters["key"] == (escaped if len(escaped) <= 100 else escaped[:97] + "...")


def test_hostile_keys_of_a_request(get: Get, keys: None) -> None:
    cache = cache_named("hostile")

    def view(request: HttpRequest) -> HttpResponse:
        for key in HOSTILE[:-1]:
            cache.get(key, value)
        return HttpResponse("x")

    response = get(view)
    found = members(response)
    assert len(found) == len(HOSTILE) - 1
    assert found[0][1]["key"] == HOSTILE[0]
    assert all(parameters["detail"] == "source 1" for _, parameters in found)


@pytest.mark.parametrize("length", [1, 90, 5000])
def test_the_header_is_bounded(get: Get, keys: None, length: int) -> None:
    cache = cache_named("many")

    def view(request: HttpRequest) -> HttpResponse:
        for number in range(300):
            cache.get(f"{number}-{'x' * length}", value)
        return HttpResponse("x")

    response = get(view)
    found = members(response)
    assert len(response["Cache-Status"]) <= MAX_BYTES
    assert 5 < len(found) <= MAX_LOOKUPS + 1
    name, parameters = found[-1]
    assert (name, parameters["fwd"]) == ("resty", "miss")
    assert parameters["detail"] == f"others: source {300 - len(found) + 1}"


def test_a_long_name_of_a_cache(site: Any) -> None:
    response, lookups = HttpResponse(), Lookups()
    lookups.note("n" * 5000, None, "l2", 3)
    add_lookups(response, lookups, "hits")
    assert members(response) == [("resty", {"hit": True, "detail": "others: L2 3"})]


def test_the_order_after_cached_pages(get: Get, hits: None) -> None:
    cache = cache_named("page-parts")

    @cache_view(60, key=lambda request: "order")
    def page(request: HttpRequest) -> HttpResponse:
        cache.get("a", value)
        return HttpResponse("x", headers={"Cache-Status": "Origin; fwd=miss"})

    def render() -> HttpResponse:
        return UpdateMiddleware(page)(RequestFactory().get("/order/"))  # type: ignore[return-value]

    names = [(name, "ttl" in parameters) for name, parameters in members(render())]
    assert names[:2] == [("Origin", False), ("resty-default", True)]
    assert sorted(names[2:]) == [("resty-default", False), ("resty-page-parts", False)]
    again = members(render())
    assert [name for name, _ in again] == ["Origin", "resty-default", "resty-default"]
    assert again[1][1]["hit"] is True
    assert again[2][1]["hit"] is True


def test_a_response_object_that_is_returned_again(get: Get, hits: None) -> None:
    cache, shared = cache_named("again"), HttpResponse("x", headers={"Cache-Status": "Origin; hit"})
    cache.set("a", 1)
    looks = [True, True, False]

    def view(request: HttpRequest) -> HttpResponse:
        if looks.pop(0):
            cache.get("a")
        return shared

    for _ in range(2):
        assert [name for name, _ in members(get(view))] == ["Origin", "resty-again"]
    assert shared["Cache-Status"] == 'Origin; hit, resty-again; hit; detail="L1 1"'
    assert get(view)["Cache-Status"] == "Origin; hit"


def test_no_lookups_no_header(get: Get, hits: None) -> None:
    assert "Cache-Status" not in get(lambda request: HttpResponse("x"))


def test_concurrent_tasks_do_not_mix(keys: None) -> None:
    cache = cache_named("tasks")
    barrier = asyncio.Event()

    async def load() -> str:
        await barrier.wait()
        return "value"

    async def view(request: HttpRequest) -> HttpResponse:
        name = request.GET["name"]
        await cache.aget(f"{name}-miss", load)
        await asyncio.sleep(0)
        await asyncio.gather(*(cache.aget(f"{name}-miss", load) for _ in range(3)))
        return HttpResponse(name)

    async def requests() -> list[Any]:
        middleware: Any = UpdateMiddleware(view)  # type: ignore[arg-type]
        tasks = [asyncio.ensure_future(middleware(RequestFactory().get("/", {"name": n}))) for n in range(20)]
        await asyncio.sleep(0)
        barrier.set()
        return await asyncio.gather(*tasks)

    for response in asyncio.run(requests()):
        key = f"{response.content.decode()}-miss"
        assert members(response) == [("resty-tasks", {"fwd": "miss", "key": key, "detail": "L1 3, source 1"})]
    switch(False)


def test_concurrent_threads_do_not_mix(hits: None) -> None:
    cache = cache_named("threads")
    cache.set("a", 1)
    responses: dict[int, Any] = {}
    start = threading.Barrier(6)

    def request(count: int) -> None:
        def view(request: HttpRequest) -> HttpResponse:
            start.wait(30)
            for _ in range(count):
                cache.get("a")
            return HttpResponse("x")

        responses[count] = UpdateMiddleware(view)(RequestFactory().get("/"))

    threads = [threading.Thread(target=request, args=(count,)) for count in range(5000, 5006)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for count, response in responses.items():
        assert members(response) == [("resty-threads", {"hit": True, "detail": f"L1 {count}"})]
    assert len(responses) == len(threads)
    switch(False)


def test_off_costs_nothing(get: Get, settings: Any, site: Any) -> None:
    cache = cache_named("costs")
    cache.set("a", 1)

    def view(request: HttpRequest) -> HttpResponse:
        cache.get("a")
        return HttpResponse("x")

    before = dict(vars(cache))
    assert "Cache-Status" not in get(view)
    set_mode(settings, "keys")
    assert "Cache-Status" in get(view)
    assert isinstance(cache._counts, RecordedStats)
    assert cache._find != cache.lru.items.get
    set_mode(settings, "off")
    assert "Cache-Status" not in get(view)
    assert type(cache._counts) is Stats
    assert vars(cache) == before
    assert cache._find == cache.lru.items.get
    assert recording.current.get() is None


def calls_of(lookup: Callable[[], object]) -> list[str]:
    """Return the names of the functions that a lookup calls."""
    calls: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)
        elif event == "c_call":
            calls.append(argument.__qualname__)

    sys.setprofile(note)
    try:
        lookup()
    finally:
        sys.setprofile(None)
    return calls


def test_a_hit_calls_the_same_functions_after_the_setting_was_on(get: Get, settings: Any, site: Any) -> None:
    cache = cache_named("calls")
    cache.set("a", 1)

    def hit() -> object:
        return cache.get("a")

    before = calls_of(hit)
    set_mode(settings, "keys")
    get(lambda request: HttpResponse("x"))
    assert len(calls_of(hit)) > len(before)
    set_mode(settings, "off")
    assert calls_of(hit) == before


def test_the_class_methods_of_lookups_are_never_replaced(get: Get, keys: None) -> None:
    names = ("get", "aget", "lookup", "get_with", "aget_with", "_get_from_l1")
    code = {name: vars(MLCache)[name] for name in names}
    get(lambda request: HttpResponse("x"))
    cache = cache_named("methods")
    get(lambda request: HttpResponse(cache.get("a", value)))
    assert {name: vars(MLCache)[name] for name in names} == code
    assert not set(names) & set(vars(cache))


def test_a_cache_created_during_the_request_is_counted(get: Get, keys: None) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        cache_named("created").get("unseen", value)
        return HttpResponse("x")

    ((name, parameters),) = members(get(view))
    assert (name, parameters["fwd"]) == ("resty-created", "miss")


def test_counts_in_the_statistics_stay_right(get: Get, hits: None) -> None:
    cache = cache_named("statistics")

    def view(request: HttpRequest) -> HttpResponse:
        cache.get("a", value)
        cache.get("a", value)
        return HttpResponse("x")

    before = cache.stats()
    get(view)
    after = cache.stats()
    assert (after.l1 - before.l1, after.calls - before.calls) == (1, 2)


def test_lookups_outside_of_requests_are_not_recorded(hits: None) -> None:
    cache = cache_named("outside")
    switch(True)
    cache.get("a", value)
    with recorded_lookups() as lookups:
        cache.get("a", value)
    cache.get("a", value)
    assert lookups.all() == {("outside", None): {"l1": 1}}
    switch(False)


def test_an_unknown_value_is_rejected(get: Get, settings: Any) -> None:
    set_mode(settings, "hit")
    with pytest.raises(ImproperlyConfigured, match=r'must be "off" or "hits" or "keys".*Did you mean "hits"'):
        get(lambda request: HttpResponse("x"))
