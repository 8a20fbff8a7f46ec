"""The job object that a job's function and its middleware get."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ..clients.job import Job
from ..clients.replies import JobRecord
from ..clients.serialization import read, reader, text
from ..errors import LostLock, UnreadableReply

if TYPE_CHECKING:
    from ..clients.client import Client
    from .loop import WorkerLoop

_JOBS: Final = reader(list[JobRecord])
_JOB: Final = reader(JobRecord)


class WorkerJob(Job):
    """A job that a worker runs."""

    __slots__ = ("_loop", "lost")

    def __init__(self, client: Client, record: JobRecord, loop: WorkerLoop) -> None:
        super().__init__(client, record)
        self._loop = loop
        self.lost = False
        """Whether this worker has lost the job: its lock expired, or somebody moved, canceled or timed it out."""

    def check(self) -> None:
        """Raise `LostLock` once the job is lost. For long sync jobs, between two steps."""
        if self.lost:
            raise LostLock(f"The lock of {self.jid} is lost: the job is another worker's, or gone.")

    @property
    def attempt(self) -> int:
        """The number of this run, from 1 on."""
        return self.original_retries - self.retries_left + 1

    def limit(self, seconds: float, kill_after: float | None) -> None:
        """Interrupt this run `seconds` after its start with `JobTimeout`; for the middleware `Timeout`.

        `kill_after`: if it continues for that many seconds it is failed, and the process ends (None: it may continue).
        """
        self._loop.inbox.put(partial(self._loop.in_flight.limit, self, seconds, kill_after))

    def retire_worker(self, code: int) -> None:
        """Let this process end after the running jobs, and another one start in its place."""
        self._loop.inbox.put(partial(self._loop.stop, None, code))

    def has_hooks(self) -> bool:
        return bool(self._hooks)


def jobs_of(client: Client, loop: WorkerLoop, reply: bytes) -> tuple[list[WorkerJob], dict[str, UnreadableReply]]:
    """Return the jobs of the reply to a pop, and by jid the errors of those that cannot be read.

    Raises `UnreadableReply` where it is not a list of jobs at all.
    """
    if reply == b"{}":
        return [], {}
    try:
        return [WorkerJob(client, record, loop) for record in read(reply, _JOBS)], {}
    except UnreadableReply as error:
        jobs, unreadable = [], {}
        try:
            records = [(str(record["jid"]), json.dumps(record)) for record in json.loads(text(reply))]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise error from None
        for jid, record in records:
            try:
                jobs.append(WorkerJob(client, read(record.encode(), _JOB), loop))
            except (UnreadableReply, msgspec.ValidationError) as problem:
                unreadable[jid] = UnreadableReply(str(problem))
        return jobs, unreadable
