"""The admin of quotas: list, search, grants and resets; permissions, history and hostile keys."""

from __future__ import annotations

import time
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, RequestFactory

from resty_django.limits import Quota
from resty_django.limits.admin.quotas import QuotaUsageAdmin
from resty_django.limits.models import QuotaUsage
from tests.integration.limits.policy_tools import person
from tests.integration.limits.view_tools import on_dead_redis
from tests.staff import logged

QUOTAS = "/admin/resty_limits/quotausage/"
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db, pytest.mark.usefixtures("empty_limits")]


def monthly(name: str = "exports", limit: Any = 1000, **options: Any) -> Quota:
    return Quota(name, limit, per="month", timezone="UTC", store="limits", **options)


def row_of(key: str = "7", name: str = "exports") -> QuotaUsage:
    return QuotaUsage.objects.get(quota=name, key=key)


def page_of(row: QuotaUsage, name: str = "change") -> str:
    return f"{QUOTAS}{row.pk}/{name}/"


def old_row(key: str = "old") -> QuotaUsage:
    end = int(time.time()) - 5
    return QuotaUsage.objects.create(quota="exports", key=key, starts_at=end - 60, ends_at=end, used=3, limit=1000)


def text_of(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, response
    return " ".join(unescape(response.content.decode()).split())


def keys_in(client: Client, query: str) -> set[str]:
    response = client.get(f"{QUOTAS}?{query}")
    assert response.status_code == 200, response
    return {row.key for row in response.context["cl"].result_list}


# --- the list and the page of a row --------------------------------------------------------------------------------


def test_the_list_shows_used_granted_limit_and_period() -> None:
    exports = monthly()
    exports.use("7", 500)
    exports.use("7")
    exports.grant("7", 20)
    client = person("view_quotausage")
    text = text_of(client, QUOTAS)
    for column in ('<td class="field-shown_used">510<', 'field-shown_limit">1,020<', 'field-shown_granted">+20<'):
        assert column in text
    assert "field-starts" in text
    assert "field-resets_at" in text
    assert "Grant units" not in text
    assert "Add quota usage" not in text
    text = text_of(client, page_of(row_of()))
    for part in ("1,000 per month", "510", "of which 9 are reserved", "1,020", "1,000, and 20 granted"):
        assert part in text
    assert "Reset the usage" not in text


def test_the_search_finds_keys_in_all_their_forms_and_quotas() -> None:
    exports, mails = monthly(), monthly("mails", key="user|ip")
    for key in ("7", "70", "ip:192.0.2.1", "x" * 300):
        exports.use(key)
    mails.use("user:7")
    mails.use("9")
    client = person("view_quotausage")
    assert keys_in(client, "q=7") == {"7", "user:7"}
    assert keys_in(client, "q=192.0.2.1") == {"ip:192.0.2.1"}
    assert keys_in(client, f"q={'x' * 300}") == {QuotaUsage.objects.get(key__startswith="~").key}
    assert keys_in(client, "q=mails") == {"user:7", "9"}
    assert keys_in(client, "quota=mails") == {"user:7", "9"}
    assert keys_in(client, "quota=mails&q=7") == {"user:7"}
    assert keys_in(client, "quota=unknown") == set()
    assert keys_in(client, "quota=%00") == set()
    assert len(keys_in(client, "q=+")) == 6


@pytest.mark.parametrize("text", ["k123", "rare"])
def test_the_search_uses_an_index(text: str) -> None:
    rows = [QuotaUsage(quota="exports", key=f"k{n}", starts_at=0, ends_at=9, limit=1) for n in range(5000)]
    rows.append(QuotaUsage(quota="rare", key="k5", starts_at=0, ends_at=9, limit=1))
    QuotaUsage.objects.bulk_create(rows)
    table = connection.ops.quote_name(QuotaUsage._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {table}" if connection.vendor == "mysql" else f"ANALYZE {table}")
    admin = QuotaUsageAdmin.__new__(QuotaUsageAdmin)
    found, _ = admin.get_search_results(RequestFactory().get("/"), QuotaUsage.objects.order_by("-pk"), text)
    assert found.count() == 1
    plan = found.explain()
    index = "resty_limits_quota_by_key" if text == "k123" else "resty_limits_quota_key"
    assert index in plan or f"sqlite_autoindex_{QuotaUsage._meta.db_table}" in plan, plan


# --- actions -------------------------------------------------------------------------------------------------------


def test_units_are_granted() -> None:
    exports = monthly(limit=2)
    assert [bool(exports.use("7")) for _ in range(3)] == [True, True, False]
    client = person("view_quotausage", "grant_quotausage")
    assert page_of(row_of(), "grant") in text_of(client, page_of(row_of()))
    assert "Used 2 of 2 units of “exports”" in text_of(client, page_of(row_of(), "grant"))
    response = client.post(page_of(row_of(), "grant"), {"units": "3", "reason": "complaint <b>"}, follow=True)
    assert "Granted +3 units: 3 in total" in response.content.decode()
    assert [bool(exports.use("7")) for _ in range(4)] == [True, True, True, False]
    client.post(page_of(row_of(), "grant"), {"units": "-1", "reason": "mistake"})
    assert exports.usage("7").limit == 4
    (first, second) = LogEntry.objects.order_by("pk")
    assert (first.action_flag, first.object_repr, first.object_id) == (CHANGE, "exports: 7", str(row_of().pk))
    assert first.get_change_message().startswith("Granted +3 units, from 0 to 3, until ")
    assert first.get_change_message().endswith("Reason: complaint <b>")
    assert second.get_change_message().startswith("Granted -1 units, from 3 to 2, until ")
    assert "complaint <b>" in text_of(client, page_of(row_of(), "history"))


def test_the_usage_is_reset() -> None:
    exports = monthly()
    exports.use("7", 990)
    assert exports.use("7")
    client = person("view_quotausage", "reset_quotausage")
    assert "now 991 of 1,000, are set to 0" in text_of(client, page_of(row_of(), "reset"))
    assert row_of().used == 991
    response = client.post(page_of(row_of(), "reset"), {"reason": "new contract"}, follow=True)
    assert "Reset the used units of exports: 7 from 991 to 0." in response.content.decode()
    assert logged() == ["Reset the used units from 991 to 0. Reason: new contract"]
    assert exports.usage("7").used == 0
    assert exports.use("7", 1000)
    assert not exports.use("7")


def test_units_are_granted_to_a_key_without_a_row() -> None:
    exports = monthly(limit=2)
    client = person("view_quotausage", "grant_quotausage")
    assert f'href="{QUOTAS}grant/"' in text_of(client, QUOTAS)
    assert "csrfmiddlewaretoken" in text_of(client, f"{QUOTAS}grant/")
    entered = {"quota": "exports", "key": "9", "units": "5", "reason": "bought"}
    response = client.post(f"{QUOTAS}grant/", entered)
    assert response.status_code == 302
    assert response["Location"] == page_of(row_of("9"))
    assert exports.usage("9").limit == 7
    assert LogEntry.objects.get().object_id == str(row_of("9").pk)
    client.post(f"{QUOTAS}grant/", entered)
    assert exports.usage("9").limit == 12


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("units", "", "This field is required"),
        ("units", "0", "other than 0"),
        ("units", "1.5", "Enter a whole number"),
        ("units", str(10**15 + 1), "less than or equal to"),
        ("reason", "", "This field is required"),
        ("reason", "r" * 201, "at most 200 characters"),
        ("quota", "unknown", "Select a valid choice"),
        ("key", "", "This field is required"),
    ],
)
def test_wrong_entries(field: str, value: str, error: str) -> None:
    exports = monthly()
    exports.use("7")
    client = person("view_quotausage", "grant_quotausage")
    entered = {"quota": "exports", "key": "7", "units": "5", "reason": "bought", field: value}
    urls = [f"{QUOTAS}grant/"] if field in ("quota", "key") else [f"{QUOTAS}grant/", page_of(row_of(), "grant")]
    for url in urls:
        response = client.post(url, entered)
        assert response.status_code == 200
        assert error in response.content.decode()
    assert row_of().granted == 0
    assert logged() == []


def test_too_many_units_in_total_are_refused() -> None:
    monthly().use("7")
    client = person("view_quotausage", "grant_quotausage")
    for _ in range(2):
        response = client.post(page_of(row_of(), "grant"), {"units": str(10**15), "reason": "all"})
    assert "Not done: At most 1,000,000,000,000,000 units" in response.content.decode()
    assert len(logged()) == 1


def test_a_period_that_has_ended_is_not_changed() -> None:
    row = old_row()
    client = person("view_quotausage", "grant_quotausage", "reset_quotausage")
    text = text_of(client, page_of(row))
    assert "This period has ended" in text
    assert page_of(row, "grant") not in text
    for name in ("grant", "reset"):
        response = client.post(page_of(row, name), {"units": "5", "reason": "late"}, follow=True)
        assert "Not possible: The period of this row has ended" in response.content.decode()
    assert (row_of("old").used, row_of("old").granted) == (3, 0)
    assert logged() == []


def test_rows_are_not_edited_and_not_deleted() -> None:
    monthly().use("7")
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    for url in (f"{QUOTAS}add/", page_of(row_of(), "delete"), f"{QUOTAS}{row_of().pk}/"):
        assert client.get(url).status_code == 404
        assert client.post(url, {"used": "0"}).status_code == 404
    assert client.post(page_of(row_of()), {"used": "0"}).status_code == 405
    assert row_of().used == 10


def test_unknown_rows() -> None:
    client = person("view_quotausage", "grant_quotausage", "reset_quotausage")
    for name in ("change", "grant", "reset"):
        for pk in ("77", "seven", "%00"):
            assert client.get(f"{QUOTAS}{pk}/{name}/").status_code == 302


def test_a_store_that_is_down() -> None:
    exports = monthly()
    exports.use("7")
    client = person("view_quotausage", "grant_quotausage", "reset_quotausage")
    with on_dead_redis("limits"):
        assert "the store does not answer" in text_of(client, page_of(row_of()))
        assert client.post(page_of(row_of(), "reset"), {"reason": "new contract"}).status_code == 302
    assert row_of().used == 0
    assert len(logged()) == 1


def test_a_period_of_any_length_has_pages() -> None:
    row = QuotaUsage.objects.create(quota="exports", key="far", starts_at=-(2**62), ends_at=2**62, used=3, limit=9)
    client = person("view_quotausage")
    for url in (QUOTAS, f"{QUOTAS}{row.pk}/change/"):
        assert "exports" in text_of(client, url)
    assert client.get(f"{QUOTAS}?export=csv").getvalue().count(b"exports") == 1
