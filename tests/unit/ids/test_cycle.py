"""Cycles and shown time: calendar days, weeks, months and years of any zone, through every change of its clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.ids.engine.cycle import DAY_SECONDS, ENDLESS, NO_END, WEEK_SECONDS, Cycle, Reset
from resty_django.ids.engine.wall_clock import datetime_of, epoch_of, moment_of, wall_at, wall_of

# Zone and a day (UTC) around which its clocks change: forward, back, by half an hour, by a whole day.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29)),
    ("Europe/Berlin", datetime(2026, 10, 25)),
    ("America/New_York", datetime(2026, 3, 8)),
    ("America/New_York", datetime(2026, 11, 1)),
    ("Australia/Lord_Howe", datetime(2026, 4, 5)),
    ("Australia/Lord_Howe", datetime(2026, 10, 4)),
    ("America/Havana", datetime(2026, 11, 1)),
    ("Asia/Kathmandu", datetime(2026, 6, 1)),
    ("Pacific/Apia", datetime(2011, 12, 30)),
]
walls = st.integers(0, 250 * 365 * DAY_SECONDS)
moments = st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1))


def local(epoch: float, zone: str) -> datetime:
    """The clock on the wall, straight from the standard library."""
    return datetime.fromtimestamp(epoch, ZoneInfo(zone)).replace(tzinfo=None, fold=0)


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_wall_seconds_are_the_clock_on_the_wall(zone: str, day: datetime) -> None:
    noon = day.replace(tzinfo=UTC).timestamp()
    for epoch in range(int(noon) - 2 * DAY_SECONDS, int(noon) + 2 * DAY_SECONDS, 61):
        assert datetime_of(wall_at(epoch + 0.999, ZoneInfo(zone))) == local(epoch, zone)


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_a_daily_cycle_is_the_calendar_day(zone: str, day: datetime) -> None:
    noon = day.replace(tzinfo=UTC).timestamp()
    for epoch in range(int(noon) - 2 * DAY_SECONDS, int(noon) + 2 * DAY_SECONDS, 307):
        cycle = Reset(DAY_SECONDS).cycle(wall_at(epoch, ZoneInfo(zone)))
        midnight = local(epoch, zone).replace(hour=0, minute=0, second=0)
        assert (datetime_of(cycle.start), datetime_of(cycle.end)) == (midnight, midnight + timedelta(days=1))


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_hours_and_half_hours_follow_the_wall_clock(zone: str, day: datetime) -> None:
    noon = day.replace(tzinfo=UTC).timestamp()
    for epoch in range(int(noon) - DAY_SECONDS, int(noon) + DAY_SECONDS, 307):
        hour = local(epoch, zone).replace(minute=0, second=0)
        assert datetime_of(Reset(3600).cycle(wall_at(epoch, ZoneInfo(zone))).start) == hour
        half = local(epoch, zone).replace(minute=local(epoch, zone).minute // 30 * 30, second=0)
        assert datetime_of(Reset(1800).cycle(wall_at(epoch, ZoneInfo(zone))).start) == half


@given(walls, st.integers(1, 5))
def test_weeks_begin_on_monday_at_midnight(wall: int, weeks: int) -> None:
    cycle = Reset(weeks * WEEK_SECONDS).cycle(wall)
    assert cycle.start <= wall < cycle.end == cycle.start + weeks * WEEK_SECONDS
    assert moment_of(cycle.start).weekday == 0
    assert cycle.start % DAY_SECONDS == 0


@given(moments)
def test_months_and_years_follow_the_calendar(moment: datetime) -> None:
    wall = wall_of(moment)
    month = Reset(calendar="month").cycle(wall)
    assert datetime_of(month.start) == datetime(moment.year, moment.month, 1)
    assert datetime_of(month.end) == datetime(moment.year + moment.month // 12, moment.month % 12 + 1, 1)
    year = Reset(calendar="year").cycle(wall)
    assert (datetime_of(year.start), datetime_of(year.end)) == (
        datetime(moment.year, 1, 1),
        datetime(moment.year + 1, 1, 1),
    )


@given(walls, st.one_of(st.integers(1, 10 * WEEK_SECONDS), st.sampled_from(["month", "year"])))
def test_cycles_follow_one_another_without_hole_or_overlap(wall: int, length: int | str) -> None:
    reset = Reset(length) if isinstance(length, int) else Reset(calendar=length)
    cycle = reset.cycle(wall)
    assert cycle.start <= wall < cycle.end
    assert reset.cycle(cycle.start) == reset.cycle(cycle.end - 1) == cycle
    assert reset.cycle(cycle.end).start == cycle.end
    assert reset.cycle(cycle.start - 1).end == cycle.start


def test_whole_days_count_from_midnight_and_others_from_the_first_of_january_1970() -> None:
    assert Reset(2 * DAY_SECONDS).cycle(DAY_SECONDS) == Cycle(0, 2 * DAY_SECONDS)
    assert Reset(90).cycle(100) == Cycle(90, 180)


@given(walls)
def test_never_is_one_cycle(wall: int) -> None:
    assert Reset().cycle(wall) == ENDLESS == Cycle(-NO_END, NO_END)
    assert Reset().never


def test_times_and_numbers_past_2038_work() -> None:
    wall = wall_of(datetime(2038, 1, 19, 3, 14, 8))
    assert wall == 2**31
    assert datetime_of(Reset(DAY_SECONDS).cycle(wall).start) == datetime(2038, 1, 19)


@pytest.mark.parametrize("wrong", [{"seconds": -1}, {"calendar": "decade"}, {"seconds": 60, "calendar": "year"}])
def test_a_reset_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="reset_"):
        Reset(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_the_instant_of_a_wall_second_is_when_the_clock_first_shows_it(zone: str, day: datetime) -> None:
    tz = ZoneInfo(zone)
    for hour in range(-24, 48):
        epoch = day.replace(tzinfo=UTC).timestamp() + hour * 3600
        instant = epoch_of(wall_at(epoch, tz), tz)
        assert instant <= epoch
        assert wall_at(instant, tz) == wall_at(epoch, tz)


@given(moments)
def test_a_moment_is_the_calendars_fields(moment: datetime) -> None:
    fields = moment_of(wall_of(moment))
    t = moment.timetuple()
    assert fields == (t.tm_year, t.tm_mon, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, t.tm_wday, t.tm_yday)
