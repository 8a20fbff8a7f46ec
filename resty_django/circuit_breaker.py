"""Circuit breakers for stores: an outage is logged once, the store is bypassed for a pause, and its recovery is logged.

Limits and caches have a subclass each. Each process has separate breakers, so it does not notice outages that only
other processes have seen.
"""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from typing import Final, NamedTuple, TypeVar

from .processes.forks import after_fork

BYPASS_SECONDS: Final = 1.0
"""Seconds between two attempts to reach a store that did not answer."""

B = TypeVar("B", bound="CircuitBreaker")


class Outage(NamedTuple):
    """An outage of a store. `since`: epoch seconds. `calls`: the number of calls made without it in this process."""

    store: str
    since: float
    error: str
    calls: int


class CircuitBreaker(ABC):
    """The state of one store in this process.

    `down`: whether its last call failed. `calls`: the number of calls made without it since the outage began. In the
    methods, `reading` is whether the call of the store only reads.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.down = False
        self._read_only_until = 0.0
        self.calls = 0
        self._error = ""
        self._since = 0.0
        self._failed_at = 0.0
        self.retry_at = 0.0
        _breakers.add(self)

    @abstractmethod
    def log_failure(self, error: Exception) -> None:
        """Log the beginning of an outage."""

    @abstractmethod
    def log_recovery(self, seconds: float) -> None:
        """Log the end of an outage. `seconds`: its duration."""

    def is_open(self, *, reading: bool = False) -> bool:
        """Return whether to bypass the store now. Return False once in each pause, so that one caller tries it.

        A read that cannot end the outage is not this caller.
        """
        now = time.monotonic()
        if now < self.retry_at:
            return True
        if not (reading and now < self._read_only_until):
            self.retry_at = now + BYPASS_SECONDS
        return False

    def record_failure(self, error: Exception, *, reading: bool = False) -> None:
        """Open the circuit after a failed call of the store."""
        with _lock:
            now = time.monotonic()
            if not reading:
                # Within 10 seconds of a failed write, a read does not end the outage: a replica answers reads, too.
                self._read_only_until = now + 10.0
            self._error = str(error)
            self.retry_at = now + BYPASS_SECONDS
            if self.down:
                return
            self.down = True
            self.calls = 0
            self._since, self._failed_at = time.time(), now
        self.log_failure(error)

    def reset(self, *, reading: bool = False) -> None:
        """Close the circuit after a successful call of the store."""
        with _lock:
            now = time.monotonic()
            if not self.down or (reading and now < self._read_only_until):
                return
            self.down, self._read_only_until = False, 0.0
            duration = now - self._failed_at
        self.log_recovery(duration)

    def outage(self) -> Outage | None:
        """Return the current outage, or None."""
        return Outage(self.name, self._since, self._error, self.calls) if self.down else None


_breakers: Final[weakref.WeakSet[CircuitBreaker]] = weakref.WeakSet()


def breakers_of(kind: type[B]) -> list[B]:
    """Return the breakers of this class in this process."""
    return [breaker for breaker in list(_breakers) if isinstance(breaker, kind)]


_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


after_fork(_after_fork)
