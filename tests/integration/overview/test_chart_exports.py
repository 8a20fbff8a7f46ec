"""Each chart of the admin pages exports 24 hours as CSV and JSON by one link below it."""

from __future__ import annotations

import csv
import json
import re
from datetime import datetime, timedelta
from html import unescape
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client as Browser
from redis import Redis

from resty_django.cache import mlcaches
from resty_django.limits import Decision, limited
from resty_django.limits.models import LimitPolicy
from resty_django.limits.statistics.reporter import stats
from resty_django.qless.clients.default import default_client
from tests.integration.limits.policy_tools import make_policy
from tests.integration.qless.admin.tools import path

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

FIGURES = "/admin/resty_limits/limitpolicy/limits/figures/"


@pytest.fixture
def site(limits_site: dict[str, Any], settings: Any, valkey: Redis, valkey_url: str) -> None:
    """A site with completed and failed jobs, decisions of two limits, and calls of a cache."""
    settings.RESTY_DJANGO = {
        **limits_site,
        "QLESS": {"URL": valkey_url, "WORKER_NAME": "w1"},
        "CACHES": {"pages": {}},
    }
    queue = default_client().queues["mail"]
    for _ in range(2):
        queue.put("shop.Mail")
    done, failed = queue.pop(2)
    done.complete()
    failed.fail("mail-OSError", "OSError: full")
    make_policy("prices", key="ip")
    for allowed in (True, False):
        stats.record("prices", "192.0.2.1", Decision(allowed))
    limited("1/h", key="k", name="sms")(lambda: None)()
    stats.flush()
    with pytest.raises(Exception, match="source"):
        mlcaches["pages"].get("key", _fails)


def _fails() -> None:
    raise OSError("source")


def figures(browser: Browser, url: str) -> list[tuple[str, dict[str, str]]]:
    """Return the titles of the charts of a page, and the links below them."""
    text = browser.get(url).content.decode()
    charts = re.findall(r'<figure class="resty-chart">\s*<figcaption>([^<]*?) *<.*?</svg>(.*?)</figure>', text, re.S)
    assert charts, url
    links = r'<a href="(\?[^"]*)"[^>]*>((?:CSV|JSON)[^<]*)</a>'
    return [(title, {label: unescape(href) for href, label in re.findall(links, below)}) for title, below in charts]


def rows_of(browser: Browser, url: str) -> list[dict[str, Any]]:
    reply = browser.get(url)
    assert reply.status_code == 200, url
    text = reply.getvalue().decode()  # type: ignore[attr-defined]
    return [*csv.DictReader(text.splitlines())] if "export=csv" in url else json.loads(text)["rows"]


OUTCOMES = {"Completed and failed": {"completed": 1, "failed": 1}}
DURATIONS = {"Waiting time": {"jobs": 2}, "Running time": {"jobs": 1}}
PAGES = {
    "queues": (path("queue"), OUTCOMES | DURATIONS),
    "queues, an hour": (f"{path('queue')}?period=hour", OUTCOMES | DURATIONS),
    "queue": (path("queue", "mail"), OUTCOMES | DURATIONS),
    "queue, a month": (f"{path('queue', 'mail')}?tab=stats&period=month", OUTCOMES | DURATIONS),
    "classes": (f"{path('jobclass')}?period=week", OUTCOMES | DURATIONS),
    "class": (path("jobclass", "shop.Mail"), OUTCOMES | DURATIONS),
    "cache": ("/admin/resty_cache/cache/pages/change/", {"Hit ratio": {"calls": 1}, "Calls": {"errors": 1}}),
    "limit": (f"{FIGURES}?{urlencode({'limit': 'function:sms'})}", {"Decisions": {"passed": 1}}),
}
"""Pages with the titles of their charts, and the sums of some columns over a day."""


@pytest.mark.parametrize("page", PAGES)
def test_24_hours_of_each_chart_are_exported_by_one_link(site: None, admin_client: Browser, page: str) -> None:
    url, totals = PAGES[page]
    charts = figures(admin_client, url)
    assert totals.keys() <= {title for title, _links in charts}
    base = url.partition("?")[0]
    for title, links in charts:
        for format in ("CSV", "JSON"):
            rows = rows_of(admin_client, base + links.get(f"{format} (24 h)", links[format]))
            if title in ("Waited", "Ran"):  # a day's histogram, by duration
                assert rows
                assert "column" in rows[0]
                continue
            starts = [datetime.fromisoformat(row["start"]) for row in rows]
            assert len(starts) == 24, (title, links)
            assert {later - earlier for earlier, later in pairwise(starts)} == {timedelta(hours=1)}
            for column, total in totals.get(title, {}).items():
                assert sum(int(row[column] or 0) for row in rows) == total, (title, column, rows)


def test_24_hours_of_a_policy_are_exported(site: None, admin_client: Browser) -> None:
    page = f"/admin/resty_limits/limitpolicy/{LimitPolicy.objects.get(name='prices').pk}/figures/"
    charts = figures(admin_client, page)
    assert [title for title, _links in charts] == ["Decisions"] * 2  # an hour, and two days
    for _title, links in charts:
        for format in ("CSV", "JSON"):
            rows = rows_of(admin_client, page + links[f"{format} (24 h)"])
            assert len(rows) == 24
            assert [sum(int(row[outcome]) for row in rows) for outcome in ("passed", "refused")] == [1, 1]


def test_the_table_of_a_period_exports_24_hours(site: None, admin_client: Browser) -> None:
    base = path("jobclass")
    text = unescape(admin_client.get(f"{base}?period=hour").content.decode())
    (link,) = re.findall(r'<a href="(\?[^"]*export=json&of=classes)"[^>]*>JSON \(24 h\)', text)
    assert rows_of(admin_client, base + link)
