"""Bounds of calendar periods in a time zone. Pure.

The periods of a zone and an anchor do not overlap and leave no gap: each ends when the next one starts. A day has 23 or
25 hours when the clocks change; an hour ends early when they change within it.
"""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

PERIODS: Final = ("hour", "day", "week", "month")


class Period(NamedTuple):
    """A period in epoch seconds: from `start`, until just before `end`."""

    start: int
    end: int


def period_at(per: str, now: float, zone: tzinfo, anchor: date | None = None) -> Period:
    """Return the period that contains `now`, in epoch seconds.

    `per`: one of `PERIODS`. Days start at midnight, weeks on Monday, months on the first. `anchor`: a date on which
    weeks or months start instead: a month from 31 January ends on the last day of February, the next one on 31 March.
    If midnight does not exist in `zone` on some day, that day starts when the clocks change.
    """
    moment = datetime.fromtimestamp(int(now // 1), UTC)
    if per == "hour":
        return _hour(moment, zone)
    today = moment.astimezone(zone).date()
    index = _index(per, today, anchor)
    while _midnight(_first_day(per, index, anchor), zone) > moment:
        index -= 1
    while _midnight(_first_day(per, index + 1, anchor), zone) <= moment:
        index += 1
    first, next_first = (_first_day(per, number, anchor) for number in (index, index + 1))
    return Period(_seconds(_midnight(first, zone)), _seconds(_midnight(next_first, zone)))


def _index(per: str, today: date, anchor: date | None) -> int:
    """Return the number of a period that starts near `today`."""
    if per == "day":
        return today.toordinal()
    if per == "week":
        return (today.toordinal() - _monday(anchor)) // 7
    begin = anchor or date(1, 1, 1)
    return (today.year - begin.year) * 12 + today.month - begin.month


def _first_day(per: str, index: int, anchor: date | None) -> date:
    """Return the first day of the period with that number."""
    if per == "day":
        return date.fromordinal(index)
    if per == "week":
        return date.fromordinal(_monday(anchor) + index * 7)
    begin = anchor or date(1, 1, 1)
    years, month = divmod(begin.month - 1 + index, 12)
    year = begin.year + years
    return date(year, month + 1, min(begin.day, calendar.monthrange(year, month + 1)[1]))


def _monday(anchor: date | None) -> int:
    """Return the ordinal of a day on which a week starts; 1 January of year 1 was a Monday."""
    return 1 if anchor is None else anchor.toordinal()


def _midnight(day: date, zone: tzinfo) -> datetime:
    """Return the first instant of a day."""
    naive = datetime(day.year, day.month, day.day)
    midnight = naive.replace(tzinfo=zone).astimezone(UTC)
    if midnight.astimezone(zone).replace(tzinfo=None) == naive:
        return midnight
    # The clocks skip midnight: they change between the instants at which the new and the old offset have midnight.
    return _change_between(naive.replace(tzinfo=zone, fold=1).astimezone(UTC), midnight, zone)


def _hour(moment: datetime, zone: tzinfo) -> Period:
    local = moment.astimezone(zone)
    start = moment - timedelta(minutes=local.minute, seconds=local.second)
    end = start + timedelta(hours=1)
    if start.astimezone(zone).utcoffset() != local.utcoffset():
        start = _change_between(start, moment, zone)
    if (end - timedelta(seconds=1)).astimezone(zone).utcoffset() != local.utcoffset():
        end = _change_between(moment, end, zone)
    return Period(_seconds(start), _seconds(end))


def _change_between(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """Return the first second with another offset from UTC than `before`, up to `after`."""
    low, high = _seconds(before), _seconds(after)
    offset = before.astimezone(zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
