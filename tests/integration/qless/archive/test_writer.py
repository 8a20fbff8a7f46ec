"""The writer of the archive: which jobs get rows, when, and what happens if it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection

from resty_django.database.times import from_db
from resty_django.qless import Client, passes
from resty_django.qless.archive import marks, runner, writer
from resty_django.qless.archive.marks import status
from resty_django.qless.archive.writer import ArchiveWriter, prune, store
from resty_django.qless.models import ArchivedJob
from resty_django.qless.redaction import UNNAMED
from tests import processes
from tests.integration.qless.archive.conftest import Clock
from tests.integration.qless.archive.tools import (
    SEND,
    archive_settings,
    complete,
    configure,
    drop,
    fail,
    rows,
    states,
    write,
)
from tests.integration.qless.conftest import pop

pytestmark = [pytest.mark.django_db, pytest.mark.db, pytest.mark.redis]

ROOT = Path(__file__).parents[4]


def test_complete_failed_and_canceled_jobs_have_rows(site: Client) -> None:
    write(site)  # from now on, the core saves canceled jobs
    complete(site, "c1", {"order": 7, "password": "hunter2"}, tags=["eu", "vip"])
    fail(site, "f1")
    site.queues["mail"].put(SEND, {"order": 9}, jid="x1")
    site.jobs["x1"].cancel()
    site.queues["mail"].put(SEND, {"order": 9}, jid="waiting")
    assert write(site).counts["written"] == 3
    assert states() == {"c1": "complete", "f1": "failed", "x1": "canceled"}
    row = rows()["c1"]
    assert (row.klass, row.queue, row.worker, json.loads(row.tags)) == (SEND, "mail", "here-1", ["eu", "vip"])
    assert json.loads(row.arguments) == {"order": 7, "password": "[redacted]"}
    assert row.arguments_are == "redacted"
    assert "hunter2" not in "".join(map(str, vars(row).values()))
    assert row.started_at is not None
    assert row.put_at <= row.started_at
    assert abs(from_db(row.finished_at) - time.time()) < 60
    assert [entry["what"] for entry in json.loads(row.history)] == ["put", "popped", "done"]
    failed = rows()["f1"]
    assert (failed.error_group, failed.error_message) == ("mail-KeyError", "Traceback\nKeyError: 'zip_code'")
    assert rows()["x1"].arguments_are == "complete"


def test_a_pass_without_new_jobs_writes_nothing(site: Client) -> None:
    complete(site, "c1")
    fail(site, "f1")
    assert write(site).counts["written"] == 2
    assert write(site).counts["written"] == 0
    assert write(site, again=True).counts["written"] == 0


def test_the_latest_end_is_kept(site: Client, clock: Clock) -> None:
    fail(site, "f1")
    write(site)
    clock.skew = 10
    site.jobs.get("f1").requeue("mail")  # type: ignore[union-attr]
    assert states() == {"f1": "failed"}
    pop(site.queues["mail"]).complete()
    write(site)
    assert states() == {"f1": "complete"}
    assert ArchivedJob.objects.count() == 1
    first = rows()["f1"].finished_at
    clock.skew = 20
    site.jobs.get("f1").requeue("mail")  # type: ignore[union-attr]
    pop(site.queues["mail"]).complete()
    write(site)
    assert rows()["f1"].finished_at > first


def test_an_earlier_end_does_not_replace_a_later_one(site: Client) -> None:
    complete(site, "c1")
    write(site)
    row = rows()["c1"]
    late = row.finished_at
    row.pk, row.finished_at, row.queue = None, row.put_at.replace(year=2001), "wrong"
    assert store([row]) == (0, 0)
    assert (rows()["c1"].finished_at, rows()["c1"].queue) == (late, "mail")


def test_a_failed_job_that_is_canceled_keeps_its_error(site: Client, clock: Clock) -> None:
    fail(site, "f1")
    write(site)
    clock.skew = 2
    site.jobs["f1"].cancel()
    write(site)
    row = rows()["f1"]
    assert (row.state, row.error_group) == ("canceled", "mail-KeyError")
    assert marks.command(site, "LLEN", "canceled") == 0


def test_canceled_jobs_are_saved_only_for_an_archive_that_is_written(site: Client, clock: Clock) -> None:
    def cancel(jid: str) -> int:
        site.queues["mail"].put(SEND, {}, jid=jid)
        site.jobs[jid].cancel()
        return int(marks.command(site, "LLEN", "canceled"))

    assert cancel("a") == 0
    write(site)
    assert cancel("b") == 1
    clock.skew = 2 * 86_400
    assert cancel("c") == 1


def test_clients_with_slow_clocks_are_not_missed(site: Client, clock: Clock) -> None:
    complete(site, "c1")
    write(site)
    clock.skew = -30
    complete(site, "slow")
    clock.skew = -600
    complete(site, "very-slow")
    clock.skew = 0
    write(site)
    assert set(states()) == {"c1", "slow"}
    clock.skew = writer.SWEEP_SECONDS + 1
    write(site)
    assert set(states()) == {"c1", "slow", "very-slow"}


def test_jobs_with_the_same_time_are_all_archived(site: Client, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(site, "clock", lambda: 1_700_000_000.0)
    configure(settings, BATCH=7)
    jids = {complete(site, f"c{n}") for n in range(40)}
    write(site)
    assert set(states()) == jids


def test_jobs_that_redis_deletes_first_are_counted(site: Client, clock: Clock) -> None:
    complete(site, "c1")
    write(site)
    site.config.set("jobs-history-count", 2)
    for n in range(6):
        clock.skew += 0.01
        complete(site, f"d{n}")
    assert site.jobs.get("d0") is None
    archive = status(site)
    assert (archive.lost, archive.loses, archive.behind) == (4, True, 2)
    write(site)
    assert set(states()) == {"c1", "d4", "d5"}
    assert status(site).behind == 0
    drop(site, clock)  # all of them are archived
    assert site.jobs.get("d5") is None
    assert status(site).lost == 4


def test_old_rows_are_deleted_in_batches(site: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_ROWS_PER_DELETE", 3)
    for n in range(7):
        complete(site, f"c{n}")
    write(site)
    assert list(prune(site.clock() - 60)) == []
    clock.skew = 366 * 86_400
    complete(site, "new")
    outcome = write(site)
    assert outcome.counts["pruned"] == 7
    assert set(states()) == {"new"}


@pytest.mark.parametrize("hostile", ["<b>\"it's\\&{{x}}%s</b>\u202eé\x00/#?", "x" * 300, "\U0001f600" * 40])
def test_any_name_can_be_archived(site: Client, hostile: str) -> None:
    jid = hostile[:100]
    complete(site, jid, {hostile: hostile}, tags=[hostile], klass=hostile)
    assert write(site).counts["written"] == 1
    assert list(states()) == [jid]


def test_a_jid_that_is_too_long_is_skipped(site: Client) -> None:
    complete(site, "j" * 300)
    complete(site, "c1")
    write(site)
    assert list(states()) == ["c1"]
    assert status(site).skipped == 1


def test_a_row_that_the_database_rejects_does_not_stop_the_others(
    site: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = writer.upsert

    def rejecting(batch: Any) -> int:
        if any(row.key == "bad" for row in batch):
            raise DataError("no")
        return insert(batch)

    monkeypatch.setattr(writer, "upsert", rejecting)
    for jid in ("c1", "bad", "c2"):
        complete(site, jid)
    assert write(site).counts["written"] == 2
    assert set(states()) == {"c1", "c2"}


def test_long_arguments_are_cut(site: Client) -> None:
    complete(site, "c1", {"text": "word " * 10_000})
    write(site)
    row = rows()["c1"]
    assert row.arguments_are == "cut"
    assert len(row.arguments) == 20_000


def test_positional_secrets_of_unknown_tasks_are_hidden(site: Client) -> None:
    complete(site, "c1", {"args": ["hunter2", 3], "kwargs": {"order": 7}}, klass="nobody.knows")
    write(site)
    row = rows()["c1"]
    assert json.loads(row.arguments) == {"args": UNNAMED, "kwargs": {"order": 7}}


def test_two_writers_exclude_each_other(site: Client) -> None:
    complete(site, "c1")
    marks.command(site, "SET", "archive-lock", "other")
    outcome = write(site)
    assert outcome.locked
    assert states() == {}
    assert marks.command(site, "GET", "archive-lock") == b"other"


def test_a_writer_that_is_asked_to_stop_continues_there(site: Client, settings: Any) -> None:
    configure(settings, BATCH=4)
    jids = {complete(site, f"c{n}") for n in range(20)}
    assert ArchiveWriter(site, lambda: False).run().counts["written"] == 4
    write(site)
    assert set(states()) == jids


KILLED = """
import os, signal, sys
import django
django.setup()
from resty_django.qless.archive import marks, writer
from resty_django.qless.clients.default import default_client
at, calls = sys.argv[1], 0
store, set_marks = writer.store, marks.set_marks
def killing_store(rows):
    global calls
    calls += bool(rows)
    if at == "before" and calls == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    outcome = store(rows)
    if at == "after" and calls == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return outcome
writer.store = killing_store
writer.ArchiveWriter(default_client()).run()
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("at", ["before", "after", "any"])
def test_a_killed_writer_neither_loses_nor_duplicates_jobs(site: Client, valkey: Any, valkey_url: str, at: str) -> None:
    """SIGKILL between reading and writing, between writing and moving the mark, or at any time."""
    write(site)
    jids = {complete(site, f"c{n}") for n in range(60)}
    jids |= {fail(site, f"f{n}") for n in range(30)}
    for n in range(30):
        site.queues["mail"].put(SEND, {}, jid=f"x{n}")
    site.jobs["x0"].cancel()
    for n in range(1, 30):
        site.jobs[f"x{n}"].cancel()
    jids |= {f"x{n}" for n in range(30)}
    env = {
        **os.environ,
        "RESTY_DB_NAME": str(connection.settings_dict["NAME"]),
        "DJANGO_SETTINGS_MODULE": "tests.integration.qless.worker.site_settings",
        "TEST_QLESS": json.dumps(archive_settings(valkey_url, BATCH=10)),
        "PYTHONPATH": str(ROOT),
    }
    kills = 0
    for attempt in range(6):
        process = processes.Process([sys.executable, "-c", KILLED, at], cwd=ROOT, env=env)
        if at == "any":
            time.sleep(0.02 * 2**attempt)
            process.kill()
        if process.wait(60) == -signal.SIGKILL:
            kills += 1
        valkey.delete("ql:archive-lock")  # it would expire after a minute
        if at != "any" and kills == 2:
            break
    assert kills >= 1
    write(site)
    assert set(states()) == jids
    assert ArchivedJob.objects.count() == len(jids)
    assert status(site).behind == 0
    assert status(site).canceled == 0


def test_the_interval_respects_what_redis_keeps() -> None:
    for keeps, kept, per_second, expected in (
        (604_800, 50_000, 1, runner.MAX_PASS_SECONDS),
        (604_800, 50_000, 500, 10.0),
        (604_800, 50_000, 50_000, runner.MIN_PASS_SECONDS),
        (100, 50_000, 0, 10.0),
        (0, 50_000, 1, runner.MIN_PASS_SECONDS),
        (604_800, -1, 50_000, runner.MAX_PASS_SECONDS),
    ):
        assert runner.next_interval(keeps, kept, per_second) == expected, (keeps, kept, per_second)


@pytest.mark.django_db(transaction=True)
def test_the_thread_of_a_worker_retries_while_the_database_is_down(
    site: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    insert, down = writer.upsert, [True]

    def failing(batch: Any) -> int:
        if down[0]:
            raise OperationalError("the database is down")
        return insert(batch)

    monkeypatch.setattr(writer, "upsert", failing)
    for module in (runner, passes):
        monkeypatch.setattr(module, "MIN_PASS_SECONDS", 0.05)
        monkeypatch.setattr(module, "MAX_PASS_SECONDS", 0.1)
    complete(site, "c1")
    archiver = runner.Archiver(site)
    archiver.start()
    try:
        time.sleep(0.5)
        assert [record.message for record in caplog.records if "retrying" in record.message] == [
            "Jobs could not be archived; retrying: OperationalError: the database is down"
        ]
        complete(site, "c2")  # the queue works
        down[0] = False
        end = time.monotonic() + 20
        while set(states()) != {"c1", "c2"} and time.monotonic() < end:
            time.sleep(0.05)
        assert set(states()) == {"c1", "c2"}
    finally:
        archiver.stop()


def test_a_worker_writes_only_if_the_settings_say_so(site: Client, settings: Any) -> None:
    for archive in ({"RETENTION": None}, {"WORKERS": False}):
        configure(settings, **archive)
        assert not runner.Archiver.is_wanted()
