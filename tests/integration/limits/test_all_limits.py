"""Limits of all kinds are counted under one name each, and listed in the admin with their figures."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth import authenticate
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, Client, RequestFactory
from django.urls import get_resolver

from resty_django.conf import conf
from resty_django.limits import (
    Decision,
    FixedWindow,
    Limited,
    Quota,
    forget_quotas,
    limit,
    limit_req,
    limited,
    overview,
    quota,
)
from resty_django.limits.decorators import limit_count, limit_rate_either
from resty_django.limits.quotas.throttling import QuotaThrottle
from resty_django.limits.refusals import request_refused
from resty_django.limits.statistics import catalog
from resty_django.limits.statistics.reporter import Totals, stats
from resty_django.limits.throttling import FixedWindowThrottle
from resty_django.shdict import shdicts
from tests.integration.limits.policy_tools import HOSTILE, POLICIES, make_policy, person
from tests.integration.limits.view_tools import Site, drf_view, heard
from tests.staff import plain, text_of

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("limits_site", "empty_catalog"),
]

ALL = POLICIES
FIGURES = f"{POLICIES}limits/figures/"


@pytest.fixture
def empty_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of the project, and those that other tests have declared, are not listed."""
    assert get_resolver().url_patterns  # imports the views of the project, which declare limits
    monkeypatch.setattr(catalog, "_limits", {})
    forget_quotas()


def counted() -> dict[str, Totals]:
    assert stats.flush()
    return stats.totals()


def row_of(html: str, name: str) -> str:
    (row,) = [row for row in rows_of(html) if name in row]
    return plain(row)


def rows_of(html: str) -> list[str]:
    return re.findall(r"<tr>(?:<td>(?:<input[^>]*>)?</td>)?<th scope=\"row\">.*?</tr>", html, re.DOTALL)


# --- counting -----------------------------------------------------------------------------------------------------


async def test_a_decorator_is_counted(site: Site) -> None:
    view = site.view(limit_req("1/h", burst=1, nodelay=True, name="search"))
    assert await site.statuses(view, 4) == [200, 200, 429, 429]
    # With nodelay, the request of the burst does not wait.
    assert counted() == {"decorator:search:req": Totals(passed=2, refused=2)}
    (entry,) = stats.top("decorator:search:req")
    assert (entry.key, entry.times) == ("192.0.2.1", 2)
    description = stats.description("decorator:search:req")
    assert description.rates == ("1 request/h, up to 1 wait, then refused",)
    assert [location.rpartition(".")[2].rstrip("0123456789") for location in description.locations] == ["view_"]


async def test_a_delay_is_counted_as_one(site: Site) -> None:
    view = site.view(limit_req("100/s", burst=5, name="slow", max_delay=1))
    assert await site.statuses(view, 3) == [200, 200, 200]
    totals = counted()["decorator:slow:req"]
    assert totals.all == totals.passed + totals.delayed == 3


async def test_a_limit_that_refuses_nothing_counts_what_it_would_refuse(site: Site) -> None:
    shadow = site.view(limit_count(1, per="1h", name="shadow", dry_run=True))
    decided = site.view(limit_count(1, per="1h", name="decided", block=False))
    for view in (shadow, decided):
        assert await site.statuses(view, 3) == [200, 200, 200]
    assert counted() == {
        "decorator:shadow:count": Totals(passed=1, shadowed=2),
        "decorator:decided:count": Totals(passed=1, shadowed=2),
    }


async def test_several_rates_are_counted_apart(site: Site) -> None:
    view = site.view(limit_count(rate="3/h;2/d", name="both"))
    assert await site.statuses(view, 4) == [200, 200, 429, 429]
    # The rate that does not refuse has not counted the request either.
    assert counted() == {
        "decorator:both:count": Totals(passed=2),
        "decorator:both:count:2": Totals(passed=2, refused=2),
    }
    assert stats.description("decorator:both:count:2").rates == (
        "2 requests per day from the first one on, then refused",
    )


async def test_the_rates_of_tiers_are_one_limit(site: Site) -> None:
    tiers = {"free": "1/h", "pro": "2/h"}
    view = site.view(limit_count(tiers=tiers, tier=lambda request: request.GET["tier"], name="plans"))
    assert await site.statuses(view, 2, path="/?tier=free") == [200, 429]
    assert await site.statuses(view, 3, path="/?tier=pro") == [200, 200, 429]
    assert counted() == {"decorator:plans:count": Totals(passed=3, refused=2)}
    assert len(stats.description("decorator:plans:count").rates) == 2


async def test_a_limit_of_a_function_of_the_request_names_no_rate_that_was_not_chosen(site: Site) -> None:
    view = site.view(limit_count(rate=lambda request: "7/h", name="chosen"))
    assert catalog.counted_limit("decorator:chosen:count") is None
    assert await site.statuses(view, 1) == [200]
    (rate,) = stats.description("decorator:chosen:count").rates
    assert rate.startswith("7 requests per hour")


async def test_both_buckets_of_a_pair_are_counted(site: Site) -> None:
    view = site.view(limit_rate_either("1/h", "1/h", name="pair"))
    assert await site.statuses(view, 3) == [200, 429, 429]
    # A request takes from both; it is refused if both are empty.
    assert counted() == {
        "decorator:pair:total": Totals(passed=1, refused=2),
        "decorator:pair:each": Totals(passed=1, refused=2),
    }


async def test_limiters_of_limit_are_counted(site: Site) -> None:
    view = site.view(limit(FixedWindow(1, 3600, prefix="downloads:", name="downloads")))
    assert await site.statuses(view, 2) == [200, 429]
    assert counted() == {"decorator:downloads": Totals(passed=1, refused=1)}
    (location,) = stats.description("decorator:downloads").locations
    assert re.fullmatch(r"tests\.integration\.limits\.test_all_limits:\d+", location)


@pytest.mark.parametrize(("share", "lines"), [(0, 0), (1.0, 40)])
async def test_only_a_share_of_the_refusals_is_logged(
    site: Site, settings: Any, caplog: pytest.LogCaptureFixture, share: float, lines: int
) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": {"LOG_REFUSALS": share}}
    view = site.view(limit_count(1, per="1h", name="logged"))
    with heard(request_refused) as signals:
        assert await site.statuses(view, 41) == [200, *[429] * 40]
    assert caplog.text.count("refused by logged") == lines
    assert [sent["name"] for sent in signals] == ["logged"] * 40
    assert counted()["decorator:logged:count"].refused == 40


@pytest.mark.parametrize("share", [-0.1, 1.1, "all"])
def test_the_share_of_logged_refusals_is_from_0_to_1(settings: Any, share: Any) -> None:
    settings.RESTY_DJANGO = {"LIMITS": {"LOG_REFUSALS": share}}
    with pytest.raises(ImproperlyConfigured, match="LOG_REFUSALS"):
        conf.limits  # noqa: B018


def test_a_throttle_is_counted() -> None:
    class Uploads(FixedWindowThrottle):
        rate = "2/h"

    view = drf_view(Uploads)
    statuses = [view(RequestFactory().get("/")).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    ((series, totals),) = counted().items()
    assert series.startswith("throttle:")
    assert totals == Totals(passed=2, refused=1)
    (location,) = stats.description(series).locations
    assert location.endswith("Uploads")


def test_quotas_are_counted() -> None:
    """One row for the quota, however it is used; its locations are the places of all uses."""
    exports = Quota("exports", 2, per="day", key="ip")
    view = quota(exports)(lambda request: HttpResponse("done"))

    class Throttle(QuotaThrottle):
        quota = exports

    throttled_view = drf_view(Throttle)
    ask = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1")
    assert [view(ask).status_code, throttled_view(ask).status_code] == [200, 200]
    assert not exports.use("192.0.2.1")
    assert [view(ask).status_code, throttled_view(ask).status_code] == [429, 429]
    assert exports.use("192.0.2.2")
    assert counted() == {"quota:exports": Totals(passed=3, refused=3)}
    (entry,) = stats.top("quota:exports")
    assert (entry.key, entry.times) == ("192.0.2.1", 3)
    description = stats.description("quota:exports")
    assert description.rates == ("2 per day",)
    created, decorated, throttled = description.locations
    assert re.fullmatch(r"tests\.integration\.limits\.test_all_limits:\d+", created)
    assert "<lambda>" in decorated
    assert throttled.endswith(".Throttle")


async def test_a_quota_that_refuses_nothing_counts_what_it_would_refuse() -> None:
    view = quota("exports", tiers={"free": 1, "pro": 9}, tier=lambda request: "free", per="day", key="ip", dry_run=True)
    decorated = view(aview)
    request = AsyncRequestFactory().get("/")
    for _ in range(3):
        assert (await decorated(request)).status_code == 200
    assert await Quota("used", 5, per="day").ause("k")
    assert counted() == {"quota:exports": Totals(passed=1, shadowed=2), "quota:used": Totals(passed=1)}
    assert stats.description("quota:exports").rates == ("free 1, pro 9 per day",)


async def aview(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


async def test_bans_are_counted(site: Site) -> None:
    view = site.view(limit_count(1, per="1h", name="search", ban="15m", ban_after=2, ban_within="10m"))
    assert await site.statuses(view, 5) == [200, 429, 429, 429, 429]
    assert await site.statuses(view, 1, ip="192.0.2.2") == [200]
    assert counted() == {
        "decorator:search:count": Totals(passed=2, refused=4),
        "ban:search": Totals(passed=4, refused=2),
    }
    (entry,) = stats.top("ban:search")
    assert (entry.key, entry.times) == ("192.0.2.1", 2)
    description = stats.description("ban:search")
    assert description.rates == ("banned for 15 minutes after 2 refusals in 10 minutes, repeated bans up to 1 day",)
    assert description.locations == stats.description("decorator:search:count").locations


def test_bans_of_throttles_and_quotas_are_listed() -> None:
    class Throttle(FixedWindowThrottle):
        rate, key, scope, ban, max_ban = "1/h", "ip", "uploads", "1h", "1h"

    view = quota("exports", 1, per="day", key="ip", ban="1h", store=shdicts["limits"])(drf_view(Throttle))
    for status in (200, 429, 429):
        assert view(RequestFactory().get("/")).status_code == status
    totals = counted()
    assert totals["ban:exports"] == Totals(passed=2, refused=1)
    assert totals["ban:uploads"] == Totals(passed=1)
    assert stats.description("ban:uploads").rates == ("banned for 1 hour after each refusal",)
    assert stats.description("ban:uploads").locations[0].endswith(".Throttle")
    assert stats.description("ban:exports").locations[0].endswith(".AView")


def test_bans_of_the_login_guard_are_counted(settings: Any) -> None:
    settings.AUTHENTICATION_BACKENDS = [
        "resty_django.limits.login.LoginGuard",
        "django.contrib.auth.backends.ModelBackend",
    ]
    section = {"LOGIN": {"ADDRESS_AND_NAME": "2/15m", "ADDRESS": None}}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "LIMITS": section}
    for _ in range(3):
        assert authenticate(RequestFactory().get("/"), username="alice", password="wrong") is None
    totals = counted()
    assert totals["ban:login-address-and-name"] == Totals(passed=2, refused=1)
    assert totals["ban:login-name"] == Totals(passed=2)
    assert stats.description("ban:login-name").locations == ("resty_django.limits.login.LoginGuard",)


def test_a_function_is_counted() -> None:
    @limited("1/h;5/d", key=lambda phone: phone, name="sms")
    def send(phone: str) -> str:
        return phone

    assert send("1") == "1"
    for _ in range(2):
        with pytest.raises(Limited):
            send("1")
    assert counted() == {"function:sms": Totals(passed=1, refused=2), "function:sms:2": Totals(passed=1)}
    assert [entry.key for entry in stats.top("function:sms")] == ["1"]
    (location,) = stats.description("function:sms").locations
    assert "test_a_function_is_counted.<locals>.send:" in location


def test_a_function_counts_refusals_by_a_ban() -> None:
    @limited("1/h", key=lambda code: code, ban="2h", name="codes")
    def redeem(code: str) -> str:
        return code

    assert redeem("1") == "1"
    for _ in range(3):
        with pytest.raises(Limited):
            redeem("1")
    assert counted() == {
        "function:codes": Totals(passed=1, refused=3),
        "ban:codes": Totals(passed=2, refused=2),
    }
    description = stats.description("ban:codes")
    assert description.rates == ("banned for 2 hours after each refusal, repeated bans up to 1 day",)
    assert "test_a_function_counts_refusals_by_a_ban.<locals>.redeem:" in description.locations[0]


async def test_a_call_that_waits_is_one_delayed_decision() -> None:
    @limited("50/s capacity=1", wait=5, name="waits")
    async def call() -> None: ...

    for _ in range(3):
        await call()
    totals = counted()["function:waits"]
    assert totals.refused == 0
    assert totals.all == totals.passed + totals.delayed == 3


def test_a_description_reaches_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    limited("1/h", name="sms")(lambda: None)()
    assert stats.flush()
    here = stats.description("function:sms")
    monkeypatch.setattr(catalog, "_limits", {})
    assert stats.description("function:sms") == here != catalog.Description()


@pytest.mark.parametrize("foreign", [5, [], [["rate"]], [["1/h", 5], "text"], [None, None]])
def test_a_foreign_description_is_read_as_far_as_it_can_be(foreign: Any) -> None:
    shdicts["limits"].set("resty:stats:limit:function:sms", foreign)
    description = stats.description("function:sms")
    assert all(isinstance(text, str) for part in description for text in part)


def test_the_catalog_is_bounded() -> None:
    limiter = FixedWindow(1, 3600, prefix="p")
    for number in range(600):
        catalog.add_limit(catalog.LimitKind.FUNCTION, f"f{number}", limiter, "here")
    assert len(catalog.counted_limits()) == 500
    for number in range(50):
        catalog.add_limit(
            catalog.LimitKind.FUNCTION, "f0", FixedWindow(number + 1, 3600, prefix=f"p{number}"), f"place{number}"
        )
    description = stats.description("function:f0")
    assert len(description.rates) == len(description.locations) == catalog.MAX_PARTS
    assert description.locations[-1] == "place49"
    long_names = {catalog.series_name(catalog.LimitKind.FUNCTION, "x" * 300 + str(number)) for number in range(3)}
    assert len(long_names) == 3
    assert {len(name) for name in long_names} == {catalog.MAX_SERIES_CHARS}


# --- the list -----------------------------------------------------------------------------------------------------


def test_all_kinds_are_in_one_list(admin_client: Client) -> None:
    policy = make_policy()
    stats.record("pay", "k1", Decision(False))
    limited("1/h", key="k2", name="sms")(lambda: None)()
    for _ in range(2):
        stats.record("function:sms", "k2", Decision(False))
    stats.record("throttle:elsewhere:count", "k3", Decision(True))
    html = text_of(admin_client, ALL)
    assert "3 limits" in html
    rows = [re.findall(r'<th scope="row"><a href="([^"]*)">([^<]*)</a>', row)[0] for row in rows_of(html)]
    assert [name for _url, name in rows] == ["sms", "pay", "elsewhere:count"]  # the most refused first
    row = row_of(html, "sms")
    assert "Function 1 request at once, then 1 request each 1 hour, then refused" in row
    assert row.endswith("1 0 2 0 k2 2")
    assert "Policy, enforce editable 3 requests per hour" in row_of(html, "pay")
    assert f'href="{POLICIES}{policy.pk}/figures/"' in html
    # Only rows of the database can be edited and selected; the name of another limit leads to its figures.
    urls = {name: url for url, name in rows}
    assert urls["pay"] == f"{POLICIES}{policy.pk}/change/"
    assert urls["sms"] == f"{FIGURES}?limit=function%3Asms"
    assert re.findall(r'name="_selected_action" value="(\d+)"', html) == [str(policy.pk)]
    assert "editable" not in text_of(person("view_limitpolicy"), ALL)
    assert "Throttle" in row_of(html, "elsewhere")


def test_quotas_and_bans_are_in_the_list(admin_client: Client) -> None:
    exports = Quota("exports", 1, per="month", key="ip")
    view = quota(exports, ban="1h")(lambda request: HttpResponse("done"))
    for _ in range(3):
        view(RequestFactory().get("/", REMOTE_ADDR="192.0.2.1"))
    html = text_of(admin_client, ALL)
    assert "2 limits" in html
    quotas = row_of(html, "limit=quota%3Aexports")
    assert re.search(r"Quota 1 per month .* 1 0 2 0 192.0.2.1 2$", quotas)
    assert "test_all_limits:" in quotas
    banned = row_of(html, "limit=ban%3Aexports")
    assert re.search(r"Bans banned for 1 hour after each refusal, repeated bans up to 1 day .* 2 0 1 0", banned)
    for series in ("quota:exports", "ban:exports"):
        page = text_of(admin_client, f"{FIGURES}?limit={series}")
        assert "decisions per minute" in page
        assert "192.0.2.1" in page
    for name, link in (("exports", "quotausage/?quota=exports"), ("exports", "keyban/?find=exports")):
        assert f'href="/admin/resty_limits/{link}"' in html
        assert name in text_of(admin_client, f"/admin/resty_limits/{link}")
    assert "keyban/?find" not in text_of(person("view_limitpolicy"), ALL)
    # They have no states that a search for a key could show, and the panel counts no request twice.
    assert "limit=quota" not in text_of(admin_client, f"{POLICIES}limits/key/?key=192.0.2.1")
    assert [row.subject for row in overview.panel().rows] == ["exports"]


def test_the_list_is_searched(admin_client: Client) -> None:
    make_policy()
    stats.record("function:sms", "k", Decision(True))
    assert "1 limit" in text_of(admin_client, f"{ALL}?q=FUNCTION")
    html = text_of(admin_client, f"{ALL}?{urlencode({'q': HOSTILE})}")
    assert "No limits match" in html
    assert "<b>" not in html
    assert "&lt;b&gt;" in html


def test_the_list_has_pages(admin_client: Client) -> None:
    for number in range(60):
        stats.record(f"function:f{number:02}", "k", Decision(True))
    html = text_of(admin_client, f"{ALL}?q=function")
    assert len(rows_of(html)) == 50
    assert 'href="?page=2&amp;q=function"' in html
    assert len(rows_of(text_of(admin_client, f"{ALL}?q=function&page=2"))) == 10


def test_a_limit_has_figures(admin_client: Client) -> None:
    limited("1/h", name="sms")(lambda: None)()
    for _ in range(3):
        stats.record("function:sms", HOSTILE, Decision(False))
    html = text_of(admin_client, f"{FIGURES}?limit=function:sms")
    assert "decisions per minute" in html
    assert "decisions per hour" in html
    assert re.search(r"Refused\s+3\s+3", plain(html))
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "test_a_limit_has_figures" in html
    assert admin_client.get(f"{FIGURES}?{urlencode({'limit': HOSTILE})}").status_code == 404
