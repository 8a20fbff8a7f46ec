"""The paced retry of failure groups: one request starts it, and the page of the group shows its progress."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.qless.models import token
from tests.integration.qless.admin.tools import HOSTILE, ROOT, failed, path, person, plain, text_of
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

GROUP = "mail-Timeout"


@pytest.fixture
def clock(jobs_site: Client, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the site, which a test moves; its group has 6 failed jobs."""
    for number in range(6):
        failed(jobs_site, f"f{number}")
    times = [jobs_site.clock() + 1]
    monkeypatch.setattr(jobs_site, "clock", lambda: times[0])
    return times


def start(browser: Browser, rate: str = "2", group: str = GROUP) -> Any:
    return browser.post(path("failuregroup", group, "pace"), {"rate": rate}, follow=True)


def progress(browser: Browser, group: str = GROUP) -> dict[str, str]:
    """The figures of the paced retry on the group's page."""
    section = re.search(r'(?s)aria-labelledby="resty-paced-title">(.*?)</section>', page(browser, group))
    assert section
    return dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", section[1]))


def page(browser: Browser, group: str = GROUP) -> str:
    return text_of(browser, path("failuregroup", group))


def popped(client: Client, queue: str = "mail") -> list[str]:
    return [job.jid for job in client.queues[queue].pop(100)]


def test_one_request_retries_all_jobs(admin_client: Browser, jobs_site: Client, clock: list[float]) -> None:
    link = re.search(r'<a class="button" href="([^"]*)">Retry at a pace</a>', page(admin_client))
    assert link
    form = text_of(admin_client, link[1])
    assert "Until its turn, a job stays failed." in form
    assert popped(jobs_site) == []
    reply = start(admin_client)
    assert reply.redirect_chain[-1][0] == path("failuregroup", GROUP)
    assert "Started the paced retry of 6 jobs: 2 per second." in reply.content.decode()
    assert logged() == ["Started the paced retry of 6 jobs: 2 per second."]
    jids = []
    for _ in range(35):  # no browser any more
        jids += popped(jobs_site)
        clock[0] += 0.1
    assert jids == [f"f{number}" for number in range(6)]


def test_the_page_shows_the_progress(admin_client: Browser, jobs_site: Client, clock: list[float]) -> None:
    assert "resty-paced" not in page(admin_client)
    start(admin_client)
    assert progress(admin_client)["Time left"] == "3 s"
    for _ in range(3):
        jobs = jobs_site.queues["mail"].pop(9)
        clock[0] += 0.5
    jobs[0].fail(GROUP, "again")
    jobs_site.jobs.get("f0").complete()  # type: ignore[union-attr]
    assert progress(admin_client) == {
        **{"To be retried": "3", "Waiting or running": "1", "Complete": "1", "Failed again": "1"},
        "Time left": "1.5 s",
    }
    text = page(admin_client)
    assert '<progress id="resty-paced" max="6" value="2">' in text
    assert "2 per second" in text
    members = re.search(r'<a href="([^"]*)">Show the retried jobs</a>', text)
    assert members
    listed = text_of(admin_client, members[1])
    assert all(jid in listed for jid in ("f0", "f1", "f2"))
    jobs_site.jobs.get("f1").cancel()  # type: ignore[union-attr]
    for _ in range(9):
        for job in jobs_site.queues["mail"].pop(9):
            job.complete()
        clock[0] += 0.5
    assert progress(admin_client) == {
        **{"To be retried": "0", "Waiting or running": "0", "Complete": "4", "Failed again": "1"},
        **{"Canceled": "1", "Time left": "–"},
    }
    assert "Stop the paced retry" not in page(admin_client)


def test_the_page_says_what_a_paced_retry_waits_for(
    admin_client: Browser, jobs_site: Client, clock: list[float]
) -> None:
    """The tests of the core check that it waits."""
    failed(jobs_site, "other", group="pdf-Memory")
    start(admin_client)
    start(admin_client, group="pdf-Memory")
    assert "Waits: the jobs of mail-Timeout come first." in plain(page(admin_client, "pdf-Memory"))
    jobs_site.queues["mail"].pause()
    assert "Waits: the queue mail is paused." in plain(page(admin_client))


def test_a_stop_leaves_the_rest_failed(admin_client: Browser, jobs_site: Client, clock: list[float]) -> None:
    start(admin_client)
    assert popped(jobs_site) == ["f0"]
    url = re.search(r'<form method="post" action="([^"]*stop-pace/)">', page(admin_client))
    assert url
    assert "The jobs that are left stay failed." in text_of(admin_client, url[1])
    reply = admin_client.post(url[1], follow=True)
    assert "Stopped the paced retry. Still failed: 5 jobs." in reply.content.decode()
    assert logged()[-1] == "Stopped the paced retry. Still failed: 5 jobs."
    clock[0] += 60
    assert popped(jobs_site) == []
    assert jobs_site.jobs.failed() == {GROUP: 5}
    assert "Stopped. Still failed: 5 jobs." in page(admin_client)
    assert "The paced retry has ended already." in admin_client.post(url[1], follow=True).content.decode()


def test_several_groups_are_retried_at_a_pace(admin_client: Browser, jobs_site: Client, clock: list[float]) -> None:
    failed(jobs_site, "other", group=HOSTILE, queue="pdf")
    data = {"verb": "pace", "pick": [token(GROUP), token(HOSTILE), token("never")]}
    confirmation = admin_client.post(f"{ROOT}failuregroup/bulk/", data).content.decode()
    assert 'name="rate"' in confirmation
    assert "7 jobs in 3 failure groups" in confirmation
    reply = admin_client.post(
        f"{ROOT}failuregroup/bulk/", {**data, "confirmed": "yes", "rate": "0.5"}, follow=True
    ).content.decode()
    assert "Started the paced retry of 7 jobs." in reply
    assert "This group has no failed jobs any more." in reply
    assert sorted(logged()) == [
        f"Started the paced retry of {count}: 0.50 per second." for count in ("1 job", "6 jobs")
    ]
    assert popped(jobs_site) + popped(jobs_site, "pdf") == ["f0", "other"]
    assert progress(admin_client, HOSTILE)["Waiting or running"] == "1"


def test_a_paced_retry_needs_its_permission_and_a_positive_rate(
    admin_client: Browser, jobs_site: Client, clock: list[float]
) -> None:
    viewer = person("view_job")
    assert "Retry at a pace" not in page(viewer)
    start(admin_client, "1")
    assert progress(viewer)["To be retried"] == "6"
    assert "stop-pace" not in page(viewer)
    for name in ("pace", "stop-pace"):
        for reply in (viewer.get(path("failuregroup", GROUP, name)), viewer.post(path("failuregroup", GROUP, name))):
            assert reply.status_code == 403
    for rate in ("", "0", "-1", "nan", "1e9", "x"):
        assert "errorlist" in start(admin_client, rate).content.decode()
    assert "This group has no failed jobs any more." in start(admin_client, group="never").content.decode()
    assert len(logged()) == 1
