"""The test kit of limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, SimpleTestCase

from resty_django.limits import (
    Concurrency,
    FixedWindow,
    LocalStore,
    combine,
    limit_conn,
    limit_count,
    limit_req,
    limited,
)
from resty_django.limits.decorators import limit_window
from resty_django.limits.testing import (
    FrozenClock,
    LimitsTestMixin,
    assert_limited,
    assert_not_limited,
    frozen_limits,
    no_limits,
)

pytest_plugins = ["resty_django.limits.testing.pytest_plugin"]

requests = RequestFactory()


def body(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@limit_window(3, per="1m")
def log_in(request: HttpRequest) -> HttpResponse:
    return HttpResponse("come in")


async def abody(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


@pytest.mark.parametrize("limits_store", ["lmdb", pytest.param("redis", marks=pytest.mark.redis)], indirect=True)
def test_limits_start_unused_and_time_stands_still(limits_store: str) -> None:
    for _ in range(2):
        with frozen_limits() as clock:
            assert assert_limited(log_in, requests.get("/"), times=3).status_code == 429
            clock.tick(121)
            assert assert_limited(log_in, requests.get("/"), times=3)["Retry-After"]
    assert log_in(requests.get("/")).status_code == 200  # the limits of the site were not used


@pytest.mark.parametrize("limits_store", ["lmdb", pytest.param("redis", marks=pytest.mark.redis)], indirect=True)
async def test_async_views(limits_store: str) -> None:
    view = limit_count(2, per="1h")(abody)
    with frozen_limits() as clock:
        statuses = [(await view(requests.get("/"))).status_code for _ in range(3)]
        clock.tick(3601)
        assert [*statuses, (await view(requests.get("/"))).status_code] == [200, 200, 429, 200]
    with no_limits():
        assert {(await view(requests.get("/"))).status_code for _ in range(9)} == {200}


def test_no_limits() -> None:
    views: list[Any] = [limit_req("1/h")(body), limit_conn(1)(body), limit_count(1, per="1h")(body), log_in]
    slots = Concurrency(1, prefix="one:", store=LocalStore())
    window = FixedWindow(1, 60, store=LocalStore())
    with no_limits():
        for view in views:
            assert_not_limited(view, requests.get("/"), times=5)
        with slots.slot("a"), slots.slot("a"):
            assert all(combine([window, slots], ["a", "a"]).allowed for _ in range(3))
        assert window.uncommit("a") >= 0
        with frozen_limits():
            assert_limited(log_in, requests.get("/"), times=3)
        assert_not_limited(log_in, requests.get("/"), times=5)
    assert window.hit("a").remaining == 0
    assert not window.hit("a").allowed


def test_limiters_that_are_created_in_the_block() -> None:
    with frozen_limits(now=1000) as clock:
        window = FixedWindow(2, 60, store=LocalStore())
        assert_limited(limited("1/m", store=LocalStore())(lambda: 1), times=1)
        assert [window.hit("a").allowed for _ in range(3)] == [True, True, False]
        clock.tick(61)
        assert window.hit("a").allowed
        with pytest.raises(ValueError, match="only moves forward"):
            clock.tick(-1)


def test_the_assertions_fail() -> None:
    with frozen_limits():
        with pytest.raises(AssertionError, match="Call 4 was refused"):
            assert_limited(log_in, requests.get("/"), times=5)
        with pytest.raises(AssertionError, match="Call 1 of 2 was refused"):
            assert_not_limited(log_in, requests.get("/"), times=2)
    with frozen_limits(), pytest.raises(AssertionError, match="Call 3 was not refused"):
        assert_limited(log_in, requests.get("/"), times=2)


def test_the_fixture(frozen_limits: FrozenClock) -> None:
    assert_limited(log_in, requests.get("/"), times=3)
    frozen_limits.tick(121)
    assert_limited(log_in, requests.get("/"), times=3)


@pytest.mark.usefixtures("no_limits")
def test_the_fixture_without_limits() -> None:
    assert_not_limited(log_in, requests.get("/"), times=9)


class TestMixin(LimitsTestMixin, SimpleTestCase):
    def test_limits(self) -> None:
        self.assert_limited(log_in, requests.get("/"), times=3)
        self.limits_clock.tick(121)
        self.assert_not_limited(log_in, requests.get("/"), times=3)

    def test_limits_again(self) -> None:
        self.assert_limited(log_in, requests.get("/"), times=3)


async def test_tasks_share_the_frozen_time(frozen_limits: FrozenClock) -> None:
    view = limit_req("1/s", nodelay=True)(abody)
    responses = await asyncio.gather(*(view(requests.get("/")) for _ in range(5)))
    assert sorted(response.status_code for response in responses) == [200, 429, 429, 429, 429]
