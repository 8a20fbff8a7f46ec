"""Failed and complete jobs are deleted by age and number; those that are needed stay."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client as Browser
from django.urls import reverse

from resty_django.conf import conf
from resty_django.qless import Client, health, retention
from resty_django.qless.archive import writer
from resty_django.qless.archive.marks import command
from resty_django.qless.clients.default import default_client
from resty_django.qless.models import ArchivedJob
from resty_django.qless.retention import RetentionPass, RetentionThread, status
from resty_django.redis.errors import StoreFull
from tests import processes
from tests.integration.qless.archive.conftest import Clock
from tests.integration.qless.archive.tools import complete, rows
from tests.integration.qless.conftest import change_settings, job_of, pop
from tests.integration.qless.worker.conftest import wait_for

pytestmark = [pytest.mark.redis, pytest.mark.django_db, pytest.mark.db]

ROOT = Path(__file__).parents[3]
DAY = 86_400
State = ArchivedJob.State


@pytest.fixture
def clock(settings: Any, valkey: Any, valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the site's client."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "WORKER_NAME": "w"}}
    clock = Clock()
    monkeypatch.setattr(default_client(), "clock", clock)
    return clock


@pytest.fixture
def site(clock: Clock) -> Client:
    """The job queue of the site, empty."""
    return default_client()


@pytest.fixture
def limit(settings: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set `RETENTION`, and other settings of the job queue."""

    def set_limits(more: Any = None, **values: Any) -> None:
        change_settings(settings, RETENTION=values, **(more or {}))
        monkeypatch.setattr(default_client(), "clock", clock)

    return set_limits


def fail(client: Client, jid: str, group: str = "mail-KeyError", queue: str = "mail", **options: Any) -> str:
    client.queues[queue].put("shop.jobs.Send", {"order": 8, "password": "hidden"}, jid=jid, priority=1000, **options)
    job = pop(client.queues[queue])
    assert job.jid == jid
    job.fail(group, "Traceback\nKeyError: 'zip_code'")
    return jid


def apply() -> RetentionPass:
    one = RetentionPass(default_client())
    one.run()
    return one


def left(*jids: str) -> str:
    """Return the jids of the jobs that still exist."""
    return " ".join(job.jid for job in default_client().jobs.multiget(*jids))


def test_failed_jobs_are_deleted_after_30_days_by_default(site: Client, clock: Clock) -> None:
    fail(site, "a")
    clock.skew = 20 * DAY
    fail(site, "b")
    fail(site, "c", group="other")
    clock.skew = 30 * DAY - 60
    assert apply().deleted.total() == 0
    clock.skew = 30 * DAY + 60
    assert apply().deleted == {State.FAILED: 1}
    assert site.jobs.failed() == {"mail-KeyError": 1, "other": 1}
    clock.skew = 51 * DAY
    apply()
    assert site.jobs.failed() == {}
    assert site.jobs.get("b") is None


def test_the_oldest_failed_jobs_beyond_the_maximum_are_deleted(site: Client, clock: Clock, limit: Any) -> None:
    assert conf.qless.retention.failed_count == 100_000
    limit(FAILED_COUNT=25)
    for number in range(120):
        fail(site, f"j{number}", group=f"g{number % 3}")
        clock.skew += 2
    assert apply().deleted.total() == 95
    assert left(*(f"j{n}" for n in range(120))).split() == [f"j{n}" for n in range(95, 120)]
    limit(FAILED_COUNT=0)
    apply()
    assert site.jobs.failed() == {}


def test_many_jobs_of_one_second_are_deleted_to_the_exact_number(site: Client, clock: Clock, limit: Any) -> None:
    limit(FAILED_COUNT=70)
    now = clock()
    site.clock = lambda: now
    for number in range(230):
        fail(site, f"j{number}")
    site.clock = clock
    assert apply().deleted.total() == 160
    assert site.jobs.failed() == {"mail-KeyError": 70}


def test_queues_have_their_own_limits(site: Client, clock: Clock, limit: Any) -> None:
    queues = {"short": {"FAILED": "1d"}, "long": {"FAILED": "90d"}, "few": {"FAILED_COUNT": 2}}
    limit(FAILED="10d", FAILED_COUNT=8, QUEUES=queues)
    for number in range(4):
        for queue in ("short", "long", "few", "mail"):
            fail(site, f"{queue}{number}", queue=queue)  # in one group
        clock.skew += 10
    assert apply().deleted.total() == 8  # two of `few`; of the others the oldest
    names = [f"{queue}{number}" for number in range(4) for queue in ("short", "long", "few", "mail")]
    assert "few0" not in left(*names)
    assert "few1" not in left(*names)
    assert set(left(*names).split()) > {f"{queue}3" for queue in ("short", "long", "few", "mail")}
    clock.skew += 2 * DAY
    apply()
    assert "short" not in left(*names)
    assert "mail3" in left(*names)
    clock.skew += 9 * DAY
    apply()
    assert {jid[:-1] for jid in left(*names).split()} == {"long"}


def test_complete_jobs_follow_the_stricter_of_both_limits(site: Client, clock: Clock, limit: Any) -> None:
    limit(COMPLETED="2d", QUEUES={"few": {"COMPLETED_COUNT": 1}})
    for number in range(3):
        complete(site, f"mail{number}")
        complete(site, f"few{number}", queue="few")
        clock.skew += 1
    jids = [f"{queue}{number}" for number in range(3) for queue in ("mail", "few")]
    apply()
    assert left(*jids) == "mail0 mail1 mail2 few2"
    clock.skew += DAY
    site.config.set("jobs-history", 3600)  # as another client might
    complete(site, "last")
    assert left(*jids) == ""
    site.config.set("jobs-history", 7 * DAY)
    clock.skew += 2 * DAY + 60
    assert apply().deleted == {State.COMPLETE: 1}
    assert left("last") == ""


def test_without_settings_the_options_of_the_core_decide(site: Client, clock: Clock) -> None:
    site.config.set("jobs-history", 100 * DAY)
    complete(site, "a")
    clock.skew = 90 * DAY
    assert apply().deleted.total() == 0
    assert left("a") == "a"


def test_a_failed_job_stays_as_long_as_a_job_waits_for_it(site: Client, clock: Clock) -> None:
    fail(site, "a")
    fail(site, "b")
    site.queues["mail"].put("shop.jobs.Send", {}, jid="waiting", depends=["a"])
    clock.skew = 31 * DAY
    one = apply()
    assert (one.deleted, one.kept_back) == ({State.FAILED: 1}, {State.FAILED: 1})
    assert left("a", "b", "waiting") == "a waiting"
    assert status(site, site.jobs.failed()).surplus == 0
    job_of(site, "waiting").cancel()
    apply()
    assert left("a") == ""


def test_a_job_that_is_retried_between_two_steps_stays(site: Client, clock: Clock) -> None:
    for number in range(30):
        fail(site, f"j{number}")
    clock.skew = 31 * DAY
    steps = iter(range(100))

    def paced() -> bool:
        if next(steps) == 1:
            job_of(site, "j15").requeue("mail")
            job_of(site, "j20").requeue("mail")
            pop(site.queues["mail"])
            pop(site.queues["mail"]).fail("mail-KeyError", "again")
        return True

    RetentionPass(site, paced).run()
    assert len(left(*(f"j{n}" for n in range(30))).split()) == 2
    assert {job_of(site, jid).state for jid in ("j15", "j20")} == {"running", "failed"}


def test_a_pass_stops_when_asked_and_the_next_one_continues(site: Client, clock: Clock) -> None:
    for number in range(30):
        fail(site, f"j{number}")
    clock.skew = 31 * DAY
    steps = iter([True, False])
    RetentionPass(site, lambda: next(steps)).run()
    assert site.jobs.failed() == {"mail-KeyError": 20}
    apply()
    assert site.jobs.failed() == {}


def test_only_one_process_works_at_a_time(site: Client, limit: Any) -> None:
    limit(FAILED_COUNT=0)
    fail(site, "a")
    command(site, "SET", "retention-lock", "other")
    assert apply().deleted.total() == 0
    assert command(site, "GET", "retention-lock") == b"other"
    command(site, "DEL", "retention-lock")
    assert apply().deleted.total() == 1
    assert command(site, "GET", "retention-lock") is None


def test_the_workers_together_make_one_pass_a_minute(site: Client, clock: Clock, limit: Any) -> None:
    limit(FAILED_COUNT=0)
    for jid, skew, deleted in (("a", 0, 1), ("b", 30, 0), ("c", 70, 2), ("d", -600, 1)):
        fail(site, jid)
        clock.skew = skew
        one = RetentionPass(site)
        one.run(only_if_due=True)
        assert one.deleted.total() == deleted, jid


# --- with an archive ---

ARCHIVE = {"ARCHIVE": {"RETENTION": "365d"}}


def test_jobs_are_archived_before_they_are_deleted(site: Client, clock: Clock, limit: Any) -> None:
    limit(ARCHIVE, FAILED="30d", COMPLETED="1d")
    fail(site, "f")
    complete(site, "c", {"order": 7})
    clock.skew = 31 * DAY
    command(site, "HSET", "archive", "at", repr(clock()))  # so that the core saves canceled jobs
    assert apply().deleted == {State.FAILED: 1, State.COMPLETE: 1}
    row = rows()["f"]
    assert (row.state, row.error_group, row.queue) == ("failed", "mail-KeyError", "mail")
    assert "zip_code" in row.error_message
    assert '"order": 8' in row.arguments
    assert "hidden" not in row.arguments
    assert rows()["c"].state == "complete"
    assert command(site, "LLEN", "canceled") == 0


def test_jobs_stay_while_the_archive_cannot_be_written(
    site: Client, clock: Clock, limit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(batch: Any) -> int:
        raise OperationalError("the database is down")

    limit(ARCHIVE)
    fail(site, "f")
    clock.skew = 31 * DAY
    monkeypatch.setattr(writer, "upsert", failing)
    with pytest.raises(OperationalError):
        apply()
    assert left("f") == "f"
    assert command(site, "GET", "retention-lock") is None


# --- workers ---

KILLED = """
import os, signal
import django
django.setup()
from resty_django.qless.clients.default import default_client
from resty_django.qless.retention import RetentionPass
steps = iter(range(100))
RetentionPass(default_client(), lambda: next(steps) < 2 or os.kill(os.getpid(), signal.SIGKILL)).run()
"""


@pytest.mark.django_db(transaction=True)
def test_a_killed_worker_leaves_the_rest_to_the_next_pass(site: Client, limit: Any, valkey_url: str) -> None:
    for number in range(230):
        fail(site, f"j{number}")
    env = {
        **os.environ,
        "RESTY_DB_NAME": str(connection.settings_dict["NAME"]),
        "DJANGO_SETTINGS_MODULE": "tests.integration.qless.worker.site_settings",
        "TEST_QLESS": json.dumps({"URL": valkey_url, "RETENTION": {"FAILED": 60.0, "FAILED_COUNT": None}}),
        "PYTHONPATH": str(ROOT),
    }
    for number in range(230):
        command(site, "HSET", f"j:j{number}", "failure", json.dumps({"group": "mail-KeyError", "when": 1000 + number}))
    process = processes.Process([sys.executable, "-c", KILLED], cwd=ROOT, env=env)
    assert process.wait(60) == -signal.SIGKILL
    assert site.jobs.failed() == {"mail-KeyError": 170}
    limit(FAILED=None, FAILED_COUNT=50)
    apply()
    assert site.jobs.failed() == {"mail-KeyError": 170}  # the lock of the killed one lasts for a minute
    assert 0 < command(site, "TTL", "retention-lock") <= 60
    command(site, "DEL", "retention-lock")
    apply()
    assert left(*(f"j{n}" for n in range(230))).split() == [f"j{n}" for n in range(180, 230)]


@pytest.mark.django_db(transaction=True)
def test_the_thread_of_a_worker_continues_after_an_outage(
    site: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail(site, "a")
    clock.skew = 31 * DAY
    monkeypatch.setattr(retention, "MIN_INTERVAL", 0.05)
    command(site, "SET", "f:other", "no list")
    command(site, "SADD", "failures", "other")
    thread = RetentionThread(site)
    thread.start()
    try:
        wait_for(lambda: "Old jobs could not be deleted" in caplog.text)
        command(site, "DEL", "f:other")
        wait_for(lambda: left("a") == "")
    finally:
        thread.stop()
    assert caplog.text.count("Old jobs could not be deleted") == 1


def test_jobs_are_deleted_although_the_memory_is_full(site: Client, limit: Any, valkey: Any) -> None:
    limit(FAILED_COUNT=0)
    fail(site, "a")
    valkey.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreFull):
            site.queues["mail"].put("shop.jobs.Send", {})
        apply()
    finally:
        valkey.config_set("maxmemory", 0)
    assert left("a") == ""
    assert site.jobs.failed() == {}


def test_a_worker_without_limits_has_no_thread(site: Client, limit: Any) -> None:
    limit(FAILED=None, FAILED_COUNT=None)
    assert not RetentionThread.is_wanted()
    limit(FAILED_COUNT=5)
    assert RetentionThread.is_wanted()


# --- what operators see ---


def warnings(subject: str = "failed jobs") -> list[str]:
    return [found.message for found in health.probe() if found.level == "warning" and found.subject == subject]


def test_the_check_warns_of_jobs_that_nobody_deletes(site: Client, clock: Clock, limit: Any) -> None:
    limit(FAILED_COUNT=10)
    for number in range(12):
        fail(site, f"j{number}")
    assert warnings() == [
        "2 more failed jobs are stored than FAILED_COUNT of RETENTION allows. Workers delete them: start manage.py "
        "runqless, or see the log resty_django.qless.retention."
    ]
    apply()
    assert warnings() == []
    fail(site, "later")  # one too many is less than a tenth
    clock.skew = 3600 * 2 - 60
    assert warnings() == []
    clock.skew = 3600 * 5
    assert warnings() == [
        "The last pass that deletes old jobs ended 5 h ago. Workers delete them: start manage.py runqless, or see the "
        "log resty_django.qless.retention."
    ]
    limit(FAILED=None, FAILED_COUNT=None)
    assert warnings() == []


def test_the_check_warns_although_a_job_has_to_stay(site: Client, clock: Clock) -> None:
    fail(site, "a")
    site.queues["mail"].put("shop.jobs.Send", {}, jid="waiting", depends=["a"])
    clock.skew = 31 * DAY
    apply()
    assert warnings() == []
    clock.skew += 3 * 3600
    assert "ended 3 h ago" in warnings()[0]


def test_the_check_does_not_warn_of_passes_without_failed_jobs(site: Client, clock: Clock) -> None:
    fail(site, "a")
    assert warnings() == []  # no pass has ended yet
    job_of(site, "a").cancel()
    apply()
    clock.skew = 3 * 3600
    assert warnings() == []


def test_the_check_warns_before_the_memory_is_full(site: Client, valkey: Any) -> None:
    def about_memory() -> list[str]:
        return [text for text in warnings("jobs") if "maxmemory" in text]

    used = valkey.info("memory")["used_memory"]
    before = valkey.config_get("maxmemory*")
    try:
        valkey.config_set("maxmemory", int(used * 1.1))
        assert "% of maxmemory, and refuses jobs when that is full" in about_memory()[0]
        valkey.config_set("maxmemory-policy", "allkeys-lru")
        assert about_memory() == []
        valkey.config_set("maxmemory-policy", "noeviction")
        valkey.config_set("maxmemory", used * 10)
        assert about_memory() == []
    finally:
        for name in ("maxmemory", "maxmemory-policy"):
            valkey.config_set(name, before[name])


def test_the_page_of_failures_shows_the_limits(site: Client, limit: Any, admin_client: Browser) -> None:
    def page() -> str:
        return admin_client.get(reverse("admin:resty_qless_failuregroup_changelist")).content.decode()

    assert "Failed jobs are deleted</th><td>after 30 d; the oldest beyond 100,000 jobs</td>" in page()
    limit(FAILED="7d", FAILED_COUNT=None, QUEUES={"mail": {"FAILED": "1d"}})
    assert "after 7 d; some queues have other limits</td>" in page()
    limit(FAILED=None, FAILED_COUNT=None)
    assert "Failed jobs are deleted" not in page()
