"""What limits have decided: per minute of the last hour and since the store was made, and the keys refused most.

A decision is counted in the memory of its process. A thread hands the counts in about once a second, into the shared
dictionary of the limits, so that all processes of a machine (or all that use one Redis) are summed. What cannot be
handed in is kept for the next time; only a process that is killed takes its last second with it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from resty_django.conf import conf
from resty_django.shdict import SharedDict, SharedDictError, shdicts
from resty_django.shdict.base import Change, Keep

from .background import background
from .decision import Decision
from .topkeys import Frequent, TopKeys, merged, shortened

log = logging.getLogger("resty_django.limits")

EVERY: Final = 1.0
"""Seconds between two times that a process hands in."""
AFTER_FAILURE: Final = 5.0
MINUTES: Final = 60
SLICE: Final = 600
"""Seconds of a part of the hour that has its own list of keys."""
SIZE: Final = 32
"""Keys that a list of the most refused has."""
LONGEST_KEY: Final = 200
MOST_NAMES: Final = 500
"""Names that are listed; the others are counted together."""
OTHERS: Final = "(others)"
LIFE: Final = 7 * 86_400.0
ANNOUNCE: Final = 600.0
"""Seconds after which a process makes sure again that a name of its is listed."""
SHORTEST_DELAY: Final = 0.001
"""Seconds; a shorter delay is none."""
NAMES: Final = "resty:stats:names"


class Totals(NamedTuple):
    """Decisions: `shadowed` are those that a policy in shadow mode would have refused; they passed.

    `failed` are those that the store had no part in, since it was down; they count as passed or refused as well.
    """

    passed: int = 0
    delayed: int = 0
    refused: int = 0
    shadowed: int = 0
    failed: int = 0

    @property
    def all(self) -> int:
        return self.passed + self.delayed + self.refused + self.shadowed

    def plus(self, other: Iterable[int]) -> Totals:
        return Totals(*(one + two for one, two in zip(self, other, strict=True)))


class Minute(NamedTuple):
    """The decisions of one minute; `start` is its beginning in epoch seconds."""

    start: int
    totals: Totals


def summed(minutes: Iterable[Minute]) -> Totals:
    """The decisions of these minutes together."""
    found = Totals()
    for minute in minutes:
        found = found.plus(minute.totals)
    return found


class Tally:
    """What one process has counted for one name, and has not handed in yet."""

    __slots__ = ("counts", "lock", "top")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts = [0, 0, 0, 0, 0]
        self.top = TopKeys(SIZE, LONGEST_KEY)

    def take(self) -> tuple[Totals, list[Frequent]]:
        """What was counted, which begins anew."""
        with self.lock:
            counts, self.counts = self.counts, [0, 0, 0, 0, 0]
            top, self.top = self.top, TopKeys(SIZE, LONGEST_KEY)
        return Totals(*counts), top.most()


class Stats:
    """The figures of this process and, through `find`, of all.

    `clock` gives epoch seconds; `every` is the seconds between two times of handing in (0: by `flush` alone).
    """

    def __init__(
        self, find: Callable[[], SharedDict], clock: Callable[[], float] = time.time, every: float = 0.0
    ) -> None:
        self._find = find
        self._clock = clock
        self._tallies: dict[str, Tally] = {}
        self._kept: dict[str, tuple[Totals, list[Frequent]]] = {}
        self._announced: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self._handing = threading.Lock()
        self._failing = False
        self._every = every
        self._task = background.add(self._work) if every else None

    # --- counting ---------------------------------------------------------------------------------------------------

    def record(self, name: str, key: str, decision: Decision, shadow: bool = False) -> None:
        """Count a decision under a name; `shadow`: it was not enforced. Costs about half a microsecond."""
        tally = self._tallies.get(name)
        if tally is None:
            tally = self._begin(name)
        with tally.lock:
            if decision.allowed:
                tally.counts[1 if decision.delay >= SHORTEST_DELAY else 0] += 1
            else:
                tally.counts[3 if shadow else 2] += 1
                tally.top.add(key)
            if decision.failed:
                tally.counts[4] += 1

    def _begin(self, name: str) -> Tally:
        with self._lock:
            if name not in self._tallies and len(self._tallies) >= MOST_NAMES:
                name = OTHERS
            tally = self._tallies.setdefault(name, Tally())
        if self._task is not None:
            background.run_soon(self._task, self._every)
        return tally

    # --- handing in -------------------------------------------------------------------------------------------------

    def flush(self) -> bool:
        """Hand in what this process has counted. False where the store does not answer; then it is kept."""
        with self._handing:
            self._collect()
            if not self._kept:
                return True
            try:
                dictionary = self._find()
                for name in list(self._kept):
                    totals, top = self._kept[name]
                    self._hand_in(dictionary, name, totals, top)
                    del self._kept[name]
            except SharedDictError as error:
                if not self._failing:
                    log.warning("the figures of limits are kept until the store answers: %s", error)
                self._failing = True
                return False
            self._failing = False
            return True

    def _collect(self) -> None:
        for name, tally in list(self._tallies.items()):
            totals, top = tally.take()
            if any(totals):
                before = self._kept.get(name)
                if before is not None:
                    totals, top = before[0].plus(totals), merged(before[1], top, SIZE)
                self._kept[name] = totals, top

    def _hand_in(self, dictionary: SharedDict, name: str, totals: Totals, top: list[Frequent]) -> None:
        now = self._clock()
        announced, listed = self._announced.get(name, (0.0, ""))
        if announced + ANNOUNCE < now:
            listed = dictionary.update(NAMES, lambda names: _listed(names, name))
            self._announced[name] = now, listed
        minute = int(now // 60)
        if top:
            dictionary.update(_top_key(listed, now), lambda stored: _with_keys(stored, top))
            self._kept[name] = totals, []
        dictionary.update(_key(listed), lambda stored: _added(stored, minute, totals))

    def _work(self) -> float:
        return self._every if self.flush() else AFTER_FAILURE

    # --- looking: what was handed in; `flush` before it adds what this process still holds ---------------------------

    def names(self) -> list[str]:
        """Whatever has been counted on this store. May raise `SharedDictError`, as all that follow."""
        return sorted(self._find().get(NAMES) or [])

    def totals(self) -> dict[str, Totals]:
        """All decisions by name since the store was made; a name that rests for a week begins anew."""
        return {name: self._stored(name)[0] for name in self.names()}

    def minutes(self, name: str) -> list[Minute]:
        """The last hour, the minute under way at the end."""
        rows = dict(self._stored(name)[1])
        last = int(self._clock() // 60)
        return [Minute(minute * 60, rows.get(minute, Totals())) for minute in range(last - MINUTES + 1, last + 1)]

    def top(self, name: str) -> list[Frequent]:
        """The keys refused most within the last hour, the first of them first. Long ones are shortened."""
        dictionary, now = self._find(), self._clock()
        found: list[Frequent] = []
        for back in range(3600 // SLICE):
            found = merged(found, _frequent(dictionary.get(_top_key(name, now - back * SLICE))), SIZE)
        return found

    def _stored(self, name: str) -> tuple[Totals, list[tuple[int, Totals]]]:
        return _decoded(self._find().get(_key(name)))

    def _in_child(self) -> None:
        """The counts of the parent are handed in by the parent."""
        self._tallies = {}
        self._kept = {}
        self._lock = threading.Lock()
        self._handing = threading.Lock()


def _key(name: str) -> str:
    return f"resty:stats:counts:{name}"


def _top_key(name: str, now: float) -> str:
    return f"resty:stats:top:{int(now // SLICE)}:{name}"


def _listed(names: Any, name: str) -> Change | Keep:
    """The list of names with one more; the result is the name that it is counted under."""
    known = names if isinstance(names, list) else []
    if name not in known and len(known) >= MOST_NAMES:
        name = OTHERS
    return Keep(name) if name in known else Change([*known, name], 0, name)


def _with_keys(stored: Any, top: list[Frequent]) -> Change:
    return Change([list(one) for one in merged(_frequent(stored), top, SIZE)], 2 * MINUTES * 60)


def _added(stored: Any, minute: int, counts: Totals) -> Change:
    total, rows = _decoded(stored)
    kept = {at: row for at, row in rows if at > minute - MINUTES}
    kept[minute] = kept.get(minute, Totals()).plus(counts)
    return Change([list(total.plus(counts)), [[at, *row] for at, row in sorted(kept.items())]], LIFE)


def _decoded(stored: Any) -> tuple[Totals, list[tuple[int, Totals]]]:
    try:
        total, rows = stored
        return Totals(*total), [(row[0], Totals(*row[1:])) for row in rows]
    except (TypeError, ValueError):  # nothing there, or not ours
        return Totals(), []


def _frequent(stored: Any) -> list[Frequent]:
    try:
        return [Frequent(*row) for row in stored or ()]
    except TypeError:
        return []


stats: Final = Stats(lambda: shdicts[conf.limits.store], every=EVERY)
"""The figures of this site."""

record = stats.record
totals = stats.totals
flush = stats.flush


def _at_exit() -> None:
    try:
        flush()
    except Exception as error:  # settings that are wrong, a site that is half taken down
        log.debug("the last figures of limits are lost: %s", error)


os.register_at_fork(after_in_child=stats._in_child)
atexit.register(_at_exit)

__all__ = ["Frequent", "Minute", "Stats", "Totals", "flush", "record", "shortened", "stats", "summed", "totals"]
