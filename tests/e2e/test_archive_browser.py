"""The archive of jobs in a browser: jobs that Redis has deleted are found by filters and the search."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from resty_django.qless import Client
from tests.e2e.test_tasks_browser import Operator
from tests.e2e.test_tasks_browser import operator as operator
from tests.integration.qless.archive.conftest import Clock
from tests.integration.qless.archive.tools import archive_settings, complete, drop, write

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.redis,
]

JOBS = 40


@pytest.fixture
def archive(jobs_site: Client, settings: Any, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Jobs of orders that only the archive has: they were completed."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": archive_settings(valkey_url)}
    client, clock = jobs_site, Clock()
    monkeypatch.setattr(client, "clock", clock)
    write(client)
    for number in range(JOBS):
        data = {"customer": {"id": 1000 + number, "name": f"Customer{number} Meyer", "password": "hunter2"}}
        klass = "shop.tasks.Remind" if number == 11 else "shop.tasks.Send"
        complete(client, f"job-of-{number}", data, klass=klass, tags=["vip"] if number == 3 else ["eu"])
    write(client)
    drop(client, clock)
    assert client.jobs.get("job-of-3") is None
    return client


def test_an_archived_job_is_found_by_filter_and_search(operator: Callable[[int], Operator], archive: Client) -> None:
    page = operator(4)
    page.open("resty_qless/job")
    page.click(page.tab.get_by_role("link", name="Archive", exact=True))
    page.click(page.tab.get_by_role("link", name="shop.tasks.Remind"))
    assert [row.split()[0] for row in page.rows("#result_list tbody tr")] == ["job-of-11"]
    page.click(page.tab.locator("#result_list tbody a"))
    shown = page.text()
    assert "Customer11 Meyer" in shown
    assert "hunter2" not in shown
    assert page.tab.locator("#content input[type=submit]").count() == 0


def test_the_search_of_jobs_leads_to_the_archive(operator: Callable[[int], Operator], archive: Client) -> None:
    page = operator(5)
    page.open("resty_qless/job")
    page.enter("Find jobs", "vip")
    page.click(page.tab.get_by_role("link", name="Search the archive"))
    assert [row.split()[0] for row in page.rows("#result_list tbody tr")] == ["job-of-3"]
    exported = json.loads(page.download("JSON"))["rows"]
    assert [row["jid"] for row in exported] == ["job-of-3"]
    assert exported[0]["arguments"]["customer"]["password"] == "[redacted]"
