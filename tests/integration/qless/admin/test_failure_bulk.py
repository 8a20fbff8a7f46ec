"""Operations on selected failure groups: confirmation, steps, permissions and history."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.qless.admin.jobs import bulk
from resty_django.qless.models import token
from tests.integration.qless.admin.tools import HOSTILE, ROOT, failed, path, run_steps, text_of
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

BULK = f"{ROOT}failuregroup/bulk/"


def post(browser: Browser, verb: str, *groups: str, **data: Any) -> Any:
    return browser.post(BULK, {"verb": verb, "pick": [token(group) for group in groups], **data}, follow=True)


@pytest.fixture
def groups(jobs_site: Client) -> Client:
    """Return a site with three failure groups of 3, 2 and 1 jobs."""
    for name, count in (("mail-Timeout", 3), ("pdf-Memory", 2), (HOSTILE, 1)):
        for number in range(count):
            failed(jobs_site, f"{name}-{number}", group=name)
    return jobs_site


def test_the_confirmation_counts_and_changes_nothing(admin_client: Browser, groups: Client) -> None:
    text = post(admin_client, "retry", "mail-Timeout", "pdf-Memory").content.decode()
    assert "5 jobs in 2 failure groups" in text
    assert re.search(r"mail-Timeout</a></th><td>3 jobs", text)
    assert groups.jobs.failed() == {"mail-Timeout": 3, "pdf-Memory": 2, HOSTILE: 1}
    assert logged() == []


@pytest.mark.parametrize(("verb", "label"), [("retry", "Retried"), ("cancel", "Deleted")])
def test_all_jobs_of_the_groups_are_changed(admin_client: Browser, groups: Client, verb: str, label: str) -> None:
    reply = post(admin_client, verb, "mail-Timeout", HOSTILE, confirmed="yes")
    assert f"{label} 4 jobs." in reply.content.decode()
    assert groups.jobs.failed() == {"pdf-Memory": 2}
    assert logged() == [f"{label} 3 jobs.", f"{label} 1 job."]
    assert (groups.jobs.get("mail-Timeout-0") is None) == (verb == "cancel")


@pytest.fixture
def steps_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "JOBS_PER_STEP", 2)
    monkeypatch.setattr(bulk, "PAGE_SIZE", 2)


@pytest.mark.usefixtures("steps_of_two")
def test_steps_continue_from_group_to_group(admin_client: Browser, groups: Client) -> None:
    picks = [token(group) for group in ("mail-Timeout", "pdf-Memory")]
    data = {"verb": "retry", "pick": picks, "confirmed": "yes"}
    assert run_steps(admin_client, BULK, data) == ["2 of 5 jobs"]
    assert logged() == ["Retried 2 jobs.", "Retried 1 job.", "Retried 2 jobs."]
    assert groups.jobs.failed() == {HOSTILE: 1}


@pytest.mark.usefixtures("steps_of_two")
def test_jobs_that_refuse_do_not_stop_the_others(admin_client: Browser, groups: Client) -> None:
    groups.queues["mail"].put("K", jid="dependent", depends=["mail-Timeout-1"])
    picks = [token(group) for group in ("mail-Timeout", "pdf-Memory")]
    run_steps(admin_client, BULK, {"verb": "cancel", "pick": picks, "confirmed": "yes"})
    assert "Deleted 4 jobs. Unchanged: 1." in text_of(admin_client, path("failuregroup"))
    assert groups.jobs.failed() == {"mail-Timeout": 1, HOSTILE: 1}


def test_unknown_groups_change_nothing(admin_client: Browser, groups: Client) -> None:
    assert "There is nothing to do." in post(admin_client, "retry", "unknown").content.decode()
    assert "Deleted 0 jobs." in post(admin_client, "cancel", "", confirmed="yes").content.decode()
    assert sum(groups.jobs.failed().values()) == 6
    assert logged() == []
