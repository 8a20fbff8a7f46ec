"""Ends of jobs that the server refuses, or that cannot even be sent: the job fails at once, the others go on.

The private `Client._arguments` is what redis-py gets: tests check it for hundreds of examples without a server.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resty_django.qless import Client, InvalidArgument
from resty_django.qless.clients import serialization
from resty_django.qless.integrations.celery.runner import run_borrowed
from resty_django.qless.outcomes import RequeueLater, RetryLater
from resty_django.qless.outcomes.error_text import MAX_GROUP_CHARS, MAX_MESSAGE_CHARS
from resty_django.qless.worker import execution
from resty_django.qless.worker.commands import CommandBatch, FailJob, RetryJob
from resty_django.qless.worker.handlers import JobHandler
from resty_django.qless.worker.in_flight import InFlightJobs
from resty_django.qless.worker.loop import ExitCode
from resty_django.qless.worker.running_job import MAX_REFUSALS, RunningJob
from tests.integration.qless.conftest import history, job_of
from tests.integration.qless.worker import jobs
from tests.integration.qless.worker.conftest import StartInProcess as Start
from tests.integration.qless.worker.conftest import holds, put, state, until, wait_for

pytestmark = pytest.mark.redis

SERVER_SAYS = {
    "retry nan": ("q-InvalidArgument", 'Retry(): Arg "delay" not a number: nan'),
    "retry infinity": ("q-InvalidArgument", 'Retry(): Arg "delay" not a number: inf'),
    "requeue nan": ("q-InvalidArgument", 'Put(): Arg "delay" not a number: nan'),
    "requeue retries": ("q-InvalidArgument", 'Put(): Arg "retries" not a number: many'),
    "long result": ("q-InvalidArgument", 'Complete(): Arg "result" longer than max-payload, 1000: 5002'),
    "long data": ("q-InvalidArgument", 'Complete(): Arg "data" longer than max-payload, 1000: 5002'),
    "data false": ("q-InvalidArgument", 'Complete(): Arg "data" not JSON: false'),
    "key of another type": ("q-StoreError", "WRONGTYPE"),
}
"""The group and a part of the message of failures whose reason the server gave."""
FINE = {"surrogate in log", "surrogate in progress", "deep data"}
RETRIED = {"surrogate in group"}


def check(client: Client, jid: str, how: str) -> None:
    job = job_of(client, jid)
    assert history(client, jid).count("popped") == (2 if how in RETRIED else 1)
    if how in FINE:
        assert job.state == "complete"
        return
    failure = job.failure
    assert len(failure["message"]) <= MAX_MESSAGE_CHARS
    assert len(failure["group"]) <= MAX_GROUP_CHARS
    (failure["message"] + failure["group"]).encode()
    group, message = SERVER_SAYS.get(how, ("q-", ""))
    assert failure["group"].startswith(group if how not in RETRIED else "\ufffd")
    assert message in failure["message"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_refused_end_fails_the_job_at_once_and_no_other(start_worker: Start, client: Client) -> None:
    client.config.set("max-payload", 1000)
    worker = start_worker(concurrency=3)
    neighbour = holds(put(client, "blind"))
    jids = {how: put(client, "Ending", how, retries=1 if how in RETRIED else 5) for how in jobs.ENDINGS}
    jids["ttl"] = put(client, "OddTtl", 1)
    for how, jid in jids.items():
        wait_for(lambda jid=jid: state(client, jid) in ("failed", "complete"), how)
        if how != "ttl":
            check(client, jid, how)
    failure = job_of(client, jids["ttl"]).failure
    assert failure["message"].startswith('InvalidArgument: Complete(): Arg "ttl" not a number: abc')
    jobs.GO.set()
    until(client, neighbour, "complete")
    assert job_of(client, neighbour).retries_left == 5
    assert worker.stop() == ExitCode.OK
    assert worker.counts["lost"] == 0
    assert worker.counts["completed"] == 1 + len(FINE)


def test_a_refused_end_in_a_celery_process_fails_the_job(client: Client, start_worker: Start) -> None:
    client.config.set("max-payload", 1000)
    for how in jobs.ENDINGS:
        jid = put(client, "Ending", how, retries=0 if how in RETRIED else 5)
        assert client.queues["q"].pop() is not None
        runner = Client(client.source.sync(), worker_name="celery")
        with ThreadPoolExecutor() as threads:  # the thread has no connection of the database that tests may not use
            ran = threads.submit(run_borrowed, runner, jid, "the tests", 0).result(60)
        job = job_of(client, jid)
        assert job.state == ("complete" if how in FINE else "failed"), how
        assert SERVER_SAYS.get(how, ("", ""))[1] in job.failure.get("message", ""), how
        assert [ran_jid for ran_jid, _ in ran] == [jid]


def test_refused_ends_are_replaced_while_the_worker_stops(start_worker: Start, client: Client) -> None:
    worker = start_worker()
    jid = holds(put(client, "hold"))

    def refused_at_the_end() -> None:
        (running,) = worker.running.values()
        running.job.data = False
        execution.finish(running, None)
        worker.unsent.append(running)

    worker.do(refused_at_the_end)
    assert worker.stop(0) == ExitCode.OK
    assert "not JSON: false" in job_of(client, jid).failure["message"]


def test_a_call_that_cannot_be_sent_stops_neither_the_loop_nor_other_jobs(start_worker: Start, client: Client) -> None:
    """Whatever slips through: each call of the pipeline is sent alone then."""
    worker = start_worker()
    first, second = put(client, "blind"), put(client, "blind")
    assert {jobs.SEEN.get(timeout=20)[1] for _ in range(2)} == {first, second}

    def broken() -> None:
        running = worker.running[first]
        execution.finish(running, None)
        delay: Any = object()
        running.command = RetryJob(jid=first, worker=worker.name, queue="q", delay=delay)
        worker.unsent.append(running)

    worker.do(broken)
    failure = until(client, first, "failed").failure
    assert failure["group"] == "q-InvalidArgument"
    jobs.GO.set()
    until(client, second, "complete")
    assert worker.thread.is_alive()


def test_the_loop_continues_after_an_unexpected_exception(
    start_worker: Start, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [RuntimeError("a fault"), RuntimeError("another")]
    build_batch = InFlightJobs.build_batch

    def faulty(self: InFlightJobs, now: float) -> CommandBatch:
        if faults:
            raise faults.pop()
        return build_batch(self, now)

    monkeypatch.setattr(InFlightJobs, "build_batch", faulty)
    start_worker()
    until(client, put(client, "note", 1), "complete")
    assert not faults


# --- nasty texts and objects, without a server ---

TEXTS = st.text(st.characters(codec=None), max_size=50) | st.text("\ud800\udfff\udc80\x00\n\u202ea", max_size=20)
ERRORS = st.one_of(
    TEXTS.map(ValueError),
    TEXTS.map(lambda text: ValueError(text * 2000)),
    TEXTS.map(jobs.Nasty),
    st.sampled_from([RuntimeError("x"), SystemExit(2), KeyboardInterrupt(), RecursionError()]).map(jobs.Nasty),
    st.builds(jobs.Nasty, st.none() | st.integers()),
    st.builds(RetryLater, st.floats(), TEXTS, TEXTS),
    st.builds(RetryLater, st.floats(), st.integers() | TEXTS, st.binary() | st.integers()),
    st.builds(RequeueLater, st.floats(), st.none() | TEXTS | st.integers() | st.booleans()),
    TEXTS.map(lambda text: ExceptionGroup("group", [ValueError(text), jobs.Nasty(RuntimeError())])),
)
DATA = st.recursive(
    st.none() | st.booleans() | st.floats() | TEXTS | st.builds(object) | st.builds(lambda: jobs.Nasty(RuntimeError())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


class FakeJob(SimpleNamespace):
    def __init__(self, data: Any) -> None:
        super().__init__(jid="j", klass="K", worker_name="w", priority=0, tags=[], original_retries=5)
        self.state_changed = False
        self.data = data

    @property
    def raw_data(self) -> str:
        return serialization.encode(self.data).decode()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(error=st.none() | ERRORS, result=DATA, data=DATA)
@pytest.mark.filterwarnings("ignore")
def test_the_end_of_a_job_can_be_sent_whatever_it_leaves(error: BaseException | None, result: Any, data: Any) -> None:
    """Each part is a text or a number that redis-py takes, bounded, and what people read is UTF-8."""
    client = Client("redis://127.0.0.1:1/0")
    handler = JobHandler(lambda job: None, keep_result=True)
    job: Any = FakeJob(data)
    running = RunningJob(job=job, queue="q", handler=handler, started_at=0.0)
    execution.finish(running, error, result)
    assert running.end
    for _ in range(MAX_REFUSALS + 2):
        command = running.command
        assert command is not None
        request = command.request
        assert all(type(argument) in (str, bytes, int, float) for argument in request)
        assert all(type(word) in (bytes, int, float) for word in client._arguments(request))
        if isinstance(command, FailJob):
            _, _, _, group, message, *_ = request
            assert len(group) <= MAX_GROUP_CHARS
            assert len(message) <= MAX_MESSAGE_CHARS
            message.encode()
        if not execution.refuse(running, InvalidArgument("Fail(): refused \ud800")):
            break
    else:
        raise AssertionError("the end is reported forever")
