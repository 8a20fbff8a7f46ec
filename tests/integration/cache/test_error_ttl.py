"""`error_ttl`: callers get the error of the call that they waited for, in place of calling a failing source in turn."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from resty_django.cache import LRU, BadOption, CallbackFailed, Level, MLCache, RemoteError, cache_view, cached
from resty_django.cache.testing import caches_disabled
from tests.dictionaries import Clock
from tests.integration.cache.conftest import Make, Shared, fails, raises, value


class ApiError(Exception):
    """An exception whose `args` differ from the arguments of its class."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


@pytest.mark.parametrize("twins", [False, True])
async def test_ten_callers_of_a_failing_source(shared: Shared, clock: Clock, twins: bool) -> None:
    """The callback runs once for all of them, and again after `error_ttl`."""
    runs: list[None] = []
    cache = MLCache("c", shared("values"), lru=LRU(9, clock), error_ttl=0.5)

    def source() -> None:
        runs.append(None)
        time.sleep(0.2)
        raise ApiError(503)

    async def asource() -> None:
        runs.append(None)
        await asyncio.sleep(0.2)
        raise ApiError(503)

    async def ten() -> list[Any]:
        with ThreadPoolExecutor(10) as threads:
            submit = asyncio.get_running_loop().run_in_executor
            calls = [acall() if twins else submit(threads, call) for _ in range(10)]
            return await asyncio.gather(*calls, return_exceptions=True)

    call, acall = cached(cache, name="call")(source), cached(cache, name="acall")(asource)
    errors = await ten()
    assert len(runs) == 1
    assert {(type(error), str(error), error.status) for error in errors} == {(ApiError, "status 503", 503)}
    assert len({id(error) for error in errors}) == 10, "threads share no exception"
    clock.advance(0.501)
    await ten()
    assert len(runs) == 2


async def test_another_process_gets_the_name_and_the_message(make: Make, clock: Clock) -> None:
    a, b = (make(who, error_ttl=2) for who in "AB")
    refused = ConnectionError("refused \udc80" + "x" * 2000)
    for process, message in ((a, str(refused)), (b, "ConnectionError: refused ?" + "x" * 991), (a, str(refused))):
        for _ in range(2):
            assert await process.lookup("k", raises(refused)) == (None, f"callback threw an error: {message}", None)
            assert await process.lookup("s", fails("down")) == (None, "down", None)
    assert (a.runs, b.runs) == (2, 0)
    with pytest.raises(CallbackFailed) as caught:
        await b.do("get", "k", b.callback(value("v")))
    assert type(caught.value.error) is type(caught.value.__cause__) is RemoteError
    with pytest.raises(RemoteError):
        await b.do("get_with", "k", b.callback(value("v")), (), {})
    assert await b.lookup("other", value("v")) == ("v", None, Level.L3)
    assert await b.lookup("k", value("v"), error_ttl=0) == ("v", None, Level.L3), "a call without the option"
    clock.advance(2.001)
    assert await a.lookup("s", value("v")) == ("v", None, Level.L3)


async def test_errors_are_not_shared_without_the_option(make: Make) -> None:
    a = make()
    for _ in range(2):
        await a.lookup("k", fails("down"))
    assert a.runs == 2


async def test_precedence_over_a_shared_error(make: Make, clock: Clock) -> None:
    """Values that were stored meanwhile, `refresh`, and stale values."""
    a = make(error_ttl=10, ttl=1, resurrect_ttl=1)
    await a.lookup("k", fails("down"))
    assert await a.do("refresh", "k", a.callback(value("new"))) == "new"
    assert await a.lookup("k", fails("down")) == ("new", None, Level.L1)
    clock.advance(1.5)
    assert await a.lookup("k", value("newer")) == ("new", None, Level.STALE)
    assert a.runs == 2
    await a.do("purge", True)
    assert await a.lookup("k", value("newest")) == ("newest", None, Level.L3)


@pytest.mark.parametrize("engine", ["lmdb"], indirect=True)
def test_disabled_caches_share_no_errors(shared: Shared) -> None:
    cache = MLCache("c", shared("values"), lru=LRU(9), error_ttl=60)
    with pytest.raises(CallbackFailed):
        cache.get("k", raises(ConnectionError()))
    with caches_disabled():
        assert cache.get("k", value("v")) == "v"


def test_pages_share_no_errors(shared: Shared) -> None:
    runs: list[None] = []

    @cache_view(60, MLCache("c", shared("values"), lru=LRU(9), error_ttl=60))
    def view(request: HttpRequest) -> HttpResponse:
        runs.append(None)
        raise ApiError(503)

    for _ in range(2):
        with pytest.raises(ApiError):
            view(RequestFactory().get("/"))
    assert len(runs) == 2
    with pytest.raises(BadOption, match="error_ttl"):
        cache_view(60, error_ttl=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("foreign", [7, b"\xff", [], ["no", "ValueError", "x"]])
async def test_an_item_of_another_program_in_place_of_an_error(make: Make, shared: Shared, foreign: Any) -> None:
    a, b = (make(who, error_ttl=2) for who in "AB")
    await a.lookup("k", raises(ValueError("x")))
    (name,) = (key for key in shared("values").get_keys() if "error" in key)
    shared("values").set(name, foreign)
    assert await b.lookup("k", value("v")) == ("v", None, Level.L3)
