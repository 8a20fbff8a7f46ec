"""Where jobs go that others run: sent until somebody takes them, and again where a message was lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from resty_django.qless import Client
from resty_django.qless.integrations.celery.dispatcher import CeleryDispatcher
from resty_django.qless.integrations.celery.runner import run_borrowed
from resty_django.qless.management.worker_process import build
from resty_django.qless.worker.handlers import resolve_handler
from resty_django.qless.worker.loop import WorkerLoop
from tests.integration.qless.conftest import job_of, pop
from tests.integration.qless.worker.conftest import InProcessWorker, in_process_workers, options, wait_for

pytestmark = pytest.mark.redis

MODULE = "tests.integration.qless.celery.jobs"


class Forwarder(InProcessWorker):
    """A worker that hands over to a list."""

    def __init__(self, url: str, resend_after: float = 300.0, **settings: Any) -> None:
        super().__init__(url, **settings)
        self.sent: list[tuple[str, str]] = []
        self.broken = threading.Event()
        worker_options = options(**settings)
        self.loop, self.listener = build(self.client, worker_options)
        pool = CeleryDispatcher(self.loop.inbox, self.send, resend_after)
        self.loop = WorkerLoop(
            self.client, self.client.worker_name, worker_options, worker_options.make_reserver(), lambda inbox: pool
        )
        pool.inbox = self.loop.inbox
        self.loop.before_poll = self.listener.rearm
        inbox, loop = self.loop.inbox, self.loop
        self.listener.on_job_available = lambda queue: inbox.put(lambda: loop.on_job_available(queue))
        self.listener.on_lock_lost = pool.taken
        self.listener.on_reconnect = lambda: inbox.put(loop.on_reconnect)

    def send(self, job: Any) -> None:
        if self.broken.is_set():
            raise OSError("the broker is down")
        self.sent.append((job.jid, job.worker_name))


Forward = Callable[..., Forwarder]


@pytest.fixture
def client(valkey: Any, valkey_url: str, settings: Any) -> Iterator[Client]:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "MODULES": [MODULE]}}
    resolve_handler.cache_clear()
    with closing(Client(valkey_url, worker_name="somebody else")) as client:
        yield client


@pytest.fixture
def forward(client: Client, valkey_url: str) -> Iterator[Forward]:
    with in_process_workers(valkey_url, Forwarder) as start:
        yield start


def put(client: Client, name: str = "nothing") -> str:
    return client.queues["q"].put(f"{MODULE}.{name}", {"args": [], "kwargs": {}})


def test_a_job_is_handed_over_once(client: Client, forward: Forward) -> None:
    worker = forward(concurrency=2)
    jids = [put(client) for _ in range(3)]
    wait_for(lambda: len(worker.sent) == 2)
    first, second = worker.sent
    assert run_borrowed(client, *first, 0) == [(first[0], "completed")]
    assert run_borrowed(client, *second, 0) == [(second[0], "completed")]
    wait_for(lambda: len(worker.sent) == 3)
    assert run_borrowed(client, *worker.sent[2]) == [(worker.sent[2][0], "completed")]
    assert run_borrowed(client, *first) == []  # the message came twice
    wait_for(lambda: worker.counts["handed over"] == 3)
    assert sorted(client.jobs.complete()) == sorted(jids)
    assert worker.stop() == 0


def test_one_message_runs_all_that_wait_for_a_moment(client: Client, forward: Forward) -> None:
    worker = forward(concurrency=4)
    jids = [put(client) for _ in range(3)]
    failing = put(client, "fails")
    wait_for(lambda: len(worker.sent) == 4)
    ran = run_borrowed(client, *worker.sent[1], 60)
    assert sorted(ran) == sorted([*((jid, "completed") for jid in jids), (failing, "failed")])
    assert ran[0][0] == worker.sent[1][0]
    assert sorted(client.jobs.complete()) == sorted(jids)
    wait_for(lambda: worker.counts["handed over"] == 4)
    assert not any(run_borrowed(client, *message) for message in worker.sent)


def test_a_job_that_is_taken_before_its_worker_knows_of_it(client: Client, forward: Forward) -> None:
    """The notice may come before the answer to the pop."""
    worker = forward()
    worker.loop.pool.taken("early")
    client.queues["q"].put(f"{MODULE}.nothing", {"args": [], "kwargs": {}}, jid="early")
    wait_for(lambda: worker.counts["handed over"] == 1)
    assert worker.sent == []
    jid = put(client)
    wait_for(lambda: worker.sent)
    assert run_borrowed(client, *worker.sent[0], 0) == [(jid, "completed")]


def test_a_message_that_was_lost_is_sent_again(client: Client, forward: Forward) -> None:
    worker = forward(resend_after=0.2)
    jid = put(client)
    wait_for(lambda: len(worker.sent) >= 3)
    assert {sent_jid for sent_jid, _ in worker.sent} == {jid}
    assert run_borrowed(client, *worker.sent[0]) == [(jid, "completed")]
    assert not any(run_borrowed(client, *message) for message in worker.sent[1:])
    wait_for(lambda: worker.counts["handed over"] == 1)


def test_a_job_is_sent_once_the_broker_is_back(client: Client, forward: Forward) -> None:
    worker = forward()
    worker.broken.set()
    jid = put(client)
    wait_for(lambda: client.queues["q"].counts().running == 1)
    worker.broken.clear()
    wait_for(lambda: worker.sent)
    assert run_borrowed(client, *worker.sent[0]) == [(jid, "completed")]
    assert client.jobs.complete() == [jid]


def test_jobs_that_no_process_has_taken_return_to_their_queue_at_the_end(client: Client, forward: Forward) -> None:
    worker = forward()
    jid = put(client)
    wait_for(lambda: worker.sent)
    assert worker.stop(0.1) == 3
    assert run_borrowed(client, *worker.sent[0]) == []
    job = pop(client.queues["q"])
    assert (job.jid, job.retries_left) == (jid, 5)


def test_a_job_whose_lock_was_lost_in_the_broker_is_not_run(client: Client, forward: Forward) -> None:
    worker = forward()
    jid = put(client)
    wait_for(lambda: worker.sent)
    job_of(client, jid).move("p")
    wait_for(lambda: worker.counts["handed over"] == 1)
    assert run_borrowed(client, *worker.sent[0]) == []
    assert client.queues["p"].length() == 1


def test_failed_and_retried_jobs_free_their_slots(client: Client, forward: Forward) -> None:
    worker = forward()
    failing = put(client, "fails")
    wait_for(lambda: len(worker.sent) == 1)
    assert run_borrowed(client, *worker.sent[0]) == [(failing, "failed")]
    retried = put(client, "third_time")
    for number in (2, 3):
        wait_for(lambda number=number: len(worker.sent) == number)
        assert run_borrowed(client, *worker.sent[-1]) == [(retried, "retried")]
    put(client, "unknown")  # fails here, without being sent
    wait_for(lambda: client.jobs.failed().get("q-ImportError") == 1)
