"""How often each level answered: counted in the process, and handed in to a shared dictionary now and then.

A count is one addition. What was counted is handed in by calls that use a dictionary anyway, about once a second; no
hit of L1 does. It belongs to the minute and the hour in which it is handed in.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from resty_django.events.steps import Step, Steps
from resty_django.shdict import Change, Keep, SharedDict, SharedDictError

from .counts import History, Slow, SlowKeys, Stats, added, history, shortened, values

log = logging.getLogger("resty_django.cache")

PERIOD: Final = 1.0
"""Seconds between two times of handing in."""
LONGEST_PAUSE: Final = 60.0
"""Seconds at most without an attempt, where the dictionary does not answer."""
KEY: Final = "mlcache:stats:"
LISTED: Final = "mlcache:stats"
"""The key of the list of all caches that hand in to a dictionary."""
MOST_LISTED: Final = 500
ANNOUNCE: Final = 600.0
"""Seconds after which a process makes sure again that a cache is listed."""


class Counter:
    """The counts of one cache in this process. `dictionary`: where those of all processes are summed up. `clock`:
    seconds that never go back; `wall`: epoch seconds."""

    def __init__(
        self,
        name: str,
        dictionary: SharedDict,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.dictionary = dictionary
        self._key = KEY + name
        self._clock = clock
        self._wall = wall
        self._due = clock() + PERIOD
        self._pause = PERIOD
        self.start_anew()

    def start_anew(self) -> None:
        """In the child of a fork, too: what the parent counted is the parent's to hand in."""
        self.now = Stats()
        self._handed = Stats()
        self._slow = SlowKeys()
        self._listed_until = self._clock()
        self._handing = threading.Lock()

    def took(self, key: str, seconds: float) -> None:
        """Count a callback of this key."""
        self.now.callbacks += 1
        self.now.callback_seconds += seconds
        self._slow.add(shortened(key), seconds, self._wall())

    def due(self) -> bool:
        """Whether it is time to hand in."""
        return self._clock() >= self._due

    def hand_in(self) -> Steps[None]:
        """Add what was counted since the last time. A dictionary that does not answer is tried again later."""
        if not self._handing.acquire(blocking=False):
            return
        try:
            self._due = self._clock() + self._pause
            counted = replace(self.now)
            news = counted.minus(self._handed)
            if any(values(news)):
                is_new = yield from self._add(news)
                self._handed = counted
                if is_new or self._clock() >= self._listed_until:  # new: perhaps the list was lost with it
                    yield from self._list()
            self._pause = PERIOD
        except SharedDictError as error:
            self._pause = min(LONGEST_PAUSE, self._pause * 2)
            self._due = self._clock() + self._pause
            log.debug("the counts of %s could not be handed in: %s", self._key, error)
        finally:
            self._handing.release()

    def _add(self, news: Stats) -> Steps[bool]:
        """Whether there was no record."""
        slow, now = self._slow.take(), self._wall()
        step = Step(
            self.dictionary.update, self.dictionary.aupdate, (self._key, lambda old: _added(old, news, slow, now))
        )
        try:
            return bool((yield step))
        except BaseException:
            for one in slow:
                self._slow.add(*one)
            raise

    def _list(self) -> Steps[None]:
        yield Step(self.dictionary.update, self.dictionary.aupdate, (LISTED, lambda names: _with(names, self.name)))
        self._listed_until = self._clock() + ANNOUNCE

    def total(self) -> Steps[Stats]:
        """The counts of all processes, with those of this one up to now. Raises `Unavailable`."""
        return (yield from self.history()).total

    def history(self) -> Steps[History]:
        """The same by minute and hour, and the slowest keys. Raises `Unavailable`."""
        yield from self.hand_in()
        return history((yield Step(self.dictionary.get, self.dictionary.aget, (self._key,))), self._wall())


def listed(dictionary: SharedDict) -> list[str]:
    """The names of the caches that hand in to this dictionary. Raises `SharedDictError`."""
    names = dictionary.get(LISTED)
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _with(names: Any, name: str) -> Change | Keep:
    known = names if isinstance(names, list) else []
    return Keep() if name in known or len(known) >= MOST_LISTED else Change([*known, name], 0)


def _added(old: Any, news: Stats, slow: list[Slow], now: float) -> Change:
    return Change(added(old, news, slow, now), 0, old is None)


__all__ = ["Counter", "Stats", "listed"]
