"""A job that this worker holds, for as long as its lease lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from ..middleware.job import WorkerJob
    from .commands import EndCommand
    from .handlers import JobHandler

DEFAULT_LEASE_SECONDS: Final = 60.0
"""Length of a lease if nothing is configured."""
RENEWALS_PER_LEASE: Final = 3
"""How often a lease is renewed while it lasts, so that a late heartbeat does no harm."""
MAX_REFUSALS: Final = 3
"""How often the server may refuse the end of a job before the worker gives up reporting it."""

JobEnd: TypeAlias = Literal["completed", "failed", "retried", "lost", "returned", "by itself", "handed over"]
"""How a run ended. `lost`: the lease was lost. `returned`: the job went back to its queue, because the worker stops.
`by itself`: the job's function ended the lease, for example by `job.complete()`. `handed over`: a Celery process runs
the job."""

Inbox: TypeAlias = "SimpleQueue[RunningJob | Callable[[], object]]"
"""The inbox of a worker loop: jobs that have ended, and functions to call. Any thread and signal handler may `put`."""


class JobState(Enum):
    """The state of a job for the worker loop. Only the loop's thread reads or changes it."""

    RUNNING = auto()
    DOUBTED = auto()
    """A heartbeat was refused; the next one decides whether the lease is lost."""
    ABANDONED = auto()
    """The job ignored its timeout and was failed; its thread may still return."""
    UNCONFIRMED = auto()
    """The job's end was sent, but no reply arrived: the server may know it."""
    VERIFIED = auto()
    """A heartbeat showed that the lease is held, so the job may be requeued."""
    VERIFIED_UNCONFIRMED = auto()


class RunningJob(msgspec.Struct, eq=False, kw_only=True):
    """A job, the place where it runs, and the command that ends it.

    - `started_at`, `renew_at`, `lease_end`: seconds of the monotonic clock.
    - `thread`, `task`: the thread or the asyncio task in which it runs.
    - `cause`: why it was interrupted.
    - `end`: how it ended; None while it runs. `command`: the command to send; None if there is nothing to send.
    - `refusals`: how often the server refused the command.

    A struct, which is made in half the time of a dataclass.
    """

    job: WorkerJob
    queue: str
    handler: JobHandler
    started_at: float
    jid: str = ""
    renew_at: float = 0.0
    lease_end: float = 0.0
    cause: Exception | None = None
    thread: int = 0
    task: asyncio.Task[None] | None = None
    state: JobState = JobState.RUNNING
    end: JobEnd | None = None
    command: EndCommand | None = None
    refusals: int = 0

    def __post_init__(self) -> None:
        self.jid = self.job.jid

    def set_end(self, end: JobEnd, command: EndCommand | None = None) -> None:
        """Record how the job ended, and the command that reports it."""
        self.command = command
        self.end = end  # last: it is the signal for other threads to read the command

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the job's end was sent, but no reply arrived."""
        return self.state in (JobState.UNCONFIRMED, JobState.VERIFIED_UNCONFIRMED)

    @property
    def is_verified(self) -> bool:
        """Whether a heartbeat has renewed the lease just before a requeue."""
        return self.state in (JobState.VERIFIED, JobState.VERIFIED_UNCONFIRMED)

    def reply_missing(self) -> None:
        """Record that the job's end was sent and the connection broke before a reply."""
        self.state = JobState.VERIFIED_UNCONFIRMED if self.is_verified else JobState.UNCONFIRMED

    def lease_verified(self) -> None:
        """Record that a heartbeat has renewed the lease just before a requeue."""
        self.state = JobState.VERIFIED_UNCONFIRMED if self.is_unconfirmed else JobState.VERIFIED
