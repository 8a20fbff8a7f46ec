"""Charts as SVG made by the server: attributes and classes alone, colours come from the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone
from django.utils.safestring import SafeString

from resty_django.admin.bars import bars as drawn

from ..values import QueueStats, Throughput
from .shown import jobs, number, seconds

WIDTH: Final = 560
HEIGHT: Final = 120
PERIODS: Final = {"hour": "Last hour", "day": "Last day", "week": "Last week", "month": "Last 30 days"}

FEWEST: Final = 8
"""Bars for which there is room at least, so that one alone is not as wide as the chart."""

BOUNDS: Final = (0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800)
"""Where the bars of a histogram begin, in seconds."""


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    svg: SafeString
    rows: Sequence[tuple[Any, str]]
    """What the bars tell, for those who do not see them."""
    across: str
    note: str = ""


def bars(
    values: Sequence[float],
    words: str,
    titles: Sequence[str] = (),
    *,
    marks: Sequence[tuple[int, str]] = (),
    small: bool = False,
) -> SafeString:
    """One bar a value. `marks`: places and texts below them."""
    width, height = (120, 20) if small else (WIDTH, HEIGHT)
    columns = [[("bar", value)] for value in values]
    return drawn(columns, width=width, height=height, words=words, titles=titles, marks=marks, fewest=FEWEST)


def throughput_chart(found: Throughput, period: str, now: float) -> Chart:
    """Jobs completed in each minute, hour or day of a period, the present one at the right."""
    counts, length, shape = {
        "hour": (found.minutes, 60, "%H:%M"),
        "day": (found.hours[-24:], 3600, "%a %H:00"),
        "week": (found.days[-7:], 86400, "%a %d %b"),
    }.get(period, (found.days, 86400, "%d %b"))
    ends = [now - (len(counts) - 1 - place) * length for place in range(len(counts))]
    labels = [_label(at - at % length, shape, length) for at in ends]
    total = sum(counts)
    words = f"{jobs(total)} completed; the most: {number(max(counts, default=0))}"
    titles = [f"{label}: {number(count)}" for label, count in zip(labels, counts, strict=True)]
    rows = [(label, number(count)) for label, count in zip(labels, counts, strict=True) if count]
    unit = {60: "minute", 3600: "hour", 86400: "day"}[length]
    return Chart(
        "Completed",
        bars(
            counts,
            words,
            titles,
            marks=[(place, labels[place]) for place in range(0, len(labels), len(labels) // 6 or 1)],
        ),
        rows or [("all of it", "0")],
        unit.capitalize(),
        f"{words} in a{'n' if unit == 'hour' else ''} {unit}",
    )


def durations_chart(title: str, days: Sequence[Any]) -> Chart:
    """How long jobs waited or ran: the histograms of days as one, in fewer bars; mean and percentiles beside it."""
    histogram = [sum(values) for values in zip(*(day.histogram for day in days), strict=False)]
    count = sum(day.count for day in days)
    if not count:
        return Chart(title, bars([], f"{title}: no jobs"), [], "Seconds", "no jobs")
    mean = sum(day.mean * day.count for day in days) / count
    sums = [0.0] * len(BOUNDS)
    for place, value in enumerate(histogram):
        sums[_bar(_start(place))] += value
    labels = [
        f"{seconds(low) if low else '0 s'} to {seconds(high)}"
        for low, high in zip(BOUNDS, (*BOUNDS[1:], 7 * 86400), strict=True)
    ]
    used = max((place for place, value in enumerate(sums) if value), default=0) + 1
    titles = [f"{label}: {number(value)}" for label, value in zip(labels[:used], sums, strict=False)]
    spread = days[0].std if len(days) == 1 else None
    parts = [jobs(count), f"mean {seconds(mean)}"]
    if spread is not None:
        parts.append(f"deviation {seconds(spread)}")
    parts += [f"{round(share * 100)} % within {seconds(at)}" for share, at in percentiles(histogram)]
    words = ", ".join(parts)
    rows = [(label, number(value)) for label, value in zip(labels[:used], sums, strict=False)]
    return Chart(title, bars(sums[:used], words, titles, marks=_marks(used)), rows, "Time", words)


def percentiles(histogram: Sequence[float], shares: Sequence[float] = (0.5, 0.9, 0.99)) -> list[tuple[float, float]]:
    """For each share the time, in seconds, within which so many were: the upper end of its part of the histogram."""
    total = sum(histogram)
    found = []
    for share in shares:
        seen = 0.0
        for place, value in enumerate(histogram):
            seen += value
            if total and seen >= share * total:
                found.append((share, _start(place + 1)))
                break
    return found


def days_of(period: str, now: float) -> list[float]:
    """The days whose statistics tell of a period: they are kept by day."""
    return [now - 86400 * day for day in range({"week": 7, "month": 30}.get(period, 1))]


def summed(days: Sequence[QueueStats]) -> dict[str, int]:
    return {kind: sum(getattr(day, kind) for day in days) for kind in ("failures", "failed", "retries")}


def _marks(used: int) -> list[tuple[int, str]]:
    """The time from which on a bar tells, in few letters."""
    return [(place, seconds(low).replace(" ", "") if low else "0") for place, low in enumerate(BOUNDS[:used])]


def _start(place: int) -> float:
    """The seconds at which a part of the core's histogram begins: seconds, minutes, hours, days."""
    for length, unit in ((60, 1), (59, 60), (23, 3600)):
        if place < length:
            return (place if unit == 1 else place + 1) * unit
        place -= length
    return (place + 1) * 86400


def _bar(start: float) -> int:
    return max(place for place, low in enumerate(BOUNDS) if low <= start)


def _label(at: float, shape: str, length: int) -> str:
    zone = None if length == 86400 else timezone.get_current_timezone()
    if zone is None:  # days of the core are those of UTC
        return (datetime(1970, 1, 1) + timedelta(seconds=math.floor(at))).strftime(shape)
    return datetime.fromtimestamp(at, zone).strftime(shape)


__all__ = ["PERIODS", "Chart", "bars", "days_of", "durations_chart", "percentiles", "summed", "throughput_chart"]
