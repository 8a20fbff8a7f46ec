"""Stores that cannot be used: noticed once, told once, left alone for a moment, and their return told as well.

    from resty_django.limits import outage

    for one in outage.current():
        print(one.store, one.since, one.error, one.decisions)

A process knows what it has met itself: an outage that other processes have met is in their memory.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from typing import Final, NamedTuple

log = logging.getLogger("resty_django.limits")

PAUSE: Final = 1.0
"""Seconds between two tries to reach a store that did not answer."""

_watches: Final[weakref.WeakSet[Watch]] = weakref.WeakSet()


class Outage(NamedTuple):
    """`store`: its name. `since`: seconds since the epoch. `decisions`: made without it in this process so far."""

    store: str
    since: float
    error: str
    decisions: int


class Watch:
    """What this process knows of one store. `down` is false while it answers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.down = False
        self.decisions = 0
        self._error = ""
        self._since = 0.0
        self._began = 0.0
        self._again = 0.0
        _watches.add(self)

    def resting(self) -> bool:
        """Whether the store is to be left alone now. One caller for each pause is told to try."""
        now = time.monotonic()
        if now < self._again:
            return True
        self._again = now + PAUSE
        return False

    def failed(self, error: Exception) -> None:
        """The store did not do what it was asked for."""
        with _telling:
            self._error = str(error)
            self._again = time.monotonic() + PAUSE
            if self.down:
                return
            self.down = True
            self.decisions = 0
            self._since, self._began = time.time(), time.monotonic()
        log.error("limits are decided without the store %r, each as its on_error says: %s", self.name, error)

    def answered(self) -> None:
        """The store did what it was asked for."""
        with _telling:
            if not self.down:
                return
            self.down = False
            lasted = time.monotonic() - self._began
        log.warning(
            "limits are decided with the store %r again after %.1f s and %d decisions without it",
            *(self.name, lasted, self.decisions),
        )

    def outage(self) -> Outage | None:
        """The one that is under way."""
        return Outage(self.name, self._since, self._error, self.decisions) if self.down else None


def current() -> list[Outage]:
    """The outages that this process is in, by name of their stores."""
    return sorted(found for watch in list(_watches) if (found := watch.outage()))


_telling = threading.Lock()


def _in_child() -> None:
    global _telling
    _telling = threading.Lock()


os.register_at_fork(after_in_child=_in_child)

__all__ = ["PAUSE", "Outage", "Watch", "current"]
