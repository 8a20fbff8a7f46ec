"""Tables of the admin pages, exported by the links below them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from resty_django.admin.export import MAX_ROWS
from resty_django.limits.models import LimitPolicy, QuotaUsage
from resty_django.limits.policies import registry
from tests.integration.ids.admin_tools import make_counter, make_rule

pytestmark = pytest.mark.django_db
PAGES = {
    "/admin/resty_django/shareddictionary/": "dictionaries",
    "/admin/resty_ids/idcounter/": "idcounter",
    "/admin/resty_ids/idrule/": "idrule",
    "/admin/resty_limits/limitpolicy/": "limitpolicy",
    "/admin/resty_limits/limitpolicy/limits/": "limits",
    "/admin/resty_limits/limitoverride/": "limitoverride",
    "/admin/resty_limits/quotausage/": "quotausage",
    "/admin/resty_cache/cache/": "caches",
}


@pytest.fixture(autouse=True)
def _rows() -> Iterator[None]:
    LimitPolicy.objects.create(name="pay", algorithm="leaky_bucket", rate="10/s", key="ip")
    make_counter(make_rule("orders"), app="=shop")
    yield
    registry.forget_policies()


def exported(client: Client, url: str) -> Any:
    response = client.get(url)
    assert response.status_code == 200, url
    return json.loads(response.getvalue())


@pytest.mark.parametrize("page", PAGES)
def test_each_page_offers_its_table_in_both_formats(admin_client: Client, page: str) -> None:
    text = unescape(admin_client.get(page).content.decode())
    name = PAGES[page]
    for format in ("csv", "json"):
        query = f"?export={format}&of={name}"
        assert f'href="{query}"' in text
        assert admin_client.get(page + query).status_code == 200
    sheet = exported(admin_client, f"{page}?export=json&of={name}")
    assert sheet["name"] == name
    assert sheet["columns"]


@pytest.mark.parametrize("page", PAGES)
def test_an_export_needs_the_permission_for_the_page(page: str) -> None:
    client = Client()
    client.force_login(User.objects.create_user("u", password="x", is_staff=True))
    assert client.get(f"{page}?export=csv").status_code == 403
    assert Client().get(f"{page}?export=csv").status_code == 302


def test_lists_are_exported_with_their_filters(admin_client: Client) -> None:
    LimitPolicy.objects.create(name="search", algorithm="leaky_bucket", rate="5/s", key="ip")
    url = "/admin/resty_limits/limitpolicy/?export=json&q=sea"
    assert [row["name"] for row in exported(admin_client, url)["rows"]] == ["search"]
    wrong = admin_client.get("/admin/resty_limits/limitpolicy/?export=json&nonsense=1")
    assert wrong.status_code == 302  # like the page


def test_counters_are_exported_as_numbers(admin_client: Client) -> None:
    (row,) = exported(admin_client, "/admin/resty_ids/idcounter/?export=json")["rows"]
    assert (row["app"], row["rule"], row["numbers_left"] > 1000) == ("=shop", "orders", True)
    assert 0 <= row["used_share"] < 1
    text = admin_client.get("/admin/resty_ids/idcounter/?export=csv").getvalue().decode()
    assert "\n'=shop,orders," in text


def test_long_lists_are_read_in_parts(admin_client: Client, django_assert_max_num_queries: Any) -> None:
    QuotaUsage.objects.bulk_create(
        [
            QuotaUsage(quota="exports", key=f"{number:05}", used=number, limit=100_000, starts_at=0, ends_at=2**31)
            for number in range(1203)
        ]
    )
    with django_assert_max_num_queries(20):
        sheet = exported(admin_client, "/admin/resty_limits/quotausage/?export=json&quota=exports")
    assert [row["used"] for row in sheet["rows"]] == list(range(1203))
    assert sheet["complete"] is True
    assert MAX_ROWS > 1203


@pytest.fixture
def declared() -> Iterator[None]:
    names = ("search", "pay")
    for name, rate in zip(names, ("5/s", "1/s"), strict=True):
        registry.declare_policy(name, "leaky_bucket", rate=rate, key="ip")
    yield
    for name in names:
        registry.withdraw_policy(name)


def test_the_policies_in_code_are_exported_apart_from_those_in_the_database(
    admin_client: Client, declared: None
) -> None:
    page = "/admin/resty_limits/limitpolicy/"
    assert 'href="?export=csv&of=declared-policies"' in unescape(admin_client.get(page).content.decode())
    (row,) = exported(admin_client, f"{page}?export=json&of=declared-policies")["rows"]
    assert (row["name"], row["key"], row["mode"]) == ("search", "ip", "enforce")
    assert "5 requests/s" in row["limit"]
    assert "search," in admin_client.get(f"{page}?export=csv&of=declared-policies").getvalue().decode()
    staff = Client()
    staff.force_login(User.objects.create_user("staff", is_staff=True))
    assert staff.get(f"{page}?export=csv&of=declared-policies").status_code == 403
