"""What is said about an outage, and how often. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

BETWEEN: Final = 10.0
"""Seconds between two reports of messages that were dropped although the server takes messages."""


class Reports:
    """An outage is told when it begins, when it makes the first message be dropped, and when it is over."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._down = False
        self._dropping = False
        self._told = 0
        self._quiet_until = float("-inf")

    def after(self, error: str | None, dropped: int, now: float) -> Iterator[str]:
        """What to say after a flush. `error`: why it failed; `dropped`: all messages dropped until now."""
        if error is not None:
            if not self._down:
                self._down = True
                yield f"{self._place} takes no log messages, they wait: {error}"
            if not self._dropping and dropped > self._told:
                self._dropping = True
                yield f"log messages for {self._place} are dropped, since those that wait have reached drop_limit"
            return
        if self._down:
            self._down = self._dropping = False
            self._quiet_until = now
            yield f"{self._place} takes log messages again"
        if dropped > self._told and now >= self._quiet_until:
            yield f"{dropped - self._told} log messages for {self._place} were dropped"
            self._told = dropped
            self._quiet_until = now + BETWEEN

    def at_the_end(self, waiting: int, dropped: int) -> Iterator[str]:
        """What to say when no flush follows, and so many messages still wait."""
        lost = waiting + dropped - self._told
        if lost:
            self._told = dropped
            yield f"{lost} log messages for {self._place} are lost"


__all__ = ["Reports"]
