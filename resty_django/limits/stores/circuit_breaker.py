"""Circuit breakers for stores: an outage is logged once, the store is bypassed for a pause, and its recovery is logged.

    from resty_django.limits import current_outages

    for outage in current_outages():
        print(outage.store, outage.since, outage.error, outage.decisions)

Each process has separate breakers: it does not know outages that only other processes have seen.
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
"""Seconds between two attempts to reach a store that did not answer."""

_breakers: Final[weakref.WeakSet[CircuitBreaker]] = weakref.WeakSet()


class Outage(NamedTuple):
    """An outage of a store. `since`: epoch seconds. `decisions`: the count of decisions without it in this process."""

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
        """Return whether to bypass the store now. Return False once in each pause, so that one caller tries it."""
        now = time.monotonic()
        if now < self.retry_at:
            return True
        self.retry_at = now + PAUSE
        return False

    def record_failure(self, error: Exception) -> None:
        """Open the circuit after a failed call of the store."""
        with _lock:
            self._error = str(error)
            self.retry_at = time.monotonic() + PAUSE
            if self.down:
                return
            self.down = True
            self.decisions = 0
            self._since, self._failed_at = time.time(), time.monotonic()
        log.error("The store %r of limits does not answer; limits follow their on_error: %s", self.name, error)

    def reset(self) -> None:
        """Close the circuit after a successful call of the store."""
        with _lock:
            if not self.down:
                return
            self.down = False
            lasted = time.monotonic() - self._failed_at
        log.warning(
            "The store %r of limits answers again after %.1f s and %d decisions without it",
            *(self.name, lasted, self.decisions),
        )

    def outage(self) -> Outage | None:
        """Return the current outage, or None."""
        return Outage(self.name, self._since, self._error, self.decisions) if self.down else None


def current_outages() -> list[Outage]:
    """Return the current outages of this process, ordered by the names of their stores."""
    return sorted(outage for breaker in list(_breakers) if (outage := breaker.outage()))


_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


after_fork(_after_fork)
