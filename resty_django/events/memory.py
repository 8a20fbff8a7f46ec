"""Events in a shared dictionary of one machine: a counter, and a record for each event.

A poster stores its record under the number after the counter, where none is yet, and then moves the counter there. The
first of the two makes the event; a process that finds the counter behind moves it. So a poster that is killed between
the two leaves neither a gap nor a lost event, and all processes see one order. Old records leave as the least recently
used ones.

The first number of an empty dictionary is made of the time. So a dictionary that was emptied is always noticed, even if
more events were posted since than before.
"""

from __future__ import annotations

import time
from typing import ClassVar, Final

from resty_django.shdict import Change, Keep, NoMemory

from .channel import Batch, Channel

LAST: Final = "last"
PATIENCE: Final = 1.0
_NUMBERS: Final = 2**21
"""Numbers for each millisecond in which a dictionary may begin. One that lives longer goes on into the next."""
_FAR: Final = 2**20
"""A counter of another millisecond that is this far ahead has begun anew."""


class MemoryChannel(Channel):
    """Positions are numbers. Reading costs two looks into the memory where there is no news."""

    wakes: ClassVar[bool] = False

    def last(self) -> int:
        number: int = self.dictionary.get(LAST, 0)
        return number

    def between(self, position: int, last: int) -> int:
        return 0 if last in (0, position) else last - begin_of(position, last)

    def append(self, record: bytes, retries: int) -> None:
        """`retries` end after `PATIENCE` seconds, too."""
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
            time.sleep(0.001)  # so that it is not the millisecond in which the dictionary began before it was emptied
            self.dictionary.add(LAST, int(time.time() * 1000) * _NUMBERS)
            last = self.dictionary.get(LAST)
            if last is None:
                raise NoMemory(f"The shared dictionary {self.dictionary.name!r} does not even keep a number.")
        number = last + 1
        while not self.dictionary.add(_key(number), record):
            number += 1
        self.move_to(number)

    def move_to(self, number: int) -> None:
        """Move the counter to `number`, unless it is there or further."""
        self.dictionary.update(LAST, lambda last: Keep() if last is not None and last >= number else Change(number, 0))

    def read(self, position: int) -> Batch | None:
        last: int | None = self.dictionary.get(LAST)
        if last is None:  # emptied, and nothing posted since
            return None
        if last == position:
            return self._untold(last)
        begin = begin_of(position, last)
        return Batch(last, [(number, self.fetch(number)) for number in range(begin + 1, last + 1)])

    def _untold(self, last: int) -> Batch | None:
        """Return the event after the last, if its poster did not get to moving the counter."""
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

    # A call takes microseconds and waits for no network.

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
    """Return the position, or where the dictionary began anew since then."""
    begin = last - last % _NUMBERS
    if position < last and (begin <= position or last < position + _FAR):
        return position
    return begin


def _key(number: int) -> str:
    return f"event:{number}"
