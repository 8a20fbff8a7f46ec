"""Shown time: the wall clock of a rule's time zone as one number, which never decreases within a counter.

A *wall second* is the local wall clock written as seconds since 1970-01-01 00:00 of that same wall clock. Text and
cycle of an ID both come from one wall second, so they cannot disagree at midnight or when daylight saving changes.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from ..errors import BadRule

_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
FIRST, END = ((datetime(year, 1, 1) - _EPOCH) // _SECOND for year in (2, 9999))
"""The first wall second that can be shown, and the first one that cannot be shown any more."""


class Moment(NamedTuple):
    """The calendar fields of a wall second; `weekday` is 0 on Monday, `yearday` is 1 on 1 January."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    weekday: int
    yearday: int


def moment_of(wall: int) -> Moment:
    """Return the calendar fields of a wall second."""
    t = datetime_of(wall)
    return Moment(t.year, t.month, t.day, t.hour, t.minute, t.second, t.weekday(), t.timetuple().tm_yday)


def datetime_of(wall: int) -> datetime:
    """Return a wall second as a naive datetime. Raise BadRule if it is not in the years 2 to 9998."""
    if not FIRST <= wall < END:
        raise BadRule("The counter or its cycle reaches beyond the year 9998. Shorten the reset, or lower the counter.")
    return _EPOCH + timedelta(seconds=wall)


def wall_of(moment: datetime) -> int:
    """Return the wall second of a naive datetime."""
    return (moment - _EPOCH) // _SECOND


def epoch_of(wall: int, zone: tzinfo) -> float:
    """Return the epoch time (seconds) at which clocks in `zone` first show the wall second `wall`, or skip it."""
    return datetime_of(wall).replace(tzinfo=zone).timestamp()


def wall_at(epoch: float, zone: tzinfo) -> int:
    """Return the wall second that clocks in `zone` show at `epoch` (epoch seconds)."""
    offset = datetime.fromtimestamp(epoch, zone).utcoffset() or timedelta()
    return int(epoch // 1) + offset // _SECOND
