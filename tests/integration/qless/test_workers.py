"""Workers that live, are silent or gone; and what is left without a worker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client as Browser
from django.urls import reverse

from resty_django import health
from resty_django.qless import Client, NotAllowed, chain, group
from resty_django.qless import client as site_client
from resty_django.qless.clients.default import default_client
from resty_django.qless.clients.replies import GONE_SECONDS, SILENT_SECONDS
from resty_django.qless.clients.worker_reports import ReportedJob, encode_report
from resty_django.qless.coverage import unserved_work
from resty_django.qless.facts import job_queue_facts
from resty_django.qless.job_classes import find
from resty_django.qless.overview import panel
from resty_django.qless.tasks.base import Task, all_tasks, task
from resty_django.qless.tasks.schedule import scheduled
from resty_django.qless.worker.reports.liveness import LivenessReporter
from resty_django.redis import StoreDown
from tests.integration.qless.conftest import Core, change_settings
from tests.integration.qless.core.test_contract import refused
from tests.integration.qless.tasks import examples
from tests.integration.qless.worker.conftest import Workers, wait_for
from tests.integration.qless.worker.conftest import workers as workers  # the fixture

pytestmark = [pytest.mark.redis, pytest.mark.contract]

EXAMPLES = "tests.integration.qless.tasks.examples"


def names(client: Client) -> set[str]:
    return {worker.name for worker in client.workers.counts()}


# --- signs of life ---


def test_a_worker_is_alive_silent_or_gone(client: Any) -> None:
    client.call("worker.alive", "ours", "mail", "default")
    client.queues["mail"].pop()  # as a foreign worker would
    for skew, state in ((0.0, "alive"), (SILENT_SECONDS + 1, "silent"), (GONE_SECONDS + 1, "gone")):
        client.skew = skew
        (life,) = client.workers.alive()
        assert (life.name, life.state, life.queues) == ("ours", state, ["mail", "default"])
        assert life.age == pytest.approx(skew, abs=20)
        assert job_queue_facts(client).alive == (2 if state == "alive" else 1)
    assert names(client) == {"ours", "w"}


def test_workers_that_are_gone_are_dropped_early_and_others_late(core: Core) -> None:
    for number in range(30):
        core("worker.alive", f"ours-{number}", "q")
    core.pop("foreign")
    core.now += 599
    core("worker.alive", "living")
    assert len(core.json("workers.alive")) == 31
    core.now += 2
    core("worker.alive", "living", "q")
    assert len(core.json("workers.alive")) == 11  # in bounded steps
    core("worker.alive", "living", "q")
    assert core.json("workers.alive") == [{"name": "living", "age": 0, "queues": ["q"]}]
    assert [worker["name"] for worker in core.json("workers")] == ["living", "foreign"]
    assert core.client.hlen("ql:alive-queues") == 1
    core.now += 86_500
    core("worker.alive", "living", "q")
    assert [worker["name"] for worker in core.json("workers")] == ["living"]
    core("worker.deregister", "living")
    assert core.json("workers.alive") == core.json("workers") == {}
    assert not core.client.keys("ql:alive*")


def test_a_worker_comes_back(core: Core) -> None:
    """It was stopped for long, and was dropped meanwhile."""
    core("worker.alive", "sleeper", "q")
    core.now += 1000
    core("worker.alive", "other", "q")
    assert [worker["name"] for worker in core.json("workers.alive")] == ["other"]
    core("worker.alive", "sleeper", "q")
    assert {worker["name"] for worker in core.json("workers")} == {"sleeper", "other"}


def test_reports_and_requests_are_bounded(core: Core) -> None:
    core("worker.report", "w", "x" * 16_384)
    assert refused(core, "worker.report", "w", "x" * 16_385).endswith("longer than 16384: 16385")
    assert core("worker.stacks", "w", "x" * 262_144) == 1
    assert refused(core, "worker.stacks", "w", "x" * 262_145).endswith("longer than 262144: 262145")
    assert len(core("worker.stacks", "w")) == 262_144
    names = [f"w{number}" for number in range(100)]
    assert [entry["name"] for entry in core.json("worker.reports", "w", *names[1:])] == ["w"]
    assert refused(core, "worker.reports", "w", *names).endswith("longer than 100: 101")
    for slots in (0, 10_001, 1.5):
        assert "whole number" in refused(core, "worker.request", "w", "scale", slots)
    assert "not one of" in refused(core, "worker.request", "w", "kill")
    assert refused(core, "worker.request", "unknown", "quiet").endswith("Worker unknown does not report")
    assert not core.client.exists("ql:report:unknown")
    core("worker.deregister", "w")
    assert core.json("worker.reports", "w") == {}
    assert core("worker.stacks", "w") is None
    assert not core.client.keys("ql:report:*")


def test_a_worker_has_one_request_of_each_kind_until_it_confirms(core: Core) -> None:
    core("worker.report", "w", "{}")
    assert core("worker.request", "w", "quiet") == 1
    assert core("worker.request", "w", "scale", 4) == 2
    assert core("worker.request", "w", "resume") == 3
    resume, scale = (json.loads(text) for text in core("worker.report", "w", "{}", 1))
    assert (resume["id"], resume["action"]) == (3, "resume")
    assert (scale["id"], scale["action"], scale["slots"]) == (2, "scale", 4)
    (left,) = core("worker.report", "w", "{}", 3)
    assert json.loads(left) == scale
    (entry,) = core.json("worker.reports", "w")
    assert [text for text in entry["requests"] if text] == [left]
    assert core("worker.report", "w", "{}", 2, 99) == []


def test_a_worker_reports_itself_through_outages_until_it_stops(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on when the server was down, takes the dead off the list, and itself at the end."""
    monkeypatch.setattr("resty_django.qless.worker.reports.liveness.REPORT_SECONDS", 0.01)
    client.call("worker.alive", "dead", "q")
    faults = [StoreDown("down")] * 3
    call = client.call

    def faulty(command: str, *args: Any) -> Any:
        if command == "worker.alive" and faults:
            raise faults.pop()
        return call(command, *args)

    monkeypatch.setattr(client, "call", faulty)
    reporter = LivenessReporter(client, "ours", ("a", "b"), dead=("dead",))
    reporter.start()
    wait_for(lambda: {worker.name: worker.queues for worker in client.workers.alive()} == {"ours": ["a", "b"]})
    reporter.stop()
    assert names(client) == set()


@pytest.mark.e2e
def test_a_storm_of_kills_leaves_no_names(workers: Callable[..., Workers], client: Client) -> None:
    import os
    import signal

    running = workers("--processes", "2")
    pids = set(running.ready(2))
    for _ in range(3):
        pid = min(pids)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda pid=pid, pids=pids: len(set(running.children()) - {pid}) == 2)
        pids = set(running.children())
        wait_for(lambda pids=pids: running.takes([*pids]) == 2, running.text())
    living = {f"-{pid}" for pid in pids}

    def pid_part(name: str) -> str:
        return name[name.rindex("-") :]

    wait_for(lambda: {pid_part(name) for name in names(client)} == living)
    # a worker that has asked for jobs is in the list of workers, perhaps before its first report
    wait_for(lambda: {pid_part(worker.name) for worker in client.workers.alive()} == living)
    assert [worker.queues for worker in client.workers.alive()] == [["q"], ["q"]]
    running.signal(signal.SIGTERM)
    assert running.wait() == 0
    assert names(client) == set()
    assert client.workers.alive() == []


# --- what no worker does ---


@pytest.fixture
def site(no_tasks: None, valkey: Any, valkey_url: str, settings: Any) -> Iterator[Client]:
    section = {"URL": valkey_url, "MODULES": [EXAMPLES]}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": section}
    for declared_task in (examples.nightly, examples.every_so_often, examples.add):
        all_tasks.add(declared_task)
        if declared_task.schedule is not None:
            scheduled[declared_task.path] = declared_task
    valkey.config_set("save", "3600 1")
    yield default_client()
    valkey.config_set("save", "")
    site_client.close()


def findings() -> dict[str, tuple[str, str]]:
    return {finding.subject: (finding.level, finding.message) for _, finding in health.run(["jobs"])}


def test_jobs_in_a_queue_without_a_worker_are_a_warning(site: Client) -> None:
    for queue in ("served", "alone", "paused", "later"):
        site.queues[queue].put("K", delay=500 if queue == "later" else 0)
    site.queues["paused"].pause()
    site.call("worker.alive", "ours", "served")
    messages = findings()
    assert {queue: messages[f"queue {queue}"][0] for queue in ("served", "alone", "paused", "later")} == {
        **{"served": "ok", "alone": "warning"},
        **{"paused": "ok", "later": "ok"},
    }
    advice = "No worker serves this queue. Start one with manage.py runqless --queues alone."
    assert advice in messages["queue alone"][1]
    assert any(note.endswith("no worker: alone.") for note in panel().notes)
    # a worker of another kind may serve anything
    site.queues["elsewhere"].pop()
    assert findings()["queue alone"][0] == "ok"
    site.source.sync().zadd("ql:workers", {site.worker_name: time.time() - 500})
    assert findings()["queue alone"][0] == "warning"
    # and one that is gone serves nothing
    site.source.sync().zadd("ql:alive", {"ours": time.time() - GONE_SECONDS - 5})
    messages = findings()
    assert messages["queue served"][0] == "warning"
    assert messages["workers"][0] == "warning"
    site.call("worker.alive", "ours", "served", "alone")
    assert {level for subject, (level, _) in findings().items() if subject.startswith("queue ")} == {"ok"}


def test_periodic_tasks_whose_queue_has_no_worker_are_a_warning(site: Client) -> None:
    nightly = f"periodic task {EXAMPLES}.nightly"
    assert findings()[nightly][0] == "warning"
    assert "--queues timed" in findings()[nightly][1]
    assert (f"{EXAMPLES}.every_so_often", "timed") in unserved_work(site, [], []).periodic
    site.call("worker.alive", "ours", "timed")
    assert nightly not in findings()


def test_recent_failures_are_a_warning(site: Client, settings: Any) -> None:
    def fail(group: str, count: int) -> None:
        for _ in range(count):
            site.queues["q"].put("K")
            site.queues["q"].pop().fail(group, "m")  # type: ignore[union-attr]

    fail("new", 2)
    fail("old", 1)
    old = site.jobs.failed("old").jobs[0]
    failure = {**old.failure, "when": int(time.time()) - 4000}
    site.source.sync().hset(f"ql:j:{old.jid}", "failure", str(failure).replace("'", '"'))
    assert findings()["failed new"] == ("warning", "2 jobs. 2 of them in the last 60 minutes.")
    assert findings()["failed old"] == ("ok", "1 jobs.")
    for limit, level in ((2, "warning"), (3, "ok"), (0, "ok")):
        change_settings(settings, FAILED_WARNING=limit)
        assert findings()["failed new"][0] == level
    change_settings(settings, FAILED_WARNING=1, FAILED_WINDOW=5000)
    assert findings()["failed old"][0] == "warning"
    fail("new", 110)
    assert findings()["failed new"][1].startswith("112 jobs. 112 of them in the last ")
    default_client().close()


def test_an_old_job_is_a_warning(site: Client, settings: Any) -> None:
    site.queues["q"].put("K")
    site.source.sync().zadd("ql:q:q-work", {"old": -(time.time() - 90) / 1e10})
    for limit, late in ((None, False), (3600, False), (60, True)):
        change_settings(settings, MAX_LATENCY=limit)
        assert ("Start more workers." in findings()["queue q"][1]) == late
    default_client().close()


def test_a_long_pause_with_waiting_jobs_is_a_warning(site: Client, settings: Any) -> None:
    queue = site.queues["q"]
    queue.put("K")
    queue.pause(by="ann")
    assert findings()["queue q"] == ("ok", "1 waiting, 0 running, 0 scheduled jobs. Paused for 0 s by ann.")
    queue.config_set("paused-since", time.time() - 4000)
    for limit, level in ((5000, "ok"), (None, "ok"), (3600, "warning")):
        change_settings(settings, MAX_PAUSE=limit)
        assert findings()["queue q"][0] == level
    assert findings()["queue q"][1].endswith(" by ann. Its jobs wait until somebody resumes it.")
    queue.unpause()
    site.call("pause", "q")  # as another client does: nobody knows since when
    assert findings()["queue q"] == ("ok", "1 waiting, 0 running, 0 scheduled jobs. Paused.")
    site.source.sync().zadd("ql:q:q-work", {"old": -(time.time() - 4000) / 1e10})
    assert findings()["queue q"][0] == "warning"
    default_client().close()


def test_a_job_that_runs_too_long_is_a_warning(site: Client) -> None:
    fields = {
        **{"host": "web1", "pid": 7, "started": 1000.0, "state": "running", "slots": 8, "max_slots": 64, "used": 1},
        **{"pool": "threads", "package": "1.0", "python": "3.13", "django": "6.1"},
    }
    for seconds, late in ((50, False), (7200, True)):
        job = ReportedJob(jid="j", klass="shop.Mail", seconds=seconds, usual=1.0)
        site.call("worker.alive", "web1-7", "q")
        site.call("worker.report", "web1-7", encode_report({**fields, "jobs": [job]}))
        messages = findings()
        assert ("late jobs" in messages) == late
    level, text = messages["late jobs"]
    assert level == "warning"
    assert "shop.Mail for 7,200 s on web1-7" in text


# --- tasks in modules that workers do not run ---


@pytest.fixture
def strange(site: Client, settings: Any) -> Task[..., Any]:
    """A task in this module, which no setting allows."""
    declared_task: Any = task(queue="q", cron="0 0 * * *")(a_function)
    return declared_task


def a_function(number: int = 0) -> int:
    return number


PUTS: dict[str, Callable[[Any], Any]] = {
    "delay": lambda task: task.delay(1),
    "apply_async": lambda task: task.apply_async((1,)),
    "on commit": lambda task: task.delay_on_commit(1),
    "signature": lambda task: task.s(1).delay(),
    "chain": lambda task: chain(examples.add.s(1), task.s()).delay(),
    "group": lambda task: group(examples.add.s(1), task.s(2)).delay(),
}


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("put", PUTS)
@pytest.mark.django_db
def test_tasks_outside_the_modules_are_refused_where_they_are_put(
    strange: Task[..., Any], settings: Any, put: str, eager: bool, site: Client
) -> None:
    change_settings(settings, EAGER=eager)
    with pytest.raises(NotAllowed, match="MODULES"):
        PUTS[put](strange)
    assert not site.queues.counts()
    change_settings(settings, MODULES=[EXAMPLES, __name__])
    PUTS[put](strange)


async def test_tasks_outside_the_modules_are_refused_in_asyncio(strange: Task[..., Any]) -> None:
    with pytest.raises(NotAllowed, match="MODULES"):
        await strange.adelay(1)


def test_tasks_outside_the_modules_are_refused_as_workers_refuse_them(strange: Task[..., Any], site: Client) -> None:
    with pytest.raises(NotAllowed) as by_worker:
        find(strange.path)
    with pytest.raises(NotAllowed) as by_delay:
        strange.delay()
    assert str(by_worker.value) == str(by_delay.value)
    messages = findings()
    assert messages[f"task {strange.path}"] == ("warning", f"Workers do not run it. {by_worker.value}")
    assert f"periodic task {strange.path}" not in messages
    assert [subject for subject in messages if subject.startswith("task ")] == [f"task {strange.path}"]


# --- pages ---


@pytest.mark.django_db
def test_pages_show_unserved_queues(site: Client, admin_client: Browser, strange: Task[..., Any]) -> None:
    site.queues["alone"].put("K")
    site.queues["served"].put("K")
    for number in range(3):
        site.call("worker.alive", f"ours-{number}", "served")
    site.source.sync().zadd(
        "ql:alive", {"ours-1": time.time() - SILENT_SECONDS - 5, "ours-2": time.time() - GONE_SECONDS - 5}
    )
    page = admin_client.get(reverse("admin:resty_qless_queue_changelist")).content.decode()
    assert "Queues with waiting jobs but no worker: alone." in page
    assert page.count("no worker</span>") == 1
    assert f"Tasks in modules that workers do not run: {strange.path}" in page
    assert "examples.nightly" in page
    _label, _, after_heading = page.partition("<dt>Workers</dt>")
    assert after_heading.partition("</dd>")[0].partition(">1<")[1], after_heading[:200]
    listed = admin_client.get(reverse("admin:resty_qless_worker_changelist")).content.decode()
    for state in ("alive", "silent", "gone"):
        assert f">{state}</span>" in listed
