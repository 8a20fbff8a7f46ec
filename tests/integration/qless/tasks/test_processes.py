"""A worker process finds the tasks of the site, and runs the periodic ones."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from resty_django.qless import Client
from resty_django.qless.tasks.abandoned import of_tasks
from tests.integration.qless.worker.conftest import Workers, wait_for

pytestmark = pytest.mark.redis

HERE = "tests.integration.qless.tasks"
PATH = f"{HERE}.ticking.tick"


def test_a_task_at_an_interval(valkey: Any, valkey_url: str, tmp_path: Path) -> None:
    modules = [f"{HERE}.broken", f"{HERE}.ticking"]
    qless = {"MODULES": modules, "WORKER": {"QUEUES": ["ticks"]}}
    client = Client(valkey_url)
    workers = Workers(valkey_url, tmp_path / "log", "--processes", "2", qless=qless)
    try:
        wait_for(lambda: len(client.jobs.complete()) >= 3, workers.text())
    finally:
        workers.signal(signal.SIGTERM)
        workers.wait()
    assert client.queues["ticks"].counts().recurring == 1
    (noted,) = of_tasks(client)
    assert noted.job.jid == f"every-{PATH}"
    assert noted.ago < 60
    jids = client.jobs.complete()
    assert all(jid.startswith(f"every-{PATH}-") for jid in jids)
    assert len(set(jids)) == len(jids)
    assert client.jobs.result(jids[0]).result == "tick"  # type: ignore[union-attr]
    assert "broken cannot be imported" in workers.text()  # which stops nothing else
    client.close()
