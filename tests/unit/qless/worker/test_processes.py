"""The parts of the pool "processes" that need no process."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import conf
from resty_django.qless.errors import LostLock
from resty_django.qless.middleware.retries import RetryPolicy
from resty_django.qless.outcomes import JobTimeout, ProcessDied, Stopping
from resty_django.qless.worker import execution
from resty_django.qless.worker.executor import Pool
from resty_django.qless.worker.handlers import JobHandler
from resty_django.qless.worker.in_flight import InFlightJobs
from resty_django.qless.worker.middleware import Retry as RetryMiddleware
from resty_django.qless.worker.processes.pipe import JobPipe, LimitRun, PipeMessage, RunEnded, StartRun
from resty_django.qless.worker.processes.pool import ProcessSlot
from resty_django.qless.worker.processes.slot_memory import SlotMemory, make_memory
from resty_django.qless.worker.running_job import RunningJob


@pytest.mark.parametrize("cause", [JobTimeout(2.5), LostLock("gone"), Stopping()])
@pytest.mark.parametrize("raises", [False, True])
def test_an_interruption_reaches_its_own_run_alone(cause: Exception, raises: bool) -> None:
    memory = make_memory(3)
    worker, process, neighbour = SlotMemory(memory, 1), SlotMemory(memory, 1), SlotMemory(memory, 2)
    assert process.interruption(7, "j") is None
    worker.interrupt(7, cause, raises=raises)
    read = process.interruption(7, "j")
    assert read is not None
    assert (type(read.cause), read.raises) == (type(cause), raises)
    assert getattr(read.cause, "seconds", None) == getattr(cause, "seconds", None)
    assert process.is_lost(7) == isinstance(cause, LostLock)
    assert process.interruption(8, "j") is None
    assert not process.is_lost(8)
    assert neighbour.interruption(7, "j") is None


def test_start_and_change_of_a_run_reach_the_worker() -> None:
    memory = make_memory(1)
    worker, process = SlotMemory(memory, 0), SlotMemory(memory, 0)
    process.record_start(1)
    process.record_change(1)
    process.record_start(2)
    assert [worker.started(run) for run in (1, 2, 3)] == [False, True, False]
    assert [worker.state_changed(run) for run in (1, 2)] == [True, False]
    worker.interrupt(2, JobTimeout(1), raises=True)
    assert worker.started(2)


@pytest.fixture
def ends() -> Iterator[tuple[JobPipe, JobPipe]]:
    one, two = map(JobPipe, socket.socketpair())
    yield one, two
    one.close()
    two.close()


def test_messages_arrive_unchanged(ends: tuple[JobPipe, JobPipe]) -> None:
    messages: list[PipeMessage] = [
        RunEnded("completed", {"jid": "\udcff", "data": b"\xff", "delay": float("inf")}, True),
        LimitRun(1.0, ...),
        LimitRun(1.0, None),
        StartRun(2**60, "q", {"tags": ["a"], "data": "\ud800", "spawned_from_jid": False}),
    ]
    for message in messages:
        ends[0].send(message)
        received = ends[1].receive()
        assert (type(received), received) == (type(message), message)


def test_everything_that_was_sent_is_received_after_the_end(ends: tuple[JobPipe, JobPipe]) -> None:
    one, two = ends
    one.send(LimitRun(1.0, None))
    two.shut_down()
    assert two.receive() == LimitRun(1.0, None)
    assert two.receive() is None
    with pytest.raises(BrokenPipeError):
        one.send(LimitRun(2.0, None))


def test_half_a_message_counts_as_none() -> None:
    one, two = socket.socketpair()
    one.sendall(b"\x10\x00\x00\x00\x00\x00\x00\x00half")
    one.close()
    channel = JobPipe(two)
    assert channel.receive() is None
    channel.close()


def dead(error: Exception, *middleware: Any, retries_left: int = 3) -> RunningJob:
    job: Any = SimpleNamespace(
        jid="j", klass="K", worker_name="w", raw_data="{}", state_changed=False, lost=False, txid=None, request_id=None
    )
    job.retries_left, job.queue_name, job.attempt = retries_left, "q", 1
    handler = JobHandler(lambda job: None, middleware=middleware)
    running = RunningJob(job=job, queue="q", handler=handler, started_at=0.0)
    execution.finish_dead(running, error)
    return running


@pytest.mark.parametrize(
    ("error", "middleware", "retries_left", "end", "delay"),
    [
        (ProcessDied("x"), (), 3, "retried", 1.0),
        (ProcessDied("x"), (), 0, "failed", None),
        (ProcessDied("x"), (RetryMiddleware(ProcessDied, backoff=7, factor=1),), 3, "retried", 7.0),
        (ProcessDied("x"), (RetryPolicy([9], (OSError,)),), 3, "retried", 1.0),
        (JobTimeout(2), (), 3, "failed", None),
        (JobTimeout(2), (RetryPolicy([9], (Exception,)),), 3, "retried", 9.0),
        (JobTimeout(2), (RetryPolicy([9], (Exception,)),), 0, "failed", None),
        (JobTimeout(2), (RetryMiddleware(OSError),), 3, "failed", None),
    ],
)
def test_the_middleware_decides_on_retries_of_a_dead_process(
    error: Exception, middleware: Any, retries_left: int, end: str, delay: float | None
) -> None:
    running = dead(error, *middleware, retries_left=retries_left)
    assert running.end == end
    request = running.command.request  # type: ignore[union-attr]
    group = f"q-{type(error).__name__}"
    if delay is None:
        assert request[:4] == ("fail", "j", "w", group)
        assert len(request) == 5  # without data: the server's copy may be newer
    else:
        assert request[:6] == ("retry", "j", "q", "w", delay, group)


def test_a_retry_policy_that_fails_is_none() -> None:
    class Broken:
        def decide_retry(self, job: Any, error: BaseException) -> Any:
            raise RuntimeError("broken")

    assert dead(ProcessDied("x"), Broken()).end == "retried"


def test_a_job_is_retried_if_the_file_for_its_stack_cannot_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    fork_server: Any = None
    slot = ProcessSlot(0, fork_server, make_memory(1))
    slot.begin()
    running = RunningJob(
        job=cast("Any", SimpleNamespace(jid="j", _record={})),
        queue="q",
        handler=JobHandler(lambda job: None),
        started_at=0.0,
    )
    assert slot.run(running) is None
    death = slot.death()
    assert isinstance(death, ProcessDied)
    assert "No process could be started for the job: No such file or directory." in str(death)


class KillingPool(Pool):
    """Notes what it is asked for."""

    can_kill = True
    kill_after = 2.0

    def __init__(self) -> None:
        super().__init__(SimpleQueue())
        self.killed: list[str] = []

    def interrupt(self, running: RunningJob, cause: Exception, *, in_thread: bool) -> None:
        running.cause = running.cause or cause

    def kill(self, running: RunningJob) -> None:
        self.killed.append(running.jid)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(("kill_after", "killed_at"), [(..., 103.0), (10.0, 111.0), (0.0, 101.0), (None, None)])
def test_a_job_that_ignores_its_timeout_is_killed(kill_after: Any, killed_at: float | None, ends: bool) -> None:
    """And one that ends after it is not."""
    pool = KillingPool()
    in_flight = InFlightJobs("w", ["q"], pool, False, lambda queue: None)
    job: Any = SimpleNamespace(jid="j", state_changed=False)
    running = RunningJob(job=job, queue="q", handler=JobHandler(lambda job: None), started_at=100.0)
    in_flight.leases.next_check = 1000.0
    in_flight.add(running, 100.0)
    in_flight.limit(running.job, 1.0, kill_after)
    assert in_flight.next_due() == 101.0
    assert not in_flight.enforce_timeouts(101.0)
    assert isinstance(running.cause, JobTimeout)
    assert in_flight.next_due() == (1000.0 if killed_at in (None, 101.0) else killed_at)
    if ends:
        running.end = "completed"
    assert not in_flight.enforce_timeouts(500.0)
    killed_before_its_end = killed_at == 101.0
    assert pool.killed == (["j"] if killed_at and (killed_before_its_end or not ends) else [])


@pytest.mark.parametrize(
    ("worker", "text"),
    [
        ({"POOL": "proceses"}, r'POOL.*Did you mean "processes"\?'),
        ({"POOL": "gevent"}, "POOL"),
        ({"KILL_AFTER": -1}, "KILL_AFTER"),
        ({"KILL_AFTR": 1}, r'KILL_AFTR.*Did you mean "KILL_AFTER"\?'),
    ],
)
def test_wrong_settings_are_rejected_with_a_suggestion(worker: dict[str, Any], text: str, settings: Any) -> None:
    settings.RESTY_DJANGO = {"QLESS": {"WORKER": worker}}
    with pytest.raises(ImproperlyConfigured, match=text):
        _ = conf.qless
