"""How long jobs of a class usually run: from this worker's runs, else from the figures of all workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from resty_django.redis import StoreError

from ..clients.figures import summed
from ..clients.worker_reports import LATE_AFTER
from ..errors import QlessError
from .run_times import MIN_RUNS, RunTimes

if TYPE_CHECKING:
    from ..clients.client import Client

DAYS: Final = 2
"""Number of days, the current one included, whose figures count."""
KEPT: Final = 600.0
"""Seconds for which the figures of a class are not requested again."""
MAX_CLASSES: Final = 100
"""Maximum number of classes that are requested within `KEPT` seconds."""


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
        if mean is not None or seconds < LATE_AFTER:
            return mean
        now = self._clock()
        requested_at, median = self._medians.get(klass, (now - KEPT, None))
        if now - requested_at < KEPT:
            return median
        self._medians = {name: entry for name, entry in self._medians.items() if now - entry[0] < KEPT}
        if len(self._medians) >= MAX_CLASSES:
            return None
        median = self._request(klass)
        self._medians[klass] = (now, median)
        return median

    def _request(self, klass: str) -> float | None:
        try:
            spans = self._client.figures.spans("day", DAYS, klass=klass)
        except (QlessError, StoreError):  # the next report tries again later
            return None
        runs = summed(totals for span in spans for totals in span.by_name.values()).runs
        return runs.percentile(0.5) if runs.count >= MIN_RUNS else None
