"""docs/explanation/privacy.md: its calls delete a person's data in each store, and its retention is the code's."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User

from resty_django.cache import MLCache
from resty_django.limits import Concurrency, FixedWindow, LeakyBucket, Quota, bans, forget_quotas
from resty_django.limits.models import LimitOverride, QuotaUsage
from resty_django.limits.statistics.reporter import KEEP_SECONDS, TOP_KEYS_KEEP_SECONDS, stats
from resty_django.minute_series.records import HOURS
from resty_django.qless.clients.default import default_client
from resty_django.qless.models import ArchivedJob, OutboxEntry
from resty_django.qless.outbox.entries import Call
from resty_django.sansio import run
from resty_django.shdict import shdicts
from tests.docs_reader import execute, page
from tests.integration.cache.tools import callback_took
from tests.integration.limits.policy_tools import limits_site
from tests.integration.qless.archive.tools import archive_settings, complete, write

__all__ = ["limits_site"]

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

KEY, OTHER = "203.0.113.7", "198.51.100.1"


@pytest.fixture(params=["lmdb", "redis"])
def site(
    request: pytest.FixtureRequest,
    limits_site: dict[str, Any],
    settings: Any,
    valkey: Any,
    valkey_url: str,
) -> None:
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url}}
    settings.RESTY_DJANGO = {**limits_site, "QLESS": archive_settings(valkey_url)}
    if request.param == "redis":
        entry = {"ENGINE": "redis", "ALIAS": "default"}
        settings.RESTY_DJANGO["SHARED_DICTS"] = dict.fromkeys(("default", "bans", "events", "limits"), entry)


def fill_limits() -> None:
    for limiter in (
        FixedWindow(1, 60, prefix="policy:a:fixed_window:"),
        LeakyBucket(1, burst=1, prefix="named:api:req:"),
        Concurrency(1, prefix="policy:b:concurrency:"),
    ):
        for key in (KEY, f"{KEY}|/path", OTHER):
            limiter.hit(key)
            stats.record("a", key, limiter.hit(key))
    stats.flush()
    counted = Quota("exports", 1000, per="month", store="limits")
    for key in (KEY, f"{KEY}|/path", f"user:{KEY}", "203.0.113.70", OTHER):
        counted.use(key)
        LimitOverride.objects.create(key=key, rate="60/m", limit="a", kind="key")
        bans.add(key, 3600)


def all_values(name: str) -> str:
    return repr([(key, shdicts[name].get(key)) for key in shdicts[name].iter_keys()])


def test_the_calls_of_the_page_delete_a_key_everywhere(
    site: None, admin_user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_limits()
    cache = MLCache("people", "default")
    callback_took(cache.counter, KEY, 1.0)
    run(cache.counter.flush())
    LogEntry.objects.log_actions(admin_user.pk, LimitOverride.objects.filter(key__in=[KEY, OTHER]), CHANGE, "Changed.")
    client = default_client()
    complete(client, "address", {"client": KEY})
    write(client)
    monkeypatch.setattr(client, "clock", lambda: time.time() + 8 * 86_400)
    complete(client, "other", {"client": OTHER}, tags=["user:71", "eu"])
    client.queues["mail"].put("shop.jobs.Send", {"user": 7}, jid="tagged", tags=["user:7", "eu"])
    client.queues["mail"].put("shop.jobs.Send", {"user": 71}, jid="also", tags=["user:71", "eu"])
    write(client)
    for key in (KEY, OTHER):
        put = ("put", "w", "mail", f"of-{key}", "shop.jobs.Send", json.dumps({"client": key}), 0)
        Call(commands=[put], jids=[f"of-{key}"]).entry(time.time(), None).save()
    for name in ("limits", "bans", "default"):
        assert KEY in all_values(name)
    assert ArchivedJob.objects.count() == 2

    namespace: dict[str, Any] = {}
    for block in page("docs/explanation/privacy.md").blocks:
        if block.language == "python":
            execute(block.text, block.place, namespace)

    for name in ("limits", "bans", "default"):
        assert KEY not in all_values(name).replace("203.0.113.70", "")
    assert f"policy:a:fixed_window:{OTHER}" in all_values("limits")
    assert bans.find(OTHER) is not None
    assert bans.find(KEY) is None
    assert set(QuotaUsage.objects.values_list("key", flat=True)) == {"203.0.113.70", OTHER}
    assert not LimitOverride.objects.filter(key=KEY).exists()
    assert LimitOverride.objects.filter(key=OTHER).exists()
    (entry,) = LogEntry.objects.all()
    assert OTHER in entry.object_repr
    assert [row.name for row in ArchivedJob.objects.all()] == ["other"]
    assert [str(entry) for entry in OutboxEntry.objects.all()] == [f"of-{OTHER}"]
    assert client.jobs.get("tagged") is client.jobs.get("address") is None
    assert client.jobs.get("also") is not None
    write(client, again=True)
    assert [row.name for row in ArchivedJob.objects.all()] == ["other"]
    forget_quotas()


def test_the_page_shows_the_retention_that_is_built_in() -> None:
    rows = {row[0]: row[2] for row in page("docs/explanation/privacy.md").table("data", "location", "retention")}
    text = " ".join(rows.values())
    assert TOP_KEYS_KEEP_SECONDS == 2 * 3600
    assert KEEP_SECONDS == 7 * 86_400
    assert HOURS == 48
    for phrase in ("2 hours", "7 days after the last decision", "2 days after the slow call"):
        assert phrase in text
