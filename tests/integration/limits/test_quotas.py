"""Quotas: rows in the database, blocks in the shared store, decorators, throttles; what happens without either.

Private names: `rows._reserve` is the one statement that fails while the database is away or transactions conflict.
"""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import AnonymousUser, User
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, transaction
from django.http import HttpResponse
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext

from resty_django import limits
from resty_django.limits import (
    CostTooHigh,
    Decision,
    LocalStore,
    Quota,
    StoreFailed,
    all_quotas,
    quota,
    request_refused,
)
from resty_django.limits.models import QuotaUsage
from resty_django.limits.quotas.quota import DATABASE
from resty_django.limits.quotas.store import block_key
from resty_django.limits.testing import frozen_limits, no_limits
from resty_django.shdict import shdicts
from tests.dictionaries import Clock

from .quota_tools import JULY, monthly
from .view_tools import Site as ViewSite
from .view_tools import drf_view, heard, on_dead_redis

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.db,
    pytest.mark.usefixtures("database_up"),
]

END_OF_JULY = datetime(2026, 8, 1, tzinfo=UTC).timestamp()


def used_in_row(key: str = "k") -> int:
    return QuotaUsage.objects.get(key=key).used


def broken(*args: Any) -> Any:
    raise OperationalError("the database is away")


class Site(ViewSite):
    """Views that use the database, so that sync ones run in a thread."""

    async def get(self, view: Any, path: str = "/", ip: str = "192.0.2.1", **options: Any) -> Any:
        if self.asynchronous:
            return await super().get(view, path, ip, **options)
        request = self.factory.get(path, REMOTE_ADDR=ip)
        request.user = options.pop("user", None)
        return await sync_to_async(view)(request)


@pytest.fixture(params=["sync", "async"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(request.param == "async")


# --- counting -----------------------------------------------------------------------------------------------------


async def _count(counted: Quota, call: Any, requests: int) -> list[Decision]:
    return [await call(counted.use, "k") for _ in range(requests)]


@pytest.mark.usefixtures("limits_store")
def test_exactly_the_limit_passes_and_most_uses_write_nothing(july: Clock) -> None:
    counted = monthly(1000, clock=july)
    with CaptureQueriesContext(connection) as queries:
        allowed = [bool(counted.use("k")) for _ in range(1020)]
    assert allowed == [True] * 1000 + [False] * 20
    writes = [query for query in queries if query["sql"].startswith("UPDATE")]
    assert len(writes) < 150
    assert used_in_row() == 1000


async def test_decisions_report_the_period(july: Clock, call: Any) -> None:
    counted = monthly(3, clock=july)
    decisions = await _count(counted, call, 4)
    until = END_OF_JULY - july.now
    assert [decision.remaining for decision in decisions] == [2, 1, 0, 0]
    assert {decision.limit for decision in decisions} == {3}
    assert [decision.allowed for decision in decisions] == [True, True, True, False]
    assert all(decision.reset_after == pytest.approx(until, abs=0.01) for decision in decisions)
    assert decisions[-1].retry_after == pytest.approx(until, abs=0.01)


async def test_a_new_period_starts_with_the_whole_limit(july: Clock, call: Any) -> None:
    counted = monthly(2, clock=july)
    assert [bool(decision) for decision in await _count(counted, call, 3)] == [True, True, False]
    july.now = END_OF_JULY - 0.5
    assert not await call(counted.use, "k")
    july.now = END_OF_JULY
    assert [bool(decision) for decision in await _count(counted, call, 3)] == [True, True, False]
    rows = [row async for row in QuotaUsage.objects.order_by("starts_at").values_list("used", "limit")]
    assert rows == [(2, 2), (2, 2)]


async def test_keys_are_separate_and_costs_add_up(july: Clock, call: Any) -> None:
    counted = monthly(10, clock=july)
    assert await call(counted.use, "a", 7)
    assert not await call(counted.use, "a", 4)
    assert await call(counted.use, "a", 3)
    assert await call(counted.use, "b", 10)
    assert not await call(counted.use, "b")


async def test_usage_reports_used_units_not_reserved_ones(july: Clock, call: Any) -> None:
    counted = Quota("exports", 5000, per="month", timezone="Europe/Berlin", clock=july)
    assert (await call(counted.usage, "k")).used == 0
    for _ in range(3):
        await call(counted.use, "k")
    usage = await call(counted.usage, "k")
    assert (usage.quota, usage.key, usage.limit, usage.used, usage.remaining) == ("exports", "k", 5000, 3, 4997)
    assert usage.starts_at.isoformat() == "2026-07-01T00:00:00+02:00"
    assert usage.resets_at.isoformat() == "2026-08-01T00:00:00+02:00"
    assert (await QuotaUsage.objects.aget()).used > 3


@pytest.mark.usefixtures("limits_store")
async def test_refunded_units_can_be_used_again(july: Clock, call: Any) -> None:
    counted = monthly(20, clock=july)
    assert all(await _count(counted, call, 20))
    assert not await call(counted.use, "k")
    assert await call(counted.refund, "k", 2)
    assert [bool(decision) for decision in await _count(counted, call, 3)] == [True, True, False]
    assert (await call(counted.usage, "k")).used == 20
    assert not await call(counted.refund, "other")


async def test_a_refund_larger_than_a_block_goes_to_the_row(july: Clock, call: Any) -> None:
    counted = monthly(1000, clock=july, max_block=5)
    assert await call(counted.use, "k", 500)
    assert await call(counted.refund, "k", 400)
    assert (await call(counted.usage, "k")).used == 100
    assert await call(counted.use, "k", 900)
    assert not await call(counted.use, "k")


async def test_a_changed_limit_keeps_the_usage(july: Clock, call: Any) -> None:
    counted = monthly(1000, clock=july)
    assert await call(counted.use, "k", 500)
    assert not await call(counted.use, "k", limit=400)
    assert not (await call(counted.use, "k", limit=400)).remaining
    assert (await call(counted.use, "k", limit=502)).remaining == 1
    assert await call(counted.use, "k", limit=502)
    assert not await call(counted.use, "k", limit=502)
    assert await call(counted.use, "k")


async def test_periods_from_the_sign_up_date(july: Clock, call: Any) -> None:
    asked: list[str] = []

    def signed_up(key: str) -> date | None:
        asked.append(key)
        return {"31": date(2025, 1, 31), "15": date(2026, 7, 15)}.get(key)

    counted = monthly(1, clock=july, anchor=signed_up)
    ends = [(await call(counted.use, key)).reset_after for key in ("31", "15", "none", "31")]
    days = [f"{datetime.fromtimestamp(july.now + end + 1, UTC):%m-%d}" for end in ends]
    assert days == ["07-31", "07-15", "08-01", "07-31"]
    assert asked == ["31", "15", "none"]


def test_long_and_strange_keys_are_stored_as_hashes(july: Clock) -> None:
    counted = monthly(1, clock=july)
    for key in ("x" * 300, "a\0b", "\ud800", "", 7, b"bytes"):
        assert counted.use(key)
        assert not counted.use(key)
    stored = set(QuotaUsage.objects.values_list("key", flat=True))
    assert {"7", "bytes"} < stored
    assert sum(key.startswith("~") for key in stored) == 4
    with pytest.raises(ValueError, match="must not be None"):
        counted.use(None)


def test_keys_are_case_sensitive(july: Clock) -> None:
    counted = monthly(1, clock=july)
    assert all(counted.use(key) for key in ("key", "KEY", "këy"))


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"per": "year"}, "per of a quota"),
        ({"limit": None}, "either a limit, such as 1000, or tiers="),
        ({"limit": 1.5}, "limit must be a whole number"),
        ({"limit": -1}, "limit must be at least 0"),
        ({"timezone": "Europe/Nowhere"}, "such as \"Europe/Berlin\", not 'Europe/Nowhere'"),
        ({"per": "day", "anchor": lambda key: None}, 'anchor needs per="week" or per="month"'),
        ({"max_block": 0}, "max_block must be greater than 0"),
        ({"on_error": "maybe"}, "on_error must be one of"),
        ({"name": ""}, "name of a quota"),
        ({"tier": len}, "tier= needs tiers="),
        ({"limit": None, "tiers": {"free": "many"}}, "limit must be a number|whole number"),
        ({"key": "nobody"}, "is not a key of a limit"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    arguments = {"name": "exports", "limit": 10, "per": "day", **change}
    with pytest.raises((TypeError, ValueError), match=message):
        Quota(arguments.pop("name"), arguments.pop("limit"), **arguments)
    with pytest.raises(TypeError, match="per"):
        Quota("exports", 10)  # type: ignore[call-arg]


def test_two_quotas_of_one_name_have_to_count_alike() -> None:
    Quota("exports", 10, per="day")
    Quota("exports", 20, per="day")
    with pytest.raises(ValueError, match="'exports'"):
        Quota("exports", 10, per="month")
    assert [each.limit for each in all_quotas()] == [20]


def test_a_limit_that_depends_on_the_request_has_to_be_passed() -> None:
    counted = Quota("exports", per="day", tiers={"free": 1, "pro": None})
    with pytest.raises(TypeError, match="Pass limit= to this call"):
        counted.use("k")
    assert counted.use("k", limit=1)
    assert not counted.use("k", limit=1)
    assert repr(counted) == "<Quota 'exports': free 1, pro unlimited per day>"


@pytest.mark.parametrize("cost", [10**15 + 1, 2**63, 10**400], ids=["most", "int64", "float"])
def test_a_cost_beyond_all_limits_is_an_error(cost: int, july: Clock) -> None:
    counted = monthly(10**15, clock=july)
    for call in (counted.use, counted.hit, counted.refund, counted.check):
        with pytest.raises(CostTooHigh, match="cost"):
            call(*(("k", cost) if call != counted.check else (cost,)))
    with pytest.raises(ValueError, match="units can be granted"):
        counted.grant("k", cost)
    with pytest.raises(ValueError, match="limit must be at most"):
        counted.use("k", limit=cost)
    assert counted.use("k", 10**15 - 1)
    assert counted.usage("k").remaining == 1


@pytest.mark.parametrize("cost", [0, -1, 1.5])
def test_a_cost_is_a_whole_number(cost: Any) -> None:
    with pytest.raises(ValueError, match="cost must be a whole number of at least 1"):
        monthly().use("k", cost)


# --- transactions -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("limits_store")
def test_a_rollback_returns_what_the_transaction_used(july: Clock) -> None:
    counted = monthly(1000, clock=july)
    with transaction.atomic():
        assert counted.use("k", 3)
        transaction.set_rollback(True)
    assert counted.usage("k").used == 0
    assert not QuotaUsage.objects.exists()
    with transaction.atomic():
        assert counted.use("k", 3)
    assert counted.usage("k").used == 3


def test_uses_in_transactions_reserve_the_next_block_after_the_commit(july: Clock) -> None:
    counted = monthly(1000, clock=july)
    with transaction.atomic():
        assert counted.use("k")
        assert used_in_row() == 1
    assert used_in_row() == 11
    with CaptureQueriesContext(connection) as queries, transaction.atomic():
        assert all(counted.use("k") for _ in range(10))
    assert [query for query in queries if "resty_limits" in query["sql"]] == []
    allowed = 0
    for _ in range(1000):
        with transaction.atomic():
            allowed += bool(counted.use("k"))
    assert allowed == 1000 - 11


def test_uses_within_one_transaction_end_at_the_limit(july: Clock) -> None:
    counted = monthly(150, clock=july)
    with transaction.atomic():
        assert [bool(counted.use("k")) for _ in range(152)] == [True] * 150 + [False] * 2


# --- losses -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("limits_store")
def test_the_loss_of_the_store_costs_at_most_one_block(july: Clock) -> None:
    counted = monthly(10_000, clock=july)
    for _ in range(150):
        assert counted.use("k")
    shdicts["limits"].flush_all()
    passed = 150
    while counted.use("k"):
        passed += 1
    assert passed == 10_000 - 50
    assert used_in_row() == 10_000


@pytest.mark.usefixtures("limits_store")
def test_foreign_data_in_the_store(july: Clock) -> None:
    counted = monthly(3, clock=july)
    shdicts["limits"].set(block_key(counted.name, "k", counted.period("k")), "text")
    assert [bool(counted.use("k")) for _ in range(4)] == [True, True, True, False]


@pytest.mark.redis
def test_without_the_store_each_use_writes_the_row(july: Clock) -> None:
    with on_dead_redis("limits"):
        counted = monthly(120, clock=july)
        assert [bool(counted.use("k")) for _ in range(122)] == [True] * 120 + [False] * 2
        assert used_in_row() == 120


@pytest.mark.parametrize(
    ("on_error", "expected"),
    [("open", [True] * 4), ("closed", [False] * 4), ("local", [True, True, False, False])],
)
async def test_while_the_database_is_down(
    july: Clock, call: Any, on_error: str, expected: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = monthly(2, clock=july, on_error=on_error, store=LocalStore())
    with monkeypatch.context() as patch:
        patch.setattr("resty_django.limits.quotas.rows._reserve", broken)
        decisions = await _count(counted, call, 4)
    assert [decision.allowed for decision in decisions] == expected
    assert all(decision.failed for decision in decisions)


def test_an_outage_is_logged_once(
    july: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counted = monthly(2, clock=july, on_error="open", store=LocalStore())
    with monkeypatch.context() as patch:
        patch.setattr("resty_django.limits.quotas.rows._reserve", broken)
        assert all(counted.use("k") for _ in range(5))
    failures = [record.getMessage() for record in caplog.records if "does not answer" in record.getMessage()]
    assert failures == [
        "The store 'database of quotas' of limits does not answer; limits follow their on_error: the database is away"
    ]
    DATABASE.retry_at = 0.0
    assert counted.use("k")
    assert "answers again" in caplog.text
    assert counted.usage("k").used == 1


def test_the_database_is_down_and_errors_are_raised(july: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = monthly(2, clock=july)
    assert counted.use("k")
    monkeypatch.setattr("resty_django.limits.quotas.rows._reserve", broken)
    with pytest.raises(StoreFailed, match="'exports'"):
        counted.use("k")


def test_a_block_passes_while_the_database_is_down(july: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = monthly(1000, clock=july, store=LocalStore())
    assert counted.use("k")
    monkeypatch.setattr("resty_django.limits.quotas.rows._reserve", broken)
    assert all(counted.use("k") for _ in range(9))
    with pytest.raises(StoreFailed):
        counted.use("k")


def test_a_conflict_of_transactions_is_repeated(july: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    from resty_django.limits.quotas import rows

    reserve, errors = rows._reserve, [OperationalError("deadlock"), OperationalError("deadlock")]

    def conflicting(*args: Any) -> Any:
        if errors:
            raise errors.pop()
        return reserve(*args)

    monkeypatch.setattr(rows, "_reserve", conflicting)
    assert monthly(2, clock=july).use("k")
    assert used_in_row() == 1


# --- views --------------------------------------------------------------------------------------------------------


async def test_a_decorated_view(site: Site, july: Clock) -> None:
    view = site.view(quota("exports", 2, per="month", timezone="UTC", key="ip", clock=july))
    with heard(request_refused) as signals:
        responses = [await site.get(view) for _ in range(3)]
    assert [response.status_code for response in responses] == [200, 200, 429]
    assert [(sent["sender"], sent["name"], sent["key"]) for sent in signals] == [(Quota, "exports", "192.0.2.1")]
    until = round(END_OF_JULY - JULY)
    assert responses[0]["X-RateLimit-Limit"] == "2"
    assert [response["X-RateLimit-Remaining"] for response in responses] == ["1", "0", "0"]
    assert abs(int(responses[0]["X-RateLimit-Reset"]) - until) <= 1
    assert abs(int(responses[2]["Retry-After"]) - until) <= 1
    assert responses[0]["RateLimit-Policy"] == '"exports";q=2'
    assert responses[0]["RateLimit"].startswith('"exports";r=1;t=')
    assert (await site.get(view, ip="192.0.2.2")).status_code == 200


async def test_views_share_a_quota_with_plain_code(site: Site) -> None:
    exports = Quota("exports", 3, per="day", key="ip")
    first, second = site.view(quota(exports)), site.view(quota(exports, cost=2))
    assert (await site.get(first)).status_code == 200
    assert (await site.get(second)).status_code == 200
    assert not await exports.ause("192.0.2.1")
    assert (await site.get(first)).status_code == 429


async def test_a_tier_decides_the_limit_and_an_upgrade_keeps_the_usage(site: Site) -> None:
    plans = {"192.0.2.1": "free", "192.0.2.2": "staff"}

    def plan_of(request: Any) -> str:
        return plans[request.META["REMOTE_ADDR"]]

    view = site.view(quota("exports", tiers={"free": 2, "pro": 4, "staff": None}, tier=plan_of, per="month", key="ip"))
    assert await site.statuses(view, 3) == [200, 200, 429]
    plans["192.0.2.1"] = "pro"
    assert await site.statuses(view, 3) == [200, 200, 429]
    assert await site.statuses(view, 9, ip="192.0.2.2") == [200] * 9


async def test_a_function_of_the_request_returns_the_limit(site: Site) -> None:
    view = site.view(quota("exports", lambda request: int(request.GET["units"]), per="week", key="ip"))
    answers = [(await site.get(view, f"/?units={units}")).status_code for units in (1, 1, 3, 3, 3)]
    assert answers == [200, 429, 200, 200, 429]


async def test_requests_that_do_not_count_are_refunded(site: Site) -> None:
    answers = iter([404, 404, 200, 200, 200])
    view = site.view(
        quota("exports", 2, per="day", key="ip", count_when=lambda response: response.status_code == 200),
        body=lambda request: HttpResponse(status=next(answers)),
    )
    assert await site.statuses(view, 5) == [404, 404, 200, 200, 429]


async def test_a_cost_above_the_limit_never_passes(site: Site) -> None:
    view = site.view(quota("exports", 2, per="day", key="ip", cost=3))
    response = await site.get(view)
    assert response.status_code == 429
    assert "Retry-After" not in response


async def test_quotas_are_for_users_by_default(site: Site) -> None:
    view = site.view(quota("exports", 1, per="day"))
    users = [await User.objects.acreate(username=name) for name in ("ada", "bob")]
    assert [(await site.get(view, user=user)).status_code for user in (*users, *users)] == [200, 200, 429, 429]


def test_wrong_options_of_the_decorator() -> None:
    counted = Quota("exports", 10, per="day")
    with pytest.raises(TypeError, match="was given a Quota, which defines limit"):
        quota(counted, per="month")
    with pytest.raises(TypeError, match="Write the limit in brackets"):
        quota(lambda request: HttpResponse())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"@quota\(\) has no option 'costs'"):
        quota("exports", 10, per="day", costs=2)  # type: ignore[call-arg]


def test_a_throttle_of_django_rest_framework() -> None:
    from resty_django.limits.quotas.throttling import QuotaThrottle

    class Exports(QuotaThrottle):
        quota = Quota("exports", 2, per="day", key="ip")

    own = Quota("own", tiers={"free": 1}, tier=lambda request: "free", per="day", key="ip")
    get = RequestFactory().get
    responses = [drf_view(Exports)(get("/")) for _ in range(3)]
    assert [response.status_code for response in responses] == [200, 200, 429]
    assert responses[0]["X-RateLimit-Remaining"] == "1"
    assert 0 < int(responses[2]["Retry-After"]) <= 25 * 3600
    assert [drf_view(QuotaThrottle, quota=own)(get("/")).status_code for _ in range(2)] == [200, 429]
    assert drf_view(QuotaThrottle)(get("/")).status_code == 200


# --- usage of the current customer --------------------------------------------------------------------------------


def request_of(user: Any, **headers: str) -> Any:
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1", headers=headers)
    request.user = user
    return request


def test_a_customer_sees_only_own_usage() -> None:
    ada, bob = (User.objects.create(username=name) for name in ("ada", "bob"))
    exports = Quota("exports", 500, per="month")
    prints = Quota("prints", per="day", tiers={"free": 3, "pro": None}, tier=lambda request: request.user.username)
    prints.choice.rates.update(ada=7, bob=None)  # type: ignore[union-attr]
    Quota("everybody", 9, per="day", key="all")
    Quota("pages", 9, per="day", key="ip+path")
    mails = Quota("mails", lambda request: 5, per="hour", key="header:X-Key")
    exports.use(ada.pk, 4)
    exports.use(bob.pk, 5)
    exports.use("-", 6)
    prints.use(ada.pk, limit=7)
    mails.use("secret", limit=5)

    def seen(request: Any) -> list[tuple[str, int, int]]:
        usages = [(each.quota, each.used, each.limit) for each in limits.usage(request)]
        assert usages == [(each.quota, each.used, each.limit) for each in async_to_sync(limits.ausage)(request)]
        return usages

    assert seen(request_of(ada)) == [("exports", 4, 500), ("prints", 1, 7)]
    assert seen(request_of(bob)) == [("exports", 5, 500)]
    assert seen(request_of(bob, **{"X-Key": "secret"})) == [("exports", 5, 500), ("mails", 1, 5)]
    assert seen(request_of(AnonymousUser())) == []


# --- tests of sites -----------------------------------------------------------------------------------------------


def test_the_test_kit_freezes_and_switches_off_quotas() -> None:
    counted = Quota("exports", 1, per="hour", timezone="UTC")
    with frozen_limits(JULY) as clock:
        assert [bool(counted.use("k")) for _ in range(2)] == [True, False]
        clock.tick(3600)
        assert counted.use("k")
    with no_limits():
        assert all(counted.use("k") for _ in range(9))


# --- old rows -----------------------------------------------------------------------------------------------------


def old_rows(count: int, age: float) -> None:
    end = int(time.time() - age)
    rows = [QuotaUsage(quota="old", key=str(n), starts_at=end - 60, ends_at=end, limit=1) for n in range(count)]
    QuotaUsage.objects.bulk_create(rows)


def test_new_rows_replace_old_ones() -> None:
    old_rows(5, 401 * 86_400)
    counted = Quota("exports", 1, per="day", store=LocalStore())
    for number in range(3):
        counted.use(number)
    assert QuotaUsage.objects.filter(quota="old").count() == 0
    assert QuotaUsage.objects.count() == 3


def test_the_command_deletes_old_rows() -> None:
    old_rows(1200, 100 * 86_400)
    out = StringIO()
    call_command("quotas_prune", stdout=out)
    assert QuotaUsage.objects.count() == 1200
    call_command("quotas_prune", "--keep", "99d", stdout=out)
    assert out.getvalue() == "Deleted 0 rows of quotas.\nDeleted 1,200 rows of quotas.\n"
    assert not QuotaUsage.objects.exists()
    with pytest.raises(CommandError, match="--keep is not valid"):
        call_command("quotas_prune", "--keep", "soon")
