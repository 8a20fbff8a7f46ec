"""Queue polling: strategies, and the times of polls. No I/O: times are seconds of the caller's monotonic clock."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol


class Reserver(Protocol):
    """The interface of a strategy. Its class is called with the queue names in the order of `--queues`."""

    def order(self) -> Iterable[str]:
        """Return the queues to poll now, in order. The worker skips queues that it knows to be empty."""

    def on_poll(self, queue: str) -> None:
        """Record that the queue is being polled."""


class Ordered:
    """Polls the first queue until it is empty, then the next. Each poll starts with the first again."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)

    def order(self) -> Iterable[str]:
        return self._queues

    def on_poll(self, queue: str) -> None:
        """Do nothing."""


class RoundRobin:
    """Polls the queues in turn, starting after the queue that was polled last."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)
        self._next = 0

    def order(self) -> Iterable[str]:
        return self._queues[self._next :] + self._queues[: self._next]

    def on_poll(self, queue: str) -> None:
        self._next = (self._queues.index(queue) + 1) % len(self._queues)


class Shuffled:
    """Polls the queues in a new random order each time."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = list(queues)

    def order(self) -> Iterable[str]:
        random.shuffle(self._queues)
        return tuple(self._queues)

    def on_poll(self, queue: str) -> None:
        """Do nothing."""


RESERVERS: Final[Mapping[str, type[Ordered | RoundRobin | Shuffled]]] = MappingProxyType(
    {"ordered": Ordered, "round_robin": RoundRobin, "shuffled": Shuffled}
)
"""Strategies by name; any other name is a dotted path."""


MIN_POLL_SECONDS: Final = 0.02
"""Pause until a queue that has jobs, but returned none because of a limit on running jobs, is polled again. Doubled
each further time."""


class PollSchedule:
    """The time of the next poll of each queue. `interval`: seconds between two polls without a notification."""

    def __init__(self, queues: Iterable[str], interval: float) -> None:
        self._interval = interval
        self.poll_at = dict.fromkeys(queues, 0.0)
        """The next poll of each queue."""
        self._refusals = dict.fromkeys(self.poll_at, 0)

    def next_poll(self) -> float:
        """Return the time of the next poll of any queue."""
        return min(self.poll_at.values())

    def on_job_available(self, queue: str) -> None:
        """Poll the queue at once: a job was put."""
        if queue in self.poll_at:
            self.poll_at[queue] = 0.0

    def poll_all(self) -> None:
        """Poll all queues at once: notifications may have been missed."""
        self.poll_at = dict.fromkeys(self.poll_at, 0.0)

    def on_full_reply(self, queue: str) -> None:
        """Record that a poll returned as many jobs as requested: there may be more."""
        self._refusals[queue] = 0

    def on_job_finished(self, queue: str) -> None:
        """Record that a job has ended: a limit on running jobs may allow another one now."""
        if self._refusals.get(queue):
            self.poll_at[queue] = 0.0

    def on_short_reply(self, queue: str, now: float) -> None:
        """Record that a poll returned fewer jobs than requested."""
        self.poll_at[queue] = now + self._interval

    def set_due(self, queue: str, seconds: float | None, now: float) -> None:
        """Record when the server expects a job to be available: in `seconds`, or None for an empty queue."""
        if seconds is None or seconds > MIN_POLL_SECONDS:
            self._refusals[queue] = 0
            pause = self._interval if seconds is None else min(seconds, self._interval)
        else:
            pause = min(MIN_POLL_SECONDS * 2 ** min(self._refusals[queue], 20), self._interval)
            self._refusals[queue] += 1
        self.poll_at[queue] = now + pause
