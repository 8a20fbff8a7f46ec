"""Runs borrowed jobs: a Celery process takes over the lock of a job, extends it, runs the job and reports its end."""

from __future__ import annotations

import os
import socket
import time
from types import EllipsisType

from asgiref.sync import async_to_sync

from resty_django.redis.errors import StoreDown, StoreError
from resty_django.text import logger

from ...clients.client import Client
from ...clients.replies import JobRecord
from ...clients.serialization import read, readable
from ...clients.transport import Request, is_refusal
from ...errors import LostLock, NoSuchJob, QlessError
from ...middleware.job import WorkerJob
from ...outcomes import JobTimeout
from ...outcomes.error_text import MAX_MESSAGE_CHARS
from ...worker import execution
from ...worker.handlers import JobHandler, handler_of
from ...worker.running_job import RunningJob
from .lease_keeper import extend, keeper

log = logger("resty_django.qless.integrations.celery")


def process_name() -> str:
    """Return the worker name for jobs that this Celery process runs."""
    return f"celery-{socket.gethostname()}-{os.getpid()}"


class BorrowedJob(WorkerJob):
    """A job in a process that is not a worker of this package."""

    __slots__ = ("running",)

    def __init__(self, client: Client, record: JobRecord) -> None:
        super().__init__(client, record)
        self.running: RunningJob | None = None

    def limit(self, seconds: float, kill_after: float | EllipsisType | None = ...) -> None:
        """Interrupt this run with `JobTimeout`, `seconds` after its start. Code that ignores it continues."""
        if self.running is not None:
            keeper.limit(self.running, seconds)

    def retire_worker(self) -> None:
        """Do nothing: Celery limits its processes by `--max-memory-per-child`."""


def begin(client: Client, record: JobRecord) -> RunningJob:
    """Return the run of a job whose lock this process has just taken."""
    now = time.monotonic()
    job = BorrowedJob(client, record)
    handler = JobHandler(lambda job: None)  # until the job is run here
    running = job.running = RunningJob(job=job, queue=record.queue, handler=handler, started_at=now)
    extend(running, max(0.1, record.expires - client.clock()), now)
    return running


def run_borrowed(client: Client, jid: str, holder: str, seconds: float = 0.1) -> list[tuple[str, str]]:
    """Run the job that `holder` has dispatched; return the jids that ran, and how each ended.

    The job does not run if its message arrived twice, or so late that the lock was lost: then another process runs it.
    For up to `seconds`, the process continues with other jobs that `holder` has dispatched and that no process has
    started. This saves messages, and reporting one job and taking the next is a single round trip.
    """
    deadline = time.monotonic() + seconds
    ran: list[RunningJob] = []
    last: RunningJob | None = None
    next_jid = jid
    try:
        while last is None or time.monotonic() < deadline:
            record = _next(client, last, next_jid, holder)
            if record is None and not next_jid:
                break
            next_jid = ""
            if record is not None:
                last = _run(client, record)
                ran.append(last)
    except StoreError:
        if last is None:
            raise
    finally:
        if last is not None:
            _report_end(client, last)
    return [(running.jid, running.end or "") for running in ran]


def _next(client: Client, last: RunningJob | None, jid: str, holder: str) -> JobRecord | None:
    """Report the end of the last job, and take the next one: `jid`, or any if that is empty. None: no job is left."""
    requests: list[Request] = [("take", jid, client.worker_name, holder)]
    if last is not None and last.command is not None:
        requests.insert(0, last.command.request)
    *end_replies, reply = client.call_many(requests)
    if last is not None and end_replies:
        if is_refusal(end_replies[0]):
            _apply_reply(last, end_replies[0])
            _report_end(client, last)
        elif not isinstance(end_replies[0], StoreError):
            _apply_reply(last, end_replies[0])
    if jid and isinstance(reply, LostLock | NoSuchJob):
        log.info("skipping job %s: %s", jid, reply)
        return None
    if isinstance(reply, Exception):
        raise reply
    return None if reply is None else read(reply, JobRecord)


def _run(client: Client, record: JobRecord) -> RunningJob:
    """Run a job. If it has succeeded, its `command` is still to be reported."""
    running = begin(client, record)
    running.handler = handler_of(record.klass, record.queue)
    try:
        with keeper.keeps(client, running):
            if running.handler.is_async:
                async_to_sync(execution.arun)(running)
            else:
                execution.run(running)
    except JobTimeout as error:  # arrived after the job had ended
        keeper.forget(running)
        if not running.end:
            execution.finish(running, error)
    if running.command is not None and running.command.name != "complete":
        _report_end(client, running)
    return running


def _apply_reply(running: RunningJob, reply: object) -> None:
    """Apply the reply to the report of a job's end. After a refusal, `command` is the command to report instead."""
    if isinstance(reply, Exception) and is_refusal(reply):
        log.error("the server refused the end of job %s (%s): %s", running.jid, running.end, _printable(reply))
        if not execution.refuse(running, reply):
            running.end = "lost"
        return
    running.command = None
    if isinstance(reply, Exception):
        log.warning("job %s ended (%s), but too late to count: %s", running.jid, running.end, _printable(reply))
        running.end = "lost"


def _printable(reply: object) -> str:
    return readable(str(reply), MAX_MESSAGE_CHARS)


def _report_end(client: Client, running: RunningJob) -> None:
    """Report the end of a job. While the server is down, repeat this until the lock expires."""
    while running.command is not None:
        try:
            if running.command.needs_lease_check:  # else the command could take the job from another worker
                client.call("heartbeat", running.jid, client.worker_name)
            _apply_reply(running, client.call(*running.command.request))
        except QlessError as error:
            _apply_reply(running, error)
        except StoreError as error:
            if is_refusal(error):
                _apply_reply(running, error)
                continue
            if not isinstance(error, StoreDown):
                raise
            if time.monotonic() > running.lease_end:
                raise
            time.sleep(0.25)
