"""Statistics of decisions: in the last hour and two days, since the store was created, and the refused keys.

Each process counts its decisions in memory. About once a second, a thread flushes the counts to the shared dictionary
of the limits, which sums up all processes on a machine (or all that use the same Redis). If that fails, the counts are
kept for the next attempt; only a killed process loses its last second.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from django.http import HttpRequest
from django.utils import translation

from resty_django.conf import conf
from resty_django.minute_series import records
from resty_django.minute_series.records import CountHistory
from resty_django.minute_series.series import FLUSH_SECONDS, FlushPause, MinuteSeries
from resty_django.minute_series.top_keys import FrequentKey, TopKeys, merged
from resty_django.processes.background import background
from resty_django.processes.forks import after_fork
from resty_django.sansio import run
from resty_django.shdict import SharedDict, SharedDictError, shdicts
from resty_django.shdict.base import Update
from resty_django.text import logger
from resty_django.txid.context import current as current_txid

from ..callers.keys import plain
from ..decision import Decision
from .catalog import Description, counted_limit
from .events import EventOutcome, RefusalEvent
from .refusals import MAX_REFUSALS, RecentRefusals, put_back

log = logger("resty_django.limits")

KEY_PREFIX: Final = "resty:stats:"
KEEP_SECONDS: Final = 7 * 86_400.0
MAX_SERIES: Final = 500
"""The maximum number of names with separate counts; further names are counted together."""
OTHER_LIMITS: Final = "(others)"
MAX_KEY_CHARS: Final = 200
MIN_DELAY_SECONDS: Final = 0.001
"""Shorter delays are ignored."""
TOP_KEYS: Final = 32
"""The number of keys in a list of the most refused keys."""
TOP_KEYS_SECONDS: Final = 600
"""The length of the parts of an hour with separate lists of keys."""
TOP_KEYS_KEEP_SECONDS: Final = 2 * 3600


class Totals(NamedTuple):
    """Counts of decisions. `shadowed`: requests that passed, but that a policy in shadow mode would have refused.

    `failed`: decisions made while the store was down; they are also counted as passed or refused.
    """

    passed: int = 0
    delayed: int = 0
    refused: int = 0
    shadowed: int = 0
    failed: int = 0

    @property
    def all(self) -> int:
        return self.passed + self.delayed + self.refused + self.shadowed


class Tally:
    """The counts of one process for one name since its start, and the most refused keys since the last flush."""

    __slots__ = ("_takes", "counts", "lock", "passes", "recent", "top", "unsent")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.passes = count()
        """`next` counts a request that passed at once. It is atomic, so it needs no lock."""
        self._takes = 0
        self.counts = [0, 0, 0, 0, 0]
        """All other decisions, by the fields of `Totals`."""
        self.top = TopKeys(TOP_KEYS, MAX_KEY_CHARS)
        self.recent: deque[RefusalEvent] = deque(maxlen=MAX_REFUSALS)
        """The most recent refusals that are not flushed yet."""
        self.unsent: list[FrequentKey] = []
        """Keys taken from `top` that are not flushed yet."""

    def take(self) -> Totals:
        """Move the keys to `unsent`, and return the counts."""
        with self.lock:
            passed = next(self.passes) - self._takes
            self._takes += 1
            totals = Totals(passed + self.counts[0], *self.counts[1:])
            top, self.top = self.top, TopKeys(TOP_KEYS, MAX_KEY_CHARS)
        self.unsent = merged(self.unsent, top.most(), TOP_KEYS)
        return totals


class StatsReporter:
    """Counts the decisions of this process, and reads the sums of all processes.

    `dictionary`: returns the shared dictionary with the sums. `clock`: returns epoch seconds. `automatic`: whether the
    background thread flushes about once a second (otherwise only `flush` does).
    """

    def __init__(
        self, dictionary: Callable[[], SharedDict], clock: Callable[[], float] = time.time, automatic: bool = False
    ) -> None:
        self._dictionary = dictionary
        self._clock = clock
        self.tallies: dict[str, Tally] = {}
        self._refusals = RecentRefusals(f"{KEY_PREFIX}refusals:", dictionary)
        self._series = MinuteSeries(
            f"{KEY_PREFIX}counts",
            dictionary,
            clock,
            life=KEEP_SECONDS,
            names_key=f"{KEY_PREFIX}names",
            most_names=MAX_SERIES,
            others=OTHER_LIMITS,
        )
        self._described: dict[str, tuple[float, Description]] = {}
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._failing = False
        self._pause = FlushPause(5.0)
        self._task = background.add(self._work) if automatic else None

    # --- counting ---------------------------------------------------------------------------------------------------

    def record(
        self, name: str, key: str, decision: Decision, shadow: bool = False, request: HttpRequest | None = None
    ) -> None:
        """Count a decision under a name; `shadow`: it was not enforced. Takes about half a microsecond.

        A refusal is also kept with the current txid, and with the method and the path of the `request`.
        """
        tally = self.tallies.get(name)
        if tally is None:
            tally = self._start(name)
        allowed, delay, failed = decision.allowed, decision.delay, decision.failed
        if allowed and not failed and delay < MIN_DELAY_SECONDS:
            next(tally.passes)
            return
        with tally.lock:
            if allowed:
                tally.counts[1 if delay >= MIN_DELAY_SECONDS else 0] += 1
            else:
                tally.counts[3 if shadow else 2] += 1
                tally.top.add(key)
                recent_key = key if len(key) <= MAX_KEY_CHARS else plain(key)
                outcome = EventOutcome.SHADOWED if shadow else EventOutcome.REFUSED
                shown_request = "" if request is None else f"{request.method} {request.path}"[:100]
                event = RefusalEvent(
                    int(self._clock() * 1000), recent_key, outcome, current_txid() or "", shown_request
                )
                tally.recent.append(event)
            if failed:
                tally.counts[4] += 1

    def _start(self, name: str) -> Tally:
        with self._lock:
            if name not in self.tallies and len(self.tallies) >= MAX_SERIES:
                name = OTHER_LIMITS
            tally = self.tallies.setdefault(name, Tally())
        if self._task is not None:
            background.run_soon(self._task, FLUSH_SECONDS)
        return tally

    # --- flushing -------------------------------------------------------------------------------------------------

    def flush(self) -> bool:
        """Add the counts of this process to the shared sums. If the store is down, keep them and return False."""
        with self._flushing:
            try:
                for name, tally in self.tallies.copy().items():
                    self._add(name, tally)
            except SharedDictError as error:
                if not self._failing:
                    log.warning("The statistics of limits could not be flushed and are kept: %s", error)
                self._failing = True
                return False
            self._failing = False
            return True

    def _add(self, name: str, tally: Tally) -> None:
        totals = tally.take()
        if not self._series.unflushed(name, totals):
            return
        if tally.unsent:
            key = _top_key(run(self._series.listed_as(name)), self._clock())
            self._dictionary().update(key, lambda stored: _with_keys(stored, tally.unsent))
            tally.unsent = []
        if tally.recent:
            self._add_refusals(name, tally)
        self._describe(name)
        run(self._series.flush(name, totals, partial(records.added, hours=True)))

    def _add_refusals(self, name: str, tally: Tally) -> None:
        taken = [tally.recent.popleft() for _ in range(len(tally.recent))]
        added = False
        try:
            listed = run(self._series.listed_as(name))
            added = self._refusals.add(listed, taken, len(self._series.names()), self._clock())
        finally:
            if not added:
                put_back(tally.recent, taken)

    def _describe(self, name: str) -> None:
        """Store the description of a limit, for processes that have not declared it."""
        limit, now = counted_limit(name), self._clock()
        if limit is None:
            return
        with translation.override(None):  # all readers share it
            description = limit.describe()
        written, former = self._described.get(name, (0.0, None))
        if description != former or abs(now - written) >= 600:
            if run(self._series.listed_as(name)) == name:
                self._dictionary().set(_description_key(name), [list(part) for part in description], KEEP_SECONDS)
            self._described[name] = now, description

    def _work(self) -> float:
        return self._pause.after(self.flush())

    # --- reading the sums; call `flush` first to include the counts of this process ---------------------------

    def names(self) -> list[str]:
        """Return the names with counts in this store. Like the following methods, raise `SharedDictError`."""
        return sorted(self._series.names())

    def totals(self) -> dict[str, Totals]:
        """Return the decisions by name since the store was created; a name restarts at 0 after a week without any."""
        return {name: self.history(name).total for name in self.names()}

    def history(self, name: str) -> CountHistory[Totals]:
        """Return the decisions under a name: `total`, `minutes` of the last hour and `hours` of the last two days."""
        return CountHistory(run(self._series.load(name)), Totals(), self._clock())

    def description(self, name: str) -> Description:
        """Return the rates and locations of a limit, as the processes that use it have described it."""
        limit = counted_limit(name)
        if limit is not None:
            return limit.describe()
        return Description.read(self._dictionary().get(_description_key(name)))

    def top(self, name: str) -> list[FrequentKey]:
        """Return the most refused keys of the last hour, the most frequent first. Long keys are shortened."""
        dictionary, now = self._dictionary(), self._clock()
        top: list[FrequentKey] = []
        for back in range(3600 // TOP_KEYS_SECONDS):
            top = merged(top, _frequent(dictionary.get(_top_key(name, now - back * TOP_KEYS_SECONDS))), TOP_KEYS)
        return top

    def refusals(self, name: str) -> list[RefusalEvent]:
        """Return the refusals of a limit in the last two days, the oldest first: at most the newest 1000, and the
        newest 50 of a key.

        Each has the `time` in milliseconds since the epoch, `key`, `outcome` (0: refused, 1: would have been refused),
        `txid` and `request`. Keys of more than 200 characters are replaced by a hash.
        """
        return self._refusals.read(name, self._clock())

    def reset(self) -> None:
        """Discard all unflushed counts of this process, as if it had just started."""
        with self._flushing:
            self.tallies = {}
            self._described = {}
            self._series.reset()

    def after_fork(self) -> None:
        """Discard the counts of the parent, which flushes them itself."""
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self.reset()


def _top_key(name: str, now: float) -> str:
    return f"{KEY_PREFIX}top:{int(now // TOP_KEYS_SECONDS)}:{name}"


def _description_key(name: str) -> str:
    return f"{KEY_PREFIX}limit:{name}"


def _with_keys(stored: Any, top: list[FrequentKey]) -> Update:
    return Update([list(entry) for entry in merged(_frequent(stored), top, TOP_KEYS)], TOP_KEYS_KEEP_SECONDS)


def _frequent(stored: Any) -> list[FrequentKey]:
    try:
        return [FrequentKey(*row) for row in stored or ()]
    except TypeError:
        return []


stats: Final = StatsReporter(lambda: shdicts[conf.limits.store], automatic=True)
"""The statistics of this site."""


def _at_exit() -> None:
    try:
        stats.flush()
    except Exception as error:  # wrong settings, or a process that is shutting down
        log.debug("The last statistics of limits are lost: %s", error)


after_fork(stats.after_fork)
atexit.register(_at_exit)
