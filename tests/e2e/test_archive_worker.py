"""The archive written by `manage.py runqless`, which is killed once: each job has one row."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from resty_django.qless import Client
from tests.e2e.conftest import Site
from tests.integration.qless.worker.conftest import JOBS, Workers, descendants, wait_for
from tests.integration.qless.worker.conftest import workers as workers

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(600), pytest.mark.slow]

DONE, FAILING = 150, 50


def test_a_worker_archives_each_job_once(
    site: Site, workers: Callable[..., Workers], valkey: Any, valkey_url: str, tmp_path: Path
) -> None:
    if os.environ.get("RESTY_TEST_DB", "sqlite") != "sqlite":
        pytest.skip("The worker of this test has a database file.")
    database = site.env["RESTY_DB_NAME"]
    qless = {"ARCHIVE": {"RETENTION": "365d", "BATCH": 4}, "WORKER": {"QUEUES": ["q"], "PROCESSES": 1}}

    def rows() -> dict[int, tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=20)) as connection:
            columns = "id, key, state, finished_at, error_group"
            return {row[0]: row for row in connection.execute(f"SELECT {columns} FROM resty_qless_archivedjob")}

    def archived(condition: Callable[[dict[str, str]], bool], worker: Workers) -> None:
        """Wait until the archive is as wanted; look rarely, since a reader of SQLite holds up a writer."""
        end = time.monotonic() + 150
        while not condition({row[1]: row[2] for row in rows().values()}):
            assert time.monotonic() < end, (len(rows()), valkey.hgetall("ql:archive"), worker.text())
            time.sleep(0.5)

    client = Client(valkey_url)
    queue = client.queues["q"]
    for number in range(DONE):
        data = {"customer": {"id": 5000 + number, "name": "Ann" if number == 7 else "Bob"}}
        queue.put(f"{JOBS}.write", data, jid=f"done-{number}", tags=["vip"] if number == 3 else [])
    for number in range(FAILING):
        queue.put(f"{JOBS}.boom", {"order": number}, jid=f"broken-{number}", retries=0)
    jids = {f"done-{number}" for number in range(DONE)} | {f"broken-{number}" for number in range(FAILING)}
    os.environ["RESTY_DB_NAME"], before = database, os.environ.get("RESTY_DB_NAME")
    try:
        plain = workers(qless={**qless, "ARCHIVE": {**qless["ARCHIVE"], "WORKERS": False}})
        wait_for(lambda: valkey.zcard("ql:completed") == DONE, "jobs are completed")
        wait_for(lambda: client.jobs.failed().get("q-ValueError") == FAILING, "jobs fail")
        plain.signal(signal.SIGTERM)
        assert plain.wait() == 0, plain.text()
        assert rows() == {}
        client.config.set("jobs-history", 20)  # so that a pass follows the other in 2 s

        first = workers(qless=qless)
        wait_for(rows, "the worker writes")
        for pid in (first.process.pid, *descendants(first.process.pid)):
            os.kill(pid, signal.SIGKILL)
        first.wait()
        early = rows()
        assert 0 < len(early) < len(jids), "the worker was not killed while it wrote"
        valkey.delete("ql:archive-lock")  # it would expire after a minute

        second = workers(qless=qless)
        archived(lambda states: set(states) == jids, second)
        complete = rows()
        assert len(complete) == len(jids)
        assert early.items() <= complete.items()
        states = {row[1]: (row[2], row[4]) for row in complete.values()}
        assert {states[f"done-{number}"] for number in range(DONE)} == {("complete", "")}
        assert {states[f"broken-{number}"] for number in range(FAILING)} == {("failed", "q-ValueError")}

        client.config.set("jobs-history", 1)
        jids_of_done = [f"done-{number}" for number in range(DONE)]

        def redis_has() -> bool:
            """Complete one more job, by which Redis deletes up to 50 old ones."""
            queue.put(f"{JOBS}.write", {})
            return any(valkey.exists(f"ql:j:{jid}") for jid in jids_of_done)

        assert redis_has()
        wait_for(lambda: not redis_has(), "Redis deletes jobs")
        client.jobs["broken-7"].cancel()
        archived(lambda states: "canceled" in states.values(), second)
        second.signal(signal.SIGTERM)
        assert second.wait() == 0, second.text()
    finally:
        if before is None:
            del os.environ["RESTY_DB_NAME"]
        else:
            os.environ["RESTY_DB_NAME"] = before
    assert all(client.jobs.get(jid) is None for jid in jids_of_done)
    kept = {number: row for number, row in rows().items() if row[1] in jids and row[2] != "canceled"}
    assert kept == {number: row for number, row in complete.items() if row[1] != "broken-7"}
