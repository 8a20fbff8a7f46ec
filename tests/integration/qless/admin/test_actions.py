"""What operators do in the admin of the job queue: who may, what it changes, what is logged, and what takes it back."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.qless.admin import bulk as stepping
from resty_django.qless.admin.options import FIXES, KNOWN, OF_QUEUES, known
from resty_django.qless.admin.sources import scored
from resty_django.qless.models import token
from tests.docs_reader import code, page
from tests.integration.qless.admin.tools import (
    HOSTILE,
    VERBS,
    boss,
    bulk,
    failed,
    fill,
    hostile,
    jobs_site,
    logged,
    path,
    person,
    text_of,
)

__all__ = ["boss", "jobs_site"]

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

ACTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("retry_job", path("job", "failed-1", "retry"), {}),
    ("retry_job", path("job", "waiting-1", "move"), {"queue": "mail"}),
    ("retry_job", path("job", "running-1", "timeout"), {}),
    ("edit_job", path("job", "waiting-1", "priority"), {"priority": "9"}),
    ("edit_job", path("job", "waiting-1", "tag"), {"tag": "new"}),
    ("edit_job", path("job", "waiting-1", "untag"), {"tag": "vip"}),
    ("edit_job", path("job", "waiting-1", "track"), {}),
    ("edit_job", path("job", "depends-1", "undepend") + "?on=waiting-1", {}),
    (
        "edit_job",
        path("job", "waiting-1", "clone"),
        {"queue": "mail", "arguments": "{}", "priority": "0", "retries": "5", "delay": "0"},
    ),
    ("cancel_job", path("job", "scheduled-1", "cancel"), {}),
    ("pause_queue", path("queue", "mail", "pause"), {"reason": "for a while"}),
    ("configure_jobs", path("worker", "here-1", "deregister"), {}),
    ("configure_jobs", path("option", "heartbeat"), {"value": "30"}),
    ("configure_jobs", path("option", "max-worker-age", "unset"), {}),
    (
        "edit_job",
        path("recurringjob", "recurring-1", "edit"),
        {"queue": "mail", "interval": "60", "priority": "0", "retries": "5", "backlog": "0", "arguments": "{}"},
    ),
    ("edit_job", path("recurringjob", "recurring-1", "tag"), {"tag": "new"}),
    ("cancel_job", path("recurringjob", "recurring-1", "cancel"), {}),
    ("retry_job", bulk(group="mail-Timeout"), {"verb": "retry", "all": "yes", "confirmed": "yes"}),
    ("cancel_job", bulk(), {"verb": "cancel", "pick": ["waiting-1", "depends-1"], "confirmed": "yes"}),
    ("edit_job", bulk(), {"verb": "priority", "pick": ["waiting-1"], "priority": "1", "confirmed": "yes"}),
]
BY_URL = pytest.mark.parametrize(
    ("permission", "url", "data"),
    ACTIONS,
    ids=lambda each: each[len("/admin/resty_qless/") :] if "/" in str(each) else "",
)


def everything(valkey: Any) -> dict[bytes, Any]:
    """All of the store."""
    return {key: valkey.dump(key) for key in valkey.keys("*")}


@BY_URL
def test_only_who_may_does_it_and_only_by_post(
    jobs_site: Client, valkey: Any, permission: str, url: str, data: dict[str, Any]
) -> None:
    fill(jobs_site)
    jobs_site.config.set("max-worker-age", 90_000)
    before = everything(valkey)
    others = person(*(verb for verb in VERBS if verb != permission))
    assert others.post(url, data).status_code == 403
    without_looking = person(permission)
    assert without_looking.post(url, data).status_code == 403
    able = person("view_job", permission)
    asked = able.get(url)
    assert asked.status_code == (302 if "/bulk/" in url else 200)
    guarded = Browser(enforce_csrf_checks=True)
    guarded.force_login(User.objects.get(username="user2"))
    assert guarded.post(url, data).status_code == 403
    assert everything(valkey) == before
    assert LogEntry.objects.count() == 0
    reply = able.post(url, data)
    assert reply.status_code == 302, re.findall(r"(?s)errorlist.*?</ul>", reply.content.decode())
    assert everything(valkey) != before
    assert LogEntry.objects.count() >= 1
    assert LogEntry.objects.filter(user__username="user2").count() == LogEntry.objects.count()


def test_single_actions_change_what_they_say(boss: Browser, jobs_site: Client) -> None:
    fill(jobs_site)

    def post(page: str, jid: str = "waiting-1", **data: Any) -> str:
        reply = boss.post(path("job", jid, page), data, follow=True)
        return html.unescape("".join(re.findall(r"(?s)messagelist.*?</ul>", reply.content.decode())))

    def job(jid: str = "waiting-1") -> Any:
        return jobs_site.jobs.get(jid)

    assert "Undo" in post("priority", priority="25")
    assert job().priority == 25
    post("tag", tag=" new ")
    assert job().tags == ["vip", "eu", "new"]
    post("untag", tag="eu")
    assert job().tags == ["vip", "new"]
    post("track")
    assert job().tracked
    post("untrack")
    assert not job().tracked
    post("retry", "failed-1")
    assert job("failed-1").state == "waiting"
    assert "the job is waiting now" in post("retry", "failed-1")
    post("timeout", "running-1")
    assert job("running-1").state == "stalled"
    assert "is a dependency of" in post("cancel")
    assert job() is not None
    post("undepend", "depends-1")
    assert job("depends-1").state == "depends"
    boss.post(path("job", "depends-1", "undepend") + "?on=waiting-1")
    assert job("depends-1").state == "waiting"
    assert "Canceled waiting-1." in post("cancel")
    assert job() is None
    assert "does not exist" in post("cancel")
    jobs_site.queues["pdf"].put("K", {})
    post("move", "scheduled-1", queue="pdf")
    assert (job("scheduled-1").queue_name, job("scheduled-1").state) == ("pdf", "waiting")
    assert "Undo" not in post("move", "scheduled-1", queue="none")
    assert logged()[0] == "Change the priority 25."
    assert "History" in text_of(boss, path("job", "scheduled-1"))
    assert "Canceled" not in text_of(boss, path("job", "waiting-1"), 404)
    assert "Cancel for good." in text_of(boss, path("job", "waiting-1", "history"))


@pytest.mark.parametrize(
    ("page", "data", "check"),
    [
        ("priority", {"priority": "25"}, lambda job: job.priority == 5),
        ("tag", {"tag": "new"}, lambda job: job.tags == ["vip", "eu"]),
        ("untag", {"tag": "vip"}, lambda job: sorted(job.tags) == ["eu", "vip"]),
        ("track", {}, lambda job: not job.tracked),
        ("move", {"queue": "pdf"}, lambda job: job.queue_name == "mail"),
    ],
)
def test_what_was_done_is_undone(boss: Browser, jobs_site: Client, page: str, data: dict[str, str], check: Any) -> None:
    fill(jobs_site)
    jobs_site.queues["pdf"].put("K", {})
    reply = boss.post(path("job", "waiting-1", page), data, follow=True)
    link = re.search(r'href="([^"]*/undo/[^"]*)"', reply.content.decode())
    assert link
    assert not check(jobs_site.jobs.get("waiting-1"))
    url = html.unescape(link[1])
    assert boss.get(url).status_code == 200
    assert not check(jobs_site.jobs.get("waiting-1"))
    other = person(*VERBS)
    assert other.post(url).status_code == 302
    assert not check(jobs_site.jobs.get("waiting-1"))
    assert boss.post(url).status_code == 302
    assert check(jobs_site.jobs.get("waiting-1"))
    assert logged()[-1] == "Undone."
    assert boss.post(url[:-3] + "abc").status_code == 302


def test_clone_keeps_what_is_redacted(boss: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    url = path("job", "waiting-1", "clone")
    text = text_of(boss, url)
    assert "hunter2" not in text
    data = {"order": 3, "password": "[redacted]"}
    given = {"queue": "mail", "priority": "7", "retries": "2", "delay": "0", "tags": "a, b"}
    reply = boss.post(url, {**given, "arguments": "no json"})
    assert "This is not JSON" in reply.content.decode()
    reply = boss.post(url, {**given, "arguments": json.dumps(data)}, follow=True)
    (jid,) = re.findall(r'Put the job <a class="resty-id" href="[^"]*/job/(\w+)/change/"', reply.content.decode())
    job = jobs_site.jobs.get(jid)
    assert job is not None
    assert job.data == {"order": 3, "password": "hunter2"}
    assert (job.klass, job.priority, job.tags) == ("shop.jobs.Send", 7, ["a", "b"])


def test_pause_has_a_reason(boss: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    queue = jobs_site.queues["mail"]
    boss.post(path("queue", "mail", "pause"), {"reason": "until the <b>new</b> server is there"})
    assert queue.paused()
    assert jobs_site.jobs.get("running-1").state == "running"  # type: ignore[union-attr]
    for url in (path("queue"), path("queue", "mail")):
        assert "until the &lt;b&gt;new&lt;/b&gt; server is there" in text_of(boss, url)
    boss.post(path("queue", "mail", "unpause"))
    assert not queue.paused()
    assert queue.config_get("pause-reason") is None
    boss.post(path("queue", "mail", "pause"), {"stop_jobs": "on"})
    assert jobs_site.jobs.get("running-1").state == "stalled"  # type: ignore[union-attr]
    assert logged() == [
        "Paused. until the <b>new</b> server is there",
        "Unpaused.",
        "Paused, its running jobs stopped.",
    ]


def test_only_an_empty_queue_is_forgotten(boss: Browser, jobs_site: Client) -> None:
    jid = jobs_site.queues["mail"].put("K", {})
    reply = boss.post(path("queue", "mail", "forget"))
    assert "Cancel or move them first." in reply.content.decode()
    jobs_site.bulk_cancel([jid])
    boss.post(path("queue", "mail", "forget"))
    assert jobs_site.queues.counts() == []


def test_recurring_jobs_are_edited(boss: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    jobs_site.queues["pdf"].put("K", {})
    url = path("recurringjob", "recurring-1", "edit")
    given = {
        "queue": "pdf",
        "interval": "60",
        "priority": "3",
        "retries": "2",
        "backlog": "4",
        "arguments": '{"to": "some"}',
    }
    boss.post(url, given)
    job = jobs_site.jobs.get("recurring-1")
    assert job is not None
    assert (job.queue_name, job.interval, job.priority, job.retries, job.backlog, job.data) == (  # type: ignore[union-attr]
        "pdf",
        60,
        3,
        2,
        4,
        {"to": "some"},
    )
    assert "interval from 3600 to 60" in logged()[0]
    boss.post(path("recurringjob", "recurring-1", "tag"), {"tag": "x"})
    boss.post(path("recurringjob", "recurring-1", "untag"), {"tag": "x"})
    assert "should" not in boss.post(url, {**given, "interval": "0"}).content.decode()
    assert jobs_site.jobs.get("recurring-1").interval == 60  # type: ignore[union-attr]
    boss.post(path("recurringjob", "recurring-1", "cancel"))
    assert jobs_site.jobs.get("recurring-1") is None


# --- many jobs -------------------------------------------------------------------------------------------------------


def hidden(text: str) -> list[tuple[str, str]]:
    form = re.search(r'(?s)<form method="post" novalidate.*?</form>', text)
    assert form
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form[0])
    return [(key, html.unescape(value)) for key, value in found if key != "csrfmiddlewaretoken"]


def as_data(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def test_a_dry_run_counts_before_anything_is_done(boss: Browser, jobs_site: Client, valkey: Any) -> None:
    fill(jobs_site)
    before = everything(valkey)
    picks = ["waiting-1", "complete-1", "failed-1", "never"]
    text = boss.post(bulk(), {"verb": "retry", "pick": picks}).content.decode()
    assert "1 of 4 jobs chosen. Gone: 1." in text
    assert "2 of these, in another state" in text
    assert everything(valkey) == before
    reply = boss.post(bulk(), as_data(hidden(text)), follow=True)
    assert "Retried 1 job. Left as they are: 3." in reply.content.decode()
    assert jobs_site.jobs.get("failed-1").state == "waiting"  # type: ignore[union-attr]
    text = boss.post(bulk(), {"verb": "retry", "pick": ["complete-1"]}).content.decode()
    assert "Nothing would be done." in text


def test_nothing_chosen_does_nothing(boss: Browser, jobs_site: Client, valkey: Any) -> None:
    fill(jobs_site)
    before = everything(valkey)
    for data in ({}, {"verb": "cancel"}, {"pick": "waiting-1"}, {"verb": "nonsense", "pick": "waiting-1"}):
        assert boss.post(bulk(), data).status_code == 302
    for query in ({"q": "x"}, {"worker": "here-1"}, {}):
        assert boss.post(bulk(**query), {"verb": "cancel", "all": "yes", "confirmed": "yes"}).status_code == 302
    assert everything(valkey) == before


def run(boss: Browser, url: str, data: dict[str, Any]) -> list[str]:
    """All steps; what each page says."""
    said = []
    for _ in range(50):
        reply = boss.post(url, data)
        if reply.status_code == 302:
            return said
        text = reply.content.decode()
        said += re.findall(r'<label for="resty-progress">([^<]*)<', text)
        data = as_data(hidden(text))
    pytest.fail(f"it does not end: {said}")


def test_a_group_is_retried_in_steps_at_a_rate(
    boss: Browser, jobs_site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepping, "STEP", 30)
    for n in range(70):
        failed(jobs_site, f"f{n:02}")
    url = bulk(group="mail-Timeout")
    asked = boss.post(url, {"verb": "retry", "all": "yes"}).content.decode()
    assert "70 jobs: all of this list." in asked
    assert 'name="rate"' in asked
    now = jobs_site.clock()
    said = run(boss, url, {**as_data(hidden(asked)), "rate": "10"})
    assert said == ["50 of 70 jobs"]
    assert jobs_site.jobs.failed() == {}
    due = jobs_site.queues["mail"].jobs.scheduled(0, 100)
    waiting = jobs_site.queues["mail"].jobs.waiting()
    assert [*waiting, *due] == [f"f{n:02}" for n in range(70)]
    times = scored(jobs_site, "ZRANGE", "q:mail-scheduled", 0, -1)
    assert 6.9 <= times["f69"] - now < 60
    assert abs(times["f69"] - times["f68"] - 0.1) < 30
    assert logged() == ["Retried 50 of 70 jobs.", "Retried 70 of 70 jobs."]


@pytest.mark.parametrize(
    ("verb", "more", "left"),
    [
        ("cancel", {}, 0),
        ("move", {"queue": "pdf"}, 0),
        ("timeout", {}, 60),
        ("tag", {"tag": "new"}, 60),
        ("priority", {"priority": "3"}, 60),
        ("track", {}, 60),
    ],
)
def test_all_jobs_of_a_queue_are_done_once(
    boss: Browser,
    jobs_site: Client,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    more: dict[str, str],
    left: int,
) -> None:
    monkeypatch.setattr(stepping, "STEP", 25)
    jobs_site.queues["pdf"].put("K", {})
    jobs_site.queues["mail"].put_many([{"klass": "K", "data": {}, "jid": f"j{n}"} for n in range(60)])
    said = run(boss, bulk(queue="mail", state="waiting"), {"verb": verb, "all": "yes", "confirmed": "yes", **more})
    assert said == ["25 of 60 jobs", "50 of 60 jobs"]
    assert jobs_site.queues["mail"].counts().waiting == left
    jobs = jobs_site.jobs.multiget(*(f"j{n}" for n in range(60)))
    fine = {
        "cancel": lambda: not jobs,
        "move": lambda: {job.queue_name for job in jobs} == {"pdf"},
        "timeout": lambda: {job.state for job in jobs} == {"waiting"},
        "tag": lambda: all(job.tags == ["new"] for job in jobs),
        "priority": lambda: {job.priority for job in jobs} == {3},
        "track": lambda: all(job.tracked for job in jobs),
    }
    assert fine[verb]()


def test_a_store_without_room_is_told(boss: Browser, jobs_site: Client, valkey: Any) -> None:
    for n in range(3):
        failed(jobs_site, f"f{n}")
    valkey.config_set("maxmemory", 1)
    try:
        reply = boss.post(
            bulk(), {"verb": "retry", "pick": ["f0", "f1"], "confirmed": "yes"}, follow=True
        ).content.decode()
        single = boss.post(path("job", "f0", "retry")).content.decode()
    finally:
        valkey.config_set("maxmemory", 0)
    assert "Retried 0 jobs. Left as they are: 2." in reply
    assert "maxmemory" in reply
    assert "Not done: " in single
    assert jobs_site.jobs.failed() == {"mail-Timeout": 3}
    assert logged() == []


def test_all_jobs_with_a_tag_are_canceled_but_complete_ones(boss: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    jobs_site.jobs.get("complete-1").tag("vip")  # type: ignore[union-attr]
    jobs_site.jobs.get("depends-1").tag("vip")  # type: ignore[union-attr]
    run(boss, bulk(tag="vip"), {"verb": "cancel", "all": "yes", "confirmed": "yes"})
    assert jobs_site.jobs.tagged("vip").jobs == ["complete-1"]
    run(boss, bulk(tag="vip"), {"verb": "untag", "tag": "vip", "all": "yes", "confirmed": "yes"})
    assert jobs_site.jobs.tagged("vip").jobs == []


def test_all_failures_are_retried_each_to_its_queue(boss: Browser, jobs_site: Client) -> None:
    for n in range(30):
        failed(jobs_site, f"a{n}", group="g-one", queue="one")
        failed(jobs_site, f"b{n}", group="g-two", queue="two")
    assert "Retry everything" in text_of(boss, path("failuregroup"))
    run(boss, bulk(state="failed"), {"verb": "retry", "all": "yes", "confirmed": "yes"})
    assert jobs_site.jobs.failed() == {}
    assert [(each.name, each.waiting) for each in jobs_site.queues.counts()] == [("one", 30), ("two", 30)]


def test_hostile_names_can_be_acted_on(boss: Browser, jobs_site: Client) -> None:
    hostile(jobs_site)
    boss.post(path("job", HOSTILE, "untag"), {"tag": token(HOSTILE)})
    assert jobs_site.jobs.tagged(HOSTILE).jobs == [f"{HOSTILE}2"]
    boss.post(path("queue", HOSTILE, "unpause"))
    assert not jobs_site.queues[HOSTILE].paused()
    run(boss, bulk(group=HOSTILE), {"verb": "retry", "all": "yes", "confirmed": "yes"})
    assert jobs_site.jobs.failed() == {}
    boss.post(path("option", HOSTILE, "unset"))
    assert HOSTILE not in jobs_site.config.all()
    boss.post(path("recurringjob", f"{HOSTILE}r", "cancel"))
    assert jobs_site.jobs.get(f"{HOSTILE}r") is None
    boss.post(path("worker", HOSTILE, "deregister"))
    assert [each.name for each in jobs_site.workers.counts()] == []
    assert "\x00" not in "".join(f"{each.object_id}{each.object_repr}" for each in LogEntry.objects.all())


# --- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("heartbeat", "0", "from 1 to"),
        ("heartbeat", "soon", "a number"),
        ("jobs-history-count", "1.5", "a whole number"),
        ("jobs-history-count", "-1", "a whole number"),
        ("server-time", "2", "from 0 to 1"),
        ("fixes", "cycles nonsense", "There is no nonsense"),
        ("mail-max-concurrency", "many", "a whole number"),
    ],
)
def test_options_have_bounds(boss: Browser, jobs_site: Client, option: str, value: str, told: str) -> None:
    reply = boss.post(path("option", option), {"value": value})
    assert reply.status_code == 200
    assert told in "".join(re.findall(r"(?s)errorlist.*?</ul>", reply.content.decode()))
    assert logged() == []


def test_options_are_set_and_unset(boss: Browser, jobs_site: Client) -> None:
    for option, value in {"heartbeat": "30.5", "fixes": "all", "mail-max-concurrency": "3", "of-ours": "x y"}.items():
        assert boss.post(path("option", option), {"value": value}).status_code == 302
        assert str(jobs_site.config.get(option)) == value
    text = text_of(boss, path("option"))
    assert "of-ours" in text
    assert "The most jobs of this queue that run at once" in text
    assert "asked-for" in text_of(boss, f"{path('option')}?option=asked-for")
    boss.post(path("option", "heartbeat", "unset"))
    assert jobs_site.config.get("heartbeat") == 60
    assert logged()[0] == "Changed from its default to 30.5."
    assert logged()[-1] == "Unset; it was 30.5."
    looker = person("view_job")
    assert "Set</" not in text_of(looker, path("option", "fixes"))
    assert 'name="value"' not in text_of(looker, path("option", "fixes"))


def test_known_options_are_those_of_the_core() -> None:
    told = page("docs/qless/core.md")
    names = {name for row in told.table("option", "default", "meaning") for name in re.findall(r"`([^`]+)`", row[0])}
    ours = {*KNOWN, *(f"<queue>{suffix}" for suffix in OF_QUEUES)} - {"<queue>-pause-reason"}
    assert ours == names
    for option, each in KNOWN.items():
        if each.default.isdigit():
            assert known(option).problem(each.default) is None
    fixes = [code(row[0]) for row in told.table("name", "where nothing is set", "the original", "mended")]
    assert list(FIXES) == fixes
