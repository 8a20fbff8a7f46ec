"""The bounds of calendar periods: they cover all time without gaps, in zones whose clocks change in all known ways."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits.quotas.periods import PERIODS, Period, period_at

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # changes by half an hour
    "America/Goose_Bay",  # changed at one minute past midnight
    "America/Toronto",
    "America/Sao_Paulo",  # skipped midnight
    "Asia/Beirut",  # skips midnight
    "America/Havana",  # repeats the hour after midnight
    "Pacific/Apia",  # skipped 30 December 2011
    "Africa/Casablanca",
)
HOUR = 3600

zones = st.sampled_from(ZONES).map(ZoneInfo)
seconds = st.integers(0, 4_102_444_800)  # up to 2100
anchors = st.none() | st.dates(date(1990, 1, 1), date(2060, 12, 31))


def at(zone: str, *fields: int, fold: int = 0) -> float:
    return datetime(*fields, tzinfo=ZoneInfo(zone), fold=fold).timestamp()  # type: ignore[misc,arg-type]


def bounds(per: str, now: float, zone: str, anchor: date | None = None) -> tuple[str, str]:
    period = period_at(per, now, ZoneInfo(zone), anchor)
    start, end = (datetime.fromtimestamp(second, ZoneInfo(zone)) for second in period)
    return f"{start:%Y-%m-%d %H:%M}", f"{end:%Y-%m-%d %H:%M}"


@given(per=st.sampled_from(PERIODS), now=seconds, zone=zones, anchor=anchors)
def test_periods_cover_all_time_once(per: str, now: int, zone: ZoneInfo, anchor: date | None) -> None:
    anchor = anchor if per in ("week", "month") else None
    period = period_at(per, now, zone, anchor)
    assert period.start <= now < period.end
    assert period_at(per, period.start, zone, anchor) == period
    assert period_at(per, period.end - 1, zone, anchor) == period
    assert period_at(per, (period.start + period.end) / 2, zone, anchor) == period
    assert period_at(per, period.end, zone, anchor).start == period.end
    assert period_at(per, period.start - 1, zone, anchor).end == period.start


@given(per=st.sampled_from(("day", "week", "month")), now=seconds, zone=zones, anchor=anchors)
def test_periods_start_at_the_first_second_of_their_day(
    per: str, now: int, zone: ZoneInfo, anchor: date | None
) -> None:
    anchor = anchor if per != "day" else None
    start = period_at(per, now, zone, anchor).start
    day = datetime.fromtimestamp(start, zone).date()
    assert datetime.fromtimestamp(start - 1, zone).date() < day
    if zone.key == "Pacific/Apia" and day == date(2011, 12, 31):
        return  # the day on which a period would have started does not exist there
    if per == "week":
        assert day.weekday() == (0 if anchor is None else anchor.weekday())
    if per == "month":
        wanted = 1 if anchor is None else anchor.day
        assert day.day == min(wanted, calendar.monthrange(day.year, day.month)[1])


@given(now=seconds, zone=zones)
def test_an_hour_has_at_most_60_minutes_and_starts_with_one(now: int, zone: ZoneInfo) -> None:
    period = period_at("hour", now, zone)
    start, end = (datetime.fromtimestamp(second, zone) for second in period)
    after_change = start.utcoffset() != datetime.fromtimestamp(period.start - 1, zone).utcoffset()
    before_change = end.utcoffset() != datetime.fromtimestamp(period.end - 1, zone).utcoffset()
    length = period.end - period.start
    assert 0 < length <= HOUR
    assert length == HOUR or after_change or before_change
    assert (start.minute, start.second) == (0, 0) or after_change


@given(now=seconds)
def test_in_utc_days_and_hours_are_multiples(now: int) -> None:
    assert period_at("day", now, UTC) == Period(now - now % 86_400, now - now % 86_400 + 86_400)
    assert period_at("hour", now, UTC) == Period(now - now % HOUR, now - now % HOUR + HOUR)


@given(anchor=st.dates(date(1990, 1, 1), date(2030, 12, 31)), months=st.integers(0, 240))
def test_an_anchored_month_starts_on_the_day_of_the_anchor_or_the_last_of_the_month(anchor: date, months: int) -> None:
    years, month = divmod(anchor.month - 1 + months, 12)
    year, month = anchor.year + years, month + 1
    day = date(year, month, min(anchor.day, calendar.monthrange(year, month)[1]))
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp()
    assert period_at("month", noon, UTC, anchor).start == noon - 12 * HOUR
    assert period_at("month", noon - 24 * HOUR, UTC, anchor).end == noon - 12 * HOUR


def test_months_from_31_january() -> None:
    anchor, zone = date(2025, 1, 31), "Europe/Berlin"
    starts = []
    now = at(zone, 2025, 1, 31, 12)
    for _ in range(15):
        period = period_at("month", now, ZoneInfo(zone), anchor)
        starts.append(f"{datetime.fromtimestamp(period.start, ZoneInfo(zone)):%m-%d}")
        now = period.end
    assert starts[:7] == ["01-31", "02-28", "03-31", "04-30", "05-31", "06-30", "07-31"]
    assert starts[7:] == ["08-31", "09-30", "10-31", "11-30", "12-31", "01-31", "02-28", "03-31"]
    assert bounds("month", at(zone, 2028, 2, 29), zone, anchor) == ("2028-02-29 00:00", "2028-03-31 00:00")


@pytest.mark.parametrize(
    ("day", "hours"),
    [((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 7, 1), 24)],
)
def test_days_on_which_the_clocks_change(day: tuple[int, int, int], hours: int) -> None:
    period = period_at("day", at("Europe/Berlin", *day, 12), ZoneInfo("Europe/Berlin"))
    assert period.end - period.start == hours * HOUR


def test_the_repeated_hour_is_two_hours() -> None:
    zone = ZoneInfo("Europe/Berlin")
    first = period_at("hour", at("Europe/Berlin", 2026, 10, 25, 2, 30), zone)
    second = period_at("hour", at("Europe/Berlin", 2026, 10, 25, 2, 30, fold=1), zone)
    assert first.end == second.start
    assert second.end - first.start == 2 * HOUR


def test_an_hour_ends_where_the_clocks_change_within_it() -> None:
    zone = ZoneInfo("Australia/Lord_Howe")  # at 02:00 on 5 April 2026, clocks went back to 01:30
    change = int(at("Australia/Lord_Howe", 2026, 4, 5, 1, 30, fold=1))
    assert period_at("hour", change - 1, zone) == Period(change - HOUR, change)
    assert period_at("hour", change, zone) == Period(change, change + HOUR // 2)


def test_a_day_that_has_no_midnight() -> None:
    assert bounds("day", at("Asia/Beirut", 2026, 3, 29, 12), "Asia/Beirut") == ("2026-03-29 01:00", "2026-03-30 00:00")


def test_a_day_that_does_not_exist() -> None:
    zone = "Pacific/Apia"
    assert bounds("day", at(zone, 2011, 12, 29, 23), zone) == ("2011-12-29 00:00", "2011-12-31 00:00")


def test_weeks_start_on_monday_or_on_the_day_of_the_anchor() -> None:
    zone = "America/New_York"
    now = at(zone, 2026, 7, 8, 12)
    assert bounds("week", now, zone) == ("2026-07-06 00:00", "2026-07-13 00:00")
    assert bounds("week", now, zone, date(2020, 1, 3)) == ("2026-07-03 00:00", "2026-07-10 00:00")
    assert bounds("week", now, zone, date(2026, 7, 8) + timedelta(days=1)) == ("2026-07-02 00:00", "2026-07-09 00:00")
