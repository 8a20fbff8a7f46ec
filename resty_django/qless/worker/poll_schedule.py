"""Times at which to poll the queues. No I/O: times are seconds of the caller's monotonic clock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SHORTEST: Final = 0.02
"""Seconds until a queue that has jobs, but returned none because of a limit on running jobs, is polled again. Doubled
each further time."""


class PollSchedule:
    """The time of the next poll of each queue. `interval`: seconds between two polls without a notification."""

    def __init__(self, queues: Iterable[str], interval: float) -> None:
        self._interval = interval
        self._poll_at = dict.fromkeys(queues, 0.0)
        self._refusals = dict.fromkeys(self._poll_at, 0)

    def is_due(self, queue: str, now: float) -> bool:
        return self._poll_at[queue] <= now

    def next(self) -> float:
        """Return the time of the next poll of any queue."""
        return min(self._poll_at.values())

    def on_job_available(self, queue: str) -> None:
        """Poll the queue at once: a job was put."""
        if queue in self._poll_at:
            self._poll_at[queue] = 0.0

    def poll_all(self) -> None:
        """Poll all queues at once: notifications may have been missed."""
        self._poll_at = dict.fromkeys(self._poll_at, 0.0)

    def on_full_reply(self, queue: str) -> None:
        """Record that a poll returned as many jobs as requested: there may be more."""
        self._refusals[queue] = 0

    def on_job_finished(self, queue: str) -> None:
        """Record that a job has ended: a limit on running jobs may allow another one now."""
        if self._refusals.get(queue):
            self._poll_at[queue] = 0.0

    def on_short_reply(self, queue: str, now: float) -> None:
        """Record that a poll returned fewer jobs than requested."""
        self._poll_at[queue] = now + self._interval

    def set_due(self, queue: str, seconds: float | None, now: float) -> None:
        """Record when the server expects a job to be available: in `seconds`, or None for an empty queue."""
        if seconds is None or seconds > SHORTEST:
            self._refusals[queue] = 0
            pause = self._interval if seconds is None else min(seconds, self._interval)
        else:
            pause = min(SHORTEST * 2 ** min(self._refusals[queue], 20), self._interval)
            self._refusals[queue] += 1
        self._poll_at[queue] = now + pause
