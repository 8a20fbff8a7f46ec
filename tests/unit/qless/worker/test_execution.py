"""How a run becomes the command that ends the job, without a server."""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from resty_django.qless.errors import NotAllowed
from resty_django.qless.outcomes import RequeueLater
from resty_django.qless.worker import execution
from resty_django.qless.worker.commands import RequeueJob
from resty_django.qless.worker.handlers import JobHandler, handler_of
from resty_django.qless.worker.running_job import RunningJob


class Level(IntEnum):
    HIGH = 3


def running_job(handler: JobHandler) -> RunningJob:
    job: Any = SimpleNamespace(
        **{
            "jid": "j",
            "klass": "K",
            "worker_name": "w",
            "raw_data": "{}",
            "txid": None,
            "request_id": None,
            "tags": [],
            "_hooks": None,
        },
        **{"state_changed": False, "original_retries": 5, "priority": Level.HIGH},
    )
    return RunningJob(job=job, queue="q", handler=handler, started_at=0.0)


def test_a_job_that_cannot_be_run_fails_without_a_call() -> None:
    calls: list[Any] = []
    running = running_job(JobHandler(calls.append, refusal=NotAllowed("not here")))
    execution.run(running)
    assert running.end == "failed"
    assert running.command is not None
    assert running.command.request[:4] == ("fail", "j", "w", "q-NotAllowed")
    assert not calls


def test_the_handler_of_an_unknown_class_has_the_reason() -> None:
    refusal = handler_of("nowhere.jobs.Job", "q").refusal
    assert isinstance(refusal, NotAllowed)


def test_a_requeue_sends_a_plain_priority() -> None:
    def requeue(job: object) -> None:
        raise RequeueLater

    running = running_job(JobHandler(requeue))
    execution.run(running)
    assert isinstance(running.command, RequeueJob)
    assert type(running.command.priority) is int
