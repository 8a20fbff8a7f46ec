"""Counts of issued IDs: by rule, in each minute of the last hour and altogether, by all processes.

Nothing is counted on the way of an ID. A thread looks at the counters of its process once a second, and adds what is
new to the sums in the shared dictionary of `STATS`. Counts that cannot be flushed are kept for the next time; a process
that is killed takes its last second with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from resty_django.conf import conf
from resty_django.minute_series import records
from resty_django.minute_series.series import MinuteSeries, Pause
from resty_django.sansio import run
from resty_django.shdict import shdicts
from resty_django.text import logger

log = logger("resty_django.ids")

SHARE: Final = 100
"""How many times longer it rests than it works, where there are very many counters."""
LIFE: Final = 7 * 86_400.0
"""Seconds without an ID after which a rule begins again at 0."""
PREFIX: Final = "resty:ids:issued"


class Issued(NamedTuple):
    """`total`: IDs since the sums began; a rule that is idle for a week begins again at 0. `minutes`: the last 60, the
    minute under way at the end."""

    total: int
    minutes: tuple[int, ...]

    @property
    def per_minute(self) -> float:
        """The mean of the last five minutes that are over."""
        return sum(self.minutes[-6:-1]) / 5


class StatsReporter:
    """Reports for one process. `counts` returns IDs by rule since the start of the process; `clock` epoch seconds."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], clock: Callable[[], float] = time.time) -> None:
        self._counts = counts
        self._series = series(clock)
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._flushing = threading.Lock()

    def start(self) -> None:
        """Start the thread, where it does not run."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._run, name="resty-ids-stats", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Flush once more and end; wait at most `timeout` seconds."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def flush(self) -> bool:
        """Add the IDs given out since the last flush. False where the dictionary cannot be used."""
        with self._flushing:
            try:
                for rule, count in self._counts().items():
                    run(self._series.flush(rule, (count,)))
            except Exception as error:  # figures must never be in the way of IDs
                log.debug("The counts of IDs are kept until they can be flushed: %s", error)
                return False
            return True

    def _run(self) -> None:
        pause, rest = Pause(), 0.0
        while not self._end.wait(max(pause.seconds, rest)):
            began = time.perf_counter()
            flushed = self.flush()
            pause.after(flushed)
            rest = SHARE * (time.perf_counter() - began) if flushed else 0.0
        self.flush()


def series(clock: Callable[[], float] = time.time) -> MinuteSeries:
    """Return the series of all rules, each with one count; `clock` returns epoch seconds."""
    return MinuteSeries(PREFIX, lambda: shdicts[conf.ids.stats], clock, life=LIFE)


def add(rule: str, count: int, now: float) -> None:
    """Note `count` IDs of a rule at `now`, in epoch seconds. Raises `SharedDictError`."""
    run(series(lambda: now).add(rule, (count,)))


def issued(rules: Iterable[str], clock: Callable[[], float] = time.time) -> dict[str, Issued]:
    """Return what was given out of these rules, up to about a second ago. Raises `SharedDictError`."""
    all_series, now = series(clock), clock()
    counts = {}
    for rule in rules:
        record = run(all_series.load(rule))
        (total,) = records.total(record, 1)
        counts[rule] = Issued(total, tuple(minute.counts[0] for minute in records.minutes(record, 1, now)))
    return counts
