"""The most recent refusals of each limit with their times, for the search for a key.

A process keeps new refusals in memory until the counts are flushed; then they are added to a log in the shared
dictionary, which has the newest refusals of the limit in the last two days, with a maximum for each key. Logs are
packed without holding the dictionary's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from resty_django.shdict import Keep, SharedDict, Update

from .events import RefusalEvent, newest_of, read_log, with_newest

KEEP_MS: Final = 2 * 86_400_000
MAX_REFUSALS: Final = 1000
"""The maximum number of refusals of a limit."""
MAX_REFUSALS_OF_KEY: Final = 50


class RecentRefusals:
    """The logs of recent refusals in a shared dictionary, under keys with a prefix."""

    def __init__(self, prefix: str, dictionary: Callable[[], SharedDict]) -> None:
        self._prefix = prefix
        self._dictionary = dictionary

    def add(self, name: str, events: list[RefusalEvent], limits: int, now: float) -> bool:
        """Add refusals of a limit; `limits`: the number of limits with counts. Raise `SharedDictError`.

        Return False if other processes always changed the log in the meantime.
        """
        dictionary, key = self._dictionary(), self._key(name)
        # All logs together have a sixteenth of the dictionary; one without a capacity counts as 24 MiB.
        most_bytes = min(16 * 1024, (dictionary.capacity() or 24 * 1024 * 1024) // 16 // max(limits, 1))
        oldest = int(now * 1000) - KEEP_MS
        for _ in range(5):
            stored = dictionary.get(key)
            log = read_log(stored)
            added = with_newest(
                events, log, oldest=oldest, most=MAX_REFUSALS, each=MAX_REFUSALS_OF_KEY, most_bytes=most_bytes
            )
            if added == log or dictionary.update(key, partial(_swap, stored, added.packed())):
                return True
        return False

    def read(self, name: str, now: float) -> list[RefusalEvent]:
        """Return the refusals of a limit, the oldest first. Raise `SharedDictError`."""
        events = read_log(self._dictionary().get(self._key(name))).events()
        return newest_of(events, oldest=int(now * 1000) - KEEP_MS, most=MAX_REFUSALS, each=MAX_REFUSALS_OF_KEY)

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"


def put_back(buffer: deque[RefusalEvent], events: list[RefusalEvent]) -> None:
    """Return events to the beginning of a buffer, as far as it has room."""
    room = MAX_REFUSALS - len(buffer)
    buffer.extendleft(reversed(events[-room:] if room > 0 else []))


def _swap(expected: object, packed: bytes, current: object) -> Update | Keep:
    return Update(packed, KEEP_MS / 1000, True) if current == expected else Keep(False)
