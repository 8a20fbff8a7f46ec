"""Durations of the leases of this worker's jobs, and the times of their renewal.

All times come from the monotonic clock, and the duration of a lease comes from the configuration rather than from the
expiry that the server reports. So a wrong clock does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...clients.transport import Request
from ..running_job import RunningJob

DEFAULT: Final = 60.0
"""Seconds of a lease if nothing is configured."""
RENEWALS: Final = 3
"""A lease of s seconds is renewed every s / `RENEWALS` seconds."""
SHORTEST_CHECK, LONGEST_CHECK = 0.05, 5.0
"""Minimum and maximum seconds between two checks for leases to renew."""
DOUBT: Final = 0.2
"""Seconds until a refused heartbeat is repeated if the job itself may have just ended the lease."""


class Leases:
    """The durations of leases by queue, and the times of checks."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)
        self._lengths = dict.fromkeys(self._queues, DEFAULT)
        self._check_interval = LONGEST_CHECK
        self.next_check = 0.0
        """When to check for leases to renew."""

    @property
    def shortest(self) -> float:
        """Seconds of the shortest lease."""
        return min(self._lengths.values(), default=DEFAULT)

    def length(self, queue: str) -> float:
        """Return the seconds of a lease of this queue."""
        return self._lengths.get(queue, DEFAULT)

    def renew(self, running: RunningJob, now: float) -> None:
        """Record that a call sent at `now` renewed the lease."""
        length = self.length(running.queue)
        running.renew_at = now + length / RENEWALS
        running.lease_end = now + length

    def due(self, all_running: Iterable[RunningJob], now: float) -> list[RunningJob]:
        """Return the jobs whose lease must be renewed, if it is time for a check."""
        if now < self.next_check:
            return []
        self.next_check = now + self._check_interval
        return [running for running in all_running if not running.end and running.renew_at <= self.next_check]

    def length_requests(self) -> list[Request]:
        """Return the calls that request the durations."""
        return [("config.get", "heartbeat"), *(("config.get", f"{queue}-heartbeat") for queue in self._queues)]

    def apply_lengths(self, replies: Sequence[Any], now: float) -> None:
        """Process the replies to `length_requests`."""
        common = _seconds(replies[0]) or DEFAULT
        self._lengths = {
            queue: _seconds(reply) or common for queue, reply in zip(self._queues, replies[1:], strict=True)
        }
        self._check_interval = min(LONGEST_CHECK, max(SHORTEST_CHECK, min(self._lengths.values()) / 12))
        self.next_check = min(self.next_check, now + self._check_interval)


def _seconds(reply: Any) -> float | None:
    """Return the duration in a reply, or None if it is not one: clients can set the option to anything."""
    try:
        length = float(reply)
    except (TypeError, ValueError):
        return None
    return length if length > 0 else None
