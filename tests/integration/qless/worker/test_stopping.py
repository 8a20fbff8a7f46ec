"""How soon a timeout or a revoke reaches the code of a job, by the job's own clock, with each pool."""

from __future__ import annotations

import time
from typing import Any

import pytest

from resty_django.qless import Client
from tests.integration.qless.conftest import job_of
from tests.integration.qless.worker.conftest import Start, Workers, put, started, texts, until, wait_for

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180), pytest.mark.slow]

PROMPT = 8.0
"""Seconds: a busy machine needs more than the one second that the docs say. The next heartbeat comes after 20."""


def start(workers: Start, pool: str, interrupt: bool) -> Workers:
    worker = {"QUEUES": ["q"], "INTERRUPT": interrupt, "POOL": pool}
    return workers("--concurrency", "2", "--interval", "60", qless={"WORKER": worker})


def ended(client: Client, log: str) -> tuple[str, float]:
    """How the job has ended, and when."""
    (entry,) = wait_for(lambda: texts(client, "ended"), log)
    client.source.sync().delete("ended")
    what, at = entry.split()
    return what, float(at)


@pytest.mark.parametrize(
    ("pool", "interrupt", "outcomes"),
    [
        ("threads", True, {"turns": "LostLock"}),
        ("threads", False, {"looks": "lost", "waits": "CancelledError"}),
        ("processes", True, {"turns": "LostLock", "sleeps": "LostLock"}),
        ("processes", False, {"looks": "lost", "waits": "CancelledError"}),
    ],
)
def test_a_revoke_reaches_python_code(
    workers: Start, client: Client, pool: str, interrupt: bool, outcomes: dict[str, str]
) -> None:
    run = start(workers, pool, interrupt)
    run.ready()
    server: Any = client.source.sync()
    wait_for(lambda: server.pubsub_numsub(b"ql:wake:q")[0][1] == 1)
    for number, (name, outcome) in enumerate(outcomes.items(), 1):
        jid = put(client, name)
        started(client, number)
        revoked_at = time.time()
        job_of(client, jid).cancel()
        what, at = ended(client, run.text())
        assert what == outcome
        assert at - revoked_at < PROMPT


@pytest.mark.parametrize(
    ("pool", "outcomes"),
    [
        ("threads", {"turns": "JobTimeout", "waits": "CancelledError"}),
        ("processes", {"turns": "JobTimeout", "sleeps": "JobTimeout", "waits": "CancelledError"}),
    ],
)
def test_a_timeout_reaches_python_code(workers: Start, client: Client, pool: str, outcomes: dict[str, str]) -> None:
    run = start(workers, pool, interrupt=False)
    run.ready()
    for number, (name, outcome) in enumerate(outcomes.items(), 1):
        jid = put(client, name, 0.3, retries=0)
        started(client, number)
        started_at = time.time()
        what, at = ended(client, run.text())
        assert what == outcome
        assert at - started_at < 0.3 + PROMPT
        assert until(client, jid, "failed").failure["group"] == "q-JobTimeout"


@pytest.mark.parametrize("how", ["revoke", "timeout"])
def test_code_that_holds_the_interpreter_is_killed(workers: Start, client: Client, how: str) -> None:
    """The next job of the only slot starts about one second later."""
    run = start(workers, "processes", interrupt=False)
    run.ready()
    jids = [put(client, "block_interpreter" if how == "revoke" else "blocks_timed", retries=0) for _ in range(2)]
    started(client, 2)
    began = time.time()
    if how == "revoke":
        for jid in jids:
            job_of(client, jid).cancel()
    put(client, "stamp", began)
    (took,) = wait_for(lambda: texts(client, "took"), run.text())
    assert float(took) < 1.3 + PROMPT
    assert run.text().count("killing its process") >= 1
