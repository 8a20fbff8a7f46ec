"""How many IDs were given out: by rule, in each minute of the last hour and altogether, by all processes.

Nothing is counted on the way of an ID. A thread looks at the counters of its process once a second, and adds what is
new to the sums in the shared dictionary of `STATS`. What cannot be handed in is kept for the next time; a process that
is killed takes its last second with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from resty_django.conf import conf
from resty_django.shdict import Change, shdicts

log = logging.getLogger("resty_django.ids")

EVERY: Final = 1.0
"""Seconds between two times of handing in."""
SHARE: Final = 100
"""How many times longer it rests than it works, where there are very many counters."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two tries at most, where the dictionary does not answer."""
MINUTES: Final = 60
LIFE: Final = 7 * 86_400.0
KEY: Final = "resty:ids:issued:"


class Issued(NamedTuple):
    """`total`: IDs since the sums were begun; a rule that rests for a week begins anew. `minutes`: the last 60, the
    minute under way at the end."""

    total: int
    minutes: tuple[int, ...]

    @property
    def per_minute(self) -> float:
        """The mean of the last five minutes that are over."""
        return sum(self.minutes[-6:-1]) / 5


class Handing:
    """Hands in for one process. `counts` gives IDs by rule since the start of the process; `clock` epoch seconds."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], clock: Callable[[], float] = time.time) -> None:
        self._counts = counts
        self._clock = clock
        self._handed: dict[str, int] = {}
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._one = threading.Lock()

    def start(self) -> None:
        """Start the thread, where it does not run."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._run, name="resty-ids-stats", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Hand in once more and end; waits at most `timeout` seconds."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def hand_in(self) -> bool:
        """Add what was given out since the last time. False where the dictionary cannot be used."""
        with self._one:
            try:
                for rule, count in self._counts().items():
                    new = count - self._handed.get(rule, 0)
                    if new > 0:
                        add(rule, new, self._clock())
                        self._handed[rule] = count
            except Exception as error:  # figures must never be in the way of IDs
                log.debug("the counts of IDs are kept until they can be handed in: %s", error)
                return False
            return True

    def _run(self) -> None:
        pause = EVERY
        while not self._end.wait(pause):
            began = time.perf_counter()
            if self.hand_in():
                pause = max(EVERY, SHARE * (time.perf_counter() - began))
            else:
                pause = min(LONGEST_PAUSE, pause * 2)
        self.hand_in()


def add(rule: str, count: int, now: float) -> None:
    """Note `count` IDs of a rule at `now`, in epoch seconds. Raises `SharedDictError`."""
    minute = int(now // 60)

    def added(stored: Any) -> Change:
        total, rows = _decoded(stored)
        kept = {at: number for at, number in rows.items() if at > minute - MINUTES}
        kept[minute] = kept.get(minute, 0) + count
        return Change([total + count, [list(row) for row in sorted(kept.items())]], LIFE)

    shdicts[conf.ids.stats].update(KEY + rule, added)


def issued(rules: Iterable[str], clock: Callable[[], float] = time.time) -> dict[str, Issued]:
    """What was given out of these rules, up to about a second ago. Raises `SharedDictError`."""
    dictionary = shdicts[conf.ids.stats]
    last = int(clock() // 60)
    found = {}
    for rule in rules:
        total, rows = _decoded(dictionary.get(KEY + rule))
        found[rule] = Issued(total, tuple(rows.get(minute, 0) for minute in range(last - MINUTES + 1, last + 1)))
    return found


def _decoded(stored: Any) -> tuple[int, dict[int, int]]:
    try:
        total, rows = stored
        return int(total), {int(minute): int(count) for minute, count in rows}
    except (TypeError, ValueError):  # nothing there, or not ours
        return 0, {}


__all__ = ["Handing", "Issued", "add", "issued"]
