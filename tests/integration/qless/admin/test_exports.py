"""Exports of the job queue's tables and charts."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client as Browser

from resty_django.admin.export import MAX_ROWS
from resty_django.admin.tables import PAGE_SIZE
from resty_django.qless import Client
from tests.integration.qless.admin.tools import HOSTILE, ROOT, failed, fill, hostile, path, person

pytestmark = [pytest.mark.django_db, pytest.mark.redis]
LISTS = {
    "queue": "queues",
    "job": "jobs",
    "failuregroup": "failure-groups",
    "jobgroup": "groups",
    "jobclass": "classes",
    "worker": "workers",
    "tag": "tags",
    "recurringjob": "recurring",
    "option": "options",
}


def exported(browser: Browser, url: str) -> Any:
    response = browser.get(url)
    assert response.status_code == 200, url
    return json.loads(response.getvalue())


def rows_of(browser: Browser, url: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = exported(browser, url)["rows"]
    return rows


@pytest.fixture
def browser(jobs_site: Client) -> Browser:
    jids = fill(jobs_site)
    jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid="waiting-2", tags=["vip"])
    jobs_site.groups.open("import", "group-1")
    assert jids
    return person("view_job")


@pytest.mark.parametrize("model", LISTS)
def test_each_list_offers_its_rows(browser: Browser, model: str) -> None:
    text = unescape(browser.get(path(model)).content.decode())
    name = LISTS[model]
    for format in ("csv", "json"):
        assert f'href="?export={format}&of={name}"' in text
        assert browser.get(f"{path(model)}?export={format}&of={name}").status_code == 200
    sheet = exported(browser, f"{path(model)}?export=json")
    assert (sheet["name"], sheet["complete"]) == (name, True)
    assert sheet["rows"]
    assert person().get(f"{path(model)}?export=csv").status_code == 403


def test_jobs_are_exported_with_redacted_arguments(browser: Browser) -> None:
    url = f"{path('job')}?state=waiting&queue=mail"
    rows = {row["jid"]: row for row in rows_of(browser, f"{url}&export=json")}
    waiting = rows["waiting-1"]
    assert waiting["arguments"] == {"order": 2, "password": "[redacted]"}
    assert (waiting["class"], waiting["queue"], waiting["priority"]) == ("shop.jobs.Send", "mail", 5)
    assert waiting["tags"] == ["vip", "eu"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", waiting["put"])
    assert "hunter2" not in browser.get(f"{url}&export=csv").getvalue().decode()


def test_a_failed_job_is_exported_with_its_error(browser: Browser) -> None:
    (row,) = rows_of(browser, f"{path('failuregroup', 'mail-Timeout')}?export=json")
    assert (row["jid"], row["state"], row["failure_group"]) == ("failed-1", "failed", "mail-Timeout")
    assert row["failure_message"].endswith("Timeout: the server said nothing")


def test_all_pages_of_a_list_are_exported(browser: Browser, jobs_site: Client) -> None:
    queue = jobs_site.queues["long"]
    jids = [queue.put("shop.jobs.Send", {}, jid=f"long-{number:03}") for number in range(2 * PAGE_SIZE)]
    url = f"{path('queue', 'long')}?tab=waiting&p=2&export=json"
    assert sorted(row["jid"] for row in rows_of(browser, url)) == jids
    search = f"{path('job')}?klass=shop.jobs.Send&queue=long&export=json"
    assert sorted(row["jid"] for row in rows_of(browser, search)) == jids
    assert len(jids) <= MAX_ROWS


def test_failure_groups_are_exported_in_the_order_of_the_page(browser: Browser, jobs_site: Client) -> None:
    for number in range(PAGE_SIZE + 1):
        failed(jobs_site, f"other-{number}", f"group-{number:02}")
    rows = rows_of(browser, f"{path('failuregroup')}?o=group&export=json")
    assert [row["group"] for row in rows] == [
        *(f"group-{number:02}" for number in range(PAGE_SIZE + 1)),
        "mail-Timeout",
    ]
    assert rows[-1] | {"first": None, "last": None} == {
        "group": "mail-Timeout",
        "count": 1,
        "first": None,
        "last": None,
        "says": "Timeout: the server said nothing",
    }


@pytest.mark.parametrize("period", ["hour", "day", "week", "month"])
def test_the_charts_of_a_queue_export_the_shown_period(browser: Browser, period: str) -> None:
    url = f"{path('queue', 'mail')}?tab=stats&period={period}"
    text = unescape(browser.get(url).content.decode())
    assert f'href="?tab=stats&period={period}&export=csv&of=completed"' in text
    rows = rows_of(browser, f"{url}&export=json&of=completed")
    assert len(rows) == {"hour": 60, "day": 24, "week": 7, "month": 30}[period]
    assert sum(row["completed"] for row in rows) == 1
    assert rows[0]["start"] < rows[-1]["start"]
    for name in ("waited", "ran"):
        assert exported(browser, f"{url}&export=json&of={name}")["name"] == name


def test_hostile_names_are_exported(browser: Browser, jobs_site: Client) -> None:
    hostile(jobs_site)
    jobs_site.queues["mail"].put("=cmd()", {"x": HOSTILE}, jid="=1+1")
    rows = rows_of(browser, f"{path('job')}?queue=&export=json")
    assert "=1+1" in {row["jid"] for row in rows}
    text = browser.get(f"{path('job')}?export=csv").getvalue().decode()
    table = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in table}) == 1
    assert not [cell for row in table for cell in row if cell.startswith(("=", "+", "@"))]


def test_an_export_changes_nothing_and_reports_a_store_that_is_down(
    browser: Browser, valkey: Any, settings: Any
) -> None:
    before = {key: valkey.dump(key) for key in valkey.keys("*")}
    browser.get(f"{ROOT}job/?export=csv").getvalue()
    browser.get(f"{ROOT}failuregroup/?export=json").getvalue()
    assert {key: valkey.dump(key) for key in valkey.keys("*")} == before
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": "redis://127.0.0.1:1/0"}}
    assert browser.get(f"{ROOT}job/?export=csv").status_code == 503


def test_the_jobs_of_a_search_are_exported(browser: Browser) -> None:
    for query in ("state:failed", "error:Timeout", "state:failed class:shop.jobs.Send"):
        url = f"{path('job')}?{urlencode({'q': query, 'export': 'json'})}"
        assert [row["jid"] for row in rows_of(browser, url)] == ["failed-1"]
