"""When to ask which queue again. Pure: times are seconds of a clock that the caller reads, and that never goes back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

SHORTEST: Final = 0.02
"""Seconds until a queue is asked again that has jobs and gave none, because of a bound on running jobs; twice as long
each further time."""


class Waits:
    """For each queue the time from which on asking it may be of use."""

    def __init__(self, queues: Iterable[str], interval: float) -> None:
        self._interval = interval
        self._at = dict.fromkeys(queues, 0.0)
        self._refusals = dict.fromkeys(self._at, 0)

    def open(self, queue: str, now: float) -> bool:
        return self._at[queue] <= now

    def next(self) -> float:
        """The earliest time at which a queue is worth asking."""
        return min(self._at.values())

    def woken(self, queue: str) -> None:
        """A job was put there."""
        if queue in self._at:
            self._at[queue] = 0.0

    def all_open(self) -> None:
        """Something may have been missed."""
        self._at = dict.fromkeys(self._at, 0.0)

    def gave(self, queue: str) -> None:
        """It gave all jobs that it was asked for, and may have more."""
        self._refusals[queue] = 0

    def finished(self, queue: str) -> None:
        """A job of it has ended; a bound on running jobs may leave room for another."""
        if self._refusals.get(queue):
            self._at[queue] = 0.0

    def emptied(self, queue: str, now: float) -> None:
        """It gave fewer jobs than it was asked for."""
        self._at[queue] = now + self._interval

    def due(self, queue: str, seconds: float | None, now: float) -> None:
        """The server says when there is something to pop: in so many seconds, or None for an empty queue."""
        if seconds is None or seconds > SHORTEST:
            self._refusals[queue] = 0
            pause = self._interval if seconds is None else min(seconds, self._interval)
        else:
            pause = min(SHORTEST * 2 ** min(self._refusals[queue], 20), self._interval)
            self._refusals[queue] += 1
        self._at[queue] = now + pause


__all__ = ["SHORTEST", "Waits"]
