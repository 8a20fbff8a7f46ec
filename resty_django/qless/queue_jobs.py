"""The jids of a queue's jobs by state: `queue.jobs.waiting()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .call import Steps, twins
from .texts import texts

if TYPE_CHECKING:
    from .clients import Client


class QueueJobs:
    """Each gives at most `count` jids after the first `offset`; a `count` of -1 means all, but not of `scheduled` and
    `depends`."""

    __slots__ = ("client", "name")

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def _of(self, kind: str, offset: int, count: int) -> Steps[list[str]]:
        return texts((yield "jobs", kind, self.name, offset, count))

    def _waiting(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """In the order of pop."""
        return (yield from self._of("waiting", offset, count))

    def _running(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Those whose lock expires first come first."""
        return (yield from self._of("running", offset, count))

    def _stalled(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Running ones whose lock has expired, those of long ago first."""
        return (yield from self._of("stalled", offset, count))

    def _scheduled(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Those that are due first come first."""
        return (yield from self._of("scheduled", offset, count))

    def _depends(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Those that wait for other jobs, oldest first."""
        return (yield from self._of("depends", offset, count))

    def _recurring(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Recurring jobs, those that are due first come first."""
        return (yield from self._of("recurring", offset, count))

    waiting, awaiting = twins(_waiting)
    running, arunning = twins(_running)
    stalled, astalled = twins(_stalled)
    scheduled, ascheduled = twins(_scheduled)
    depends, adepends = twins(_depends)
    recurring, arecurring = twins(_recurring)


__all__ = ["QueueJobs"]
