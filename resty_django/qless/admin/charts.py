"""Charts of throughput and durations as server-side SVG; colours come from the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone
from django.utils.safestring import SafeString

from resty_django.admin.svg import bars as svg_bars

from ..clients.replies import QueueStats, Throughput
from .formatting import duration, job_count, number

WIDTH: Final = 560
HEIGHT: Final = 120
PERIODS: Final = {"hour": "Last hour", "day": "Last day", "week": "Last week", "month": "Last 30 days"}

MIN_BARS: Final = 8
"""Minimum number of bar positions, so that a single bar is not as wide as the chart."""

BOUNDS: Final = (0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800)
"""Lower bounds of the bars of a histogram, in seconds."""


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    svg: SafeString
    rows: Sequence[tuple[Any, str]]
    """The chart as a table, for screen readers."""
    across: str
    note: str = ""


def bars(
    values: Sequence[float],
    label: str,
    titles: Sequence[str] = (),
    *,
    marks: Sequence[tuple[int, str]] = (),
    small: bool = False,
) -> SafeString:
    """Return a bar chart. `marks`: pairs of a bar's index and the text below it."""
    width, height = (120, 20) if small else (WIDTH, HEIGHT)
    columns = [[("bar", value)] for value in values]
    return svg_bars(columns, width=width, height=height, label=label, titles=titles, marks=marks, min_bars=MIN_BARS)


def throughput_chart(throughput: Throughput, period: str, now: float) -> Chart:
    """Return the jobs completed in each minute, hour or day of a period; the current one is the last."""
    counts, length, date_format = {
        "hour": (throughput.minutes, 60, "%H:%M"),
        "day": (throughput.hours[-24:], 3600, "%a %H:00"),
        "week": (throughput.days[-7:], 86400, "%a %d %b"),
    }.get(period, (throughput.days, 86400, "%d %b"))
    ends = [now - (len(counts) - 1 - index) * length for index in range(len(counts))]
    labels = [_label(start - start % length, date_format, length) for start in ends]
    total = sum(counts)
    summary = f"{job_count(total)} completed; maximum: {number(max(counts, default=0))}"
    titles = [f"{label}: {number(count)}" for label, count in zip(labels, counts, strict=True)]
    rows = [(label, number(count)) for label, count in zip(labels, counts, strict=True) if count]
    unit = {60: "minute", 3600: "hour", 86400: "day"}[length]
    return Chart(
        "Completed",
        bars(
            counts,
            summary,
            titles,
            marks=[(index, labels[index]) for index in range(0, len(labels), len(labels) // 6 or 1)],
        ),
        rows or [("whole period", "0")],
        unit.capitalize(),
        f"{summary} in a{'n' if unit == 'hour' else ''} {unit}",
    )


def durations_chart(title: str, days: Sequence[Any]) -> Chart:
    """Return the durations on the given days as one histogram with fewer bars, with mean and percentiles."""
    histogram = [sum(values) for values in zip(*(day.histogram for day in days), strict=False)]
    count = sum(day.count for day in days)
    if not count:
        return Chart(title, bars([], f"{title}: no jobs"), [], "Seconds", "no jobs")
    mean = sum(day.mean * day.count for day in days) / count
    bars_of_histogram = [0.0] * len(BOUNDS)
    for index, value in enumerate(histogram):
        bars_of_histogram[_bar_index(_bin_start(index))] += value
    labels = [
        f"{duration(lower) if lower else '0 s'} to {duration(upper)}"
        for lower, upper in zip(BOUNDS, (*BOUNDS[1:], 7 * 86400), strict=True)
    ]
    bar_count = max((index for index, value in enumerate(bars_of_histogram) if value), default=0) + 1
    titles = [f"{label}: {number(value)}" for label, value in zip(labels[:bar_count], bars_of_histogram, strict=False)]
    deviation = days[0].std if len(days) == 1 else None
    parts = [job_count(count), f"mean {duration(mean)}"]
    if deviation is not None:
        parts.append(f"deviation {duration(deviation)}")
    parts += [f"{round(share * 100)} % within {duration(within)}" for share, within in percentiles(histogram)]
    summary = ", ".join(parts)
    rows = [(label, number(value)) for label, value in zip(labels[:bar_count], bars_of_histogram, strict=False)]
    return Chart(
        title, bars(bars_of_histogram[:bar_count], summary, titles, marks=_marks(bar_count)), rows, "Time", summary
    )


def percentiles(histogram: Sequence[float], shares: Sequence[float] = (0.5, 0.9, 0.99)) -> list[tuple[float, float]]:
    """Return pairs of a share and its duration in seconds: the upper bound of the histogram bin."""
    total = sum(histogram)
    durations = []
    for share in shares:
        cumulated = 0.0
        for index, count in enumerate(histogram):
            cumulated += count
            if total and cumulated >= share * total:
                durations.append((share, _bin_start(index + 1)))
                break
    return durations


def days_of_period(period: str, now: float) -> list[float]:
    """Return timestamps of the days of a period: the core keeps statistics by day."""
    return [now - 86400 * day for day in range({"week": 7, "month": 30}.get(period, 1))]


def totals(days: Sequence[QueueStats]) -> dict[str, int]:
    return {kind: sum(getattr(day, kind) for day in days) for kind in ("failures", "failed", "retries")}


def _marks(bar_count: int) -> list[tuple[int, str]]:
    """Return short labels of the lower bounds of bars."""
    return [
        (index, duration(lower).replace(" ", "") if lower else "0") for index, lower in enumerate(BOUNDS[:bar_count])
    ]


def _bin_start(index: int) -> float:
    """Return the lower bound, in seconds, of a bin of the core's histogram: seconds, minutes, hours, days."""
    for length, unit in ((60, 1), (59, 60), (23, 3600)):
        if index < length:
            return (index if unit == 1 else index + 1) * unit
        index -= length
    return (index + 1) * 86400


def _bar_index(start: float) -> int:
    return max(index for index, lower in enumerate(BOUNDS) if lower <= start)


def _label(timestamp: float, date_format: str, length: int) -> str:
    zone = None if length == 86400 else timezone.get_current_timezone()
    if zone is None:  # the core counts days in UTC
        return (datetime(1970, 1, 1) + timedelta(seconds=math.floor(timestamp))).strftime(date_format)
    return datetime.fromtimestamp(timestamp, zone).strftime(date_format)
