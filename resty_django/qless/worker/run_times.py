"""How long jobs of each class usually run in this worker. Pure."""

from __future__ import annotations

from typing import Final

MAX_CLASSES: Final = 500
"""Maximum number of classes whose times are kept; further ones are not recorded."""
MIN_RUNS: Final = 3
"""Runs after which the mean of a class counts as usual."""
LEAST_WEIGHT: Final = 0.05
"""The weight of a run in the mean: at first all runs weigh the same, later the last twenty or so count most."""


class RunTimes:
    """The mean duration of the runs by class. One thread records; any thread may read."""

    def __init__(self) -> None:
        self._means: dict[str, tuple[int, float]] = {}

    def record(self, klass: str, seconds: float) -> None:
        runs, mean = self._means.get(klass, (0, 0.0))
        if runs or len(self._means) < MAX_CLASSES:
            runs += 1
            self._means[klass] = (runs, mean + (seconds - mean) * max(1 / runs, LEAST_WEIGHT))

    def usual(self, klass: str) -> float | None:
        """Return the mean of a class in seconds; None if it has run too few times."""
        runs, mean = self._means.get(klass, (0, 0.0))
        return mean if runs >= MIN_RUNS else None
