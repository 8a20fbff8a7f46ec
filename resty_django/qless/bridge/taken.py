"""Running one job outside of our workers: its lock is taken over, prolonged, and told how it ended."""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Any, Final

from asgiref.sync import async_to_sync

from resty_django.redis import StoreDown, StoreError

from ..clients import Client
from ..errors import LostLock, NoSuchJob, QlessError
from ..texts import read, reader
from ..values import JobRecord
from ..worker import perform
from ..worker.entries import REFUSED, entry_of
from ..worker.job import WorkerJob
from ..worker.outcomes import JobTimeout
from ..worker.running import LOST, Command, Running
from .keeper import keeper

log = logging.getLogger("resty_django.qless.bridge")

PAUSE: Final = 0.25
"""Seconds until the server is told again how a job ended, if it did not answer."""
SLICE: Final = 0.1
"""Seconds in which one message lets a process run jobs."""

_JOB: Final = reader(JobRecord)


def process_name() -> str:
    """What jobs say of their worker that this process of Celery runs."""
    return f"celery-{socket.gethostname()}-{os.getpid()}"


class TakenJob(WorkerJob):
    """A job in a process that is no worker of ours."""

    __slots__ = ("running",)

    def __init__(self, client: Client, record: JobRecord) -> None:
        super().__init__(client, record, None)  # type: ignore[arg-type]
        self.running: Running | None = None

    def limit(self, seconds: float, kill_after: float | None) -> None:
        """Interrupt this run `seconds` after its start with `JobTimeout`. Whoever does not heed that goes on."""
        if self.running is not None:
            keeper.limit(self.running, seconds)

    def retire_worker(self, code: int) -> None:
        """The process is Celery's, which has bounds of its own: `--max-memory-per-child`."""


def run_taken(client: Client, jid: str, holder: str, seconds: float = SLICE) -> list[tuple[str, str]]:
    """Run the job that `holder` has handed over; gives the jids that were run, and how each ended.

    It is not run where the message came twice, or so late that the lock was lost: then somebody else runs it. After it
    come others that `holder` has handed over and nobody has begun, until `seconds` are over: that saves messages, and
    the end of one job and the beginning of the next are one round trip.
    """
    until = time.monotonic() + seconds
    ran: list[tuple[str, str]] = []
    last: Running | None = None
    wanted = jid
    try:
        while last is None or time.monotonic() < until:
            record = _next(client, last, wanted, holder)
            if record is None and not wanted:
                break
            wanted = ""
            if record is not None:
                last = _run(client, TakenJob(client, record))
                ran.append((last.jid, last.end))
    except StoreError:
        if last is None:
            raise
    finally:
        if last is not None:
            _tell(client, last)
    return ran


def _next(client: Client, last: Running | None, wanted: str, holder: str) -> JobRecord | None:
    """Tell how the last job ended, and take the next: the one wanted, or any for an empty text. None: there is none."""
    requests: list[Command] = [("take", wanted, client.worker_name, holder)]
    if last is not None and last.command is not None:
        requests.insert(0, last.command)
    *told, reply = client.call_many(requests)
    if last is not None and told and not isinstance(told[0], StoreError):
        _told(last, told[0])
    if wanted and isinstance(reply, LostLock | NoSuchJob):
        log.info("job %s is not run: %s", wanted, reply)
        return None
    if isinstance(reply, Exception):
        raise reply
    return None if reply is None else read(reply, _JOB)


def _run(client: Client, job: TakenJob) -> Running:
    """Run it. What is left in its `command` is to be told; only the end of a job that went well may wait for that."""
    jid, queue, now = job.jid, job.queue_name, time.monotonic()
    length = max(0.1, job.expires_at - client.clock())
    try:
        entry, refusal = entry_of(job.klass, queue), None
    except Exception as error:
        entry, refusal = REFUSED, error
    running = job.running = Running(job, jid, queue, entry, now, now + length / 3, now + length)
    if refusal is not None:
        perform.judge(running, refusal)
    else:
        try:
            with keeper.keeps(client, running, length):
                if entry.is_async:
                    async_to_sync(perform.arun)(running)
                else:
                    perform.run(running)
        except JobTimeout as error:  # it came when the job had ended already
            keeper.forget(running)
            if not running.judged:
                perform.judge(running, error)
    if running.command is not None and running.command[0] != "complete":
        _tell(client, running)
    return running


def _told(running: Running, reply: Any) -> None:
    running.command = None
    if isinstance(reply, Exception):
        log.warning("job %s has ended (%s), which counts no longer: %s", running.jid, running.end, reply)
        running.end = LOST


def _tell(client: Client, running: Running) -> None:
    """How it ended. A server that is down is told again, as long as the lock would last."""
    while running.command is not None:
        try:
            if running.command[0] == "requeue":  # which would take the job from anybody
                client.call("heartbeat", running.jid, client.worker_name)
            _told(running, client.call(*running.command))
        except QlessError as error:
            _told(running, error)
        except StoreDown:
            if time.monotonic() > running.lease_end:
                raise
            time.sleep(PAUSE)


__all__ = ["TakenJob", "process_name", "run_taken"]
