"""Recurring jobs and cron tasks in one list: results, run now, pause and resume."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client as Browser

from resty_django.qless import Client, Job, RecurringJob
from resty_django.qless.clients.default import default_client
from resty_django.qless.tasks import schedule
from resty_django.qless.tasks.schedule import declare, is_cron_paused
from tests.integration.html_pages import sound
from tests.integration.qless.admin.test_new_jobs import new_job
from tests.integration.qless.admin.tools import everything, fill, message_in, path, plain, text_of
from tests.integration.qless.conftest import change_settings, pop
from tests.integration.qless.tasks import examples as examples  # defines the tasks
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

MODULE = "tests.integration.qless.tasks.examples"
NIGHTLY, EVERY = f"{MODULE}.nightly", f"{MODULE}.every_so_often"
NOON = datetime(2026, 1, 10, 12, tzinfo=UTC).timestamp()
OPERATIONS = ("run_now", "pause", "resume")


def operation_url(jid: str, page: str) -> str:
    return path("recurringjob", jid, page.replace("_", "-"))


@pytest.fixture
def periodic(settings: Any, jobs_site: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A site at noon in UTC with a task at an interval, a cron task and a recurring job."""
    change_settings(settings, MODULES=[MODULE])
    settings.TIME_ZONE = "UTC"
    tasks = {name: task for name, task in schedule.scheduled.items() if name in (NIGHTLY, EVERY)}
    monkeypatch.setattr(schedule, "scheduled", tasks)
    monkeypatch.setattr("resty_django.qless.admin.recurring.table.scheduled", tasks)
    client = default_client()
    at(client, NOON)
    client.queues["mail"].recur("shop.jobs.Digest", {"to": "all"}, 3600, jid="digest", offset=60, tags=["vip"])
    declare(client, ["timed"], NOON)
    yield client
    client.close()


def at(client: Client, moment: float) -> None:
    client.clock = lambda: moment  # type: ignore[misc]


def recurring(client: Client, jid: str) -> RecurringJob:
    job = client.jobs.get(jid)
    assert isinstance(job, RecurringJob)
    return job


def rows(browser: Browser) -> dict[str, str]:
    """Return the rows of the list as text, by the title of the recurring job."""
    text = sound(text_of(browser, path("recurringjob")))
    body = text.partition("<tbody>")[2].partition("</tbody>")[0]
    texts = [plain(row) for row in body.split("<tr>")[1:]]
    return {row.split()[0]: row for row in texts}


def test_cron_tasks_and_recurring_jobs_are_one_list(admin_client: Browser, periodic: Client) -> None:
    listed = rows(admin_client)
    assert set(listed) == {"digest", f"every-{EVERY}"[:9] + "…" + EVERY[-8:], f"cron-{NIGHTLY}"[:40] + "…"}
    digest, every, nightly = listed.values()
    assert "every 1 h in 1 min 0 – people vip Run now · Pause" in digest
    assert "every 30 s in 30 s 0 – a task tick Run now · Pause" in every
    assert f"{NIGHTLY} timed 30 2 * * * in 14 h 30 min – – a task – Run now · Pause" in nightly
    for order in ("jid", "-interval", "next", "count", "by"):
        text = sound(text_of(admin_client, f"{path('recurringjob')}?o={order}"))
        assert text.count(">Pause</a>") == 3, order


def test_cron_tasks_follow_on_the_last_page(admin_client: Browser, periodic: Client) -> None:
    for number in range(30):
        periodic.queues["mail"].recur("K", {}, 100, jid=f"r{number:02}", offset=1000)

    def links(query: str) -> int:
        return text_of(admin_client, f"{path('recurringjob')}{query}").count(">Pause</a>")

    assert (links(""), links("?p=2")) == (25, 8)
    assert "30 2 * * *" in text_of(admin_client, f"{path('recurringjob')}?p=2")
    assert "30 2 * * *" not in text_of(admin_client, path("recurringjob"))


def test_the_latest_jobs_are_shown_with_their_states(admin_client: Browser, periodic: Client) -> None:
    at(periodic, NOON + 2 * 3600 + 61)
    queue = periodic.queues["mail"]
    for end in ("complete", "fail", None):
        job = pop(queue)
        if end == "complete":
            job.complete()
        elif end == "fail":
            job.fail("mail-Error", "no")
    results = re.findall(r'aria-label="(digest-\d: \w+)"', text_of(admin_client, path("recurringjob")))
    assert results == ["digest-3: running", "digest-2: failed", "digest-1: complete"]
    text = sound(text_of(admin_client, path("recurringjob", "digest")))
    assert re.findall(r'aria-label="(digest-\d: \w+)"', text) == results
    assert path("job", "digest-2") in text.replace("digest_2D2", "digest-2")


def test_the_page_of_a_cron_task_shows_schedule_and_results(admin_client: Browser, periodic: Client) -> None:
    night = datetime(2026, 1, 11, 2, 30, tzinfo=UTC).timestamp()
    at(periodic, night + 3600)
    job = periodic.queues["timed"].pop()
    while job is not None and not job.jid.startswith("cron-"):
        job = periodic.queues["timed"].pop()
    assert job is not None
    job.complete()
    text = sound(text_of(admin_client, path("recurringjob", f"cron-{NIGHTLY}")))
    assert re.findall(r"<li><time[^>]*>(in [^<]*)</time>", text)[:2] == ["in 23 h", "in 1 d 23 h"]
    assert "<code>30 2 * * *</code>" in text
    assert re.findall(r'aria-label="[^"]*: (complete|waiting|scheduled)"', text) == ["complete"]
    for page in ("edit", "cancel", "tag"):
        assert operation_url(f"cron-{NIGHTLY}", page) not in text
        reply = admin_client.post(operation_url(f"cron-{NIGHTLY}", page), {"tag": "x"}, follow=True)
        assert "The code of the task sets its schedule and options." in message_in(reply), page
    text_of(admin_client, path("recurringjob", "cron-gone.tasks.nightly"), 404)


@pytest.mark.parametrize(
    ("jid", "klass", "queue", "tags"),
    [
        ("digest", "shop.jobs.Digest", "mail", ["vip"]),
        (f"every-{EVERY}", EVERY, "timed", ["tick"]),
        (f"cron-{NIGHTLY}", NIGHTLY, "timed", []),
    ],
)
def test_run_now_enqueues_a_job_in_addition_to_the_schedule(
    admin_client: Browser, periodic: Client, valkey: Any, jid: str, klass: str, queue: str, tags: list[str]
) -> None:
    before = everything(valkey)
    text_of(admin_client, operation_url(jid, "run_now"))
    assert everything(valkey) == before
    reply = admin_client.post(operation_url(jid, "run_now"), follow=True)
    job = periodic.jobs.get(new_job(reply))
    assert isinstance(job, Job)
    assert (job.klass, job.queue_name, job.tags, job.state) == (klass, queue, tags, "waiting")
    assert job.data == ({"to": "all"} if jid == "digest" else {"args": [], "kwargs": {}})
    assert logged() == [f"Created from {jid}.", f"Ran now as {job.jid}."]
    if jid == "digest":
        assert (recurring(periodic, jid).count, recurring(periodic, jid).next()) == (0, NOON + 60)


def test_a_recurring_job_is_paused_and_resumed(admin_client: Browser, periodic: Client) -> None:
    """The tests of the client check that a paused one creates nothing."""
    reply = admin_client.post(operation_url("digest", "pause"), follow=True)
    assert "Paused: no more jobs are created." in message_in(reply)
    assert logged() == ["Paused."]
    assert recurring(periodic, "digest").paused()
    assert "paused" in rows(admin_client)["digest"]
    assert "Run now · Resume" in rows(admin_client)["digest"]
    assert "paused" in sound(text_of(admin_client, path("recurringjob", "digest")))
    admin_client.post(operation_url("digest", "resume"))
    assert not recurring(periodic, "digest").paused()
    assert logged() == ["Paused.", "Resumed."]


def test_a_pause_survives_edits_and_workers(admin_client: Browser, periodic: Client) -> None:
    jid = f"every-{EVERY}"
    admin_client.post(operation_url(jid, "pause"))
    declare(periodic, ["timed"], NOON)
    recurring(periodic, jid).update(priority=3)
    assert recurring(periodic, jid).paused()
    recurring(periodic, jid).update(interval=40)
    declare(periodic, ["timed"], NOON)
    job = recurring(periodic, jid)
    assert (job.interval, job.paused()) == (30, True)
    periodic.queues["other"].put("K", {})
    job.move("other")
    assert recurring(periodic, jid).paused()
    recurring(periodic, jid).resume()
    assert recurring(periodic, jid).next() == NOON + 30


def test_a_paused_cron_task_puts_no_jobs(admin_client: Browser, periodic: Client) -> None:
    jid = f"cron-{NIGHTLY}"
    assert len(periodic.queues["timed"].jobs.scheduled()) == 2
    reply = admin_client.post(operation_url(jid, "pause"), follow=True)
    assert "Scheduled jobs that were canceled: 2." in message_in(reply)
    assert periodic.queues["timed"].jobs.scheduled() == []
    declare(periodic, ["timed"], NOON)
    assert periodic.queues["timed"].jobs.scheduled() == []
    assert is_cron_paused(periodic, NIGHTLY)
    assert "paused" in rows(admin_client)[f"cron-{NIGHTLY}"[:40] + "…"]
    assert "paused" in sound(text_of(admin_client, path("recurringjob", jid)))
    assert "The cron task is paused" in text_of(admin_client, path("option"))
    admin_client.post(operation_url(jid, "resume"))
    assert not is_cron_paused(periodic, NIGHTLY)
    assert len(periodic.queues["timed"].jobs.scheduled()) == 2
    assert logged() == ["Paused.", "Resumed."]


def test_operations_on_missing_jobs_change_nothing(admin_client: Browser, jobs_site: Client, valkey: Any) -> None:
    fill(jobs_site)
    recurring(jobs_site, "recurring-1").cancel()
    before = everything(valkey)
    for page in OPERATIONS:
        reply = admin_client.post(operation_url("recurring-1", page), follow=True)
        assert "no longer exists" in reply.content.decode()
    assert everything(valkey) == before
