"""Forecasts of when a counter will be used up, from its pace so far. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LEAST_SECONDS = 3600.0
"""The minimum length in seconds of the window from which a pace is computed."""
FURTHEST_SECONDS = 100 * 365.25 * 86_400.0
"""The maximum forecast in seconds; anything later counts as never."""


class Outlook(StrEnum):
    """Possible outcomes for the numbers of the current cycle."""

    UNKNOWN = "unknown"
    """The window is too short yet, or no ID was issued in it."""
    USED_UP = "used up"
    RUNS_OUT = "runs out"
    """The numbers end before the cycle does."""
    LASTS = "lasts"
    """The cycle ends before the numbers do, or they last for more than a hundred years."""
    TURNED = "turned"
    """The cycle has ended; the next ID begins a new one."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`at`: epoch seconds when the last number will be issued at the current pace, None if unknown.

    `pace`: numbers per second that were issued in the window.
    """

    outlook: Outlook
    at: float | None = None
    pace: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A counter in its cycle. `since`, `updated` and `ends` are epoch seconds (`ends` None: the cycle never ends).

    `issued` is the count of numbers issued since `since`, the beginning of the window (None: it has not begun);
    `bound` is the next unreserved number, as of `updated`; `maximum` is the last number of the rule; `step` is the
    distance between two numbers of this node.
    """

    since: float | None
    issued: int
    updated: float
    bound: int
    maximum: int
    step: int = 1
    ends: float | None = None

    @property
    def left(self) -> int:
        """The count of unreserved numbers of this node."""
        return max(0, (self.maximum - self.bound) // self.step + 1)


def forecast(progress: Progress, now: float) -> Forecast:
    """Extrapolate the pace of the window linearly from `now` (epoch seconds) to the maximum.

    Numbers that processes have reserved and not issued yet do not count: neither as left, nor in the pace.
    """
    if progress.ends is not None and now >= progress.ends:
        return Forecast(Outlook.TURNED)
    if not progress.left:
        return Forecast(Outlook.USED_UP, progress.updated)
    seconds = 0.0 if progress.since is None else now - progress.since
    if seconds < LEAST_SECONDS or progress.issued <= 0:
        return Forecast(Outlook.UNKNOWN)
    pace = progress.issued / seconds
    wait = progress.left / pace
    at = now + wait
    if progress.ends is not None and at >= progress.ends:
        return Forecast(Outlook.LASTS, at if wait <= FURTHEST_SECONDS else None, pace)
    if wait > FURTHEST_SECONDS:
        return Forecast(Outlook.LASTS, None, pace)
    return Forecast(Outlook.RUNS_OUT, at, pace)
