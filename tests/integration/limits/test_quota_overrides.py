"""Overrides change the units of a quota for one user, address or key."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory

from resty_django.limits import Quota, quota, usage
from resty_django.limits.models import LimitOverride, QuotaUsage
from resty_django.limits.policies.files import BadFile, dump, load
from resty_django.limits.quotas.throttling import QuotaThrottle
from resty_django.limits.statistics.reporter import Totals, stats
from tests.integration.limits.policy_tools import POLICIES, make_policy
from tests.integration.limits.test_key_usage import rows
from tests.integration.limits.test_overrides import everywhere, override  # noqa: F401 - fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site")]

EXPORTS = "quota:exports"


def monthly(limit: Any = 2, **options: Any) -> Quota:
    return Quota("exports", limit, per="month", timezone="UTC", **options)


def by_user(rate: str, key: str = "7", limit: str = EXPORTS) -> LimitOverride:
    return override(rate, key, "user", limit)


def passes(exports: Quota, key: object = "7", most: int = 9) -> int:
    return sum(bool(exports.use(key)) for _ in range(most))


def totals() -> Totals:
    stats.flush()
    return stats.totals().get(EXPORTS, Totals())


@pytest.mark.usefixtures("everywhere")
async def test_a_key_has_another_number_of_units(call: Any) -> None:
    exports = monthly()
    assert await call(exports.use, "7")
    row = await sync_to_async(by_user)("4")
    assert [bool(await call(exports.use, "7")) for _ in range(5)] == [True, True, True, False, False]
    decision = await call(exports.use, "7")
    assert decision.limit == 4
    assert [bool(await call(exports.use, "8")) for _ in range(3)] == [True, True, False]
    amount = await call(exports.usage, "7")
    assert (amount.limit, amount.used, amount.remaining) == (4, 4, 0)
    assert await call(exports.grant, "7", 1)
    assert await call(exports.use, "7")
    await row.adelete()
    assert not await call(exports.use, "7")
    assert (await call(exports.usage, "7")).limit == 3


@pytest.mark.usefixtures("everywhere")
async def test_none_counts_nothing_and_blocked_refuses(call: Any) -> None:
    exports = monthly()
    row = await sync_to_async(by_user)("none")
    assert [bool(await call(exports.use, "7", 5)) for _ in range(3)] == [True] * 3
    assert await sync_to_async(QuotaUsage.objects.count)() == 0
    assert await sync_to_async(totals)() == Totals()
    await row.adelete()
    assert await call(exports.use, "7")
    row = await sync_to_async(by_user)("none")
    assert not await call(exports.refund, "7")  # what was not counted is not returned
    await row.adelete()
    assert (await call(exports.usage, "7")).used == 1
    await sync_to_async(by_user)("blocked")
    decision = await call(exports.use, "7")
    assert (decision.allowed, decision.limit) == (False, 2)
    assert (await call(exports.usage, "7")).remaining == 0
    assert await sync_to_async(totals)() == Totals(passed=1, refused=1)


@pytest.mark.usefixtures("everywhere")
def test_the_override_of_a_quota_comes_before_one_of_all_limits() -> None:
    exports = monthly()
    general = by_user("60/m", limit="")  # a quota has no rate
    assert passes(exports) == 2
    general.rate = "none"
    general.save()
    assert passes(exports) == 9
    by_user("3")
    assert passes(exports) == 1


@pytest.mark.usefixtures("everywhere")
def test_users_addresses_networks_and_keys() -> None:
    visits = Quota("visits", 1, per="day", key="ip")
    override("2", "192.0.2.0/24", "network", "quota:visits")
    assert passes(visits, "192.0.2.7") == 2
    assert passes(visits, "198.51.100.7") == 1
    override("3", "2001:db8::7", "address", "quota:visits")
    assert passes(visits, "2001:db8::/64") == 3
    exports = monthly()
    override("3", "7", "key", EXPORTS)
    assert passes(exports, 7) == 3
    # The key of this quota is an address, so a text that looks like a user is none.
    override("none", "9", "user")
    assert passes(visits, "9") == 1


@pytest.mark.usefixtures("everywhere")
def test_overrides_apply_to_decorators_and_throttles() -> None:
    exports = monthly(key="user")

    @quota(exports)
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    class Throttle(QuotaThrottle):
        quota = exports

    user = User.objects.create_user("ann")
    request = RequestFactory().get("/")
    request.user = user
    row = by_user("3", str(user.pk))
    replies = [view(request) for _ in range(4)]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
    assert replies[2].headers["RateLimit-Policy"].split(";")[1] == "q=3"
    assert not Throttle().allow_request(request, None)  # type: ignore[arg-type]
    row.rate = "none"
    row.save()
    reply = view(request)
    assert reply.status_code == 200
    assert "RateLimit" not in reply.headers
    assert Throttle().allow_request(request, None)  # type: ignore[arg-type]
    row.rate = "blocked"
    row.save()
    assert view(request).status_code == 429
    assert QuotaUsage.objects.get().used == 3
    assert totals() == Totals(passed=3, refused=3)


@pytest.mark.usefixtures("everywhere")
def test_the_customer_sees_the_units_of_the_override() -> None:
    monthly(tiers={"free": 1, "pro": None}, limit=None, tier=lambda request: "free")
    user = User.objects.create_user("ann")
    request = RequestFactory().get("/")
    request.user = user
    (amount,) = usage(request)
    assert amount.limit == 1
    row = by_user("500", str(user.pk))
    (amount,) = usage(request)
    assert (amount.limit, amount.remaining) == (500, 500)
    row.rate = "none"
    row.save()
    assert usage(request) == []


def test_by_default_quotas_have_no_overrides() -> None:
    make_policy()
    exports = monthly()
    by_user("none", limit="")
    assert passes(exports) == 2
    with pytest.raises(ValidationError, match="overrides apply only to policies"):
        by_user("3")


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("loaded", [True, False])
def test_a_quota_takes_a_number_of_units(loaded: bool) -> None:
    if loaded:
        monthly()
    for rate in ("60/m", "0", "1.5", "-1", "1e3", "9" * 17, str(10**15 + 1), "many"):
        with pytest.raises(ValidationError) as caught:
            by_user(rate)
        assert "is not a number of units, which quotas count. Enter a whole number from 1" in str(caught.value)


@pytest.mark.usefixtures("everywhere")
def test_the_page_of_a_key_shows_the_override(admin_client: Client) -> None:
    monthly().use("7")

    def shown() -> str:
        html = admin_client.get(f"{POLICIES}limits/key/", {"key": "7"}).content.decode()
        (row,) = rows(html, "resty-key-quotas")
        return row

    html = admin_client.get(f"{POLICIES}limits/key/", {"key": "7"}).content.decode()
    assert "limitoverride/add/?kind=user&amp;key=7&amp;limit=quota%3Aexports" in html
    assert shown().startswith("exports 2 per month 7 Add override 1 2 1 ")
    row = by_user("5000")
    assert shown().startswith("exports 2 per month 7 5000 1 5,000 4,999 ")
    for rate, text in (("none", "none 1 none "), ("blocked", "blocked 1 2 0 ")):
        row.rate = rate
        row.save()
        assert shown().startswith(f"exports 2 per month 7 {text}")


@pytest.mark.usefixtures("everywhere")
def test_overrides_of_quotas_jobs_and_log_ins_are_dumped_and_loaded(admin_client: Client) -> None:
    rows_of_file = [
        override("5000", "7", "user", EXPORTS),
        override("none", "alice", "key", "ban:login-name"),
        override("blocked", "192.0.2.0/24", "network", "ban:login-address"),
        override("10/m", "7", "key", "job:mails"),
    ]
    text = dump(rows_of_file)
    LimitOverride.objects.all().delete()
    load(text)
    assert dump(LimitOverride.objects.all()) == text
    html = admin_client.get("/admin/resty_limits/limitoverride/").content.decode()
    assert html.count("in force</td>") == 4
    for limit, rate in ((EXPORTS, "60/m"), ("ban:login-name", "5"), ("ban:search", "none")):
        entry = {"kind": "key", "key": "7", "limit": limit, "rate": rate}
        with pytest.raises(BadFile, match="Row 1"):
            load(json.dumps([{"model": "resty_limits.limitoverride", "fields": entry}]))
