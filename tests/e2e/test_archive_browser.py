"""The archive of jobs in a browser: jobs that Redis has deleted are found from the search box within two clicks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from resty_django.qless import Client
from resty_django.qless.archive import search
from tests.e2e.test_tasks_browser import Operator, the_jid
from tests.e2e.test_tasks_browser import operator as operator
from tests.integration.qless.archive.conftest import Clock
from tests.integration.qless.archive.tools import archive_settings, complete, drop, fail, write

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.redis,
]

JOBS = 40


@pytest.fixture
def archive(jobs_site: Client, settings: Any, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Jobs of orders that only the archive has: they were completed, or have failed and were canceled."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": archive_settings(valkey_url)}
    monkeypatch.setattr(search, "_known_classes", (0.0, []))
    client, clock = jobs_site, Clock()
    monkeypatch.setattr(client, "clock", clock)
    write(client)
    for number in range(JOBS):
        data = {"customer": {"id": 1000 + number, "name": f"Customer{number} Meyer", "password": "hunter2"}}
        klass = "shop.tasks.Remind" if number == 11 else "shop.tasks.Send"
        complete(client, f"job-of-{number}", data, klass=klass, tags=["vip"] if number == 3 else ["eu"])
    fail(client, "broken")
    write(client)
    client.jobs["broken"].cancel()
    write(client)
    drop(client, clock)
    assert client.jobs.get("job-of-3") is None
    return client


@pytest.mark.parametrize(
    ("text", "jid"),
    [
        ("class:shop.tasks.Remind", "job-of-11"),
        ("tag:vip", "job-of-3"),
        ("error:KeyError", "broken"),
        ("args.customer.id:1007", "job-of-7"),
        ("customer7", "job-of-7"),
    ],
)
def test_an_archived_job_is_found_from_the_search_box(
    operator: Callable[[int], Operator], archive: Client, text: str, jid: str
) -> None:
    page = operator(3)
    page.open("resty_qless/job")
    page.enter("Find jobs", text)
    assert the_jid(page) == jid
    assert page.clicks == 1
    page.click(page.tab.locator(".resty-list tbody a.resty-id"))
    assert f"/archivedjob/{jid}/change/" in page.tab.url
    shown = page.text()
    assert "archived" in shown
    if jid == "broken":
        assert "mail-KeyError" in shown
        assert "zip_code" in page.tab.locator("#content").text_content()  # the report may be closed
    else:
        assert f"Customer{jid.rpartition('-')[2]} Meyer" in shown
        assert "hunter2" not in shown
        assert "Completed" in shown


def test_the_jid_of_a_deleted_job_leads_to_its_archived_page(
    operator: Callable[[int], Operator], archive: Client
) -> None:
    page = operator(2)
    page.open("resty_qless/job")
    page.enter("Find jobs", "job-of-5")
    assert "/archivedjob/job-of-5/change/" in page.tab.url
    assert "Customer5 Meyer" in page.text()


def test_results_have_totals_pages_and_exports(operator: Callable[[int], Operator], archive: Client) -> None:
    page = operator(6)
    page.open("resty_qless/archivedjob")
    assert f"{JOBS + 1} jobs" in page.text()
    page.enter("Find jobs", "meyer")
    assert f"At most {JOBS} jobs" in page.text()
    assert len(page.rows(".resty-list tbody tr")) == search.PAGE_SIZE
    page.click(page.tab.get_by_role("link", name="Next"))
    assert len(page.rows(".resty-list tbody tr")) == JOBS - search.PAGE_SIZE
    assert f"{JOBS} jobs" in page.text()
    exported = json.loads(page.download(page.tab.locator(".resty-export").get_by_role("link", name="JSON")))["rows"]
    assert {row["jid"] for row in exported} == {f"job-of-{number}" for number in range(JOBS)}
    assert exported[0]["arguments"]["customer"]["password"] == "[redacted]"
    text = page.download(page.tab.locator(".resty-export").get_by_role("link", name="CSV"))
    assert len(list(csv.DictReader(io.StringIO(text)))) == JOBS
    page.click(page.tab.get_by_role("link", name="Examine all jobs instead"))
    assert len(page.rows(".resty-list tbody tr")) == search.PAGE_SIZE
    assert "Examined 2" in page.text()
