"""A job that this worker holds, for as long as its lease lasts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .commands import EndCommand
    from .handlers import JobHandler

DEFAULT_LEASE: Final = 60.0
"""Seconds of a lease if nothing is configured."""
RENEWALS: Final = 3
"""A lease of s seconds is renewed every s / `RENEWALS` seconds."""
COMPLETED: Final = "completed"
FAILED: Final = "failed"
RETRIED: Final = "retried"
LOST: Final = "lost"
RETURNED: Final = "returned"
BY_ITSELF: Final = "by itself"


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


CONFIRMATION_MISSING: Final = (JobState.UNCONFIRMED, JobState.VERIFIED_UNCONFIRMED)
LEASE_VERIFIED: Final = (JobState.VERIFIED, JobState.VERIFIED_UNCONFIRMED)


@dataclass(slots=True, eq=False)
class RunningJob:
    """A job, the place where it runs, and the command that ends it.

    `started_at`, `renew_at`, `lease_end`: seconds of the monotonic clock. `cause`: why it was interrupted. `end`: how
    it ended (`COMPLETED`, `FAILED`, ...), empty while it runs; the thread that ends the job sets it last, as a signal
    to other threads. `command`: the command to send (None: nothing). `refused`: how often the server refused it.
    """

    job: Any
    jid: str
    queue: str
    handler: JobHandler
    started_at: float
    renew_at: float
    lease_end: float
    cause: Exception | None = None
    thread: int = 0
    task: asyncio.Task[None] | None = None
    state: JobState = JobState.RUNNING
    end: str = ""
    command: EndCommand | None = None
    refused: int = 0

    def reply_missing(self) -> None:
        """Record that the job's end was sent and the connection broke before a reply."""
        verified = self.state in LEASE_VERIFIED
        self.state = JobState.VERIFIED_UNCONFIRMED if verified else JobState.UNCONFIRMED

    def lease_verified(self) -> None:
        """Record that a heartbeat has renewed the lease just before a requeue."""
        unconfirmed = self.state in CONFIRMATION_MISSING
        self.state = JobState.VERIFIED_UNCONFIRMED if unconfirmed else JobState.VERIFIED
