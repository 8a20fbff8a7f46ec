"""Periodic tasks: at an interval, and by cron, also where the clock changes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from resty_django import health
from resty_django.qless import Client, Task, client
from resty_django.qless.checks import check_tasks
from resty_django.qless.tasks.schedule import Scheduler, declare, occurrences, scheduled
from resty_django.redis.errors import StoreDown
from tests.integration.qless.conftest import job_of, pop
from tests.integration.qless.tasks import examples
from tests.integration.qless.tasks.conftest import MODULE, Deploy, recurring_job, work
from tests.integration.qless.worker.conftest import wait_for
from tests.threads import together

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
HOWE = ZoneInfo("Australia/Lord_Howe")  # changes by half an hour


def times(cron: str, after: datetime, count: int) -> list[str]:
    """The next times, in that time zone with its offset."""
    assert after.tzinfo is not None
    moments = itertools.islice(occurrences(cron, after.timestamp(), after.tzinfo), count)
    return [datetime.fromtimestamp(moment, after.tzinfo).strftime("%m-%d %H:%M%z") for moment in moments]


def test_cron_expressions_have_their_next_times() -> None:
    assert times("*/20 * * * *", datetime(2026, 1, 31, 23, 30, tzinfo=UTC), 3) == [
        *("01-31 23:40+0000", "02-01 00:00+0000", "02-01 00:20+0000"),
    ]
    assert times("0 9 * * MON-FRI", datetime(2026, 3, 6, 10, tzinfo=UTC), 2) == ["03-09 09:00+0000", "03-10 09:00+0000"]


def test_times_in_the_hour_that_is_left_out_come_at_its_end() -> None:
    """On 29 March 2026 in Berlin 02:00 becomes 03:00."""
    before = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    assert times("30 2 * * *", before, 3) == ["03-29 03:00+0200", "03-30 02:30+0200", "03-31 02:30+0200"]
    assert times("15 3 * * *", before, 2) == ["03-29 03:15+0200", "03-30 03:15+0200"]
    assert times("*/30 * * * *", datetime(2026, 3, 29, 1, 15, tzinfo=BERLIN), 3) == [
        *("03-29 01:30+0100", "03-29 03:00+0200", "03-29 03:30+0200"),
    ]
    assert times("0 2 * * *", datetime(2026, 3, 7, 12, tzinfo=NEW_YORK), 2) == ["03-08 03:00-0400", "03-09 02:00-0400"]


def test_times_in_the_hour_that_comes_twice_come_once_unless_they_repeat() -> None:
    """On 25 October 2026 in Berlin 03:00 becomes 02:00: from 02:00 to 03:00 all comes twice."""
    before = datetime(2026, 10, 24, 12, tzinfo=BERLIN)
    assert times("30 2 * * *", before, 2) == ["10-25 02:30+0200", "10-26 02:30+0100"]
    assert times("*/30 * * * *", datetime(2026, 10, 25, 1, 45, tzinfo=BERLIN), 5) == [
        *("10-25 02:00+0200", "10-25 02:30+0200", "10-25 02:00+0100", "10-25 02:30+0100", "10-25 03:00+0100"),
    ]
    assert times("45 1 * * *", datetime(2026, 4, 4, 12, tzinfo=HOWE), 2) == ["04-05 01:45+1100", "04-06 01:45+1030"]


@pytest.mark.parametrize("minute", [0, 10, 29, 30, 31, 59])
def test_asked_in_the_second_of_two_equal_hours_nothing_comes_that_is_over(minute: int) -> None:
    now = datetime(2026, 10, 25, 2, minute, tzinfo=BERLIN, fold=1)
    assert times("30 2 * * *", now, 1) == ["10-26 02:30+0100"]
    assert times("30 3 * * *", now, 1) == ["10-25 03:30+0100"]


def test_every_occurrence_of_a_year_is_returned_once_from_any_start() -> None:
    start = datetime(2026, 1, 1, tzinfo=BERLIN).timestamp()
    end = datetime(2027, 1, 1, tzinfo=BERLIN).timestamp()
    for cron in ("30 2 * * *", "*/17 2,3 * * *", "0 * * * *"):
        at_once = list(itertools.takewhile(lambda moment: moment < end, occurrences(cron, start, BERLIN)))
        step, now = [], start
        while (now := next(occurrences(cron, now, BERLIN))) < end:
            step.append(now)
        assert step == at_once
        assert sorted(set(at_once)) == at_once


def test_wrong_cron_expressions_are_refused(site: Any) -> None:
    for cron, text in (
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("61 * * * *", "not a cron expression"),
    ):
        with pytest.raises(ValueError, match=text):
            Task(examples.nightly.function, cron=cron)
    with pytest.raises(TypeError, match="every= and cron="):
        Task(examples.nightly.function, cron="* * * * *", every=5)


@pytest.fixture
def _again() -> Iterator[None]:
    before = dict(scheduled)
    yield
    scheduled.clear()
    scheduled.update(before)


@pytest.mark.redis
@pytest.mark.usefixtures("_again")
def test_tasks_at_an_interval_are_declared_once(site: Any) -> None:
    jid = f"every-{MODULE}.every_so_often"
    assert declare(client, ["other"]) == 0
    declare(client, ["timed"])
    job = recurring_job(jid)
    assert (job.queue_name, job.klass, job.interval, job.tags, job.retries, job.backlog, job.data) == (
        *("timed", f"{MODULE}.every_so_often", 30, ["tick"], 1, 1, {"args": [], "kwargs": {}}),
    )
    due = job.next()
    declare(client, ["timed"])
    assert recurring_job(jid).next() == due  # a restart does not begin a new interval
    Task(examples.every_so_often.function, queue="timed", every=10, tags=["tick"], retries=7)
    declare(client, ["timed"])
    changed = recurring_job(jid)
    assert (changed.interval, changed.retries) == (10, 7)
    assert client.queues["timed"].counts().recurring == 1


BROKEN = """
def alert():
    "Takes no outcome."

alert = task(alert)

@task(every=60, queue="mail")
def taken(): pass

@task(cron="0 3 * * *", queue="mail", on_failure=alert)
def reacting(): pass

@task(every=60, queue="mail")
def last(): pass
"""
UNUSABLE = """
@task(every=60, priority="high")
def first(): pass
"""


@pytest.mark.redis
def test_a_periodic_task_that_is_refused_stops_no_other(deploy: Deploy, caplog: pytest.LogCaptureFixture) -> None:
    deploy(first_shop=BROKEN, second_shop=UNUSABLE, third_shop="import no_such_package")
    client.source.sync().set("ql:r:every-first_shop.taken", "of another program")
    work("mail")
    assert recurring_job("every-first_shop.last")
    (taken,) = [record for record in caplog.messages if record.startswith("periodic task first_shop.taken ")]
    (reacting,) = [record for record in caplog.messages if record.startswith("periodic task first_shop.reacting ")]
    assert "WRONGTYPE" in taken
    assert "TypeError: first_shop.alert(): invalid arguments" in reacting
    invalid = "TypeError: first_shop.alert(): invalid arguments: too many positional arguments."
    unusable = "TypeError: second_shop.first: priority= must be a number, not 'high'."
    missing = "ModuleNotFoundError: No module named 'no_such_package'"
    assert [(message.id, message.msg) for message in check_tasks()] == [
        ("resty_qless.E007", f"Workers cannot use second_shop. {unusable}"),
        ("resty_qless.W003", f"Workers cannot use third_shop. {missing}"),
        ("resty_qless.E007", f"Workers cannot use first_shop.reacting. {invalid}"),
    ]
    client.source.sync().zadd("ql:declared", {"every-first_shop.taken": 1.0})  # which cannot be read either
    findings = {finding.subject: finding for _, finding in health.run(["jobs"])}
    for name, level, text in (
        ("second_shop", "error", unusable),
        ("third_shop", "warning", missing),
        ("first_shop.reacting", "error", invalid),
    ):
        found = findings[f"task {name}"]
        assert (found.level, found.message) == (level, f"Workers cannot use it. {text}")
    assert "periodic task first_shop.last" in findings  # no worker serves its queue
    client.close()


@pytest.mark.redis
def test_an_outage_is_not_a_refusal(site: Any) -> None:
    with pytest.raises(StoreDown):
        declare(Client("redis://127.0.0.1:1"), ["timed"])


@pytest.mark.redis
def test_cron_tasks_are_put_once_by_many_workers(site: Any) -> None:
    site.TIME_ZONE = "Europe/Berlin"
    now = datetime(2026, 10, 24, 12, tzinfo=BERLIN).timestamp()
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(3):
            declare(client, ["timed"], now)

    together(*[work] * 8)
    jids = client.queues["timed"].jobs.scheduled()
    assert sorted(jids) == [f"cron-{MODULE}.nightly-20261025T0030Z", f"cron-{MODULE}.nightly-20261026T0130Z"]
    assert job_of(client, jids[0]).klass == f"{MODULE}.nightly"


@pytest.mark.redis
def test_a_worker_whose_clock_is_late_does_not_put_it_again(site: Any) -> None:
    site.TIME_ZONE = "Europe/Berlin"
    now = datetime(2026, 1, 10, 2, 29, 59, tzinfo=BERLIN).timestamp()
    declare(client, ["timed"], now)
    jid = f"cron-{MODULE}.nightly-20260110T0130Z"
    wait_for(lambda: client.queues["timed"].due() is not None and client.queues["timed"].due() <= client.clock())
    job = pop(client.queues["timed"])
    assert job.jid == jid
    job.complete()
    declare(client, ["timed"], now - 1)
    assert client.queues["timed"].pop() is None
    assert job_of(client, jid).state == "complete"


@pytest.mark.redis
def test_a_worker_declares_the_tasks_of_its_queues(site: Any) -> None:
    idle, busy = Scheduler(client, ["other"]), Scheduler(client, ["timed"])
    for scheduler in (idle, busy):
        scheduler.start()
    wait_for(lambda: len(client.queues["timed"].jobs.scheduled()) == 2)
    assert not idle.thread.is_alive()
    for scheduler in (idle, busy):
        scheduler.stop()
    busy.thread.join(20)
    assert not busy.thread.is_alive()


@pytest.mark.redis
@pytest.mark.usefixtures("_again")
def test_jobs_of_cron_have_the_callbacks_of_their_task(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = msgspec.structs.replace(examples.nightly.options, on_failure=examples.alarm)
    monkeypatch.setattr(examples.nightly, "options", options)
    for _ in range(2):
        declare(client, ["timed"])
    jids = client.queues["timed"].jobs.scheduled()
    assert len(jids) == 2
    for jid in jids:
        outcome = job_of(client, jid).outcome()
        assert outcome is not None
        assert [callback.klass for callback in outcome.failure] == [examples.alarm.name]
