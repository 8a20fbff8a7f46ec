"""Events in an LMDB dictionary: a counter, and a record per event.

A poster stores its record under the first free number after the counter, and then advances the counter to that number.
The record makes the event; any process that finds the counter behind advances it. So a process that is killed between
the two steps leaves neither a gap nor a lost event, and all processes see the same order. Old records are evicted as
the least recently used items.

The first number in an empty dictionary is derived from the time. So an emptied dictionary is always noticed, even if
more events were posted since then than before.
"""

from __future__ import annotations

import time
from typing import ClassVar, Final

from resty_django.shdict import Change, Keep, NoMemory

from .channel import Batch, Channel

LAST: Final = "last"
PATIENCE: Final = 1.0
_NUMBERS: Final = 2**21
"""Numbers reserved per millisecond of a dictionary's start. Later events use the numbers of following milliseconds."""
_FAR: Final = 2**20
"""A counter from another millisecond that is this far ahead has restarted."""


class MemoryChannel(Channel):
    """A channel in memory. Positions are numbers. A read without new events costs two memory accesses."""

    wakes: ClassVar[bool] = False

    def last(self) -> int:
        number: int = self.dictionary.get(LAST, 0)
        return number

    def between(self, position: int, last: int) -> int:
        return 0 if last in (0, position) else last - begin_of(position, last)

    def append(self, record: bytes, retries: int) -> None:
        """Append an event. Retries also end after `PATIENCE` seconds."""
        until = time.monotonic() + PATIENCE
        for attempt in range(retries + 1):
            try:
                self._append(record)
                return
            except NoMemory:
                if attempt == retries or time.monotonic() > until:
                    raise

    def _append(self, record: bytes) -> None:
        last = self.dictionary.get(LAST)
        if last is None:
            time.sleep(0.001)  # avoid the start millisecond of the dictionary before it was emptied
            self.dictionary.add(LAST, int(time.time() * 1000) * _NUMBERS)
            last = self.dictionary.get(LAST)
            if last is None:
                raise NoMemory(
                    f"The shared dictionary {self.dictionary.name!r} is too small for an event number. Raise its SIZE."
                )
        number = last + 1
        while not self.dictionary.add(_key(number), record):
            number += 1
        self.move_to(number)

    def move_to(self, number: int) -> None:
        """Advance the counter to `number`, unless it has already passed it."""
        self.dictionary.update(LAST, lambda last: Keep() if last is not None and last >= number else Change(number, 0))

    def read(self, position: int) -> Batch | None:
        last: int | None = self.dictionary.get(LAST)
        if last is None:  # emptied, and nothing was posted since
            return None
        if last == position:
            return self._untold(last)
        begin = begin_of(position, last)
        return Batch(last, [(number, self.fetch(number)) for number in range(begin + 1, last + 1)])

    def _untold(self, last: int) -> Batch | None:
        """Return the event after the last one, if its poster has not advanced the counter."""
        record = self.fetch(last + 1)
        if record is None:
            return None
        self.move_to(last + 1)
        return Batch(last + 1, [(last + 1, record)])

    def fetch(self, number: int) -> bytes | None:
        record: bytes | None = self.dictionary.get(_key(number))
        return record

    def wait(self, position: int, seconds: float) -> None:
        raise NotImplementedError

    # Calls take microseconds and never wait for a network.

    async def alast(self) -> int:
        return self.last()

    async def aappend(self, record: bytes, retries: int) -> None:
        self.append(record, retries)

    async def aread(self, position: int) -> Batch | None:
        return self.read(position)

    async def afetch(self, number: int) -> bytes | None:
        return self.fetch(number)

    async def await_news(self, position: int, seconds: float) -> None:
        raise NotImplementedError


def begin_of(position: int, last: int) -> int:
    """Return the position, or the new start if the dictionary was emptied since."""
    begin = last - last % _NUMBERS
    if position < last and (begin <= position or last < position + _FAR):
        return position
    return begin


def _key(number: int) -> str:
    return f"event:{number}"
