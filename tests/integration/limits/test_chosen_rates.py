"""Several rates in one text, and rates that depend on the request: functions and tiers, in decorators and throttles.

Private names: `_enforcers` of a throttle, since it shows in memory alone that each rate is built once.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.test import override_settings
from rest_framework.settings import api_settings

from resty_django.limits.decorators import limit_count, limit_rate, limit_req, limit_window
from resty_django.limits.requests.wrapper import view_name
from resty_django.limits.statistics.catalog import LimitKind, counted_limits, series_name
from resty_django.limits.throttling import FixedWindowThrottle, LeakyBucketThrottle

from .view_tools import Site, drf_view, sync_requests

pytestmark = pytest.mark.usefixtures("empty_limits")

TIERS: dict[str, str | None] = {"free": "2/h", "pro": "4/h", "staff": None}


def tier_of(request: HttpRequest) -> str:
    return request.headers.get("X-Plan", "free")


async def atier_of(request: HttpRequest) -> str:
    return tier_of(request)


def rate_of(request: HttpRequest) -> Any:
    return {"none": None, "bad": "fast", "number": 7}.get(tier_of(request), "3/h")


async def passed(site: Site, view: Any, plan: str, times: int = 6) -> int:
    return (await site.statuses(view, times, headers={"X-Plan": plan})).count(200)


async def test_each_tier_has_a_rate(site: Site) -> None:
    tier = atier_of if site.asynchronous else tier_of
    view = site.view(limit_window(tiers=TIERS, tier=tier))
    assert [await passed(site, view, plan) for plan in ("free", "pro", "staff")] == [2, 4, 6]
    assert [await passed(site, view, plan) for plan in ("free", "pro", "staff")] == [0, 0, 6]


async def test_an_async_view_can_have_a_plain_function() -> None:
    site = Site(asynchronous=True)
    assert await passed(site, site.view(limit_window(tiers=TIERS, tier=tier_of)), "pro") == 4


def test_a_sync_view_can_have_a_coroutine_function() -> None:
    view = Site(asynchronous=False).view(limit_window(tiers=TIERS, tier=atier_of))
    codes = [view(sync_requests.get("/", headers={"X-Plan": "pro"})).status_code for _ in range(6)]
    assert codes.count(200) == 4


async def test_requests_to_which_the_limit_does_not_apply_are_not_asked_for_their_tier(site: Site) -> None:
    asked = []

    def tier(request: HttpRequest) -> str:
        asked.append(request.method)
        return "free"

    view = site.view(limit_window(tiers=TIERS, tier=tier, methods=["POST"], cost=2))
    assert await site.statuses(view, 3) == [200] * 3
    assert await site.statuses(view, 2, method="POST") == [200, 429]
    assert asked == ["POST", "POST"]


async def test_the_bans_of_a_chosen_rate_are_listed_before_the_first_request(site: Site) -> None:
    view = site.view(limit_count(rate=rate_of, ban="1h"))
    assert series_name(LimitKind.BAN, view_name(view) + ":count") in counted_limits()


async def test_a_function_returns_the_rate(site: Site) -> None:
    view = site.view(limit_count(rate=rate_of))
    assert [await passed(site, view, plan) for plan in ("", "none")] == [3, 6]
    with pytest.raises(ValueError, match=r"rate_of.*'fast'"):
        await site.get(view, headers={"X-Plan": "bad"})
    with pytest.raises(TypeError, match=r"rate_of.* 7 "):
        await site.get(view, headers={"X-Plan": "number"})


async def test_rates_contain_their_burst_or_capacity(site: Site) -> None:
    tiers = {"free": "1/h burst=1", "pro": "1/h burst=3"}
    assert await passed(site, site.view(limit_req(tiers=tiers, tier=tier_of, nodelay=True)), "pro") == 4
    tiers = {"free": "1/h capacity=1", "pro": "1/h capacity=3"}
    assert await passed(site, site.view(limit_rate(tiers=tiers, tier=tier_of, max_wait=0)), "pro") == 3
    assert await passed(site, site.view(limit_req("1/h burst=2", nodelay=True)), "") == 3


@pytest.mark.parametrize(
    ("decorator", "rates", "passing"),
    [
        (limit_window, "5/h;2/d", 2),
        (limit_window, " 2/h ; 5/d ", 2),
        (limit_count, "3/h;4/d;9/d", 3),
        (limit_req, "1/h burst=9;1/d burst=3", 4),
        (limit_rate, "1/h capacity=2;1/h capacity=5", 2),
    ],
)
async def test_all_of_several_rates_have_to_pass(site: Site, decorator: Any, rates: str, passing: int) -> None:
    options = {limit_req: {"nodelay": True}, limit_rate: {"max_wait": 0}}.get(decorator, {})
    view = site.view(decorator(rates, **options))
    assert await passed(site, view, "") == passing


async def test_a_refusal_by_one_rate_is_not_counted_by_the_other(site: Site) -> None:
    first = site.view(limit_window("1/h;5/d", name="offers"))
    assert await passed(site, first, "") == 1
    headers = (await site.get(first)).headers
    assert '"offers"' in headers["RateLimit"]
    other = site.view(limit_window("5/d;100/d", name="offers"))
    assert await passed(site, other, "") == 4  # the views share the rate of the same name and number


async def test_the_setting_names_the_tier(site: Site) -> None:
    view = site.view(limit_window(tiers=TIERS))
    with override_settings(RESTY_DJANGO={"LIMITS": {"TIER": f"{__name__}.tier_of"}}):
        assert await passed(site, view, "pro") == 4
    with pytest.raises(TypeError, match="Pass tier=, or set"):
        await site.get(view)


async def test_an_unknown_tier_gets_the_rate_of_the_first(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    view = site.view(limit_window(tiers=TIERS, tier=tier_of))
    with caplog.at_level(logging.WARNING, "resty_django.limits"):
        assert await passed(site, view, "pros") == 2
    messages = [record.getMessage() for record in caplog.records if "no rate for the tier" in record.getMessage()]
    assert messages == ["A limit has no rate for the tier 'pros', so the rate of 'free' applies. Did you mean 'pro'?"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: limit_req(), "@limit_req\\(\\) has no rate"),
        (lambda: limit_req("1/s", rate="2/s"), "has several rates"),
        (lambda: limit_req("1/s", tiers={"free": "1/s"}), "has several rates"),
        (lambda: limit_req("1/s", tier=tier_of), "tier= needs tiers="),
        (lambda: limit_req(tiers={}, tier=tier_of), "tiers= must be a dict such as"),
        (lambda: limit_req(tiers="free", tier=tier_of), "tiers= must be a dict such as"),  # type: ignore[arg-type]
        (lambda: limit_req(tiers={"free": "fast"}, tier=tier_of), "'fast' is not a rate"),
        (lambda: limit_req("1/s;;2/s"), "contains an empty rate"),
        (lambda: limit_req("1/s capacity=5"), "this limit has no capacity=. Use burst="),
        (lambda: limit_window("1/s burst=5"), "is not a unit of time|has no burst"),
        (lambda: limit_window(5), 'Write "5000/h", or pass per= as well'),
        (lambda: limit_window("1.5/s"), "not a whole number of requests"),
        (lambda: limit_req(rate=rate_of, methds=[]), "Did you mean 'methods'"),
        (lambda: limit_req(tier_of), "Write the limit in brackets"),
    ],
)
def test_wrong_rates_raise_when_the_module_is_imported(wrong: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        wrong()


class Free(FixedWindowThrottle):
    rate, tier = TIERS, f"{__name__}.tier_of"


class Function(LeakyBucketThrottle):
    rate = {"free": "1/h burst=1;1/d burst=5", "pro": "1/h burst=2"}
    tier = staticmethod(tier_of)


class Chosen(FixedWindowThrottle):
    rate = rate_of


class AlsoChosen(FixedWindowThrottle):
    @staticmethod
    def rate(request: Any) -> str | None:
        return rate_of(request)


def codes(throttle: Any, plan: str, times: int = 6) -> int:
    view = drf_view(throttle)
    return sum(view(sync_requests.get("/", headers={"X-Plan": plan})).status_code == 200 for _ in range(times))


def test_throttles_have_tiers_and_several_rates() -> None:
    assert [codes(Free, plan) for plan in ("free", "pro", "staff")] == [2, 4, 6]
    assert [codes(Function, plan) for plan in ("free", "pro")] == [2, 3]


@pytest.mark.parametrize("throttle", [Chosen, AlsoChosen])
def test_throttles_have_a_rate_that_a_function_of_the_request_returns(throttle: Any) -> None:
    before = len(throttle._enforcers)
    assert [codes(throttle, plan) for plan in ("free", "none")] == [3, 6]
    assert len(throttle._enforcers) == before + 1
    with pytest.raises(ValueError, match=r"rate.*'fast'"):
        codes(throttle, "bad")


def test_a_scope_has_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(api_settings.DEFAULT_THROTTLE_RATES, "chosen", rate_of)

    class Scoped(FixedWindowThrottle):
        scope = "chosen"

    assert [codes(Scoped, plan) for plan in ("free", "none")] == [3, 6]


def test_a_scope_has_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(api_settings.DEFAULT_THROTTLE_RATES, "offers", {"free": "1/h;5/d", "pro": "3/h"})

    class Scoped(FixedWindowThrottle):
        scope = "offers"

    with override_settings(RESTY_DJANGO={"LIMITS": {"TIER": f"{__name__}.tier_of"}}):
        assert [codes(Scoped, plan) for plan in ("free", "pro")] == [1, 3]
    monkeypatch.setitem(api_settings.DEFAULT_THROTTLE_RATES, "offers", {"free": "fast"})
    with pytest.raises(ImproperlyConfigured, match=r"'offers'.*'fast'"):
        codes(Scoped, "free")
