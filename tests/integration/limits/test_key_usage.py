"""The page for one key shows its quotas and bans to users who may view them."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from resty_django.admin.formatting import date_time
from resty_django.limits import Quota, bans, limit_window
from resty_django.limits.admin import key_usage
from resty_django.limits.models import LimitOverride, QuotaUsage
from resty_django.limits.policies import registry
from resty_django.limits.statistics import catalog
from resty_django.limits.statistics.reporter import stats
from tests.integration.limits.policy_tools import POLICIES, key_page, make_policy, person, policy_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limits_site", "undeclared")]

KEY = f"{POLICIES}limits/key/"
EVERYTHING = (
    *("view_limitpolicy", "view_quotausage", "grant_quotausage", "reset_quotausage"),
    *("view_keyban", "lift_keyban"),
)


def rows(html: str, table: str) -> list[str]:
    """Return the texts of the rows of one table."""
    body = re.search(rf"{table}.*?<tbody>(.*?)</tbody>", html, re.DOTALL)
    cells = re.findall(r"<tr>.*?</tr>", body[1], re.DOTALL) if body else []
    return [" ".join(unescape(re.sub(r"<[^>]+>", " ", row)).split()) for row in cells]


def monthly(name: str = "exports", limit: int = 1000, **options: Any) -> Quota:
    return Quota(name, limit, per="month", timezone="UTC", **options)


# --- quotas --------------------------------------------------------------------------------------------------------


def test_quotas_are_shown_with_what_is_used_and_left(admin_client: Client) -> None:
    exports = monthly()
    exports.use("7", 600)
    exports.use("7")
    exports.grant("7", 50)
    row = QuotaUsage.objects.get()
    assert row.used > 601  # includes a reserved block
    html = key_page(admin_client, "7")
    (text,) = rows(html, "resty-key-quotas")
    assert text.startswith("exports 1,000 per month 7 601 1,050 449 ")
    assert text.endswith("Grant units Reset the usage")
    for name in ("change", "grant", "reset"):
        assert f'href="/admin/resty_limits/quotausage/{row.pk}/{name}/"' in html
    exports.reset("7")
    assert rows(key_page(admin_client, "7"), "resty-key-quotas")[0].startswith(
        "exports 1,000 per month 7 0 1,050 1,050 "
    )


def test_a_key_is_found_in_each_form_in_which_quotas_store_it(admin_client: Client) -> None:
    monthly("mails", key="user|ip").use("user:7")
    monthly("calls").use("7")
    monthly("visits", key="ip").use("2001:db8::/64")
    monthly("others").use("70")
    assert [text.split()[0] for text in rows(key_page(admin_client, "7"), "resty-key-quotas")] == ["calls", "mails"]
    assert [text.split()[0] for text in rows(key_page(admin_client, "2001:db8::7"), "resty-key-quotas")] == ["visits"]
    assert "No quota has counted this key" in key_page(admin_client, "8")


def test_a_refused_key_that_contains_the_key_is_found(admin_client: Client) -> None:
    uploads = monthly("uploads", 1, key="user+ip")
    assert [bool(uploads.use("7|192.0.2.1")) for _ in range(2)] == [True, False]
    (text,) = rows(key_page(admin_client, "192.0.2.1"), "resty-key-quotas")
    assert text.startswith("uploads 1 per month 7|192.0.2.1 1 1 0 ")


def test_periods_that_have_ended_are_left_out(admin_client: Client) -> None:
    end = int(time.time()) - 5
    QuotaUsage.objects.create(quota="exports", key="7", starts_at=end - 60, ends_at=end, used=3, limit=9)
    QuotaUsage.objects.create(quota="exports", key="7", starts_at=end, ends_at=end + 3600, used=4, limit=9)
    (text,) = rows(key_page(admin_client, "7"), "resty-key-quotas")
    assert text.startswith("exports 7 4 9 5 ")


def test_the_number_of_queries_and_of_rows_is_bounded(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        monthly(f"quota{number}").use("7")
    with CaptureQueriesContext(connection) as queries:
        assert len(rows(key_page(admin_client, "7"), "resty-key-quotas")) == 8
    assert sum(QuotaUsage._meta.db_table in query["sql"] for query in queries) == 1
    monkeypatch.setattr(key_usage, "MAX_KEY_ROWS", 3)
    html = key_page(admin_client, "7")
    assert len(rows(html, "resty-key-quotas")) == 3
    assert "There are more." in html


# --- bans ----------------------------------------------------------------------------------------------------------


def test_bans_are_shown_with_their_limit_time_and_reason(admin_client: Client) -> None:
    make_policy(ban="1h")
    bans.add("192.0.2.7", for_="2h", reason="scans")
    bans.add("ip:192.0.2.7", for_="1h", limit="pay")
    bans.add("192.0.2.8", for_="1h")
    html = key_page(admin_client, "192.0.2.7")
    general, own = rows(html, "resty-key-bans")
    assert general.startswith("all limits 192.0.2.7 ")
    assert general.endswith(" 1 scans Lift the ban")
    assert own.startswith("pay ip:192.0.2.7 ")
    (link, _) = re.findall(r'href="(/admin/resty_limits/keyban/[^"]*/lift/)"', html)
    assert admin_client.post(link).status_code == 302
    assert bans.find("192.0.2.7") is None
    assert [text.split()[0] for text in rows(key_page(admin_client, "192.0.2.7"), "resty-key-bans")] == ["pay"]
    assert "This key is not banned." in key_page(admin_client, "192.0.2.9")


def test_bans_of_limits_that_only_other_processes_have_loaded_are_shown(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = limit_window(1, per="1h", key="ip", ban="1h", name="search")(lambda request: HttpResponse("found"))
    for _ in range(3):
        view(RequestFactory().get("/", REMOTE_ADDR="2001:db8::7"))
    stats.flush()
    monkeypatch.setattr(catalog, "_limits", {})
    (text,) = rows(key_page(admin_client, "2001:db8::9"), "resty-key-bans")
    assert text.startswith("search 2001:db8::/64 ")


def test_a_banned_key_that_contains_the_key_is_found_after_a_refusal(admin_client: Client) -> None:
    @limit_window(1, per="1h", key="ip+path", ban="1h", name="search")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("found")

    for _ in range(3):
        view(RequestFactory().get("/a"))
    (text,) = rows(key_page(admin_client, "127.0.0.1"), "resty-key-bans")
    assert text.startswith("search 127.0.0.1|/a ")


def test_bans_of_the_login_guard_are_shown(admin_client: Client) -> None:
    bans.add("alice", for_="1h", limit="login-name")
    (text,) = rows(key_page(admin_client, "Alice"), "resty-key-bans")
    assert text.startswith("login-name alice ")


def test_ended_bans_are_left_out(admin_client: Client) -> None:
    bans.add("192.0.2.7", for_=0.02)
    while bans.find("192.0.2.7") is not None:
        time.sleep(0.01)
    assert "This key is not banned." in key_page(admin_client, "192.0.2.7")


def test_a_store_of_bans_that_is_down_is_reported(admin_client: Client, settings: Any) -> None:
    dicts = settings.RESTY_DJANGO["SHARED_DICTS"]
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": {**dicts, "bans": {"PATH": "/proc/nowhere"}}}
    monthly().use("7")
    html = key_page(admin_client, "7")
    assert "The bans cannot be read" in html
    assert len(rows(html, "resty-key-quotas")) == 1


# --- both ----------------------------------------------------------------------------------------------------------


def test_quotas_and_bans_need_their_permissions() -> None:
    monthly().use("7")
    bans.add("7", for_="1h")
    html = key_page(person("view_limitpolicy"), "7")
    for text in ("resty-key-quotas", "resty-key-bans", "No quota has counted", "is not banned", "exports"):
        assert text not in html
    html = key_page(person("view_limitpolicy", "view_quotausage"), "7")
    assert len(rows(html, "resty-key-quotas")) == 1
    assert "resty-key-bans" not in html
    for action in ("/grant/", "/reset/"):
        assert f"quotausage/{QuotaUsage.objects.get().pk}{action}" not in html
    html = key_page(person("view_limitpolicy", "view_keyban"), "7")
    assert len(rows(html, "resty-key-bans")) == 1
    assert "resty-key-quotas" not in html
    assert "Lift the ban" not in html
    html = key_page(person(*EVERYTHING), "7")
    assert "Lift the ban" in html
    assert "Grant units" in html


# --- the user ------------------------------------------------------------------------------------------------------


def test_the_name_of_a_user_leads_to_its_id_and_back(admin_client: Client) -> None:
    user = User.objects.create_user("Ann <b>")
    html = key_page(admin_client, "Ann <b>")
    assert f'href="?key={user.pk}"' in html
    assert "Find the name" not in html
    assert "Ann &lt;b&gt;" in html
    for key in (str(user.pk), f"user:{user.pk}"):
        html = key_page(admin_client, key)
        assert 'href="?key=Ann+%3Cb%3E"' in html
        assert "Find the ID" not in html
    for key in ("nobody", "99999999999999999999999", "\x00", "192.0.2.1"):
        assert "The user with the ID" not in key_page(admin_client, key)


def test_the_user_is_shown_to_those_who_may_view_users() -> None:
    User.objects.create_user("ann")
    client = person("view_limitpolicy")
    assert "The user with the ID" not in key_page(client, "ann")
    viewer = User.objects.get(pk=client.session["_auth_user_id"])
    viewer.user_permissions.add(Permission.objects.get(codename="view_user", content_type__app_label="auth"))
    assert "The user with the ID" in key_page(client, "ann")


def test_refused_keys_lead_to_their_page(admin_client: Client) -> None:
    view = limit_window(1, per="1h", key="header:X-Key", name="search")(lambda request: HttpResponse("found"))
    for _ in range(3):
        view(RequestFactory().get("/", headers={"X-Key": "a&b c"}))
    for url in (POLICIES, f"{POLICIES}limits/figures/?limit=decorator:search:window"):
        html = admin_client.get(url).content.decode()
        assert f'href="{KEY}?key=a%26b+c"' in html
    assert f'href="{KEY}">Find a key' in admin_client.get(POLICIES).content.decode()
    assert [row.split()[0] for row in rows(key_page(admin_client, "a&b c"), "resty-refusals")] != []


# --- what the next request gets --------------------------------------------------------------------------------------


def outcomes(html: str) -> dict[str, str]:
    """Return the outcome of the next request by limit."""
    table = html.partition('aria-label="Limits of the key"')[2].partition("</table>")[0]
    cells = re.findall(
        r'<tr><th scope="row">([^<]*)</th>.*?resty-swatch resty-is-(\w+)"></span> ([^<]*)</td>', table, re.DOTALL
    )
    return {name: f"{outcome}: {label}" for name, outcome, label in cells}


def test_a_banned_key_is_not_said_to_pass(admin_client: Client) -> None:
    make_policy(key="ip", ban="1h")
    make_policy("free", key="ip")
    make_policy("lifted", key="ip", ban="1h")
    search = limit_window(9, per="1h", key="ip", ban="1h", name="search")(lambda request: HttpResponse("found"))
    view = limit_window(9, per="1h", key="ip", name="searching")(lambda request: HttpResponse("found"))
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.7")
    search(request)
    view(request)
    bans.add("192.0.2.7", for_="1h")
    LimitOverride.objects.create(kind="address", key="192.0.2.7", rate="none", limit="lifted")
    registry.refresh_policies()
    assert outcomes(key_page(admin_client, "192.0.2.7")) == {
        "pay": "refused: banned",
        "lifted": "passed: passed",
        "search:window": "refused: banned",
        "searching:window": "passed: passed",
    }
    assert search(request).status_code == 429
    assert view(request).status_code == 200
    bans.lift("192.0.2.7", "")
    bans.add("192.0.2.7", for_="1h", limit="search")
    html = key_page(person("view_limitpolicy"), "192.0.2.7")
    assert outcomes(html)["search:window"] == "refused: banned"
    assert "pay" not in outcomes(html)
    assert re.search(r"banned</td>.*?3,[56]\d\d", html)


def test_limits_that_refuse_nothing_are_not_said_to_refuse(admin_client: Client) -> None:
    make_policy(key="ip", limit=1, mode="shadow")
    view = limit_window(1, per="1h", key="ip", dry_run=True, name="search")(lambda request: HttpResponse("found"))
    policy = policy_of()
    policy.limiter.hit("192.0.2.7")
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.7")
    assert [view(request).status_code for _ in range(2)] == [200, 200]
    label = "shadowed: would be refused"
    assert outcomes(key_page(admin_client, "192.0.2.7")) == {"pay": label, "search:window": label}
    limit_window(1, per="1h", key="ip", name="search")(lambda request: HttpResponse("found"))
    assert outcomes(key_page(admin_client, "192.0.2.7"))["search:window"] == "refused: refused"


# --- overrides -----------------------------------------------------------------------------------------------------


def test_all_overrides_of_a_key_are_listed(admin_client: Client) -> None:
    later = timezone.now() + timedelta(days=1)
    for fields in (
        {"kind": "address", "key": "192.0.2.7", "rate": "none", "limit": "pay", "reason": "partner <i>"},
        {"kind": "network", "key": "192.0.2.0/24", "rate": "blocked", "limit": "ban:login-address"},
        {"kind": "key", "key": "192.0.2.7", "rate": "5/m", "limit": "function:unknown", "starts_at": later},
        {"kind": "address", "key": "192.0.2.8", "rate": "none"},
        {"kind": "address", "key": "192.0.2.7", "rate": "none", "ends_at": timezone.now()},
        {"kind": "user", "key": "7", "rate": "blocked"},
        {"kind": "network", "key": "2001:db8::/48", "rate": "none"},
    ):
        LimitOverride.objects.create(**fields)
    registry.refresh_policies()
    html = key_page(admin_client, "192.0.2.7")
    texts = rows(html, "resty-key-overrides")
    assert texts == [
        "pay IP address 192.0.2.7 none partner <i>",
        f"function:unknown Key or API key 192.0.2.7 5/m {date_time(later)}",
        "ban:login-address Network 192.0.2.0/24 blocked",
    ]
    assert "<i>" not in html
    assert "Overrides apply only to policies" in html
    assert rows(key_page(admin_client, "7"), "resty-key-overrides") == ["all limits User 7 blocked"]
    for key in ("2001:db8::1", "2001:db8::/64", "ip:2001:db8::/64"):
        expected = [] if key.startswith("ip:") else ["all limits Network 2001:db8::/48 none"]
        assert rows(key_page(admin_client, key), "resty-key-overrides") == expected
    assert "resty-key-overrides" not in key_page(person("view_limitpolicy"), "192.0.2.7")
    assert "resty-key-overrides" in key_page(person("view_limitpolicy", "view_limitoverride"), "192.0.2.7")
