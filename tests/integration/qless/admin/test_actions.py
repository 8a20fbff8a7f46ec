"""Operations in the job queue's admin: permissions, effects, log entries."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.qless.admin.jobs import bulk as bulk_module
from resty_django.qless.admin.options import CORE_OPTIONS, option_spec
from tests.docs_reader import code, page
from tests.integration.qless.admin.tools import (
    bulk,
    everything,
    failed,
    fill,
    hidden,
    message_in,
    path,
    person,
    plain,
    run_steps,
    text_of,
)
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.redis]


def test_operations_change_one_job(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)

    def post(page: str, jid: str = "waiting-1", **data: Any) -> str:
        return message_in(admin_client.post(path("job", jid, page), data, follow=True))

    def job(jid: str = "waiting-1") -> Any:
        return jobs_site.jobs.get(jid)

    assert "25" in post("priority", priority="25")
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
    assert "does not allow this: waiting." in post("retry", "failed-1")
    post("timeout", "running-1")
    assert job("running-1").state == "stalled"
    assert "is a dependency of" in post("cancel")
    assert job() is not None
    post("undepend", "depends-1")
    assert job("depends-1").state == "depends"
    admin_client.post(path("job", "depends-1", "undepend") + "?on=waiting-1")
    assert job("depends-1").state == "waiting"
    assert "Deleted waiting-1." in post("cancel")
    assert job() is None
    assert "does not exist" in post("cancel")
    jobs_site.queues["pdf"].put("K", {})
    post("move", "scheduled-1", queue="pdf")
    assert (job("scheduled-1").queue_name, job("scheduled-1").state) == ("pdf", "waiting")
    assert logged()[0] == "Change the priority 25."
    assert "History" in text_of(admin_client, path("job", "scheduled-1"))
    assert "Canceled" not in text_of(admin_client, path("job", "waiting-1"), 404)
    assert "Delete." in text_of(admin_client, path("job", "waiting-1", "history"))


def test_operations_that_cannot_be_reversed_say_so(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    for url in (
        path("job", "failed-1", "retry"),
        path("job", "running-1", "timeout"),
        path("job", "scheduled-1", "run_now"),
        path("job", "depends-1", "undepend") + "?on=waiting-1",
        path("job", "depends-1", "release"),
        path("job", "scheduled-1", "cancel"),
        path("worker", "here-1", "stop"),
        path("worker", "here-1", "deregister"),
    ):
        assert "This cannot be undone." in text_of(admin_client, url.replace("run_now", "run-now")), url


def test_pause_stores_a_reason(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    queue = jobs_site.queues["mail"]
    admin_client.post(path("queue", "mail", "pause"), {"reason": "until the <b>new</b> server is ready"})
    assert queue.paused()
    assert queue.config_get("paused-by") == "admin"
    assert jobs_site.jobs.get("running-1").state == "running"  # type: ignore[union-attr]
    for url in (path("queue"), path("queue", "mail")):
        assert "until the &lt;b&gt;new&lt;/b&gt; server is ready" in text_of(admin_client, url)
    admin_client.post(path("queue", "mail", "unpause"))
    assert not queue.paused()
    assert queue.config_get("pause-reason") is None
    admin_client.post(path("queue", "mail", "pause"), {"stop_jobs": "on"})
    assert jobs_site.jobs.get("running-1").state == "stalled"  # type: ignore[union-attr]
    assert logged() == [
        "Paused. until the <b>new</b> server is ready",
        "Resumed.",
        "Paused, its running jobs stopped.",
    ]


def test_recurring_jobs_are_edited(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    jobs_site.queues["pdf"].put("K", {})
    url = path("recurringjob", "recurring-1", "edit")
    form = {
        "queue": "pdf",
        "interval": "60",
        "priority": "3",
        "retries": "2",
        "backlog": "4",
        "arguments": '{"to": "some"}',
    }
    admin_client.post(url, form)
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
    for change in ("Queue: mail → pdf", "Interval: 3600 → 60", """Data: {"to": "all"} → {"to": "some"}"""):
        assert change in logged()[0]
    admin_client.post(url, {**form, "arguments": '{"to": "some", "password": "s3cret"}'})
    assert re.fullmatch(r'Changed Data: \{"to": "some"\} → \{"to": "some", "password": "[^"]+"\}\.', logged()[1])
    assert "s3cret" not in logged()[1]
    admin_client.post(url, form)
    admin_client.post(path("recurringjob", "recurring-1", "tag"), {"tag": "x"})
    admin_client.post(path("recurringjob", "recurring-1", "untag"), {"tag": "x"})
    assert "errorlist" in admin_client.post(url, {**form, "interval": "0"}).content.decode()
    assert jobs_site.jobs.get("recurring-1").interval == 60  # type: ignore[union-attr]
    admin_client.post(path("recurringjob", "recurring-1", "cancel"))
    assert jobs_site.jobs.get("recurring-1") is None


def fields_of(page: str) -> dict[str, str]:
    """Return the fields that a browser would send for the form of an action."""
    form = page[page.index('class="resty-action"') :]
    inputs = re.findall(r"<input [^>]*>", form[: form.index("</form>")])
    fields = {}
    for tag in inputs:
        values = dict(re.findall(r'(name|value)="([^"]*)"', tag))
        if "name" in values:
            fields[values["name"]] = html.unescape(values.get("value", ""))
    for name, text in re.findall(r'(?s)<textarea name="([^"]+)"[^>]*>\s?(.*?)</textarea>', form):
        fields[name] = html.unescape(text)
    for name, choices in re.findall(r'(?s)<select name="([^"]+)".*?>(.*?)</select>', form):
        fields[name] = html.unescape(str(re.findall(r'value="([^"]*)" selected', choices)[0]))
    return fields


def test_the_second_of_two_operators_sees_what_the_first_has_changed(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    url = path("recurringjob", "recurring-1", "edit")
    first, second = fields_of(text_of(admin_client, url)), fields_of(text_of(admin_client, url))
    assert admin_client.post(url, {**first, "interval": "60"}).status_code == 302
    reply = admin_client.post(url, {**second, "retries": "9"})
    assert reply.status_code == 200
    page_text = html.unescape(reply.content.decode())
    assert "This was changed since you opened it, so nothing was saved." in page_text
    assert "Interval: the stored value is “60”, yours is “3600”." in page_text
    assert "Retries: the stored value is “5”, yours is “9”." in page_text
    assert "Priority: stored" not in page_text
    job: Any = jobs_site.jobs.get("recurring-1")
    assert (job.interval, job.retries) == (60, 5)
    assert admin_client.post(url, {**fields_of(reply.content.decode()), "interval": "60"}).status_code == 302
    job = jobs_site.jobs.get("recurring-1")
    assert (job.interval, job.retries) == (60, 9)

    url = path("option", "heartbeat")
    first, second = fields_of(text_of(admin_client, url)), fields_of(text_of(admin_client, url))
    assert admin_client.post(url, {**first, "value": "30"}).status_code == 302
    reply = admin_client.post(url, {**second, "value": "90"})
    assert "Value: the stored value is “30”, yours is “90”." in html.unescape(reply.content.decode())
    assert jobs_site.config.get("heartbeat") == 30
    assert admin_client.post(url, fields_of(reply.content.decode())).status_code == 302
    assert jobs_site.config.get("heartbeat") == 90


def test_arguments_of_recurring_jobs_need_the_start_permission(jobs_site: Client) -> None:
    """Changing them means running code with other arguments, and may send hidden values elsewhere."""
    fill(jobs_site)
    url = path("recurringjob", "recurring-1", "edit")
    form = {"queue": "mail", "interval": "60", "priority": "0", "retries": "5", "backlog": "0"}
    editor = person("view_job", "edit_job")
    assert 'name="arguments"' not in text_of(editor, url)
    assert editor.post(url, {**form, "arguments": '{"to": "me"}'}).status_code == 302
    job = jobs_site.jobs.get("recurring-1")
    assert (job.interval, job.data) == (60, {"to": "all"})  # type: ignore[union-attr]
    starter = person("view_job", "edit_job", "start_job")
    assert 'name="arguments"' in text_of(starter, url)
    starter.post(url, {**form, "arguments": '{"to": "me"}'})
    assert jobs_site.jobs.get("recurring-1").data == {"to": "me"}  # type: ignore[union-attr]
    assert person("view_job", "start_job").get(url).status_code == 403


# --- many jobs -------------------------------------------------------------------------------------------------------


def test_confirmation_counts_jobs_and_changes_nothing(admin_client: Browser, jobs_site: Client, valkey: Any) -> None:
    fill(jobs_site)
    before = everything(valkey)
    picks = ["waiting-1", "complete-1", "failed-1", "never"]
    text = admin_client.post(bulk(), {"verb": "retry", "pick": picks}).content.decode()
    assert "1 of 4 jobs selected. Gone: 1." in text
    assert "2 of these, because of their state" in text
    assert everything(valkey) == before
    reply = admin_client.post(bulk(), hidden(text), follow=True)
    assert "Retried 1 job. Unchanged: 3." in reply.content.decode()
    assert jobs_site.jobs.get("failed-1").state == "waiting"  # type: ignore[union-attr]
    text = admin_client.post(bulk(), {"verb": "retry", "pick": ["complete-1"]}).content.decode()
    assert "There is nothing to do." in text


def test_bulk_without_selection_changes_nothing(admin_client: Browser, jobs_site: Client, valkey: Any) -> None:
    fill(jobs_site)
    before = everything(valkey)
    for data in ({}, {"verb": "cancel"}, {"pick": "waiting-1"}, {"verb": "nonsense", "pick": "waiting-1"}):
        assert admin_client.post(bulk(), data).status_code == 302
    for query in ({"q": "x"}, {"worker": "here-1"}, {}):
        assert admin_client.post(bulk(**query), {"verb": "cancel", "all": "yes", "confirmed": "yes"}).status_code == 302
    assert everything(valkey) == before


def test_a_group_is_retried_in_steps(admin_client: Browser, jobs_site: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_module, "JOBS_PER_STEP", 30)
    for n in range(70):
        failed(jobs_site, f"f{n:02}")
    url = bulk(group="mail-Timeout")
    confirmation = admin_client.post(url, {"verb": "retry", "all": "yes"}).content.decode()
    assert "70 jobs: the entire list." in confirmation
    assert run_steps(admin_client, url, hidden(confirmation)) == ["50 of 70 jobs"]
    assert jobs_site.jobs.failed() == {}
    assert sorted(jobs_site.queues["mail"].jobs.ready(0, 100)) == [f"f{n:02}" for n in range(70)]
    assert logged() == ["Retried 50 of 70 jobs.", "Retried 70 of 70 jobs."]
    page = text_of(admin_client, path("failuregroup", "mail-Timeout"))
    assert "Retried 70 jobs." in page
    assert "This group has no failed jobs any more." in page


@pytest.mark.parametrize(
    ("verb", "argument", "waiting"),
    [
        ("cancel", {}, 0),
        ("move", {"queue": "pdf"}, 0),
        ("timeout", {}, 60),
        ("tag", {"tag": "new"}, 60),
        ("priority", {"priority": "3"}, 60),
        ("track", {}, 60),
    ],
)
def test_bulk_operation_reaches_every_job_once(
    admin_client: Browser,
    jobs_site: Client,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    argument: dict[str, str],
    waiting: int,
) -> None:
    monkeypatch.setattr(bulk_module, "JOBS_PER_STEP", 25)
    jobs_site.queues["pdf"].put("K", {})
    jobs_site.queues["mail"].put_many([{"klass": "K", "data": {}, "jid": f"j{n}"} for n in range(60)])
    progress_texts = run_steps(
        admin_client, bulk(queue="mail", state="waiting"), {"verb": verb, "all": "yes", "confirmed": "yes", **argument}
    )
    assert progress_texts == ["25 of 60 jobs", "50 of 60 jobs"]
    assert jobs_site.queues["mail"].counts().waiting == waiting
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


def test_full_store_is_an_error_message(admin_client: Browser, jobs_site: Client, valkey: Any) -> None:
    for n in range(3):
        failed(jobs_site, f"f{n}")
    valkey.config_set("maxmemory", 1)
    try:
        reply = admin_client.post(
            bulk(), {"verb": "retry", "pick": ["f0", "f1"], "confirmed": "yes"}, follow=True
        ).content.decode()
        single = admin_client.post(path("job", "f0", "retry")).content.decode()
    finally:
        valkey.config_set("maxmemory", 0)
    assert "Retried 0 jobs. Unchanged: 2." in reply
    assert "maxmemory" in reply
    assert "Not done: " in single
    assert jobs_site.jobs.failed() == {"mail-Timeout": 3}
    assert logged() == []


def test_all_jobs_with_a_tag_are_canceled_but_complete_ones(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    jobs_site.jobs.get("complete-1").tag("vip")  # type: ignore[union-attr]
    jobs_site.jobs.get("depends-1").tag("vip")  # type: ignore[union-attr]
    run_steps(admin_client, bulk(tag="vip"), {"verb": "cancel", "all": "yes", "confirmed": "yes"})
    assert jobs_site.jobs.tagged("vip").jobs == ["complete-1"]
    run_steps(admin_client, bulk(tag="vip"), {"verb": "untag", "tag": "vip", "all": "yes", "confirmed": "yes"})
    assert jobs_site.jobs.tagged("vip").jobs == []


def test_all_failures_are_retried_each_to_its_queue(admin_client: Browser, jobs_site: Client) -> None:
    for n in range(30):
        failed(jobs_site, f"a{n}", group="g-one", queue="one")
        failed(jobs_site, f"b{n}", group="g-two", queue="two")
    assert "Retry everything" in text_of(admin_client, path("failuregroup"))
    run_steps(admin_client, bulk(state="failed"), {"verb": "retry", "all": "yes", "confirmed": "yes"})
    assert jobs_site.jobs.failed() == {}
    text = plain(text_of(admin_client, path("failuregroup")))
    assert "Retried 60 jobs." in text
    assert "No failed jobs." in text
    assert [(queue.name, queue.waiting) for queue in jobs_site.queues.counts()] == [("one", 30), ("two", 30)]


# --- configuration ---------------------------------------------------------------------------------------------------


def test_options_have_bounds(admin_client: Browser, jobs_site: Client) -> None:
    for option, value, problem in (
        ("heartbeat", "0", "greater than or equal to 1"),
        ("heartbeat", "8640001", "less than or equal to 8640000"),
        ("heartbeat", "soon", "a number"),
        ("jobs-history-count", "1.5", "a whole number"),
        ("jobs-history-count", "-1", "greater than or equal to 0"),
        ("server-time", "2", "less than or equal to 1"),
        ("fixes", "cycles", "Select a valid choice"),
        ("fixes", "", "required"),
        ("mail-max-concurrency", "many", "a whole number"),
    ):
        reply = admin_client.post(path("option", option), {"value": value})
        assert reply.status_code == 200
        assert problem in "".join(re.findall(r"(?s)errorlist.*?</ul>", reply.content.decode())), (option, value)
    assert logged() == []


def test_options_are_set_and_unset(admin_client: Browser, jobs_site: Client) -> None:
    for option, value in {"heartbeat": "30.5", "fixes": "all", "mail-max-concurrency": "3", "of-ours": "x y"}.items():
        assert admin_client.post(path("option", option), {"value": value}).status_code == 302
        assert str(jobs_site.config.get(option)) == value
    text = text_of(admin_client, path("option"))
    assert "of-ours" in text
    assert "Maximum number of running jobs of this queue" in text
    assert "asked-for" in text_of(admin_client, f"{path('option')}?option=asked-for")
    admin_client.post(path("option", "heartbeat", "unset"))
    assert jobs_site.config.get("heartbeat") == 60
    assert logged()[0] == "Changed Value: default → 30.5."
    assert logged()[-1] == "Unset; it was 30.5."
    looker = person("view_job")
    assert "Set</" not in text_of(looker, path("option", "fixes"))
    assert 'name="value"' not in text_of(looker, path("option", "fixes"))


def test_defaults_of_options_are_valid_and_profiles_of_fixes_are_documented() -> None:
    for option, spec in CORE_OPTIONS.items():
        if spec.default.isdigit():
            assert str(option_spec(option).field(spec.default).clean(spec.default)) == spec.default
    rows = page("docs/reference/jobs/core.md").table("profile", "use it if", "fixes")
    assert tuple(code(row[0].split(",")[0]) for row in rows) == CORE_OPTIONS["fixes"].choices


def test_a_choice_starts_with_the_stored_value(admin_client: Browser, jobs_site: Client) -> None:
    url = path("option", "fixes")
    for stored, options, selected in (
        (None, ["", "none", "shared", "all"], [""]),
        ("all", ["none", "shared", "all"], ["all"]),
    ):
        if stored:
            jobs_site.config.set("fixes", stored)
        text = text_of(admin_client, url)
        assert re.findall(r'<option value="(\w*)"', text) == options
        assert re.findall(r'<option value="(\w*)" selected>', text) == selected
