"""The job that is passed to a job's function and to middleware."""

from __future__ import annotations

from types import EllipsisType

from ..clients.client import Client
from ..clients.job import Job
from ..clients.replies import JobRecord
from ..errors import LostLock


class WorkerJob(Job):
    """A job that a worker runs.

    Each kind of worker has a subclass that implements `limit` and `retire_worker`.
    """

    __slots__ = ("_lost",)

    def __init__(self, client: Client, record: JobRecord) -> None:
        super().__init__(client, record)
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
        raise NotImplementedError

    def retire_worker(self) -> None:
        """End this process, which has grown too large, after the running jobs; another one takes its place."""
        raise NotImplementedError
