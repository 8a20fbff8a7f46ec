"""Forecasts of when a counter is used up, from its speed so far. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LEAST_SECONDS = 60.0
"""A pace is not told from less than this."""
FURTHEST_SECONDS = 100 * 365.25 * 86_400.0
"""What lies further ahead than this counts as never."""


class Outlook(StrEnum):
    """Possible outcomes for the numbers of the current cycle."""

    UNKNOWN = "unknown"
    """Too little is known yet, or nothing was reserved since the cycle began."""
    USED_UP = "used up"
    RUNS_OUT = "runs out"
    """The numbers end before the cycle does."""
    LASTS = "lasts"
    """The cycle ends before the numbers do, or they last for more than a hundred years."""
    TURNED = "turned"
    """The cycle is over; the next ID begins a new one."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`at`: epoch seconds when the last number will be reserved at the present pace, where it can be computed.

    `pace`: numbers a second since the cycle was entered.
    """

    outlook: Outlook
    at: float | None = None
    pace: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A counter in its cycle. `began`, `updated` and `ends` are epoch seconds (`ends` None: the cycle never turns).

    `first` is the bound when the cycle was entered at `began`; `bound` the next number not reserved, as of `updated`;
    `maximum` the last number of the rule; `step` the distance of two numbers of this node.
    """

    began: float
    first: int
    updated: float
    bound: int
    maximum: int
    step: int = 1
    ends: float | None = None

    @property
    def left(self) -> int:
        """Numbers of this node that nobody reserved yet."""
        return max(0, (self.maximum - self.bound) // self.step + 1)


def forecast(progress: Progress, now: float) -> Forecast:
    """Extend a straight line through the beginning of the cycle and now to the maximum. `now`: epoch seconds.

    What is reserved counts as given out, so that a young counter looks a little faster than it is.
    """
    if progress.ends is not None and now >= progress.ends:
        return Forecast(Outlook.TURNED)
    if not progress.left:
        return Forecast(Outlook.USED_UP, progress.updated)
    seconds = max(now, progress.updated) - progress.began
    numbers = (progress.bound - progress.first) // progress.step
    if seconds < LEAST_SECONDS or numbers <= 0:
        return Forecast(Outlook.UNKNOWN)
    pace = numbers / seconds
    wait = progress.left / pace
    at = now + wait
    if progress.ends is not None and at >= progress.ends:
        return Forecast(Outlook.LASTS, at if wait <= FURTHEST_SECONDS else None, pace)
    if wait > FURTHEST_SECONDS:
        return Forecast(Outlook.LASTS, None, pace)
    return Forecast(Outlook.RUNS_OUT, at, pace)
