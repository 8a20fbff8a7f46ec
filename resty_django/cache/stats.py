"""How often each level answered: counted in the process, and handed in to a shared dictionary now and then.

A count is one addition. What was counted is handed in by calls that use a dictionary anyway, about once a second; no
hit of L1 does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from resty_django.events.steps import Step, Steps
from resty_django.shdict import Change, SharedDict, SharedDictError

from .results import L1, L2, L3, STALE, Level

log = logging.getLogger("resty_django.cache")

PERIOD: Final = 1.0
"""Seconds between two times of handing in."""
LONGEST_PAUSE: Final = 60.0
"""Seconds at most without an attempt, where the dictionary does not answer."""
KEY: Final = "mlcache:stats:"


@dataclass(slots=True)
class Stats:
    """Calls by the level that answered, and what the callbacks took."""

    l1: int = 0
    l2: int = 0
    l3: int = 0
    stale: int = 0
    misses: int = 0
    """Nothing was there, and no callback was given."""
    errors: int = 0
    callbacks: int = 0
    callback_seconds: float = 0.0
    callback_errors: int = 0

    def add(self, level: Level) -> None:
        """Count a call that this level answered."""
        if level is L1:
            self.l1 += 1
        elif level is L2:
            self.l2 += 1
        elif level is L3:
            self.l3 += 1
        elif level is STALE:
            self.stale += 1
        else:
            self.misses += 1

    @property
    def calls(self) -> int:
        return self.l1 + self.l2 + self.l3 + self.stale + self.misses + self.errors

    @property
    def hit_ratio(self) -> float:
        """The share of the calls that L1 or L2 answered; 0 where there were none."""
        return (self.l1 + self.l2 + self.stale) / self.calls if self.calls else 0.0


NAMES: Final = tuple(field.name for field in fields(Stats))


class Counter:
    """The counts of one cache in this process. `dictionary`: where those of all processes are summed up."""

    def __init__(self, name: str, dictionary: SharedDict, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = Stats()
        self._handed = Stats()
        self._key = KEY + name
        self._dictionary = dictionary
        self._clock = clock
        self._due = clock() + PERIOD
        self._pause = PERIOD
        self._handing = threading.Lock()

    def start_anew(self) -> None:
        """In the child of a fork: what the parent counted is the parent's to hand in."""
        self.now = Stats()
        self._handed = Stats()
        self._handing = threading.Lock()

    def due(self) -> bool:
        """Whether it is time to hand in."""
        return self._clock() >= self._due

    def hand_in(self) -> Steps[None]:
        """Add what was counted since the last time. A dictionary that does not answer is tried again later."""
        if not self._handing.acquire(blocking=False):
            return
        try:
            self._due = self._clock() + self._pause
            counted = asdict(self.now)
            news = {name: counted[name] - getattr(self._handed, name) for name in NAMES}
            if any(news.values()):
                yield Step(self._dictionary.update, self._dictionary.aupdate, (self._key, lambda old: _sum(old, news)))
                self._handed = Stats(**counted)
            self._pause = PERIOD
        except SharedDictError as error:
            self._pause = min(LONGEST_PAUSE, self._pause * 2)
            self._due = self._clock() + self._pause
            log.debug("the counts of %s could not be handed in: %s", self._key, error)
        finally:
            self._handing.release()

    def total(self) -> Steps[Stats]:
        """The counts of all processes, with those of this one up to now. Raises `Unavailable`."""
        yield from self.hand_in()
        told = yield Step(self._dictionary.get, self._dictionary.aget, (self._key,))
        return Stats(**{name: told[name] for name in NAMES if name in told}) if isinstance(told, dict) else Stats()


def _sum(old: Any, news: dict[str, Any]) -> Change:
    before = old if isinstance(old, dict) else {}
    return Change({name: before.get(name, 0) + count for name, count in news.items()}, 0)


__all__ = ["Counter", "Stats"]
