"""Pages of workers: state, what is stuck, control, and stacks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.qless.admin.workers import stacks as worker_stacks
from resty_django.qless.clients.replies import SILENT_SECONDS
from resty_django.qless.clients.worker_reports import Frame, JobStack, ReportedJob, encode_report
from resty_django.qless.worker.reports.stacks import encode_stacks
from tests.integration.qless.admin.tools import HOSTILE, path, person, plain, report, text_of
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

ACTIONS = ("quiet", "resume", "stop", "scale", "stacks")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker answers here."""
    monkeypatch.setattr(worker_stacks, "ANSWER_SECONDS", 0.0)


def silence(client: Client, name: str, seconds: float) -> None:
    """Let the worker's last report be this old."""
    client.source.sync().zadd("ql:alive", {name: time.time() - seconds})


@pytest.fixture
def worker(jobs_site: Client) -> str:
    report(jobs_site, "w-1")
    return "w-1"


def requested(client: Client, name: str = "w-1") -> list[tuple[str, int | None]]:
    return [(request.action, request.slots) for report in client.workers.reports(name) for request in report.requests]


@pytest.mark.parametrize("page", ["list", "worker"])
def test_a_worker_page_shows_its_report(admin_client: Browser, jobs_site: Client, worker: str, page: str) -> None:
    text = plain(text_of(admin_client, path("worker") if page == "list" else path("worker", worker)))
    for shown in ("web1", "4711", "abc123", "mail", "pdf", "3 / 8", "2 h", "alive"):
        assert shown in text, shown
    for version in ("1.2.3", "3.13.1", "6.1"):
        assert version in text_of(admin_client, path("worker")) + text


def test_jobs_of_a_worker_are_listed_with_duration_and_lease(admin_client: Browser, jobs_site: Client) -> None:
    queue = jobs_site.queues["mail"]
    queue.put("shop.jobs.Send", {}, jid="recent")
    queue.put("shop.jobs.Export", {}, jid="older")
    for job in queue.pop(2):
        if job.jid == "older":
            history = json.loads(jobs_site.source.sync().lindex("ql:j:older-history", -1))
            history[0] -= 300
            jobs_site.source.sync().lset("ql:j:older-history", -1, json.dumps(history))
    report(jobs_site, "here-1", jobs=[ReportedJob(jid="older", klass="shop.jobs.Export", seconds=300, usual=250.0)])
    text = plain(text_of(admin_client, path("worker", "here-1")))
    rows = text.partition("Lease left")[2]
    assert rows.index("shop.jobs.Export") < rows.index("shop.jobs.Send")
    assert "mail 5 min" in rows
    assert "4 min 10 s" in rows
    assert re.search(r"[56]\d s ", rows)


def test_a_worker_of_another_client_has_no_controls(admin_client: Browser, jobs_site: Client) -> None:
    jobs_site.queues["mail"].pop()
    for url in (path("worker"), path("worker", "here-1")):
        text = text_of(admin_client, url)
        assert "/stop/" not in text
        assert "/quiet/" not in text
    for action in ACTIONS:
        reply = admin_client.post(path("worker", "here-1", action), {"slots": 2}, follow=True)
        assert "does not report" in reply.content.decode()
    assert logged() == []


# --- stuck workers ---


def test_a_worker_whose_job_runs_too_long_is_stuck(admin_client: Browser, jobs_site: Client) -> None:
    usual = ReportedJob(jid="j1", klass="shop.jobs.Fine", seconds=7200, usual=5000.0)
    late = ReportedJob(jid="j2", klass="shop.jobs.Late", seconds=7200, usual=2.0)
    report(jobs_site, "stuck-1", jobs=[late, usual])
    report(jobs_site, "fine-1", jobs=[usual])
    listed = text_of(admin_client, path("worker"))
    assert "1 worker is stuck: stuck-1" in plain(listed)
    assert listed.count("stuck: shop.jobs.Late has been running for 2 h") == 1
    assert "stuck: shop.jobs.Late" in text_of(admin_client, path("worker", "stuck-1"))
    assert "stuck:" not in text_of(admin_client, path("worker", "fine-1"))


def test_a_silent_worker_with_jobs_is_stuck(admin_client: Browser, jobs_site: Client) -> None:
    jobs_site.queues["mail"].put("K", {})
    jobs_site.queues["mail"].pop()
    for name in ("here-1", "idle-1"):
        report(jobs_site, name)
        silence(jobs_site, name, SILENT_SECONDS + 60)
    listed = text_of(admin_client, path("worker"))
    assert "1 worker is stuck: here-1" in plain(listed)
    assert "stuck: silent for 1 min 3" in listed
    assert "stuck:" not in text_of(admin_client, path("worker", "idle-1"))


def test_workers_keep_their_places(admin_client: Browser, jobs_site: Client) -> None:
    names = ["web1-9", "web1-10", "web2-1"]
    late = ReportedJob(jid="j2", klass="shop.jobs.Late", seconds=7200, usual=2.0)
    for last in names:
        for name in (*names, last):  # the order in which they report changes
            report(jobs_site, name, jobs=[late] if name == last else [])
        assert re.findall(r'<th scope="row"><a href="[^"]*">([^<]*)', text_of(admin_client, path("worker"))) == names


# --- control ---


def test_a_stop_is_confirmed_with_the_process_and_its_jobs(jobs_site: Client) -> None:
    operator = person("view_job", "control_worker")
    for number in range(12):
        jobs_site.queues["mail"].put("shop.jobs.Send", {}, jid=f"job-{number:02}", priority=-number)
    jobs_site.queues["mail"].pop(12)
    report(jobs_site, "here-1", grace=30.0)
    report(jobs_site, "idle-1", host="web2")
    jobs = "12 jobs running: .*shop.jobs.Send job-0.*, and 2 more"
    for text in (
        text_of(operator, path("worker", "here-1", "stop")),
        operator.post(f"{path('worker')}bulk/", {"verb": "stop", "pick": ["here-1", "idle-1"]}).content.decode(),
        operator.post(f"{path('worker')}bulk/", {"verb": "stop", "all": "yes"}).content.decode(),
    ):
        assert re.search(f"web1, PID 4711, grace period 30 s, {jobs}", plain(text))
        assert text.count("shop.jobs.Send") == 10
        assert "they run again from the beginning" in text
    assert "idle-1 web2, PID 4711, 0 jobs running" in plain(text)
    assert requested(jobs_site, "here-1") == []


def test_quiet_and_resume_take_one_click_on_the_list(jobs_site: Client, worker: str) -> None:
    operator = person("view_job", "control_worker")
    listed = text_of(operator, path("worker"))
    (url,) = re.findall(r'formaction="([^"]*/quiet/[^"]*)"', listed)
    reply = operator.post(url)
    assert reply.status_code == 302
    assert reply["Location"] == path("worker")
    assert requested(jobs_site) == [("quiet", None)]
    listed = text_of(operator, path("worker"))
    assert "The worker was asked to take no new jobs." in listed
    assert re.search(r"Quiet: requested <time.*>(now|.* ago)</time>, not confirmed yet", listed)
    report(jobs_site, worker, state="quiet")
    jobs_site.call("worker.report", worker, encode_report({}), 1)  # confirmed
    report(jobs_site, worker, state="quiet")
    listed = text_of(operator, path("worker"))
    assert "not confirmed yet" not in listed
    assert "quiet: takes no new jobs" in listed
    (url,) = re.findall(r'formaction="([^"]*/resume/[^"]*)"', listed)
    operator.post(url)
    assert requested(jobs_site) == [("resume", None)]
    assert logged() == ["Asked to take no new jobs.", "Asked to take jobs again."]


def test_the_list_scales_at_once_and_asks_before_it_stops(jobs_site: Client, worker: str) -> None:
    operator = person("view_job", "control_worker")
    listed = text_of(operator, path("worker"))
    assert re.findall(r'name="slots" value="(\d+)" min="1" max="(\d+)"', listed) == [("8", "64")]
    assert 'value="8"' in text_of(operator, path("worker", worker, "scale"))
    scale, _quiet = re.findall(r'formaction="([^"]*)"', listed)
    (stop,) = re.findall(r'<a href="([^"]*)" aria-label="Stop: ', listed)
    (stop_on_page,) = re.findall(r'href="([^"]*/stop/[^"]*)"', text_of(operator, path("worker", worker)))
    for bad in ("0", "65", "many", ""):
        reply = operator.post(scale, {"slots": bad})
        assert reply.status_code == 200
        assert "errorlist" in reply.content.decode()
    assert requested(jobs_site) == []
    assert operator.post(scale, {"slots": "12"})["Location"] == path("worker")
    assert requested(jobs_site) == [("scale", 12)]
    assert 'name="slots" value="12"' in text_of(operator, path("worker"))
    question = text_of(operator, stop)
    assert "as after SIGTERM" in question
    assert "This cannot be undone." in question
    assert requested(jobs_site) == [("scale", 12)]
    assert operator.post(stop_on_page)["Location"] == path("worker", worker)
    assert ("stop", None) in requested(jobs_site)
    assert operator.post(stop)["Location"] == path("worker")
    assert "is not replaced" in text_of(operator, path("worker"))
    assert logged() == ["Asked to run 12 jobs at once.", "Asked to stop.", "Asked to stop."]


# --- stacks ---


@pytest.fixture
def operator() -> Iterator[Browser]:
    return person("view_job", "control_worker")


def test_stacks_show_the_line_of_the_site(operator: Browser, jobs_site: Client, worker: str) -> None:
    reply = operator.post(path("worker", worker, "stacks"), follow=True)
    assert "The worker has not answered yet." in reply.content.decode()
    assert "Stacks were requested" in text_of(operator, path("worker", worker))
    frames = [
        Frame("/usr/lib/python3.13/threading.py", 1, "run", "self._target()"),
        Frame("/srv/shop/tasks.py", 12, "send", "wait(1)"),
        Frame("/usr/lib/python3.13/socket.py", 99, "recv", "<script>alert(1)</script>"),
    ]
    stacks = [
        JobStack(jid="j1", klass="shop.tasks.send", seconds=61.0, frames=frames),
        JobStack(jid="j2", klass=HOSTILE[:40], seconds=1.0, frames=[]),
    ]
    jobs_site.call("worker.stacks", worker, encode_stacks(1, time.time(), stacks))
    jobs_site.call("worker.report", worker, encode_report({}), 1)
    report(jobs_site, worker)
    text = text_of(operator, path("worker", worker))
    assert "Stacks were requested" not in text
    assert "<code>/srv/shop/tasks.py:12</code> in send" in text
    assert '<span class="resty-library">  File &quot;/usr/lib/python3.13/socket.py&quot;, line 99, in recv' in text
    assert "<strong>  File &quot;/srv/shop/tasks.py&quot;, line 12, in send" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "No stack: the job has not begun" in text
    assert "\u202e" not in text


def test_the_page_says_that_the_worker_does_not_answer(operator: Browser, jobs_site: Client, worker: str) -> None:
    operator.post(path("worker", worker, "stacks"))
    request = json.dumps({"id": 1, "action": "stacks", "at": time.time() - 30}, separators=(",", ":"))
    jobs_site.source.sync().hset(f"ql:report:{worker}", "stacks", request)
    assert "has not answered a request for stacks for 30 s" in text_of(operator, path("worker", worker))
    assert logged() == ["Requested the stacks of its jobs."]


@pytest.mark.parametrize("forged", [b"nonsense", b"[]", b"\xff\x00", b'{"id":1}'])
def test_forged_reports_and_stacks_do_not_break_pages(
    operator: Browser, jobs_site: Client, worker: str, forged: bytes
) -> None:
    server = jobs_site.source.sync()
    server.hset(f"ql:report:{worker}", mapping={"report": forged, "state": forged, "at": forged})
    server.set(f"ql:stacks:{worker}", forged)
    for url in (path("worker"), path("worker", worker)):
        assert worker in text_of(operator, url)


def test_hostile_texts_of_a_report_are_escaped(operator: Browser, jobs_site: Client) -> None:
    texts = dict.fromkeys(("host", "state", "pool", "package", "python", "django", "release"), HOSTILE)
    job = ReportedJob(jid=HOSTILE, klass=HOSTILE, seconds=1e9, usual=1.0)
    report(jobs_site, HOSTILE, **{**texts, "pid": 10**18, "started": 1e300, "used": -5, "jobs": [job]})
    for url in (path("worker"), path("worker", HOSTILE)):
        text = text_of(operator, url)
        assert "<b>" not in text
        assert "\u202e" not in text
        assert "stuck:" in text


def test_the_list_takes_few_calls_for_many_workers(operator: Browser, jobs_site: Client, valkey: Any) -> None:
    def calls() -> int:
        before = valkey.info("commandstats")["cmdstat_evalsha"]["calls"]
        text_of(operator, path("worker"))
        return int(valkey.info("commandstats")["cmdstat_evalsha"]["calls"]) - int(before)

    report(jobs_site, "w-1")
    few = calls()
    for number in range(60):
        report(jobs_site, f"many-{number}")
    assert calls() == few
