"""The page and the API with the usage of a customer's own quotas."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import include, path

from resty_django.limits import Quota

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db, pytest.mark.usefixtures("empty_limits")]

urlpatterns = [path("usage/", include("resty_django.limits.quotas.urls"))]


@pytest.fixture(autouse=True)
def _urls(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quota_urls", sys.modules[__name__])
    settings.ROOT_URLCONF = "quota_urls"


def signed_in(name: str) -> tuple[Client, str]:
    user = User.objects.create(username=name)
    client = Client()
    client.force_login(user)
    return client, str(user.pk)


def test_customers_see_their_own_quotas() -> None:
    (ada, ada_key), (_, bob_key) = signed_in("ada"), signed_in("bob")
    exports = Quota("<b>exports</b>", 500, per="month", timezone="UTC")
    exports.use(ada_key, 123)
    exports.use(bob_key, 321)
    page = ada.get("/usage/")
    assert "no-store" in page["Cache-Control"]
    text = page.content.decode()
    assert "&lt;b&gt;exports&lt;/b&gt;</th><td>123</td><td>500</td><td>377</td>" in text
    assert "321" not in text
    assert "style" not in text
    reply = ada.get("/usage/api/")
    assert "no-store" in reply["Cache-Control"]
    assert reply.status_code == 200, reply.content
    (usage,) = reply.json()
    assert {name: usage[name] for name in ("quota", "limit", "used", "remaining")} == {
        "quota": "<b>exports</b>",
        "limit": 500,
        "used": 123,
        "remaining": 377,
    }
    assert usage["starts_at"].endswith("-01T00:00:00+00:00")
    assert usage["starts_at"] < usage["resets_at"]


def test_visitors_see_no_quotas_of_users() -> None:
    Quota("exports", 500, per="month").use("-", 7)
    assert "There are no quotas for you." in Client().get("/usage/").content.decode()


def test_the_page_changes_nothing() -> None:
    assert Client().post("/usage/").status_code == 405
