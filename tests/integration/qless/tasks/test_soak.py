"""A chord whose workers are killed: each callback is enqueued once for each end, and the body runs once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest

from resty_django.qless import AsyncResult, chord, client
from tests.integration.qless.tasks.conftest import MODULE
from tests.integration.qless.tasks.examples import add, note, total
from tests.integration.qless.worker.conftest import Start, Workers, short_locks, wait_for
from tests.integration.qless.worker.conftest import workers as workers  # the fixture

pytestmark = pytest.mark.redis


@pytest.fixture
def worker_processes(site: Any, workers: Start) -> Workers:
    return workers("--processes", "3", "--concurrency", "4", qless={"MODULES": [MODULE]})


def end_of(result: AsyncResult[int], workers: Workers, pause: float, most: int) -> tuple[int, int]:
    """Kill up to this number of worker processes until the result exists. Return it, and the number of kills."""
    dice = random.Random()
    kills, end = 0, time.monotonic() + 600
    while not result.ready():
        assert time.monotonic() < end, workers.text()[-3000:]
        time.sleep(pause)
        pids = workers.children()
        if pids and kills < most:
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(pids), signal.SIGKILL)
                kills += 1
    return result.get(), kills


def storm(workers: Workers, members: int, pause: float, most: int) -> None:
    short_locks(client, 2, 0.5)
    workers.ready(1)
    header = [
        add.s(n, 0).set(retries=1000, on_complete=note.si(str(n)).set(task_id=f"ended-{n}", retries=1000))
        for n in range(members)
    ]
    result = chord(header, total.s().set(retries=1000, on_success=note.si("body"))).delay()
    value, kills = end_of(result, workers, pause, most)
    assert value == sum(range(members))
    assert result.parent.progress == (members, 0, 0, 0, 0, members)
    wait_for(lambda: not client.queues["q"].length(), workers.text()[-3000:], 300)
    jids = client.jobs.complete(0, 3 * members)
    classes = Counter(
        job.klass for first in range(0, len(jids), 500) for job in client.jobs.multiget(*jids[first : first + 500])
    )
    assert classes == {add.name: members, note.name: members + 1, total.name: 1}
    assert {jid for jid in jids if jid.startswith("ended-")} == {f"ended-{n}" for n in range(members)}
    events: Counter[tuple[str, int]] = Counter()
    for job in client.jobs.multiget(*(member.id for member in result.parent)):
        whats = Counter(entry["what"] for entry in job.raw_queue_history)
        events.update((what, whats[what]) for what in ("done", "callback"))
    assert events == {("done", 1): members, ("callback", 1): members}
    body = Counter(entry["what"] for entry in result.job().raw_queue_history)
    assert (body["done"], body["callback"]) == (1, 1)
    assert kills > 0


@pytest.mark.timeout(300)
def test_callbacks_come_once_in_a_short_storm(worker_processes: Workers) -> None:
    storm(worker_processes, 300, 0.2, 4)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_callbacks_come_once_for_ten_thousand_members(worker_processes: Workers) -> None:
    storm(worker_processes, 10_000, 0.3, 100)
