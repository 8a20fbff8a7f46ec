"""Jobs with retries, dependencies and delays, while processes are killed and the server is restarted."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter

import pytest

from resty_django.qless import Client, JobSpec
from resty_django.qless.worker.loop import ExitCode
from resty_django.redis import StoreError
from tests.integration.qless.worker.conftest import JOBS, Start, descendants, short_locks, wait_for
from tests.servers import Server

pytestmark = [pytest.mark.redis, pytest.mark.slow]


def make_jobs(client: Client, count: int, longest_delay: float, dice: random.Random) -> dict[str, str]:
    """Put them; return the state that each must end in, by its jid."""
    end_states: dict[str, str] = {}
    fine: list[str] = []
    specs = []
    for _ in range(count):
        kind, jid = dice.random(), client.generate_jid()
        after = dice.sample(fine[-50:], min(2, len(fine[-50:]))) if kind > 0.8 else []
        delay = dice.uniform(0, longest_delay) if 0.4 < kind < 0.7 else 0
        end_states[jid] = "failed" if kind < 0.05 else "complete"
        fails = 10_000 if kind < 0.05 else 1 if kind < 0.2 else 0
        data = {"fails": fails, "after": after, "seconds": dice.choice((0, 0, 0.01, 0.05))}
        retries = 2 if kind < 0.05 else 10_000
        specs.append(JobSpec(klass=f"{JOBS}.Flaky", data=data, jid=jid, delay=delay, depends=after, retries=retries))
        if end_states[jid] == "complete":
            fine.append(jid)
    client.queues["q"].put_many(specs)
    return end_states


def open_jobs(client: Client) -> int | None:
    with contextlib.suppress(StoreError):
        counts = client.queues["q"].counts()
        return counts.waiting + counts.running + counts.stalled + counts.scheduled + counts.depends
    return None


def storm(
    workers: Start,
    server: Server,
    *,
    jobs: int,
    seconds: float,
    pause: float,
    delay: float,
    seed: int,
    pool: str = "threads",
) -> int:
    """How many times a lock was lost. Kills workers, and with the pool "processes" also what they have started."""
    dice = random.Random(seed)
    client = Client(server.url, worker_name="the tests")
    short_locks(client, 2, 0.5)
    end_states = make_jobs(client, jobs, delay, dice)
    run = workers("--processes", "4", "--concurrency", "4", "--pool", pool, url=server.url)
    run.ready(1)
    least = min(8, seconds / pause / 2)
    kills, end = 0, time.monotonic() + seconds
    while kills < least or time.monotonic() < end:  # under other load, new workers can take longer than this to start
        assert time.monotonic() < end + 60, run.text()[-3000:]
        time.sleep(pause)
        pids = run.children() if pool == "threads" else descendants(run.process.pid)
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(pids), signal.SIGKILL)
                kills += 1
    server.kill()
    time.sleep(0.3)
    server.start()
    wait_for(lambda: open_jobs(client) == 0, run.text()[-3000:], seconds=120 + jobs / 20)
    # A worker process whose fork server was killed may have returned its jobs, and ended, just before.
    codes = {ExitCode.OK, ExitCode.GAVE_BACK} if pool == "processes" else {ExitCode.OK}
    assert run.stop() in codes, run.text()[-3000:]

    states, wrong = {}, {}
    done: Counter[int] = Counter()
    lost = 0
    jids = list(end_states)
    for first in range(0, len(jids), 500):
        for job in client.jobs.multiget(*jids[first : first + 500]):
            states[job.jid] = job.state
            if job.state != end_states[job.jid]:
                wrong[job.jid] = (job.state, job.failure, job.raw_queue_history)
            what = Counter(entry["what"] for entry in job.raw_queue_history)
            done[what["done"]] += 1
            lost += what["timed-out"]
    assert (wrong, end_states.keys() - states) == ({}, set()), run.text()[-3000:]
    completed = sum(state == "complete" for state in end_states.values())
    assert done == {1: completed, 0: jobs - completed}
    assert client.queues["q"].stats().run.count + client.queues["q"].stats(time.time() - 86400).run.count == completed
    assert sum(client.queues["q"].throughput().hours) == completed
    assert set(client.jobs.failed()) <= {"q-OSError", "q-ProcessDied", "failed-retries-q"}
    assert sum(client.jobs.failed().values()) == jobs - completed
    client.close()
    return lost


@pytest.mark.timeout(240)
@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_no_job_is_lost_in_a_short_storm(workers: Start, own_server: Server, pool: str) -> None:
    seed = random.randrange(10**6)
    storm(workers, own_server, jobs=300, seconds=3.2, pause=0.4, delay=3.0, seed=seed, pool=pool)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("pool", "jobs", "pause"), [("threads", 10_000, 0.5), ("processes", 5_000, 0.2)])
def test_no_job_is_lost_in_a_long_storm(workers: Start, own_server: Server, pool: str, jobs: int, pause: float) -> None:
    seed = random.randrange(10**6)
    lost = storm(workers, own_server, jobs=jobs, seconds=60, pause=pause, delay=60.0, seed=seed, pool=pool)
    assert pool == "processes" or lost > 20
