"""Numbers, shares, durations, times and names of the admin pages."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from django.utils import timezone, translation

from resty_django.admin.formatting import date_time, duration, local_time, number, percent
from resty_django.templatetags.resty_formatting import resty_breakable, resty_duration, resty_time

NOON = datetime(2026, 7, 8, 12, 30, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.00012, "0.1 ms"),
        (0.0094, "9.4 ms"),
        (0.25, "250 ms"),
        (0.9996, "1 s"),
        (1, "1 s"),
        (2.54, "2.5 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (-3661, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (86_400 * 1234, "1,234 d"),
        (math.inf, "–"),
        (math.nan, "–"),
        (10**400, "–"),
    ],
)
def test_durations_have_their_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.0001, "< 0.1 %"),
        (0.1, "10 %"),
        (0.9, "90 %"),
        (0.123, "12.3 %"),
        (0.9999, "99.9 %"),
        (1, "100 %"),
    ],
)
def test_shares_are_never_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1234567, "1,234,567"),
        (-5.0, "-5"),
        (1234.567, "1,234.57"),
        (1e20, "1e+20"),
        (10**18 + 1, "1,000,000,000,000,000,001"),
    ],
)
def test_numbers_have_separators(value: float | None, text: str) -> None:
    assert number(value) == text


def test_figures_follow_the_language() -> None:
    with translation.override("de"):
        assert number(1234567) == "1.234.567"
        assert number(1234.5) == "1.234,50"
        assert percent(0.123) == "12,3 %"
        assert duration(2.5) == "2,5 s"
        assert date_time(NOON.replace(tzinfo=None)) == "8. Juli 2026, 12:30:05"


def test_times_are_in_the_current_time_zone() -> None:
    with timezone.override("Europe/Vienna"):
        assert date_time(NOON) == date_time(NOON.timestamp()) == "July 8, 2026, 14:30:05"
    assert date_time(None) == date_time(1e20) == date_time(float("nan")) == "–"


def test_templates_have_the_same_formats() -> None:
    with timezone.override("UTC"):
        assert resty_time(NOON) == date_time(NOON)
    assert resty_duration(3600) == "1 h"
    assert resty_time(None) == resty_duration("") == ""


@pytest.mark.parametrize(
    ("epoch", "year"),
    [(NOON.timestamp(), 2026), *((far, 9998) for far in (1e12, 10**400, math.inf)), (math.nan, 2), (-1e300, 2)],
)
def test_times_of_any_size_are_bounded(epoch: float, year: int) -> None:
    with timezone.override("Pacific/Kiritimati"):
        assert local_time(epoch).year == year
        assert date_time(local_time(epoch))
        assert date_time(datetime.max.replace(tzinfo=UTC)) == "–"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("limit_req:window", "limit_req:window"),
        ("customer_exports:window", "customer_<wbr>exports:<wbr>window"),
        ("shop.tasks.SendInvoice", "shop.<wbr>tasks.<wbr>Send<wbr>Invoice"),
        ("<b>-orders-of-shops", "&lt;b&gt;-<wbr>orders-<wbr>of-<wbr>shops"),
        ("a" * 30, f"{'a' * 24}<wbr>{'a' * 6}"),
    ],
)
def test_long_names_have_places_for_line_breaks(text: str, shown: str) -> None:
    assert resty_breakable(text) == shown
