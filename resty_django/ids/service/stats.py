"""Counts of issued IDs: by rule, for each minute of the last hour and in total, over all processes.

Issuing an ID does not update any statistics. Once a second, the background thread reads the counters of its process
and adds the difference to the sums in the shared dictionary of `STATS`. If that fails, the counts are kept for the next
attempt. If a process is killed, its last second is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from resty_django.conf import conf
from resty_django.minute_series.records import CountHistory
from resty_django.minute_series.series import FLUSH_SECONDS, FlushPause, MinuteSeries
from resty_django.processes.background import BackgroundTask, background
from resty_django.sansio import run
from resty_django.shdict import shdicts
from resty_django.text import logger

log = logger("resty_django.ids")


class Count(NamedTuple):
    ids: int = 0


class Issued(NamedTuple):
    """`total`: IDs since counting began; after a week without IDs it restarts at 0. `minutes`: counts of the last 60
    minutes; the last one is the current minute.
    """

    total: int
    minutes: tuple[int, ...]

    @property
    def per_minute(self) -> float:
        """The mean of the last five complete minutes."""
        return sum(self.minutes[-6:-1]) / 5


class IssuedIdsReporter:
    """Reports the counts of one process. `counts` returns its IDs by rule since its start; `clock` epoch seconds."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], clock: Callable[[], float] = time.time) -> None:
        self._counts = counts
        self._series = series(clock)
        self._pause = FlushPause()
        self._task: BackgroundTask | None = None
        self._flushing = threading.Lock()

    def start(self) -> None:
        """Flush about once a second from now on."""
        if self._task is None:
            self._task = background.add(self._work)
            background.run_soon(self._task, FLUSH_SECONDS)

    def stop(self, timeout: float) -> None:
        """Flush once more, and not again; wait at most `timeout` seconds."""
        task, self._task = self._task, None
        if task is not None:
            background.finish(task, timeout)

    def flush(self) -> bool:
        """Add the IDs issued since the last flush. Return False if the dictionary cannot be used."""
        with self._flushing:
            try:
                for rule, count in self._counts().items():
                    run(self._series.flush(rule, (count,)))
            except Exception as error:  # statistics must never affect IDs
                log.debug("The counts of issued IDs could not be flushed and are kept: %s", error)
                return False
            return True

    def _work(self) -> float:
        began = time.perf_counter()
        flushed = self.flush()
        # With very many counters, the thread works 1 % of the time.
        rest = 100 * (time.perf_counter() - began) if flushed else 0.0
        return max(self._pause.after(flushed), rest)


def series(clock: Callable[[], float] = time.time) -> MinuteSeries:
    """Return the minute series of all rules, with one count each; `clock` returns epoch seconds."""
    a_week = 7 * 86_400.0
    return MinuteSeries("resty:ids:issued", lambda: shdicts[conf.ids.stats], clock, life=a_week)


def issued(rules: Iterable[str], clock: Callable[[], float] = time.time) -> dict[str, Issued]:
    """Return the counts of issued IDs for these rules, up to about a second ago. Raise `SharedDictError`."""
    all_series, now = series(clock), clock()
    counts = {}
    for rule in rules:
        history = CountHistory(run(all_series.load(rule)), Count(), now)
        counts[rule] = Issued(history.total.ids, tuple(minute.counts.ids for minute in history.minutes))
    return counts
