"""The jobs that a worker holds, without a server."""

from __future__ import annotations

from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from resty_django.qless.errors import CannotComplete, InvalidArgument, LostLock, NoSuchJob
from resty_django.qless.outcomes import JobTimeout
from resty_django.qless.worker.commands import CompleteJob, RequeueJob
from resty_django.qless.worker.executor import Pool
from resty_django.qless.worker.handlers import JobHandler
from resty_django.qless.worker.in_flight import InFlightJobs
from resty_django.qless.worker.running_job import JobState, RunningJob
from resty_django.redis.errors import StoreError

freed: list[str] = []
REQUEUE = RequeueJob(jid="j", worker="w", queue="q", klass="K", data="{}", delay=0, priority=0, tags="[]", retries=5)


@pytest.fixture
def in_flight() -> InFlightJobs:
    freed.clear()
    return InFlightJobs("w", ["q"], Pool(SimpleQueue()), False, freed.append)


def held_job(in_flight: InFlightJobs, jid: str = "j") -> RunningJob:
    """A job that was popped at 100."""
    job: Any = SimpleNamespace(jid=jid, klass="K", worker_name="w", raw_data="{}", state_changed=False, lost=False)
    running = RunningJob(job=job, queue="q", handler=JobHandler(lambda job: None), started_at=100.0)
    in_flight.leases.next_check = 200.0
    in_flight.add(running, 100.0)
    return running


def end(in_flight: InFlightJobs, running: RunningJob, command: Any, how: str) -> None:
    running.command, running.end = command, how
    in_flight.on_finished(running)


def exchange(in_flight: InFlightJobs, *replies: Any) -> list[str]:
    """Send a batch at 101, and use these replies; return the names of the commands."""
    batch = in_flight.build_batch(101.0)
    assert len(batch.requests) == len(replies)
    in_flight.apply_replies(batch, replies)
    return [request[0] for request in batch.requests]


def test_an_end_that_is_confirmed_frees_the_job(in_flight: InFlightJobs) -> None:
    running = held_job(in_flight)
    end(in_flight, running, CompleteJob(jid="j", worker="w", queue="q", data="{}"), "completed")
    assert in_flight.next_due() == 0.0
    assert exchange(in_flight, b"pending") == ["complete"]
    assert (in_flight.running, in_flight.counts, freed) == ({}, {"completed": 1}, ["q"])
    assert in_flight.tidy_needed


def test_an_end_without_a_command_is_an_error(in_flight: InFlightJobs) -> None:
    end(in_flight, held_job(in_flight), CompleteJob(jid="j", worker="w", queue="q", data="{}"), "completed")
    in_flight.finished[0].command = None
    with pytest.raises(RuntimeError, match="Job j has no command"):
        in_flight.build_batch(101.0)


def test_a_requeue_follows_a_heartbeat_that_renewed_the_lease(in_flight: InFlightJobs) -> None:
    running = held_job(in_flight)
    end(in_flight, running, REQUEUE, "retried")
    assert exchange(in_flight, 160) == ["heartbeat"]
    assert exchange(in_flight, b"j") == ["requeue"]
    assert in_flight.counts == {"retried": 1}


def test_a_requeue_is_not_sent_for_a_lock_that_is_lost(in_flight: InFlightJobs) -> None:
    running = held_job(in_flight)
    end(in_flight, running, REQUEUE, "retried")
    assert exchange(in_flight, LostLock("another worker has it")) == ["heartbeat"]
    assert in_flight.counts == {"lost": 1}
    assert in_flight.finished == []


def test_an_end_whose_reply_is_missing_counts_if_the_server_knows_it(in_flight: InFlightJobs) -> None:
    running, other = held_job(in_flight), held_job(in_flight, "other")
    end(in_flight, running, CompleteJob(jid="j", worker="w", queue="q", data="{}"), "completed")
    in_flight.on_reply_missing(in_flight.build_batch(101.0))
    end(in_flight, other, CompleteJob(jid="other", worker="w", queue="q", data="{}"), "completed")
    assert (running.state, other.state) == (JobState.UNCONFIRMED, JobState.RUNNING)
    assert exchange(in_flight, NoSuchJob("gone"), NoSuchJob("gone")) == ["complete", "complete"]
    assert in_flight.counts == {"completed": 1, "lost": 1}


def test_ends_of_one_queue_are_sent_together_unless_they_are_large(in_flight: InFlightJobs) -> None:
    for jid, data, queue in (
        ("a", "{}", "q"),
        ("b", "{}", "q"),
        ("c", '"' + "x" * 10_000 + '"', "q"),
        ("d", "{}", "p"),
    ):
        running = held_job(in_flight, jid)
        running.queue = queue
        end(in_flight, running, CompleteJob(jid=jid, worker="w", queue=queue, data=data, result="1"), "completed")
    batch = in_flight.build_batch(101.0)
    assert [request[:3] for request in batch.requests] == [
        ("complete", "c", "w"),
        ("complete.many", "w", "q"),
        ("complete", "d", "w"),
    ]
    assert batch.requests[1][3:] == ("a", "{}", "1", "", "b", "{}", "1", "")
    in_flight.apply_replies(batch, [b"complete", [b"pending", b"Complete(): Job \xff does not exist"], b"complete"])
    assert (in_flight.running, in_flight.counts) == ({}, {"completed": 3, "lost": 1})
    assert in_flight.tidy_needed


@pytest.mark.parametrize("error", [StoreError("OOM"), InvalidArgument("it cannot be sent")])
def test_ends_sent_together_are_sent_one_by_one_after_an_error(in_flight: InFlightJobs, error: Exception) -> None:
    for jid in "ab":
        end(in_flight, held_job(in_flight, jid), CompleteJob(jid=jid, worker="w", queue="q", data="{}"), "completed")
    assert exchange(in_flight, error) == ["complete.many"]
    assert in_flight.running.keys() == {"a", "b"}
    assert exchange(in_flight, CannotComplete("it is complete"), b"complete") == ["complete", "complete"]
    assert (in_flight.running, in_flight.counts) == ({}, {"completed": 2})


def test_an_end_is_sent_again_after_an_error_of_the_server(in_flight: InFlightJobs) -> None:
    running = held_job(in_flight)
    end(in_flight, running, CompleteJob(jid="j", worker="w", queue="q", data="{}"), "completed")
    assert exchange(in_flight, StoreError("LOADING")) == ["complete"]
    assert exchange(in_flight, b"complete") == ["complete"]
    assert in_flight.counts == {"completed": 1}


def test_one_refused_heartbeat_is_doubted_and_a_second_one_loses_the_job(in_flight: InFlightJobs) -> None:
    running = held_job(in_flight)
    for replies, state, lost in (
        ([LostLock("no lock")], JobState.DOUBTED, False),
        ([160], JobState.RUNNING, False),
        ([LostLock("no lock")], JobState.DOUBTED, False),
        ([LostLock("no lock")], JobState.DOUBTED, True),
    ):
        in_flight.verify_lease("j")
        assert exchange(in_flight, *replies) == ["heartbeat"]
        assert (running.state, running.job.lost) == (state, lost)
    assert isinstance(running.cause, LostLock)


def test_a_lock_of_another_worker_is_lost_at_once(in_flight: InFlightJobs) -> None:
    running = held_job(in_flight)
    in_flight.verify_lease("j")
    exchange(in_flight, LostLock("another worker has it"))
    assert running.job.lost


@pytest.mark.parametrize("ended_itself", [False, True])
def test_a_job_that_ignores_its_timeout_is_abandoned(in_flight: InFlightJobs, ended_itself: bool) -> None:
    running = held_job(in_flight)
    in_flight.limit(running.job, 1.0, 5.0)
    assert not in_flight.enforce_timeouts(101.0)
    assert isinstance(running.cause, JobTimeout)
    running.job.state_changed = ended_itself
    assert in_flight.enforce_timeouts(106.0)
    assert running.state is JobState.ABANDONED
    if not ended_itself:
        assert exchange(in_flight, b"j") == ["fail"]
    assert in_flight.counts == {"by itself" if ended_itself else "failed": 1}
    assert in_flight.running == {}
    end(
        in_flight, running, CompleteJob(jid="j", worker="w", queue="q", data="{}"), "completed"
    )  # its thread returns after all
    assert in_flight.finished == []
    assert in_flight.counts.total() == 1


def test_each_job_that_only_the_server_knows_is_found_once(in_flight: InFlightJobs) -> None:
    held_job(in_flight)
    for expected in (["a", "b"], []):
        in_flight.leases.next_check = 0.0
        assert exchange(in_flight, 30, None, b'{"jobs": ["j", "a"], "stalled": ["b"]}', 0) == [
            *("config.get", "config.get", "workers", "tidy")
        ]
        assert in_flight.take_orphans() == expected
    assert in_flight.leases.lengths["q"] == 30.0
