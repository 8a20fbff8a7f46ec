"""Events in the journal of an LMDB dictionary.

An event is one entry, appended in one transaction. So a process that is killed while posting leaves neither a gap nor a
partial event, and all processes see the same order. When the journal is full, the oldest events are deleted.
"""

from __future__ import annotations

import time
from typing import ClassVar, Final

from resty_django.shdict import NoMemory
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.lmdb.journal import begin_of

from ..wire import NOT_EVENT
from .base import Batch, Channel

APPEND_RETRY_SECONDS: Final = 1.0


class MemoryChannel(Channel):
    """A channel in memory. Positions are numbers. A read without new events costs one memory access."""

    wakes: ClassVar[bool] = False

    def __init__(self, dictionary: LmdbDict) -> None:
        super().__init__(dictionary)
        dictionary.journal_size = dictionary.size // 2  # it contains little else
        self._journal = dictionary

    def last(self) -> int:
        return self._journal.journal_end()

    def between(self, position: int, last: int) -> int:
        return 0 if last in (0, position) else last - begin_of(position, last)

    def append(self, record: bytes, retries: int) -> None:
        """Append an event. Retries also end after `APPEND_RETRY_SECONDS`."""
        try:
            self._journal.append(record)
        except NoMemory:
            if not retries:
                raise
            self._append_later(record, retries)

    def _append_later(self, record: bytes, retries: int) -> None:
        until = time.monotonic() + APPEND_RETRY_SECONDS
        for attempt in range(1, retries + 1):
            try:
                self._journal.append(record)
                return
            except NoMemory:
                if attempt == retries or time.monotonic() > until:
                    raise

    def read(self, position: int) -> Batch | None:
        if self._journal.journal_end() == position:
            return None
        last, entries, lost, _ = self._journal.read_journal(position)
        events = [(number, record) for number, record in entries if record is None or record[0] != NOT_EVENT]
        return Batch(last, events, lost) if entries else None
