"""Circuit breakers of stores: an outage is logged once, the store is bypassed for a pause, and its recovery is logged.

    from resty_django.limits import current_outages

    for outage in current_outages():
        print(outage.store, outage.since, outage.error, outage.decisions)

Each process has its own breakers: an outage that only other processes have seen is not known here.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Final, NamedTuple

from resty_django.forks import after_fork
from resty_django.text import logger

log = logger("resty_django.limits")

PAUSE: Final = 1.0
"""Seconds between two tries to reach a store that did not answer."""

_breakers: Final[weakref.WeakSet[CircuitBreaker]] = weakref.WeakSet()


class Outage(NamedTuple):
    """`store`: its name. `since`: seconds since the epoch. `decisions`: made without it in this process so far."""

    store: str
    since: float
    error: str
    decisions: int


class CircuitBreaker:
    """The state of one store in this process. `down`: whether its last call failed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.down = False
        self.decisions = 0
        self._error = ""
        self._since = 0.0
        self._failed_at = 0.0
        self.retry_at = 0.0
        _breakers.add(self)

    def is_open(self) -> bool:
        """Whether to bypass the store now. Once in each pause it returns False, so that one caller tries."""
        now = time.monotonic()
        if now < self.retry_at:
            return True
        self.retry_at = now + PAUSE
        return False

    def record_failure(self, error: Exception) -> None:
        """Open the circuit: a call of the store failed."""
        with _lock:
            self._error = str(error)
            self.retry_at = time.monotonic() + PAUSE
            if self.down:
                return
            self.down = True
            self.decisions = 0
            self._since, self._failed_at = time.time(), time.monotonic()
        log.error("limits are decided without the store %r, each as its on_error says: %s", self.name, error)

    def reset(self) -> None:
        """Close the circuit: a call of the store succeeded."""
        with _lock:
            if not self.down:
                return
            self.down = False
            lasted = time.monotonic() - self._failed_at
        log.warning(
            "limits are decided with the store %r again after %.1f s and %d decisions without it",
            *(self.name, lasted, self.decisions),
        )

    def outage(self) -> Outage | None:
        """Return the current outage, or None."""
        return Outage(self.name, self._since, self._error, self.decisions) if self.down else None


def current_outages() -> list[Outage]:
    """Return the current outages of this process, by the names of their stores."""
    return sorted(outage for breaker in list(_breakers) if (outage := breaker.outage()))


_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


after_fork(_after_fork)
