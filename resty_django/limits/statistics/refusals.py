"""The most recent refusals of each limit with their times, for the search for a key.

A process keeps new refusals in memory until the counts are flushed; then they are added to a log in the shared
dictionary, which has the newest `MOST` refusals of the limit in the last two days, and the newest `EACH` of a key.
Logs are packed without holding the dictionary's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from resty_django.shdict import Keep, SharedDict, Update

from .events import Event, newest_of, read_log, with_newest

SPAN: Final = 2 * 86_400_000
"""Milliseconds for which refusals are kept."""
LIFE: Final = SPAN / 1000
MOST: Final = 1000
"""The maximum number of refusals of a limit."""
EACH: Final = 50
"""The maximum number of refusals of a key in a limit."""
MOST_BYTES: Final = 16 * 1024
"""The maximum number of bytes of a log."""
SHARE_OF_STORE: Final = 16
"""All logs together have about 1/16 of the capacity of the dictionary."""
USUAL_CAPACITY: Final = 24 * 1024 * 1024
"""The bytes that are assumed for a dictionary without a capacity."""
ATTEMPTS: Final = 5
"""The maximum number of attempts if other processes change the same log."""


class RecentRefusals:
    """The logs of recent refusals in a shared dictionary, under keys with a prefix."""

    def __init__(self, prefix: str, dictionary: Callable[[], SharedDict]) -> None:
        self._prefix = prefix
        self._dictionary = dictionary

    def add(self, name: str, events: list[Event], limits: int, now: float) -> bool:
        """Add refusals of a limit; `limits`: the number of limits with counts. Raise `SharedDictError`.

        Return False if other processes always changed the log in the meantime.
        """
        dictionary, key = self._dictionary(), self._key(name)
        capacity = dictionary.capacity() or USUAL_CAPACITY
        most_bytes = min(MOST_BYTES, capacity // SHARE_OF_STORE // max(limits, 1))
        oldest = int(now * 1000) - SPAN
        for _ in range(ATTEMPTS):
            stored = dictionary.get(key)
            log = read_log(stored)
            added = with_newest(events, log, oldest=oldest, most=MOST, each=EACH, most_bytes=most_bytes)
            if added == log or dictionary.update(key, partial(_swap, stored, added.packed())):
                return True
        return False

    def read(self, name: str, now: float) -> list[Event]:
        """Return the refusals of a limit, the oldest first. Raise `SharedDictError`."""
        events = read_log(self._dictionary().get(self._key(name))).events()
        return newest_of(events, oldest=int(now * 1000) - SPAN, most=MOST, each=EACH)

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"


def put_back(buffer: deque[Event], events: list[Event]) -> None:
    """Return events to the beginning of a buffer, as far as it has room."""
    room = MOST - len(buffer)
    buffer.extendleft(reversed(events[-room:] if room > 0 else []))


def _swap(expected: Any, packed: bytes, current: Any) -> Update | Keep:
    return Update(packed, LIFE, True) if current == expected else Keep(False)
