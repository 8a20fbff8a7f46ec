"""Lists of jobs: the order in which they begin, what the URL changes of it, and their totals."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client as Browser

from resty_django.admin.tables import MAX_SORTED, PAGE_SIZE
from resty_django.qless import Client
from resty_django.qless.admin.job_lists import merged as job_merge
from tests.integration.html_pages import sound
from tests.integration.qless.admin.tools import failed, fill, jids, path, plain, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

LONG = MAX_SORTED + 10


def summary(text: str) -> str:
    return "".join(re.findall(r'<p class="resty-summary">(.*?)</p>', text))


def order(text: str) -> str:
    """Return the text about the order of the list."""
    return re.sub(r"<[^>]+>", "", "".join(re.findall(r'<p class="resty-order">(.*?)</p>', text)))


def listed(browser: Browser, query: str) -> list[str]:
    return jids(sound(text_of(browser, f"{path('job')}?{query}")))


@pytest.fixture
def clock(jobs_site: Client) -> Any:
    """Return a function that sets the clock of the client, in seconds from now."""
    start = jobs_site.clock()

    def set_clock(seconds: float) -> None:
        jobs_site.clock = lambda: start + seconds  # type: ignore[method-assign]

    yield set_clock
    del jobs_site.clock


def test_waiting_jobs_of_all_queues_are_listed_as_they_will_run(
    admin_client: Browser, jobs_site: Client, clock: Any
) -> None:
    for number, (queue, jid, priority) in enumerate(
        [("mail", "late", 0), ("pdf", "high", 5), ("mail", "highest", 9), ("pdf", "latest", 0)]
    ):
        clock(number)
        jobs_site.queues[queue].put("shop.jobs.Send", {}, jid=jid, priority=priority)
    expected = ["highest", "high", "late", "latest"]
    assert listed(admin_client, "state=waiting") == expected
    assert listed(admin_client, "state=waiting&o=-default") == expected[::-1]
    assert listed(admin_client, "state=waiting&o=queue") == ["highest", "late", "high", "latest"]


def test_running_jobs_begin_with_those_whose_lock_ends_first(
    admin_client: Browser, jobs_site: Client, clock: Any
) -> None:
    for number, queue in enumerate(("mail", "pdf", "mail")):
        clock(number * 10)
        jobs_site.queues[queue].put("shop.jobs.Send", {}, jid=f"job-{number}")
        assert jobs_site.queues[queue].pop() is not None
    assert listed(admin_client, "state=running") == ["job-0", "job-1", "job-2"]
    assert listed(admin_client, "state=stalled") == []
    jobs_site.queues["pdf"].put("shop.jobs.Send", {}, jid="waiting")
    clock(65)
    text = text_of(admin_client, f"{path('job')}?state=stalled")
    assert summary(text) == "1 job"
    assert jids(text) == ["job-0"]
    assert listed(admin_client, "state=running&o=-default") == ["job-2", "job-1"]
    assert listed(admin_client, "") == ["job-0", "job-1", "job-2", "waiting"]
    assert listed(admin_client, "o=-default") == ["waiting", "job-2", "job-1", "job-0"]


def test_scheduled_jobs_begin_with_the_soonest_and_say_when_they_run(admin_client: Browser, jobs_site: Client) -> None:
    for jid, queue, delay in (("later", "mail", 7200), ("sooner", "pdf", 3600), ("latest", "mail", 90000)):
        jobs_site.queues[queue].put("shop.jobs.Send", {}, jid=jid, delay=delay)
    text = text_of(admin_client, f"{path('job')}?state=scheduled")
    assert jids(text) == ["sooner", "later", "latest"]
    assert re.findall(r">(in [^<]*)</time>", text) == ["in 1 h", "in 2 h", "in 1 d 1 h"]
    assert "Soonest first." in order(text)
    assert listed(admin_client, "state=scheduled&o=-default") == ["latest", "later", "sooner"]


def test_failed_jobs_of_all_groups_begin_with_the_newest(admin_client: Browser, jobs_site: Client, clock: Any) -> None:
    for number, group in enumerate(("b", "a", "b", "c", "a")):
        clock(number)
        failed(jobs_site, f"job-{number}", group)
    expected = [f"job-{number}" for number in reversed(range(5))]
    assert listed(admin_client, "state=failed") == expected
    assert listed(admin_client, "state=failed&o=-default") == expected[::-1]
    assert listed(admin_client, "state=failed&o=group") == ["job-4", "job-1", "job-2", "job-0", "job-3"]
    assert "Newest first." in order(text_of(admin_client, f"{path('job')}?state=failed"))


def test_tagged_and_tracked_jobs_begin_with_the_newest(admin_client: Browser, jobs_site: Client, clock: Any) -> None:
    for number in range(PAGE_SIZE + 2):
        clock(number)
        jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid=f"job-{number:02}", tags=["vip"])
        job = jobs_site.jobs[f"job-{number:02}"]
        assert job is not None
        job.track()
    newest = [f"job-{number:02}" for number in reversed(range(PAGE_SIZE + 2))]
    for query in ("tag=vip", "tracked=1"):
        assert listed(admin_client, query) == newest[:PAGE_SIZE]
        assert listed(admin_client, f"{query}&p=2") == newest[PAGE_SIZE:]
        assert listed(admin_client, f"{query}&o=-default") == newest[::-1][:PAGE_SIZE]
        assert listed(admin_client, f"{query}&o=-default&p=2") == newest[::-1][PAGE_SIZE:]


def test_a_long_list_of_a_queue_can_be_reversed_but_not_sorted(admin_client: Browser, jobs_site: Client) -> None:
    queue = jobs_site.queues["mail"]
    queue.put_many(
        [{"klass": "shop.jobs.Send", "jid": f"job-{number:03}", "priority": number} for number in range(LONG)]
    )
    url = f"{path('queue', 'mail')}?tab=waiting"
    first = [f"job-{number:03}" for number in reversed(range(LONG))]
    text = text_of(admin_client, url)
    assert jids(text) == first[:PAGE_SIZE]
    assert re.findall(r'aria-sort="(\w+)"><a href="([^"]*)"', text) == [("descending", "?tab=waiting&amp;o=priority")]
    assert jids(text_of(admin_client, f"{url}&o=priority")) == first[::-1][:PAGE_SIZE]
    assert jids(text_of(admin_client, f"{url}&o=priority&p=11")) == first[::-1][10 * PAGE_SIZE :]
    text = text_of(admin_client, f"{url}&o=klass")
    assert jids(text) == first[:PAGE_SIZE]
    assert "cannot be sorted by this column" in order(text)
    assert "Class: shop.jobs.Send" in plain(text)  # above the table, since it is the same in all rows
    assert jids(text_of(admin_client, f"{url}&o=nonsense")) == first[:PAGE_SIZE]
    assert text.count('name="pick"') == PAGE_SIZE
    jobs_site.bulk_cancel(first[MAX_SORTED:])
    assert jids(text_of(admin_client, f"{url}&o=-job")) == first[:PAGE_SIZE]
    assert jids(text_of(admin_client, f"{url}&o=job")) == first[MAX_SORTED - 1 : MAX_SORTED - PAGE_SIZE - 1 : -1]


def test_only_the_first_jobs_of_all_queues_are_merged(
    admin_client: Browser, jobs_site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mail", "pdf"):
        jobs_site.queues[name].put_many(
            [{"klass": "shop.jobs.Send", "jid": f"{name}-{number:03}", "priority": number} for number in range(LONG)]
        )
    url = f"{path('job')}?state=waiting"
    text = text_of(admin_client, url)
    assert summary(text) == f"{2 * LONG} jobs"
    assert f"Only the first {job_merge.MAX_MERGED} jobs are listed in this order." in order(text)
    assert "All of them, by queue" in order(text)
    assert f"1 to 25 of {job_merge.MAX_MERGED}" in text
    assert {jid[-3:] for jid in jids(text_of(admin_client, f"{url}&p=99"))} == {f"{n:03}" for n in range(135, 148)}
    all_jids = [jid for page in range(1, 22) for jid in listed(admin_client, f"state=waiting&o=queue&p={page}")]
    assert len(all_jids) == len(set(all_jids)) == 2 * LONG
    assert all_jids[0] == f"mail-{LONG - 1:03}"
    backwards = [jid for page in range(1, 22) for jid in listed(admin_client, f"state=waiting&o=-queue&p={page}")]
    assert backwards == all_jids[::-1]
    monkeypatch.setattr(job_merge, "MAX_READ", PAGE_SIZE)  # too many lists to merge any job
    assert listed(admin_client, "state=waiting") == all_jids[:PAGE_SIZE]


def test_all_jobs_have_a_total_and_are_listed_by_urgency(admin_client: Browser, jobs_site: Client) -> None:
    made = fill(jobs_site)
    text = text_of(admin_client, path("job"))
    assert summary(text) == "6 jobs"
    assert text.index("resty-summary") < text.index('<table class="resty-list">')
    assert jids(text) == [made[state] for state in ("running", "waiting", "scheduled", "depends", "failed", "complete")]
    assert listed(admin_client, "o=state") == jids(text)
    assert listed(admin_client, "o=-state") == jids(text)[::-1]


def test_a_search_has_a_total_or_a_lower_bound(admin_client: Browser, jobs_site: Client) -> None:
    queue = jobs_site.queues["mail"]
    queue.put_many([{"klass": "shop.jobs.Send", "jid": f"job-{number:03}"} for number in range(PAGE_SIZE + 5)])
    url = f"{path('job')}?klass=shop.jobs.Send"
    text = text_of(admin_client, url)
    assert summary(text) == "More than 25 jobs"
    (following,) = re.findall(r'rel="next" href="([^"]*)"', text)
    last = text_of(admin_client, path("job") + following.replace("&amp;", "&"))
    assert summary(last) == f"{PAGE_SIZE + 5} jobs"
    assert summary(text_of(admin_client, f"{path('job')}?klass=shop.jobs.Other")) == "0 jobs"
