"""Counts of the calls and requests of this process that wait for their turn, with a maximum."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

from resty_django.conf import conf
from resty_django.processes.forks import after_fork
from resty_django.text import logger

from ..decision import Decision
from ..errors import TooManyWaiting
from .validation import whole

log = logger("resty_django.limits")

_counters: Final[WeakSet[WaitingCounter]] = WeakSet()


class WaitingCounter:
    """Counts what waits in this process, sync and async together.

    `what`: "requests" or "calls". `option`: the setting or the argument with the maximum, for messages. `most`: returns
    the maximum.
    """

    def __init__(self, what: str, option: str, most: Callable[[], int]) -> None:
        self.what = what
        self.option = option
        self._most = most
        self._log_after = 0.0
        self._waits: set[Wait] = set()
        self._lock = threading.RLock()  # an abandoned generator may end its wait whenever garbage is collected
        _counters.add(self)

    @property
    def count(self) -> int:
        """The number that wait at the moment."""
        return len(self._waits)

    @property
    def most(self) -> int:
        """The maximum."""
        return self._most()

    def wait(self) -> Wait:
        """Return a wait, for a `with` block. It counts from its `enter` to its `leave`, or to the end of the block."""
        return Wait(self)

    def add(self, wait: Wait) -> bool:
        """Count a wait. Return False, and count nothing, if the maximum is reached."""
        most = self._most()
        with self._lock:
            if len(self._waits) < most:
                self._waits.add(wait)
                return True
            logs = time.monotonic() >= self._log_after
            if logs:
                self._log_after = time.monotonic() + 60
        if logs:
            log.warning("%d %s of this process wait; further ones are refused: see %s", most, self.what, self.option)
        return False

    def remove(self, wait: Wait) -> None:
        """No longer count a wait."""
        with self._lock:
            self._waits.discard(wait)

    def after_fork(self) -> None:
        """Forget the waits of the parent: its threads and tasks do not run in a child."""
        self._waits = set()
        self._lock = threading.RLock()


class Wait:
    """The wait of one call or request: it may sleep several times, and counts as one."""

    __slots__ = ("_waits", "counter")

    def __init__(self, counter: WaitingCounter) -> None:
        self.counter = counter
        self._waits = False

    def enter(self) -> bool:
        """Begin to wait, unless it has begun. Return False if too many wait already."""
        self._waits = self._waits or self.counter.add(self)
        return self._waits

    def leave(self) -> None:
        """End the wait, if it has begun."""
        if self._waits:
            self._waits = False
            self.counter.remove(self)

    def refusal(self, decision: Decision) -> TooManyWaiting:
        """Return the error of a call that may not wait; `decision`: the one that refuses it for now."""
        return TooManyWaiting(decision, self.counter.most, self.counter.option)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.leave()


waiting_calls: Final = WaitingCounter("calls", "MAX_WAITING_CALLS", lambda: conf.limits.max_waiting_calls)
"""The waiting calls of slots, and of functions without a `max_waiting`."""


def counter_of_calls(max_waiting: int | None, name: str) -> WaitingCounter:
    """Return the counter of waiting calls for an argument `max_waiting`. Raise `TypeError` or `ValueError`."""
    if max_waiting is None:
        return waiting_calls
    whole("max_waiting", max_waiting)
    if max_waiting < 0:
        raise ValueError(f"max_waiting must be at least 0, or None, not {max_waiting!r}.")
    return WaitingCounter("calls", f"max_waiting={max_waiting} of {name}", lambda: max_waiting)


def waiting_now() -> dict[str, int]:
    """Return the numbers of requests and of calls of this process that wait at the moment."""
    counts = {"requests": 0, "calls": 0}
    for counter in list(_counters):
        counts[counter.what] += counter.count
    return counts


def _after_fork() -> None:
    for counter in list(_counters):
        counter.after_fork()


after_fork(_after_fork)
