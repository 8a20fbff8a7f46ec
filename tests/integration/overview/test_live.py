"""Pages that update themselves: an unchanged page is answered by 304."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest
from django.test import Client

from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import registry

pytestmark = pytest.mark.django_db
DICTIONARIES = "/admin/resty_django/shareddictionary/"
COUNTERS = "/admin/resty_ids/idcounter/"
POLICIES = "/admin/resty_limits/limitpolicy/"
LIVE_PAGES = [DICTIONARIES, COUNTERS, POLICIES, "/admin/resty_cache/cache/", "/admin/resty_django/overview/"]


@pytest.fixture(autouse=True)
def row() -> Iterator[LimitPolicy]:
    yield LimitPolicy.objects.create(name="pay", algorithm="leaky_bucket", rate="10/s", key="ip")
    registry.forget_policies()


def test_an_unchanged_page_costs_a_304(admin_client: Client, row: LimitPolicy) -> None:
    live = {"X-Resty-Live": "1"}
    first = admin_client.get(POLICIES, headers=live)
    assert b"csrfmiddlewaretoken" in first.content  # another token in each response
    etag = first["ETag"]
    again = admin_client.get(POLICIES, headers={**live, "If-None-Match": etag})
    assert (again.status_code, again.content, again["ETag"]) == (HTTPStatus.NOT_MODIFIED, b"", etag)
    assert admin_client.get(POLICIES, headers={**live, "If-None-Match": f"W/{etag}"}).status_code == 304  # compressed
    row.rate = "11/s"
    row.save()
    changed = admin_client.get(POLICIES, headers={**live, "If-None-Match": etag})
    assert changed.status_code == HTTPStatus.OK
    assert changed["ETag"] != etag


def test_other_requests_are_answered_in_full(admin_client: Client) -> None:
    etag = admin_client.get(POLICIES, headers={"X-Resty-Live": "1"})["ETag"]
    response = admin_client.get(POLICIES, headers={"If-None-Match": etag})
    assert response.status_code == HTTPStatus.OK
    assert "ETag" not in response
    assert Client().get(POLICIES, headers={"X-Resty-Live": "1", "If-None-Match": etag}).status_code == HTTPStatus.FOUND


@pytest.mark.parametrize("page", LIVE_PAGES)
def test_pages_name_the_parts_that_update(admin_client: Client, page: str) -> None:
    text = admin_client.get(page).content.decode()
    assert text.count('class="resty-live-status"') == text.count("resty_django/live.js") == 1
    assert "data-resty-parts=" in text or "data-resty-live=" in text


def test_a_search_of_keys_is_not_repeated(admin_client: Client) -> None:
    page = f"{DICTIONARIES}default/change/"
    assert "resty_django/live.js" in admin_client.get(page).content.decode()
    assert "resty_django/live.js" not in admin_client.get(f"{page}?find=a").content.decode()
