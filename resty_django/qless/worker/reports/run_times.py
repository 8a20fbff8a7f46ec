"""How long jobs of a class usually run: from this worker's runs, else from the figures of all workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from resty_django.redis import StoreError

from ...clients.figures import summed
from ...clients.worker_reports import LATE_AFTER_SECONDS
from ...errors import QlessError

if TYPE_CHECKING:
    from ...clients.client import Client

REQUEST_SECONDS: Final = 600.0
"""Interval at which the figures of a class are requested."""
MAX_CLASSES: Final = 500
"""Maximum number of classes whose times a worker keeps; further ones are not recorded."""
MIN_RUNS: Final = 3
"""Runs after which the mean of a class counts as usual."""


class RunTimes:
    """The mean duration of the runs by class. One thread records; any thread may read."""

    def __init__(self) -> None:
        self._means: dict[str, tuple[int, float]] = {}

    def record(self, klass: str, seconds: float) -> None:
        runs, mean = self._means.get(klass, (0, 0.0))
        if runs or len(self._means) < MAX_CLASSES:
            runs += 1
            weight = max(1 / runs, 0.05)  # at first all runs weigh the same, later the last twenty or so count most
            self._means[klass] = (runs, mean + (seconds - mean) * weight)

    def usual(self, klass: str) -> float | None:
        """Return the mean of a class in seconds; None if it has run too few times."""
        runs, mean = self._means.get(klass, (0, 0.0))
        return mean if runs >= MIN_RUNS else None


class UsualTimes:
    """Usual running times for reports. Used by the thread that reports.

    The server is asked only for classes that have not run here often enough, and only once a job runs for long, so
    that a normal report costs no additional call.
    """

    def __init__(self, client: Client, run_times: RunTimes, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._run_times = run_times
        self._clock = clock
        self._medians: dict[str, tuple[float, float | None]] = {}
        """By class: when it was requested, and the median."""

    def usual(self, klass: str, seconds: float) -> float | None:
        """Return the usual time of a class, in seconds, for a job that has run for `seconds`; None if unknown."""
        mean = self._run_times.usual(klass)
        if mean is not None or seconds < LATE_AFTER_SECONDS:
            return mean
        now = self._clock()
        requested_at, median = self._medians.get(klass, (now - REQUEST_SECONDS, None))
        if now - requested_at < REQUEST_SECONDS:
            return median
        self._medians = {name: entry for name, entry in self._medians.items() if now - entry[0] < REQUEST_SECONDS}
        if len(self._medians) >= 100:
            return None
        median = self._request(klass)
        self._medians[klass] = (now, median)
        return median

    def _request(self, klass: str) -> float | None:
        try:
            spans = self._client.figures.spans("day", 2, klass=klass)  # yesterday and today
        except (QlessError, StoreError):  # the next report tries again later
            return None
        runs = summed(totals for span in spans for totals in span.by_name.values()).runs
        return runs.percentile(0.5) if runs.count >= MIN_RUNS else None
