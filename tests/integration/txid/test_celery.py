"""Celery: a real worker with two processes over a real server, from the sender's txid to the log lines of the task."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.txid import bound, current, current_trace, is_txid
from resty_django.txid.traceparent import continue_trace
from tests import processes

pytestmark = pytest.mark.redis

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = ("--pool=prefork", "--concurrency=2", "--without-gossip", "--without-mingle")
ID = "cbpvimguo4hkaps9lf6g"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Worker:
    """The app and the log of its worker."""

    def __init__(self, app: Any, log: Path) -> None:
        self.app = app
        self.log = log

    def rows(self) -> list[dict[str, Any]]:
        rows = []
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                rows.append(json.loads(line))
        return rows

    def about(self, task: Any) -> list[tuple[str, str]]:
        """Txid and first word of the lines of the worker's children about a task, once its end is logged."""
        end = time.monotonic() + 30
        while True:
            pairs = [
                (row["txid"], row["message"])
                for row in self.rows()
                if task.id in row["message"] or "telling" in row["message"]
            ]
            if any("succeeded" in text or "raised" in text for _, text in pairs if task.id in text):
                return [(txid, text) for txid, text in pairs if "received" not in text]
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)


@pytest.fixture(scope="module")
def running(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """The worker, with its signals connected here too."""
    from resty_django.txid import celery as ours
    from tests.integration.txid import celery_app

    celery_app.app.conf.update(broker_url=valkey_url, result_backend=valkey_url)
    ours.connect()
    log = tmp_path_factory.mktemp("celery") / "log"
    with log.open("wb") as output:
        worker = processes.Process(
            [sys.executable, "-m", "celery", "-A", "tests.integration.txid.celery_app", "worker", *OPTIONS],
            cwd=ROOT,
            env={
                **os.environ,
                "TXID_TEST_BROKER": valkey_url,
                "DJANGO_SETTINGS_MODULE": "project.settings",
                "PYTHONWARNINGS": "ignore",
                "C_FORCE_ROOT": "1",
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Worker(celery_app, log)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)
        celery_app.app.close()
        celery_app.app.backend.client.close()
        ours.disconnect()


def get(result: Any) -> Any:
    return result.get(timeout=60)


def test_a_task_has_the_txid_of_its_sender(running: Worker) -> None:
    with bound(ID):
        result = running.app.tell.delay()
    assert get(result) == [{"txid": ID, "request_id": None, "trace": None}]
    lines = running.about(result)
    assert (ID, "telling") in lines
    assert {txid for txid, text in lines if result.id in text} == {ID}


def test_a_task_sent_without_a_txid_has_a_new_one(running: Worker) -> None:
    first, second = (get(running.app.tell.delay())[0]["txid"] for _ in range(2))
    assert is_txid(first)
    assert is_txid(second)
    assert first != second


def test_a_task_has_the_request_id_of_the_caller(running: Worker) -> None:
    sent = "f058ebd6-02f7-4d3f-942e-904344e8cde5"
    with bound(ID, request_id=sent):
        result = running.app.tell.delay()
        retried = running.app.retrying.delay()
        following = (running.app.tell.s() | running.app.tell.s()).delay()
    assert [row["request_id"] for row in get(result) + get(retried) + get(following)] == [sent] * 4
    running.about(result)
    lines = [row for row in running.rows() if result.id in row["message"] and "received" not in row["message"]]
    assert {row["request_id"] for row in lines} == {sent}
    forged = running.app.tell.apply_async(headers={"txid": ID, "request_id": "1\n2026 INFO - forged"})
    assert [row["request_id"] for row in get(forged)] == [None]


def test_a_trace_continues_in_the_task(running: Worker) -> None:
    trace = continue_trace(f"00-{TRACE}-{PARENT}-01", "congo=t61rcWkgMzE")
    assert trace is not None
    with bound(ID, trace):
        (row,) = get(running.app.tell.delay())
    trace_id, parent_id, span_id, state = row["trace"]
    assert (trace_id, parent_id, state) == (TRACE, trace.span_id, "congo=t61rcWkgMzE")
    assert span_id not in (trace.span_id, PARENT)


def test_retries_and_following_tasks_keep_the_txid(running: Worker) -> None:
    with bound(ID):
        retried = running.app.retrying.delay()
        following = (running.app.tell.s() | running.app.tell.s() | running.app.tell.s()).delay()
    assert [row["txid"] for row in get(retried)] == [ID]
    assert [row["txid"] for row in get(following)] == [ID] * 3


def test_a_failing_task_is_logged_with_its_txid_and_the_next_has_another(running: Worker) -> None:
    with bound(ID):
        result = running.app.failing.delay()
    with pytest.raises(RuntimeError, match="on purpose"):
        get(result)
    assert {txid for txid, _ in running.about(result) if txid != "-"} >= {ID}
    assert get(running.app.tell.delay())[0]["txid"] != ID


def test_a_task_called_within_a_task_changes_nothing(running: Worker) -> None:
    with bound(ID):
        rows = get(running.app.nested.delay())
    assert [row["txid"] for row in rows] == [ID] * 3


def test_a_header_of_the_caller_is_kept_and_a_wrong_one_replaced(running: Worker) -> None:
    with bound():
        assert get(running.app.tell.apply_async(headers={"txid": ID}))[0]["txid"] == ID
        rows = get(running.app.tell.apply_async(headers={"txid": "nonsense", "traceparent": "nonsense"}))
    assert is_txid(rows[0]["txid"])
    assert rows[0]["trace"] is None


def test_a_task_called_directly_has_the_current_txid(running: Worker) -> None:
    with bound(ID):
        assert running.app.tell.apply().get() == [{"txid": ID, "request_id": None, "trace": None}]
        assert current() == ID
    assert is_txid(running.app.tell.apply().get()[0]["txid"])
    assert current() is None
    assert current_trace() is None
