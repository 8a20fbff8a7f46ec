"""How long the locks of this worker's jobs last, and when they are to be prolonged.

All times are of the monotonic clock, and the length of a lock comes from the configuration rather than from the expiry
that the server tells: so it does not matter whose clock is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from .running import Command, Running

DEFAULT: Final = 60.0
"""Seconds of a lock where nothing is configured."""
SHARE: Final = 3
"""A lock is prolonged when this part of it is over."""
SHORTEST_LOOK, LONGEST_LOOK = 0.05, 5.0
"""Seconds between two looks for locks to prolong."""
DOUBT: Final = 0.2
"""Seconds until a heartbeat that was refused is sent again, where the job itself may have ended the lock just now."""


class Leases:
    """The lengths of locks by queue, and the calls that are to be made about them."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)
        self._lengths = dict.fromkeys(self._queues, DEFAULT)
        self._look = LONGEST_LOOK
        self.next_look = 0.0

    def length(self, queue: str) -> float:
        """Seconds."""
        return self._lengths.get(queue, DEFAULT)

    def hold(self, running: Running, now: float) -> None:
        """Its lock was prolonged by a call that was sent at `now`."""
        length = self.length(running.queue)
        running.beat_at = now + length / SHARE
        running.lease_end = now + length

    def due(self, all_running: Iterable[Running], now: float) -> list[Running]:
        """Whose lock to prolong, where it is time for a look."""
        if now < self.next_look:
            return []
        self.next_look = now + self._look
        return [running for running in all_running if not running.judged and running.beat_at <= self.next_look]

    def questions(self) -> list[Command]:
        """The calls that ask for the lengths."""
        return [("config.get", "heartbeat"), *(("config.get", f"{queue}-heartbeat") for queue in self._queues)]

    def answered(self, replies: Sequence[Any], now: float) -> None:
        """The replies to `questions`."""
        common = _seconds(replies[0]) or DEFAULT
        self._lengths = {
            queue: _seconds(reply) or common for queue, reply in zip(self._queues, replies[1:], strict=True)
        }
        self._look = min(LONGEST_LOOK, max(SHORTEST_LOOK, min(self._lengths.values()) / 12))
        self.next_look = min(self.next_look, now + self._look)


def _seconds(reply: Any) -> float | None:
    """None where the reply is no length: anybody may have set anything."""
    try:
        found = float(reply)
    except (TypeError, ValueError):
        return None
    return found if found > 0 else None


__all__ = ["DOUBT", "Leases"]
