"""Axes of charts: round scales for counts, shares and durations, and the marks of a time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from .formatting import date, duration, local_time, number, percent

TimeUnit = Literal["minute", "hour", "day"]


class Unit(StrEnum):
    """The unit of the numbers in a chart."""

    COUNT = "count"
    SHARE = "share"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Scale:
    """A y axis from 0 to `top`, with marks at 0, the middle and the top."""

    unit: Unit
    top: float

    @classmethod
    def of(cls, unit: Unit, highest: float) -> Scale:
        """Return the lowest round scale that reaches `highest`; shares always go up to 100 %."""
        if unit is Unit.SHARE:
            return cls(unit, 1.0)
        return cls(unit, _duration_top(highest) if unit is Unit.SECONDS else axis_top(highest))

    def label(self, value: float) -> str:
        """Return the short text of a mark."""
        if self.unit is Unit.COUNT:
            return axis_number(value)
        return text_of(self.unit, value) if value else "0"


@dataclass(frozen=True, slots=True)
class Axis:
    """An x axis: the text of each column, and the marks as pairs of a column's index and a shorter text.

    `heading` names the columns in the table of the chart.
    """

    labels: Sequence[str]
    marks: Sequence[tuple[int, str]] = ()
    heading: str = ""


def text_of(unit: Unit, value: float | None) -> str:
    """Return a value of a chart as the tooltip and the table show it."""
    if value is None:
        return "–"
    if unit is Unit.SHARE:
        return percent(value)
    return duration(value) if unit is Unit.SECONDS else number(value)


def time_axis(starts: Sequence[float], unit: TimeUnit) -> Axis:
    """Return the axis for minutes, hours or days that begin at `starts` (epoch seconds).

    Times are in the current time zone. Days are UTC days, as the stores count them.
    """
    if unit == "day":
        days = [datetime.fromtimestamp(start, tz=UTC) for start in starts]
        step = -(-len(days) // 6) or 1  # at most six marks
        marks = [
            (index, _day_mark(day))
            for index, day in enumerate(days)
            if (len(days) - 1 - index) % step == step // 2 and (len(days) <= 7 or _has_room(index, len(days)))
        ]
        return Axis([date(day) for day in days], marks, _("Day (UTC)"))
    moments = [local_time(start) for start in starts]
    labels = [f"{moment:%H:%M}" if unit == "minute" else f"{date(moment)}, {moment:%H:%M}" for moment in moments]
    seconds = 86_400 if len(starts) > 60 else 900 if unit == "minute" else 6 * 3600
    marks = time_marks(starts, seconds)
    return Axis(labels, marks, _("From"))


def time_marks(starts: Sequence[float], every: int) -> list[tuple[int, str]]:
    """Return the marks of a time axis for spans that begin at `starts` (epoch seconds).

    `every`: the seconds between two marks; the first mark of a day is at midnight in the current time zone. The mark at
    midnight is a date if marks are hours apart. There are no marks at the ends, where their text does not fit.
    """
    marks = []
    for index, start in enumerate(starts):
        moment = local_time(start)
        since_midnight = moment.hour * 3600 + moment.minute * 60 + moment.second
        if since_midnight % every == 0 and _has_room(index, len(starts)):
            marks.append((index, f"{moment:%H:%M}" if since_midnight or every < 3600 else _day_mark(moment)))
    return marks


def _day_mark(day: datetime) -> str:
    return date_format(day, pgettext("date format", "j M"))


def axis_top(highest: float) -> float:
    """Return the top of a y axis: the lowest of 4, 10, 20, 40, 100 and so on that is not below `highest`."""
    top = 4.0
    while top < highest:
        top *= 2.5 if str(top).startswith("4") else 2
    return top


def axis_number(value: float) -> str:
    """Return a number in at most five characters: 40, 2k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _duration_top(highest: float) -> float:
    """Return the top of a y axis of durations, in seconds. Its half is a round duration, too."""
    tops = (
        *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 10.0, 20.0, 30.0, 60.0, 120.0, 240.0, 600.0, 1200.0, 1800.0),
        *(3600.0, 7200.0, 4 * 3600.0, 12 * 3600.0, 86_400.0, 2 * 86_400.0),
    )
    return next((top for top in tops if top >= highest), axis_top(highest / 86_400) * 86_400)


def _has_room(index: int, count: int) -> bool:
    return 0.03 <= (index + 0.5) / count <= 0.97
