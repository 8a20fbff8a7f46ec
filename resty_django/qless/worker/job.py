"""The job that a worker gives to a job's function and to middleware."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ..errors import LostLock, UnreadableReply
from ..job import Job
from ..texts import read, reader, text
from ..values import JobRecord

if TYPE_CHECKING:
    from ..clients import Client
    from .desk import Desk

_JOBS: Final = reader(list[JobRecord])
_JOB: Final = reader(JobRecord)


class WorkerJob(Job):
    """A job that a worker runs."""

    __slots__ = ("_desk", "lost")

    def __init__(self, client: Client, record: JobRecord, desk: Desk) -> None:
        super().__init__(client, record)
        self._desk = desk
        self.lost = False
        """Whether the job is no more this worker's: its lock expired, or somebody moved, canceled or timed it out."""

    def check(self) -> None:
        """For long sync jobs, between two steps. Raises `LostLock` once the job is lost."""
        if self.lost:
            raise LostLock(f"the lock of {self.jid} is lost: the job is another worker's, or gone")

    @property
    def attempt(self) -> int:
        """Which run this is, from 1 on."""
        return self.original_retries - self.retries_left + 1

    def limit(self, seconds: float, kill_after: float | None) -> None:
        """Interrupt this run `seconds` after its start with `JobTimeout`; for the middleware `Timeout`.

        `kill_after`: if it goes on for so many seconds more it is failed, and the process ends (None: it goes on).
        """
        self._desk.inbox.put(partial(self._desk.held.limit, self, seconds, kill_after))

    def retire_worker(self, code: int) -> None:
        """Let this process end after the jobs that run, and another one start in its place."""
        self._desk.inbox.put(partial(self._desk.stop, None, code))

    def has_hooks(self) -> bool:
        return bool(self._hooks)


def jobs_of(client: Client, desk: Desk, reply: bytes) -> tuple[list[WorkerJob], dict[str, UnreadableReply]]:
    """The jobs of the reply to a pop, and by jid those that another program made such that they cannot be read.

    Raises `UnreadableReply` where it is no list of jobs at all.
    """
    if reply == b"{}":
        return [], {}
    try:
        return [WorkerJob(client, record, desk) for record in read(reply, _JOBS)], {}
    except UnreadableReply as error:
        jobs, unreadable = [], {}
        try:
            shown = [(str(each["jid"]), json.dumps(each)) for each in json.loads(text(reply))]
        except (ValueError, TypeError, KeyError):
            raise error from None
        for jid, one in shown:
            try:
                jobs.append(WorkerJob(client, read(one.encode(), _JOB), desk))
            except (UnreadableReply, msgspec.ValidationError) as problem:
                unreadable[jid] = UnreadableReply(str(problem))
        return jobs, unreadable


__all__ = ["WorkerJob", "jobs_of"]
