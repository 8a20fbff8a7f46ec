"""A chord whose workers are killed: each callback is enqueued once for each end, and the body runs once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.qless import AsyncResult, chord, client
from tests.integration.qless.tasks.conftest import MODULE
from tests.integration.qless.tasks.examples import add, note, total
from tests.integration.qless.worker.conftest import Workers

pytestmark = pytest.mark.redis


@pytest.fixture
def worker_processes(site: Any, valkey_url: str, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(
        valkey_url, tmp_path / "log", "--processes", "3", "--concurrency", "4", qless={"MODULES": [MODULE]}
    )
    yield workers
    workers.end()


def end_of(result: AsyncResult[int], workers: Workers, pause: float, most: int) -> tuple[int, int]:
    """Kill at most so many worker processes until the result is there. Return it, and the number of kills."""
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
    client.config.set("heartbeat", 2)
    client.config.set("grace-period", 0.5)
    workers.ready(1)
    header = [
        add.s(n, 0).set(retries=1000, on_complete=note.si(str(n)).set(task_id=f"ended-{n}", retries=1000))
        for n in range(members)
    ]
    started = time.monotonic()
    result = chord(header, total.s().set(retries=1000, on_success=note.si("body"))).delay()
    enqueued = time.monotonic()
    value, kills = end_of(result, workers, pause, most)
    seconds = time.monotonic() - enqueued
    assert value == sum(range(members))
    assert result.parent.progress == (members, 0, 0, 0, 0, members)
    end = time.monotonic() + 300
    while client.queues["q"].length():
        assert time.monotonic() < end, workers.text()[-3000:]
        time.sleep(0.05)
    jids = client.jobs.complete(0, 3 * members)
    classes = Counter(
        job.klass for first in range(0, len(jids), 500) for job in client.jobs.multiget(*jids[first : first + 500])
    )
    assert classes == {add.name: members, note.name: members + 1, total.name: 1}
    assert {jid for jid in jids if jid.startswith("ended-")} == {f"ended-{n}" for n in range(members)}
    events: Counter[tuple[str, int]] = Counter()
    lost = 0
    for job in client.jobs.multiget(*(member.id for member in result.parent)):
        whats = Counter(entry["what"] for entry in job.raw_queue_history)
        events.update((what, whats[what]) for what in ("done", "callback"))
        lost += whats["timed-out"]
    assert events == {("done", 1): members, ("callback", 1): members}
    body = Counter(entry["what"] for entry in result.job().raw_queue_history)
    assert (body["done"], body["callback"]) == (1, 1)
    assert kills > 0
    print(f"{members} members: enqueued in {enqueued - started:.1f} s, ended in {seconds:.1f} s")
    print(f"{kills} processes killed, {lost} locks lost")


@pytest.mark.timeout(300)
def test_callbacks_come_once_in_a_short_storm(worker_processes: Workers) -> None:
    storm(worker_processes, 300, 0.2, 4)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_callbacks_come_once_for_ten_thousand_members(worker_processes: Workers) -> None:
    storm(worker_processes, 10_000, 0.3, 100)
