"""The job object that is passed to a job's function and middleware."""

from __future__ import annotations

import json
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING

import msgspec

from ..clients.job import Job
from ..clients.replies import JobRecord
from ..clients.serialization import read, read_list, text
from ..errors import LostLock, UnreadableReply
from .exit_codes import OUT_OF_MEMORY

if TYPE_CHECKING:
    from ..clients.client import Client
    from .loop import WorkerLoop


class WorkerJob(Job):
    """A job that a worker runs."""

    __slots__ = ("_loop", "_lost")

    def __init__(self, client: Client, record: JobRecord, loop: WorkerLoop) -> None:
        super().__init__(client, record)
        self._loop = loop
        self._lost = False

    @property
    def lost(self) -> bool:
        """Whether this worker has lost the job: its lock expired, or it was moved, canceled or timed out."""
        return self._lost

    @lost.setter
    def lost(self, value: bool) -> None:
        self._lost = value

    def check(self) -> None:
        """Raise `LostLock` if the job is lost. For long sync jobs, between two steps."""
        if self.lost:
            raise LostLock(f"The lock of job {self.jid} is lost: the job belongs to another worker, or is gone.")

    @property
    def attempt(self) -> int:
        """The number of this run, starting at 1."""
        return self.original_retries - self.retries_left + 1

    def limit(self, seconds: float, kill_after: float | EllipsisType | None = ...) -> None:
        """Interrupt this run with `JobTimeout`, `seconds` after its start; for the middleware `Timeout`.

        `kill_after`: see `Timeout`.
        """
        self._loop.inbox.put(partial(self._loop.in_flight.limit, self, seconds, kill_after))

    def retire_worker(self) -> None:
        """End this process, which has grown too large, after the running jobs; another one takes its place."""
        self._loop.inbox.put(partial(self._loop.stop, None, OUT_OF_MEMORY))


def jobs_of(client: Client, loop: WorkerLoop, reply: bytes) -> tuple[list[WorkerJob], dict[str, UnreadableReply]]:
    """Return the jobs in the reply to a pop, and the errors of unreadable jobs by jid.

    Raises `UnreadableReply` if it is not a list of jobs.
    """
    jobs: list[WorkerJob] = []
    if reply == b"{}":
        return jobs, {}
    try:
        for record in read_list(reply, JobRecord):
            jobs.append(WorkerJob(client, record, loop))
        return jobs, {}
    except UnreadableReply as error:
        unreadable = {}
        try:
            records = [(str(record["jid"]), json.dumps(record)) for record in json.loads(text(reply))]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise error from None
        for jid, encoded in records:
            try:
                jobs.append(WorkerJob(client, read(encoded.encode(), JobRecord), loop))
            except (UnreadableReply, msgspec.ValidationError) as problem:
                unreadable[jid] = UnreadableReply(str(problem))
        return jobs, unreadable
