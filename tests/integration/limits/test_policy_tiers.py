"""Policies with several rates, rates per tier and exemptions: in middleware, decorators, the admin, and files.

Private names: the cache of `enforcers._log_missing_function`, which logs once in a process: earlier tests may have
caused that line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.checks import run_checks
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path

from resty_django.limits import bans
from resty_django.limits.decorators import limit
from resty_django.limits.health import probe
from resty_django.limits.models import LimitOverride, LimitPolicy
from resty_django.limits.policies import enforcers, registry
from resty_django.limits.requests.chosen_rates import MISSING_FUNCTION
from resty_django.limits.statistics import reporter
from resty_django.limits.statistics.reporter import Totals
from tests.staff import logged

from .policy_tools import POLICIES, make_policy, policy_of
from .view_tools import Asking, change, serving

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "resty_django.limits.middleware.LimitMiddleware",
]
TIERS = "pro: 4/h\nmany: 5/m;3/h\nstaff: none"
NUMBERS: dict[str, tuple[dict[str, Any], str]] = {
    "fixed_window": ({"limit": 1, "window": "365d"}, "pro: 4/h"),
    "sliding_window": ({"limit": 1, "window": "365d"}, "pro: 4/365d"),
    "leaky_bucket": ({"rate": "1/h"}, "pro: 100/s burst=3"),
    "token_bucket": ({"rate": "1/h", "max_wait": "0s"}, "pro: 1/h capacity=4"),
}
"""Numbers with which one request passes, and a tier with which four pass."""

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db, pytest.mark.usefixtures("limits_site")]


def tier_of(request: HttpRequest) -> Any:
    return request.headers.get("X-Plan")


async def atier_of(request: HttpRequest) -> Any:
    return tier_of(request)


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"done")


@limit("api")
def decorated(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"done")


urls = [path("api/items/", view), path("api/status/", view), path("decorated/", decorated)]


@pytest.fixture(params=["sync"])
def statuses(request: pytest.FixtureRequest, settings: Any, limits_site: Any) -> Iterator[Callable[..., list[int]]]:
    """A function that returns the statuses of requests, on a site whose setting TIER is a function like the handler."""
    asynchronous = request.param == "async"
    tier = f"{__name__}.{'atier_of' if asynchronous else 'tier_of'}"
    change(settings, TIER=tier, MAX_DELAY=0)

    def ask(url: str = "/api/items/", count: int = 6, plan: str = "", **options: Any) -> list[int]:
        return Asking(asynchronous).statuses(url, count, headers={"X-Plan": plan}, **options)

    with serving(settings, urls, MIDDLEWARE):
        yield ask


Statuses = Callable[..., list[int]]

BOTH_HANDLERS = pytest.mark.parametrize("statuses", ["sync", "async"], indirect=True)


def passed(codes: list[int]) -> int:
    assert set(codes) <= {200, 429}
    return codes.count(200)


# --- tiers --------------------------------------------------------------------------------------------------------


@BOTH_HANDLERS
@pytest.mark.parametrize("algorithm", NUMBERS)
def test_each_tier_has_its_rate(statuses: Statuses, algorithm: str) -> None:
    numbers, pro = NUMBERS[algorithm]
    make_policy("api", algorithm, path="/api/*", tiers=f"{pro}\nstaff: none", **numbers)
    assert passed(statuses(plan="pro", count=4)) == 4
    if algorithm != "leaky_bucket":  # its state has a time of milliseconds
        assert passed(statuses(plan="pro")) == 0
    assert passed(statuses(plan="staff")) == 6
    assert passed(statuses(plan="unknown")) == 1
    assert passed(statuses()) == 0  # requests without a tier, and with an unknown tier, share a state


@BOTH_HANDLERS
def test_tiers_apply_to_decorated_views_and_with_other_policies(statuses: Statuses) -> None:
    make_policy("api", limit=1, tiers=TIERS)
    assert passed(statuses("/decorated/", plan="pro")) == 4
    assert passed(statuses("/decorated/", plan="staff")) == 6
    make_policy("outer", limit=3, path="/decorated/", tiers="staff: 1/h")
    make_policy("inner", limit=2, path="/decorated/")
    assert passed(statuses("/decorated/", plan="staff")) == 1


def test_an_edit_keeps_the_state_of_a_tier(statuses: Statuses) -> None:
    row = make_policy("api", path="/api/*", tiers=TIERS)
    assert passed(statuses(plan="pro")) == 4
    row.tiers = "other: 1/h\npro: 9/h"
    row.save()
    assert passed(statuses(plan="pro", count=1)) == 1
    row.tiers = ""
    row.save()
    assert passed(statuses(plan="pro")) == 3


def test_a_tier_is_asked_for_only_where_a_policy_applies(statuses: Statuses, settings: Any) -> None:
    make_policy("api", path="/api/*", methods="POST", tiers=TIERS)
    make_policy("api-get", "fixed_window", limit=2, path="/api/*")
    change(settings, TIER=f"{__name__}.nothing")
    assert passed(statuses()) == 2


def test_without_the_setting_the_rate_of_the_policy_applies(
    statuses: Statuses, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    enforcers._log_missing_function.cache_clear()
    make_policy("api", path="/api/*", tiers=TIERS)
    change(settings, TIER=None)
    with caplog.at_level(logging.ERROR, "resty_django.limits"):
        assert passed(statuses(plan="staff")) == 3
    assert [record.message for record in caplog.records if MISSING_FUNCTION in record.message] == [
        f"The rates of the tiers of limit policies do not apply. {MISSING_FUNCTION}"
    ]
    assert [(finding.level, finding.subject, finding.message) for finding in probe()] == [
        ("error", "policy api", MISSING_FUNCTION)
    ]


@pytest.mark.parametrize(
    ("tier", "message"),
    [(None, "Nothing names the tier of a request. Set"), ("shop.nothing.tier_of", "No module named 'shop'")],
)
def test_a_check_reports_rules_whose_tiers_nothing_names(settings: Any, tier: str | None, message: str) -> None:
    rule = {"name": "api", "algorithm": "fixed_window", "limit": 1, "window": "1h", "tiers": {"pro": "5/h"}}
    settings.RESTY_DJANGO = {"LIMITS": {"RULES": [rule], "TIER": tier}}
    (error,) = [found for found in run_checks() if found.id == "resty_limits.E003"]
    assert message in error.msg
    settings.RESTY_DJANGO = {"LIMITS": {"RULES": [rule], "TIER": f"{__name__}.tier_of"}}
    assert not [found for found in run_checks() if found.id == "resty_limits.E003"]


@BOTH_HANDLERS
def test_an_override_applies_to_each_tier_with_a_rate(statuses: Statuses) -> None:
    make_policy("api", path="/api/*", tiers=TIERS)
    row = LimitOverride.objects.create(kind="key", key="all", limit="api", rate="5/h")
    assert passed(statuses(plan="pro")) == passed(statuses(plan="many")) == passed(statuses()) == 5
    row.rate = "blocked"
    row.save()
    assert passed(statuses(plan="pro")) == passed(statuses()) == 0
    assert passed(statuses(plan="staff")) == 6


def test_plain_code_uses_the_limiters_of_a_tier() -> None:
    make_policy("api", tiers=TIERS, limit=1)
    policy = policy_of("api")
    assert {tier: len(limiters) for tier, limiters in policy.tiers.items()} == {"pro": 1, "many": 2, "staff": 0}
    (pro,) = policy.tiers["pro"]
    assert [bool(pro.hit("k")) for _ in range(5)] == [True] * 4 + [False]
    assert policy.limiter.hit("k")
    assert len({limiter.prefix for limiter in policy.limiters}) == len(policy.limiters) == 4


# --- several rates ------------------------------------------------------------------------------------------------

SEVERAL: dict[str, dict[str, Any]] = {
    "fixed_window": {"rate": "5/365d;3/100d"},
    "sliding_window": {"rate": "3/100d;5/365d"},
    "leaky_bucket": {"rate": "1/365d burst=4;1/100d burst=2"},
    "token_bucket": {"rate": "1/100d capacity=3;1/365d", "capacity": 5, "max_wait": "0s"},
}
"""Rates of which the slower or smaller one lets three requests pass."""


@pytest.mark.parametrize("algorithm", SEVERAL)
@pytest.mark.parametrize("cost", [1, 2])
def test_a_request_must_pass_all_rates_of_a_policy(statuses: Statuses, algorithm: str, cost: int) -> None:
    numbers = SEVERAL[algorithm] if cost == 1 else {**SEVERAL[algorithm], "cost": cost}
    make_policy("api", algorithm, path="/api/*", mode="shadow", limit=None, window="", **numbers)
    assert passed(statuses()) == 6
    assert reporter.stats.flush()
    totals = reporter.stats.totals()["api"]
    passes = 3 if cost == 1 else 2 if algorithm == "leaky_bucket" else 1  # a leaky bucket takes one off at once
    assert (totals.passed + totals.delayed, totals.shadowed) == (passes, 6 - passes)
    policy = policy_of("api")
    if algorithm != "leaky_bucket":
        left = max(limiter.peek("all").remaining for limiter in policy.rates)
        assert left == 5 - passes * cost, "a request that one rate refuses is not counted by the other"


@BOTH_HANDLERS
def test_the_rates_of_a_policy_apply_to_decorated_views_and_requests_without_a_tier(statuses: Statuses) -> None:
    make_policy("api", limit=None, window="", rate="5/m;2/h", tiers=TIERS)
    assert passed(statuses("/decorated/")) == 2
    assert passed(statuses("/decorated/", plan="pro")) == 4
    assert passed(statuses("/decorated/", plan="many")) == 3
    assert reporter.stats.flush()
    assert reporter.stats.totals()["api"] == Totals(passed=9, refused=9)


def test_another_rate_keeps_the_state_of_the_first_one(statuses: Statuses) -> None:
    row = make_policy("api", path="/api/*", limit=None, window="", rate="3/h")
    assert passed(statuses(count=3)) == 3
    row.rate = "5/h;1/365d"
    row.save()
    assert passed(statuses(count=3)) == 1
    row.rate, row.limit, row.window = "", 6, "1h"
    row.save()
    assert passed(statuses()) == 2


def test_an_override_replaces_all_rates_of_a_policy(statuses: Statuses) -> None:
    make_policy("api", path="/api/*", limit=None, window="", rate="5/h;2/365d")
    row = LimitOverride(kind="key", key="all", limit="api", rate="4/h")
    row.full_clean()
    row.save()
    assert passed(statuses()) == 4
    row.rate = "none"
    row.save()
    assert passed(statuses()) == 6
    row.delete()
    assert passed(statuses()) == 0


def test_code_that_calls_the_limiter_of_a_policy_is_limited_by_all_rates() -> None:
    make_policy("api", limit=None, window="", rate="5/h;3/365d")
    policy = policy_of("api")
    decisions = [policy.limiter.hit("k") for _ in range(4)]
    assert [bool(decision) for decision in decisions] == [True, True, True, False]
    assert [(decision.limit, decision.remaining) for decision in decisions[:2]] == [(3, 2), (3, 1)]
    assert decisions[-1].retry_after > 3600
    policy.record("k", decisions[-1])
    assert reporter.stats.flush()
    assert reporter.stats.totals()["api"] == Totals(refused=1)
    assert not policy.limiter.peek("k")
    assert policy.limiter.reset("k")
    assert policy.limiter.peek("k")


def test_a_rule_of_the_settings_has_several_rates(statuses: Statuses, settings: Any) -> None:
    rule = {"name": "api", "algorithm": "sliding_window", "rate": "5/h;2/365d", "path": "/api/*", "key": "all"}
    change(settings, RULES=[rule])
    assert passed(statuses()) == 2


def test_several_rates_in_the_admin(admin_client: Client) -> None:
    row = make_policy("api", limit=None, window="", rate="5/m;3/h", tiers="pro: 4/h;1/s")
    words = "5 requests per minute from the first one on, then refused and 3 requests per hour from the first one on"
    assert words in admin_client.get(POLICIES).content.decode()
    assert words in admin_client.get(f"{POLICIES}{row.pk}/change/").content.decode()
    url = f"{POLICIES}{row.pk}/try/"
    reply = admin_client.get(url, {"arrivals": 6, "interval": "0s", "limit": "The policy's own"}).content.decode()
    assert "3 passed, 0 delayed, 3 refused" in reply
    policy = policy_of("api")
    for limiter in policy.limiters:
        limiter.hit("k")
    admin_client.post(f"{POLICIES}{row.pk}/reset-key/", {"key": "k"})
    assert [limiter.peek("k").remaining for limiter in policy.limiters] == [5, 3, 4, 1]


# --- exemptions ---------------------------------------------------------------------------------------------------


@BOTH_HANDLERS
def test_networks_are_exempt(statuses: Statuses) -> None:
    make_policy("api", path="/api/*", exempt_networks="10.0.0.0/8\n127.0.0.1")
    assert passed(statuses()) == 6
    LimitPolicy.objects.update(exempt_networks="10.0.0.0/8")
    registry.refresh_policies()
    assert passed(statuses()) == 3


def test_paths_are_exempt_for_decorated_views_too(statuses: Statuses) -> None:
    make_policy("api", path="/api/*", exempt_paths="/api/status/*\n/decor*")
    assert passed(statuses("/api/status/")) == 6
    assert passed(statuses("/api/items/")) == 3
    assert passed(statuses("/decorated/")) == 6


@BOTH_HANDLERS
def test_users_are_exempt_by_name_and_by_primary_key(statuses: Statuses) -> None:
    anna, ben = User.objects.create_user("anna"), User.objects.create_user("ben")
    other = User.objects.create_user(f"user:{anna.pk}")
    make_policy("api", path="/api/*", key="user|ip", exempt_users=f"user:{anna.pk}\nben")
    assert passed(statuses(user=anna)) == passed(statuses(user=ben)) == 6
    assert passed(statuses(user=other)) == 3  # a name cannot be mistaken for a primary key
    assert passed(statuses()) == 3


@BOTH_HANDLERS
def test_members_of_groups_are_exempt(statuses: Statuses) -> None:
    anna, ben = User.objects.create_user("anna"), User.objects.create_user("ben")
    anna.groups.add(Group.objects.create(name="Shop managers"))
    ben.groups.add(Group.objects.create(name="Others"))
    make_policy("api", path="/api/*", exempt_groups="Shop managers\nNobody")
    assert passed(statuses(user=anna)) == 6
    assert passed(statuses(user=ben)) == 3
    assert passed(statuses()) == 0


def test_groups_take_one_query_for_all_policies_and_none_without_such_a_policy(statuses: Statuses) -> None:
    user = User.objects.create_user("anna")
    make_policy("api", path="/api/items/", limit=100)
    make_policy("other", path="/free/", exempt_groups="a")

    def count_of(asked: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            statuses("/api/items/", 1, user=user)
        return len([query for query in queries if asked in query["sql"]])

    assert count_of("auth_group") == 0
    for number in range(3):
        make_policy(f"exempting{number}", path="/api/items/", exempt_groups="a\nb", limit=100)
    statuses("/api/items/", 1)
    assert count_of("auth_group") == 1


def test_without_users_nobody_is_exempt(statuses: Statuses) -> None:
    make_policy("api", path="/api/*", exempt_users="anna", exempt_groups="a")
    with override_settings(MIDDLEWARE=MIDDLEWARE[2:]):
        assert passed(statuses()) == 3


def test_a_tier_can_be_exempt(statuses: Statuses) -> None:
    make_policy("api", path="/api/*", tiers=TIERS, exempt_paths="/api/status/", exempt_networks="10.0.0.0/8")
    assert passed(statuses("/api/status/", plan="pro")) == 6
    assert passed(statuses("/api/items/", plan="pro", REMOTE_ADDR="192.0.2.1")) == 4


# --- bans ---------------------------------------------------------------------------------------------------------


@BOTH_HANDLERS
def test_refusals_ban_a_key_in_all_tiers(statuses: Statuses) -> None:
    make_policy("api", path="/api/*", tiers=TIERS, ban="15m", ban_after=2)
    assert passed(statuses(count=4)) == 3
    assert bans.current_bans() == []
    assert passed(statuses(plan="pro", count=5)) == 4  # refusals are counted by tier
    assert bans.current_bans() == []
    assert statuses(count=1) == [429]
    (ban,) = bans.current_bans()
    assert (ban.limit, ban.key, ban.number) == ("api", "all", 1)
    assert passed(statuses(plan="many", count=2)) == 0
    assert passed(statuses(plan="staff")) == 6  # a tier without a limit has no bans either
    bans.lift("all")
    assert passed(statuses(plan="many", count=2)) == 2


# --- validation ---------------------------------------------------------------------------------------------------


def test_code_declares_tiers_as_a_dict_and_exemptions_as_lists() -> None:
    registry.declare_policy(
        "api",
        "leaky_bucket",
        rate="1/s",
        tiers={"plan:pro": "5/s burst=2", "staff": None},
        exempt_networks=["10.0.0.0/8", "192.0.2.7"],
        exempt_users="anna\r\n\r\n ben ",
    )
    policy = policy_of("api")
    assert policy.spec.tiers == "plan:pro: 5/s burst=2\nstaff: none"
    assert policy.spec.exempt_networks == "10.0.0.0/8\n192.0.2.7"
    assert policy.spec.exempt_users == "anna\nben"
    assert policy.describe() == (
        "1 request/s, then refused; plan:pro: 5 requests/s, up to 2 wait, then refused; staff: no limit"
    )


# --- the admin ----------------------------------------------------------------------------------------------------


def form(**fields: Any) -> dict[str, Any]:
    """Return the fields that a browser sends for a policy's form."""
    numbers = {"algorithm": "fixed_window", "limit": "2", "window": "1h"}
    return {"name": "api", "key": "ip", "cost": "1", "mode": "enforce", "order": "0", **numbers, **fields}


@pytest.fixture
def _tier_setting(settings: Any, limits_site: Any) -> None:
    change(settings, TIER=f"{__name__}.tier_of")


@pytest.mark.usefixtures("_tier_setting")
def test_tiers_and_exemptions_are_edited_shown_found_and_logged(admin_client: Client) -> None:
    Group.objects.create(name="Shop managers")
    User.objects.create_user("anna")
    sent = form(
        tiers="pro:4/h\r\n\r\n<b>: none\r\n",
        exempt_networks="10.0.0.0/8",
        exempt_users="anna\r\nuser:7",
        exempt_groups=" Shop managers ",
        exempt_paths="/api/status/*",
        path="/api/*",
        ban="15m",
        ban_after="3",
    )
    reply = admin_client.post(f"{POLICIES}add/", sent)
    assert reply.status_code == 302, reply.context["errors"]
    row = LimitPolicy.objects.get()
    assert (row.tiers, row.exempt_users, row.exempt_groups) == (
        "pro: 4/h\n<b>: none",
        "anna\nuser:7",
        "Shop managers",
    )
    html = admin_client.get(POLICIES).content.decode()
    for text in (
        "pro: 4 requests per hour",
        "&lt;b&gt;: no limit",
        "not network 10.0.0.0/8",
        "not user anna",
        "banned for 15m after 3 refusals",
    ):
        assert text in html
    assert "<b>:" not in html
    for search, count in (("Shop man", 1), ("10.0.0", 1), ("pro:", 1), ("nobody", 0)):
        assert admin_client.get(POLICIES, {"q": search}).context["page_of_limits"].paginator.count == count
    admin_client.post(f"{POLICIES}{row.pk}/change/", {**sent, "tiers": "pro: 5/h", "exempt_users": ""})
    changes = r"Tiers: pro: 4/h\n<b>: none → pro: 5/h and Exempt users: anna\nuser:7 → empty"
    assert logged() == ["Added.", f"Changed {changes}."]
    policy = policy_of("api")
    assert list(policy.tiers) == ["pro"]
    admin_client.post(f"{POLICIES}{row.pk}/change/", form(algorithm="concurrency", window="", tiers="pro: 5/h"))
    row.refresh_from_db()
    assert (row.algorithm, row.tiers, row.exempt_networks) == ("concurrency", "", "")


def test_a_long_list_of_tiers_is_shortened(admin_client: Client) -> None:
    make_policy("api", tiers="\n".join(f"tier{number}: 4/h" for number in range(9)))
    html = admin_client.get(POLICIES).content.decode()
    assert "tier4: 4 requests" in html
    assert "tier5: 4 requests" not in html
    assert "and 4 more" in html


@pytest.mark.usefixtures("_tier_setting")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tiers": "pro: 4/h\r\nfree <b>"}, "Line 2, “free &lt;b&gt;”: Write a tier"),
        ({"exempt_users": "anna\r\nben\r\nuser:7"}, "There is no user “ben”. Correct the name, or remove it."),
        ({"exempt_groups": "Staff\r\nX"}, "There is no group “Staff”, “X”. Correct the name, or remove it."),
        ({"exempt_networks": "<b>"}, "“&lt;b&gt;”: This is not a network."),
    ],
)
def test_the_form_names_what_to_change(admin_client: Client, fields: dict[str, str], message: str) -> None:
    User.objects.create_user("anna")
    reply = admin_client.post(f"{POLICIES}add/", form(**fields))
    assert reply.status_code == 200
    assert message in reply.content.decode()
    assert list(reply.context["adminform"].form.errors) == list(fields)


def test_the_form_refuses_tiers_that_nothing_names(admin_client: Client) -> None:
    reply = admin_client.post(f"{POLICIES}add/", form(tiers="pro: 4/h"))
    assert reply.context["adminform"].form.errors["tiers"] == [MISSING_FUNCTION]


def test_the_rate_of_a_tier_can_be_tried(admin_client: Client) -> None:
    url = f"{POLICIES}{make_policy('api', limit=1, tiers=TIERS).pk}/try/"
    html = admin_client.get(url).content.decode()
    labels = [
        "The policy&#x27;s own",
        "pro: 4 requests per hour from the first one on, then refused",
        "many: 5 requests per minute from the first one on, then refused and 3 requests per hour from the first one "
        "on, then refused",
    ]
    assert all(f">{label}</option>" in html for label in labels)
    assert html.count("<option") == len(labels)
    for choice, outcome in (("The policy's own", "1 passed"), (labels[1], "4 passed"), (labels[2], "3 passed")):
        reply = admin_client.get(url, {"arrivals": 6, "interval": "1s", "limit": choice})
        assert outcome in reply.content.decode()
    assert "Select a valid choice" in admin_client.get(url, {"arrivals": 6, "limit": "other"}).content.decode()


def test_a_reset_covers_all_tiers_and_a_search_shows_them(admin_client: Client) -> None:
    row = make_policy("api", tiers=TIERS)
    policy = policy_of("api")
    for limiter in policy.limiters:
        limiter.hit("k")
    html = admin_client.get(f"{POLICIES}limits/key/", {"key": "k"}).content.decode()
    assert html.count("requests per hour from the first one on") == 3  # the policy's own, pro and many
    admin_client.post(f"{POLICIES}{row.pk}/reset-key/", {"key": "k"})
    assert [limiter.peek("k").remaining for limiter in policy.limiters] == [3, 4, 5, 3]
