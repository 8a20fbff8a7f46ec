"""Jobs that operators enqueue: a new job of any task, another run with edited arguments, a scheduled job now."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from resty_django.qless import Client, Job
from resty_django.qless.redaction import HIDDEN
from resty_django.qless.tasks import calls
from tests.integration.html_pages import sound
from tests.integration.qless.admin.tools import ROOT, message_in, path, person, text_of
from tests.integration.qless.conftest import change_settings, pop
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

MODULE = "tests.integration.qless.tasks.examples"
OTHERS = "tests.integration.qless.tasks.operators"
ADD, LOG_IN, NOTE, REPORTED = f"{MODULE}.add", f"{MODULE}.log_in", f"{MODULE}.note", f"{OTHERS}.reported"
START = f"{ROOT}job/start/"
FORM = {"queue": "mail", "priority": "0", "retries": "5", "delay": "0", "tags": ""}


@pytest.fixture
def with_tasks(settings: Any, jobs_site: Client) -> Iterator[Client]:
    change_settings(settings, MODULES=[MODULE, OTHERS])
    jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid="first")
    yield jobs_site
    jobs_site.close()


def new_job(reply: Any) -> str:
    """Return the jid in the message about a new job."""
    (jid,) = re.findall(r'Enqueued the job <a class="resty-id" href="[^"]*/job/(\w+)/change/"', message_in(reply))
    return str(jid)


def job_of(client: Client, jid: str) -> Job:
    job = client.jobs.get(jid)
    assert isinstance(job, Job)
    return job


@pytest.mark.parametrize(
    ("klass", "data", "problem"),
    [
        (ADD, {"args": [1], "kwargs": {"b": 2}}, ""),
        (ADD, {"args": [], "kwargs": {}}, "missing a required argument: 'a'"),
        (ADD, {"args": [1, 2, 3], "kwargs": {}}, "too many positional arguments"),
        (ADD, {"args": [1], "kwargs": {"c": 2}}, "unexpected keyword argument 'c'"),
        (ADD, {"args": [], "kwargs": {}, "from": "a-job"}, ""),
        (ADD, {"args": [1, 2], "kwargs": {}, "from": "a-job"}, "too many positional arguments"),
        (ADD, {"a": 1}, "must have the form"),
        (ADD, {"args": {}, "kwargs": {}}, "must have the form"),
        (ADD, [1, 2], "must have the form"),
        (ADD, {"args": [1], "kwargs": {}, "kwarg": {}}, 'Unknown field "kwarg"'),
        (ADD, {"args": [1], "kwargs": {}, "expires": 5}, '"expires" is in the past'),
        (ADD, {"args": [1], "kwargs": {}, "expires": 32503680000}, ""),
        (NOTE, {"args": ["a", "b"], "kwargs": {"any": 1}}, ""),
        ("shop.jobs.Send", {"order": 7}, ""),
        ("shop.jobs.Send", [7], "must be a JSON object"),
        ("shop.jobs.Send", "7", "must be a JSON object"),
    ],
)
def test_arguments_are_checked(admin_client: Browser, with_tasks: Client, klass: str, data: Any, problem: str) -> None:
    """Against the signature of the task; other jobs need an object."""
    original = {"args": [1], "kwargs": {}} if klass != "shop.jobs.Send" else {"order": 1}
    jid = with_tasks.queues["mail"].put(klass, original)
    reply = admin_client.post(path("job", jid, "clone"), {**FORM, "arguments": json.dumps(data)}, follow=True)
    if problem:
        assert "Not done: " in message_in(reply)
        assert problem in message_in(reply)
        text = html.unescape(reply.content.decode())
        assert json.dumps(data) in text, "the form keeps what was typed"
        assert with_tasks.queues["mail"].length() == 2
    else:
        assert job_of(with_tasks, new_job(reply)).data == data


def test_a_job_page_runs_it_again_with_edited_arguments(admin_client: Browser, with_tasks: Client) -> None:
    data = {"args": ["ada", "geheim"], "kwargs": {}}
    jid = with_tasks.queues["mail"].put(LOG_IN, data, priority=7, tags=["vip"], retries=2, delay=600)
    page = sound(text_of(admin_client, path("job", jid)))
    (link,) = re.findall(r'<a href="([^"]*)">New job like this one</a>', page)
    text = sound(text_of(admin_client, link))
    form = text[text.index('id="content-main"') :]
    assert "Enqueue the job" in form
    assert "The task takes (user: str, password: str) -&gt; None" in form.replace("&#x27;", "")
    assert f"Values shown as {HIDDEN} are kept: the job gets the stored values, not this mark." in form
    assert "geheim" not in page + text
    fields = dict(re.findall(r'<input type="(?:number|text)" name="([a-z]+)" value="([^"]*)"', form))
    fields["queue"] = re.findall(r'<option value="([^"]*)" selected', form)[0]
    (arguments,) = re.findall(r"(?s)<textarea[^>]*>(.*?)</textarea>", form)
    assert json.loads(html.unescape(arguments)) == {"args": ["ada", HIDDEN], "kwargs": {}}
    edited = html.unescape(arguments).replace("ada", "eve")
    reply = admin_client.post(path("job", jid, "clone"), {**fields, "arguments": edited}, follow=True)
    job = job_of(with_tasks, new_job(reply))
    assert (job.klass, job.data, job.queue_name) == (LOG_IN, {"args": ["eve", "geheim"], "kwargs": {}}, "mail")
    assert (job.priority, job.tags, job.original_retries, job.state) == (7, ["vip"], 2, "waiting")
    assert job_of(with_tasks, jid).data == data
    assert logged() == [f"Created from {jid}.", f"Run again as {job.jid}."]


def test_a_complete_job_runs_again_in_its_last_queue(admin_client: Browser, with_tasks: Client) -> None:
    pop(with_tasks.queues["mail"]).complete()
    with_tasks.queues["aaa"].put("K", {})
    assert re.search(r'value="mail" selected', text_of(admin_client, path("job", "first", "clone")))


def test_a_job_like_another_needs_the_permission_and_readable_arguments(with_tasks: Client, valkey: Any) -> None:
    assert "New job like this one" not in text_of(person("view_job", "retry_job"), path("job", "first"))
    allowed = person("view_job", "start_job")
    assert "New job like this one" in text_of(allowed, path("job", "first"))
    valkey.hset("ql:j:first", "data", "no json")
    assert "New job like this one" not in text_of(allowed, path("job", "first"))


def test_jobs_of_a_task_have_its_callbacks(admin_client: Browser, with_tasks: Client) -> None:
    reply = admin_client.post(
        f"{START}?task={REPORTED}", {**FORM, "arguments": '{"args": [], "kwargs": {}}'}, follow=True
    )
    outcome = job_of(with_tasks, new_job(reply)).outcome()
    assert outcome is not None
    assert [callback.klass for callback in outcome.success] == [NOTE]


def test_an_operator_enqueues_a_job_of_any_task(admin_client: Browser, with_tasks: Client) -> None:
    text = sound(text_of(admin_client, START))
    listed = re.findall(r'<option value="([^"]+)">', text)
    assert {ADD, LOG_IN, f"{OTHERS}.Mailer"} <= set(listed)
    assert f"{OTHERS}.Template" not in listed
    assert listed == sorted(listed)
    assert not any("subprocess" in name or name.startswith("resty_django") for name in listed)
    form = sound(text_of(admin_client, f"{START}?task={LOG_IN}"))
    assert html.unescape(form).count('"user": null') == 1
    assert re.search(r'<option value="q" selected', form)
    assert HIDDEN not in form
    arguments = json.dumps({"args": [], "kwargs": {"user": "ada", "password": "geheim"}})
    data = {"queue": "q", "arguments": arguments, "priority": "3", "retries": "1", "delay": "60", "tags": "a, b"}
    reply = admin_client.post(f"{START}?task={LOG_IN}", data, follow=True)
    job = job_of(with_tasks, new_job(reply))
    assert reply.redirect_chain[-1][0] == path("job", job.jid)
    assert "geheim" not in reply.content.decode()
    assert (job.klass, job.queue_name, job.priority, job.original_retries) == (LOG_IN, "q", 3, 1)
    assert (job.tags, job.state, job.data) == (["a", "b"], "scheduled", json.loads(arguments))
    assert logged() == [f"Created: {LOG_IN} in q."]


@pytest.mark.parametrize("name", ["os.system", "tests.integration.qless.tasks.examples.TRAIL", HIDDEN, "<b>"])
def test_only_listed_tasks_are_started(admin_client: Browser, with_tasks: Client, name: str) -> None:
    reply = admin_client.post(START, {**FORM, "arguments": "{}"}, QUERY_STRING=f"task={name}")
    assert reply.status_code == 200
    assert "is not a task that workers may run" in sound(reply.content.decode())
    assert with_tasks.queues["mail"].length() == 1
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"arguments": "no json"}, "This is not JSON"),
        ({"arguments": '{"args": [], "kwargs": {}}'}, "missing a required argument"),
        ({"arguments": json.dumps({"args": ["ada", HIDDEN], "kwargs": {}})}, "a new job has none"),
        ({"queue": "nowhere"}, "Select a valid choice"),
        ({"retries": "-1"}, "greater than or equal to 0"),
    ],
)
def test_invalid_new_jobs_are_refused(
    admin_client: Browser, with_tasks: Client, changes: dict[str, str], problem: str
) -> None:
    data = {**FORM, "arguments": json.dumps({"args": ["a", "b"], "kwargs": {}}), **changes}
    reply = admin_client.post(f"{START}?task={LOG_IN}", data)
    assert reply.status_code == 200
    assert problem in html.unescape(sound(reply.content.decode()))
    assert with_tasks.queues["mail"].length() == 1


def test_scheduled_jobs_run_now(admin_client: Browser, with_tasks: Client) -> None:
    queue = with_tasks.queues["mail"]
    for number in range(3):
        queue.put("shop.jobs.Send", {"order": number}, jid=f"later-{number}", delay=3600)
    text = sound(text_of(admin_client, path("job", "later-0")))
    assert path("job", "later-0", "run-now") in text.replace("later_2D0", "later-0")
    assert path("job", "first", "run-now") not in text_of(admin_client, path("job", "first"))
    reply = admin_client.post(path("job", "later-0", "run-now"), follow=True)
    assert "Moved to the waiting jobs: later-0." in re.sub("<[^>]*>", "", message_in(reply))
    assert (job_of(with_tasks, "later-0").state, job_of(with_tasks, "later-1").state) == ("waiting", "scheduled")
    assert "The job's state does not allow this" in message_in(
        admin_client.post(path("job", "first", "run-now"), follow=True)
    )
    whole_list = f"{ROOT}job/bulk/?state=scheduled&queue=mail"
    page = admin_client.post(whole_list, {"verb": "run_now", "all": "yes"}).content.decode()
    assert "2 jobs: the entire list." in page
    admin_client.post(whole_list, {"verb": "run_now", "all": "yes", "confirmed": "yes"})
    assert queue.length() == 4
    assert {job_of(with_tasks, f"later-{number}").state for number in range(3)} == {"waiting"}


def test_choices_have_the_defaults_of_their_tasks(with_tasks: Client) -> None:
    choices = {choice.klass: choice for choice in calls.choices()}
    assert choices[f"{MODULE}.every_so_often"] == (f"{MODULE}.every_so_often", "timed", 0, 1, ("tick",))
    assert choices[ADD].retries == 5
    assert calls.example_data(NOTE) == {"args": [], "kwargs": {}}
    assert calls.example_data("gone.tasks.send") == {}
    assert calls.signature_text("gone.tasks.send") == ""
