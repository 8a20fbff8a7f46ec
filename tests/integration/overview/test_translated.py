"""Admin pages in another language: pages work with translated texts, which are marked here with ⟦ and ⟧."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from django.utils import translation

from resty_django.ids import next_id, stop
from resty_django.ids.models import IdCounter, IdRule
from resty_django.limits import FixedWindow, limited
from resty_django.limits.models import LimitOverride, LimitPolicy
from resty_django.limits.policies import registry
from resty_django.limits.statistics import catalog
from resty_django.limits.statistics.reporter import stats
from resty_django.qless.clients.default import default_client
from resty_django.shdict import shdicts
from tests.integration.qless.admin.tools import fill, path, report

pytestmark = [pytest.mark.django_db(transaction=True)]

ADDABLE = ("resty_ids_idrule", "resty_limits_limitpolicy", "resty_limits_limitoverride")
APPS = ("resty_django", "resty_ids", "resty_limits", "resty_cache")
TEXT = re.compile(r"<(h1|h2|th|label|legend|dt)\b[^>]*>(.*?)</\1>", re.DOTALL)
NAMES = {"waiting-1", "here-1"}
"""Headings with the names of objects."""
OF_JOBS = re.compile(r"<(h2|th scope=\"col\"|label|legend|dt|caption)\b[^>]*>(.*?)</", re.DOTALL)


@pytest.fixture(autouse=True)
def _translated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Mark all texts that gettext translates."""
    stop()
    translation.gettext("")  # replaces Django's stub with the functions that are patched below

    def marked(original: Any, *args: Any) -> str:
        text = original(*args) if args[0] else ""
        return f"⟦{text}⟧" if text and translation.get_language() is not None else text

    for name in ("gettext", "ngettext", "pgettext", "npgettext"):
        monkeypatch.setattr(translation._trans, name, partial(marked, getattr(translation._trans, name)))
    yield
    stop()
    registry.forget_policies()


def changelists() -> list[str]:
    names = [f"{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry]
    return [name for name in names if name.startswith(APPS)]


def check(client: Client, url: str) -> str:
    reply = client.get(url)
    assert reply.status_code == 200, url
    page = reply.content.decode()
    assert "⟦" in page
    return page


def test_lists_and_forms_are_translated(admin_client: Client) -> None:
    rule = IdRule.objects.create(name="order", source="O{counter:06d}", max_counter=999_999)
    next_id("order", app="shop")
    counter = IdCounter.objects.get()
    policy = LimitPolicy.objects.create(name="pay", algorithm="leaky_bucket", rate="10/s", key="ip")
    broken = LimitPolicy.objects.create(name="broken", algorithm="leaky_bucket", key="ip")
    override = LimitOverride.objects.create(kind="ip", key="192.0.2.1", rate="none")
    shdicts["default"].set("translated", {"a": 1}, ttl=60)
    pages = [
        reverse("admin:resty_ids_idrule_change", args=[rule.pk]),
        reverse("admin:resty_ids_idcounter_change", args=[counter.pk]),
        reverse("admin:resty_ids_idcounter_raise", args=[counter.pk]),
        reverse("admin:resty_ids_idcounter_lower", args=[counter.pk]),
        reverse("admin:resty_limits_limitpolicy_change", args=[policy.pk]),
        reverse("admin:resty_limits_limitpolicy_change", args=[broken.pk]),
        reverse("admin:resty_limits_limitoverride_change", args=[override.pk]),
        reverse("admin:resty_django_shareddictionary_change", args=["default"]) + "?key=translated",
        reverse("admin:resty_cache_cache_change", args=["default"]),
    ]
    for name in changelists():
        pages.append(reverse(f"admin:{name}_changelist"))
    pages += [reverse(f"admin:{name}_add") for name in ADDABLE]
    for url in pages:
        check(admin_client, url)


def test_no_heading_or_label_is_left_in_english(admin_client: Client) -> None:
    IdRule.objects.create(name="order", source="O{counter:06d}", max_counter=999_999)
    page = check(admin_client, reverse("admin:resty_ids_idrule_add")).partition('id="content"')[2]
    texts = [" ".join(re.sub(r"<[^>]+>", " ", match[2]).split()) for match in TEXT.finditer(page)]
    assert len(texts) > 15
    assert [text for text in texts if re.search("[a-z]", text) and "⟦" not in text] == []


@pytest.mark.redis
def test_pages_of_jobs_are_translated(admin_client: Client, valkey: Any, valkey_url: str, settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "WORKER_NAME": "here-1"}}
    fill(default_client())
    report(default_client(), "here-1")
    models = (
        "queue",
        "job",
        "failuregroup",
        "jobgroup",
        "jobclass",
        "worker",
        "tag",
        "recurringjob",
        "option",
    )
    pages = [path(model) for model in models]
    pages += [path("queue", "mail"), f"{path('queue', 'mail')}?tab=waiting", path("job", "failed-1")]
    pages += [path("worker", "here-1"), path("worker", "here-1", "scale"), path("job", "waiting-1", "clone")]
    english = {}
    for url in pages:
        page = check(admin_client, url).partition('id="content"')[2]
        texts = [" ".join(re.sub(r"<[^>]+>", " ", match[2]).split()) for match in OF_JOBS.finditer(page)]
        assert texts, url
        english[url] = [text for text in texts if re.search("[a-z]", text) and "⟦" not in text and text not in NAMES]
    assert {url: texts for url, texts in english.items() if texts} == {}


def test_descriptions_are_translated_but_stored_in_english(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = FixedWindow(200, 3600)
    assert str(limiter.describe()).startswith("⟦⟦200 requests⟧ per ⟦hour⟧")

    @limited("7/h", key=lambda: "key", name="translated")
    def send() -> None: ...

    send()
    page = check(admin_client, reverse("admin:resty_limits_limitpolicy_changelist"))
    assert "⟦7 requests⟧" in page
    assert stats.flush()
    monkeypatch.setattr(catalog, "_limits", {})  # as in a process that has not loaded the limit
    (stored,) = stats.description("function:translated").rates
    assert "7 requests" in stored
    assert "⟦" not in stored


def test_messages_of_policies_and_counters_are_translated(admin_client: Client) -> None:
    url = reverse("admin:resty_limits_limitpolicy_add")
    data = {"name": "pay", "algorithm": "leaky_bucket", "key": "ip", "cost": 1, "mode": "enforce", "order": 0}
    page = admin_client.post(url, data).content.decode()
    assert "⟦⟦Leaky bucket⟧ requires this field.⟧" in page
    rule = IdRule.objects.create(name="order", source="O{counter:06d}", max_counter=999_999)
    assert rule.pk
    next_id("order", app="shop")
    counter = IdCounter.objects.get()
    url = reverse("admin:resty_ids_idcounter_raise", args=[counter.pk])
    page = admin_client.post(url, {"to": 1_000_009, "confirmation": "order/shop 1000009"}).content.decode()
    assert "⟦1,000,009 is above the rule&#x27;s maximum. Use at most 999,999.⟧" in page


def test_entries_of_the_history_stay_english(admin_client: Client) -> None:
    from django.contrib.admin.models import LogEntry

    policy: Any = LimitPolicy.objects.create(name="pay", algorithm="leaky_bucket", rate="10/s", key="ip")
    data = {"action": "shadow", "_selected_action": [policy.pk], "confirmed": "1"}
    reply = admin_client.post(reverse("admin:resty_limits_limitpolicy_changelist"), data, follow=True)
    assert "⟦Changed to shadow: pay.⟧" in reply.content.decode()
    assert LogEntry.objects.latest("pk").change_message == "Changed Mode: enforce → shadow."
