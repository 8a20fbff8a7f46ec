"""Check boxes of the lists of queues, workers, recurring jobs, options and failure groups, and their operations."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client as Browser

from resty_django.admin import bulk
from resty_django.qless import Client, RecurringJob
from resty_django.qless.models import token
from resty_django.qless.tasks.schedule import is_cron_paused
from tests.integration.qless.admin.test_recurring_pages import EVERY, NIGHTLY, NOON, recurring
from tests.integration.qless.admin.test_recurring_pages import periodic as periodic
from tests.integration.qless.admin.tools import (
    ROOT,
    everything,
    failed,
    hidden,
    message_in,
    path,
    person,
    report,
    text_of,
)
from tests.integration.qless.conftest import pop
from tests.integration.qless.tasks import examples as examples  # defines the tasks
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

OFFERED = {
    "queue": {"pause": "pause_queue", "unpause": "pause_queue", "forget": "configure_jobs"},
    "worker": {
        **dict.fromkeys(("quiet", "resume", "stop"), "control_worker"),
        "deregister": "configure_jobs",
    },
    "recurringjob": {"run_now": "retry_job", "pause": "edit_job", "resume": "edit_job", "cancel": "cancel_job"},
    "option": {"unset": "configure_jobs"},
    "failuregroup": {**dict.fromkeys(("retry", "pace", "move"), "retry_job"), "cancel": "cancel_job"},
}


def post(browser: Browser, model: str, verb: str, *names: str, query: str = "", **data: Any) -> Any:
    picks = [token(name) for name in names]
    return browser.post(f"{ROOT}{model}/bulk/{query}", {"verb": verb, "pick": picks, **data}, follow=True)


def paused(client: Client) -> set[str]:
    return {queue.name for queue in client.queues.counts() if queue.paused}


def requested(client: Client, name: str) -> list[str]:
    return [entry.action for worker in client.workers.reports(name) for entry in worker.requests]


@pytest.fixture
def site(jobs_site: Client) -> Client:
    """Return a site with objects in each of the lists."""
    failed(jobs_site, "failed")
    for name in ("mail", "pdf", "rows"):
        jobs_site.queues[name].put("K", {}, jid=f"{name}-1")
    jobs_site.queues["mail"].recur("K", {"password": "hunter2"}, 60, jid="digest", offset=60)
    report(jobs_site, "web1-1")
    report(jobs_site, "web1-2", state="quiet")
    jobs_site.config.set("heartbeat", "30")
    return jobs_site


@pytest.mark.parametrize("model", OFFERED)
def test_lists_offer_the_operations_that_the_user_may_do(admin_client: Browser, site: Client, model: str) -> None:
    assert re.findall(r'<option value="(\w+)">', text_of(admin_client, path(model))) == [*OFFERED[model]]
    for verb, permission in OFFERED[model].items():
        text = text_of(person("view_job", permission), path(model))
        assert verb in re.findall(r'<option value="(\w+)">', text)
        assert 'name="pick"' in text
    assert 'name="verb"' not in text_of(person("view_job"), path(model))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("queue", "mail"),
        ("worker", "web1-1"),
        ("recurringjob", "digest"),
        ("option", "heartbeat"),
        ("failuregroup", "mail-Timeout"),
    ],
)
def test_nothing_changes_without_a_selection(
    admin_client: Browser, site: Client, valkey: Any, model: str, name: str
) -> None:
    before = everything(valkey)
    for verb, names in ((next(iter(OFFERED[model])), ()), ("tag", (name,)), ("", (name,))):
        assert "Nothing selected." in message_in(post(admin_client, model, verb, *names, confirmed="yes"))
    assert everything(valkey) == before
    assert logged() == []


def test_queues_are_paused_with_a_reason_and_unpaused(admin_client: Browser, site: Client) -> None:
    site.queues["rows"].pause()
    text = post(admin_client, "queue", "pause", "mail", "pdf", "rows").content.decode()
    assert "2 of 3 queues selected." in text
    assert "1 of these, because of their state" in text
    assert hidden(text)["pick"] == ["mail", "pdf", "rows"]
    reply = admin_client.post(
        f"{ROOT}queue/bulk/", {**hidden(text), "reason": "until the deploy", "stop_jobs": ""}, follow=True
    )
    assert "Paused 2 queues. Unchanged: 1." in message_in(reply)
    assert paused(site) == {"mail", "pdf", "rows"}
    assert site.config.get("mail-pause-reason") == "until the deploy"
    assert logged() == ["Paused. until the deploy"] * 2
    assert "Resumed 2 queues." in message_in(post(admin_client, "queue", "unpause", "mail", "pdf", confirmed="yes"))
    assert paused(site) == {"rows"}
    assert site.config.get("mail-pause-reason") is None
    assert logged()[2:] == ["Resumed."] * 2


def test_all_selects_the_filtered_rows(admin_client: Browser, site: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Select all 3 rows" in text_of(admin_client, path("queue"))
    text = post(admin_client, "queue", "pause", query="?name=P", all="yes").content.decode()
    assert "1 of 1 queue selected." in text
    reply = post(admin_client, "queue", "pause", query="?name=P", all="yes", confirmed="yes")
    assert reply.redirect_chain[-1][0] == f"{path('queue')}?name=P"
    assert paused(site) == {"pdf"}
    monkeypatch.setattr(bulk, "MAX_ALL", 2)
    assert "more than 2 rows" in message_in(post(admin_client, "queue", "pause", all="yes", confirmed="yes"))
    assert paused(site) == {"pdf"}


def test_empty_queues_are_forgotten(admin_client: Browser, site: Client) -> None:
    job = pop(site.queues["pdf"])
    job.complete()
    assert "Removed from the list: 1 queue. Unchanged: 1." in message_in(
        post(admin_client, "queue", "forget", "mail", "pdf", confirmed="yes")
    )
    assert {queue.name for queue in site.queues.counts()} == {"mail", "rows"}
    assert "Cancel or move them first." in admin_client.post(path("queue", "mail", "forget")).content.decode()


def test_selected_workers_get_requests(admin_client: Browser, site: Client) -> None:
    text = post(admin_client, "worker", "quiet", "web1-1", "web1-2", "gone").content.decode()
    assert "1 of 3 workers selected. Gone: 1." in text
    reply = post(admin_client, "worker", "quiet", "web1-1", "web1-2", confirmed="yes")
    assert "Asked to take no new jobs: 1 worker. Unchanged: 1." in message_in(reply)
    assert (requested(site, "web1-1"), requested(site, "web1-2")) == (["quiet"], [])
    post(admin_client, "worker", "resume", "web1-1", confirmed="yes")
    assert requested(site, "web1-1")[-1] == "resume"
    reply = post(admin_client, "worker", "stop", "web1-1", "web1-2", confirmed="yes")
    assert "Asked to stop: 2 workers." in message_in(reply)
    assert (requested(site, "web1-1")[-1], requested(site, "web1-2")) == ("stop", ["stop"])
    assert logged()[-2:] == ["Asked to stop."] * 2


def test_recurring_jobs_and_cron_tasks_are_paused_and_resumed_together(admin_client: Browser, periodic: Client) -> None:
    names = ("digest", f"every-{EVERY}", f"cron-{NIGHTLY}")
    assert "3 of 3 recurring jobs selected." in post(admin_client, "recurringjob", "pause", *names).content.decode()
    reply = post(admin_client, "recurringjob", "pause", *names, confirmed="yes")
    assert "Paused 3 recurring jobs." in message_in(reply)
    assert recurring(periodic, "digest").paused()
    assert is_cron_paused(periodic, NIGHTLY)
    assert logged() == ["Paused."] * 3
    reply = post(admin_client, "recurringjob", "resume", *names, confirmed="yes")
    assert "Resumed 3 recurring jobs." in message_in(reply)
    assert recurring(periodic, "digest").next() == NOON + 60
    assert not is_cron_paused(periodic, NIGHTLY)
    text = text_of(admin_client, path("recurringjob"))
    assert text.count('name="pick"') == 3
    assert "Select all 3 rows" in text


def test_run_now_enqueues_a_job_for_each(admin_client: Browser, periodic: Client) -> None:
    reply = post(admin_client, "recurringjob", "run_now", "digest", f"cron-{NIGHTLY}", confirmed="yes")
    assert "Enqueued a job for 2 recurring jobs." in message_in(reply)
    assert periodic.queues["mail"].counts().waiting == 1
    assert periodic.queues["timed"].counts().waiting == 1


def test_recurring_jobs_are_canceled_but_not_cron_tasks(admin_client: Browser, periodic: Client) -> None:
    names = ("digest", f"cron-{NIGHTLY}")
    text = post(admin_client, "recurringjob", "cancel", *names).content.decode()
    assert "1 of 2 recurring jobs selected." in text
    assert "This cannot be undone." in text
    reply = post(admin_client, "recurringjob", "cancel", *names, confirmed="yes")
    assert "Canceled 1 recurring job. Unchanged: 1." in message_in(reply)
    assert periodic.jobs.get("digest") is None
    assert logged() == ["Canceled."]


def test_the_tab_of_a_queue_has_check_boxes_too(admin_client: Browser, site: Client) -> None:
    site.queues["pdf"].recur("K", {}, 60, jid="other")
    text = text_of(admin_client, f"{path('queue', 'mail')}?tab=recurring")
    action = re.search(r'<form method="post" action="([^"]*)" id="resty-picks">', text)
    assert action
    reply = admin_client.post(
        html.unescape(action[1]), {"verb": "cancel", "all": "yes", "confirmed": "yes"}, follow=True
    )
    assert "Canceled 1 recurring job." in message_in(reply)
    assert reply.redirect_chain[-1][0] == f"{path('queue', 'mail')}?tab=recurring"
    assert isinstance(site.jobs.get("other"), RecurringJob)


def test_options_are_reset(admin_client: Browser, site: Client) -> None:
    site.config.set("grace-period", "20")
    text = text_of(admin_client, path("option"))
    assert text.count('name="pick"') == 2, "only options that are set"
    reply = post(admin_client, "option", "unset", "heartbeat", "grace-period", "stats-history", confirmed="yes")
    assert "Reset to the default: 2 options. Unchanged: 1." in message_in(reply)
    assert site.config.get("heartbeat") == 60
    assert logged() == ["Unset; it was 30.", "Unset; it was 20."]
