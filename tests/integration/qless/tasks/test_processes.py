"""A worker process finds the tasks of the site, and runs the periodic ones."""

from __future__ import annotations

import pytest

from resty_django.qless import Client
from resty_django.qless.tasks.abandoned import of_tasks
from tests.integration.qless.worker.conftest import Start, wait_for
from tests.integration.qless.worker.conftest import workers as workers  # the fixture

pytestmark = pytest.mark.redis

HERE = "tests.integration.qless.tasks"
PATH = f"{HERE}.ticking.tick"


def test_a_task_at_an_interval(workers: Start, client: Client) -> None:
    modules = [f"{HERE}.broken", f"{HERE}.refused", f"{HERE}.ticking"]
    run = workers("--processes", "2", qless={"MODULES": modules, "WORKER": {"QUEUES": ["ticks"]}})
    wait_for(lambda: len(client.jobs.complete()) >= 3, run.text())
    assert run.stop() == 0
    assert client.queues["ticks"].counts().recurring == 1
    (noted,) = of_tasks(client)
    assert noted.job.jid == f"every-{PATH}"
    assert noted.ago < 60
    jids = client.jobs.complete()
    assert all(jid.startswith(f"every-{PATH}-") for jid in jids)
    assert len(set(jids)) == len(jids)
    assert client.jobs.result(jids[0]).result == "tick"  # type: ignore[union-attr]
    assert "broken cannot be imported" in run.text()  # which stops nothing else
    assert "refused.urgent: priority= must be a number, not 'high'" in run.text()
    assert "resty_qless.E007" not in run.text()  # an error of a check would stop all tasks
