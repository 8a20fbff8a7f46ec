"""Commands that end a job, and batches of requests."""

from __future__ import annotations

from typing import Any

import pytest

from resty_django.qless.worker.commands import CommandBatch, CompleteJob, FailJob, RequeueJob, RetryJob
from resty_django.qless.worker.running_job import JobState, RunningJob


def test_requests_have_the_order_of_arguments_of_qless_core() -> None:
    assert CompleteJob("j", "w", "q", "{}", "result", "1").request == (
        *("complete", "j", "w", "q", "{}", "pending", 1),
        *("result", "1"),
    )
    assert FailJob("j", "w", "group", "message", "{}").request == ("fail", "j", "w", "group", "message", "{}")
    assert RetryJob("j", "q", "w", 3.0).request == ("retry", "j", "q", "w", 3.0)
    assert RequeueJob("j", "q", "w", "K", "{}", 0, "retries", 5).request == (
        *("requeue", "w", "q", "j", "K", "{}", 0),
        *("retries", 5),
    )


def test_a_failure_can_drop_its_data_once() -> None:
    failure = FailJob("j", "w", "group", "message", "{}")
    assert failure.drop_data()
    assert failure.request == ("fail", "j", "w", "group", "message")
    assert not failure.drop_data()


def test_each_handler_of_a_batch_gets_the_replies_of_its_requests() -> None:
    batch, calls = CommandBatch(), []

    def handler(name: str) -> Any:
        return lambda *replies: calls.append((name, *replies))

    batch.add(handler("one"), ("heartbeat", "j", "w"))
    batch.add(handler("three"), ("config.get", "a"), ("config.get", "b"), ("config.get", "c"))
    batch.add(handler("none"))
    batch.add(handler("last"), ("pop", "q", "w", 1))
    assert [request[0] for request in batch.requests] == ["heartbeat", *["config.get"] * 3, "pop"]
    batch.apply([1, 2, 3, 4, 5])
    assert calls == [("one", 1), ("three", 2, 3, 4), ("none",), ("last", 5)]


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", JobState.RUNNING),
        ("reply_missing", JobState.UNCONFIRMED),
        ("lease_verified", JobState.VERIFIED),
        ("reply_missing lease_verified", JobState.VERIFIED_UNCONFIRMED),
        ("lease_verified reply_missing", JobState.VERIFIED_UNCONFIRMED),
        ("lease_verified reply_missing reply_missing", JobState.VERIFIED_UNCONFIRMED),
    ],
)
def test_a_verified_lease_and_a_missing_reply_are_both_remembered(events: str, state: JobState) -> None:
    handler: Any = None
    running = RunningJob(None, "j", "q", handler, 0.0, 0.0, 0.0)
    for event in events.split():
        getattr(running, event)()
    assert running.state is state
