"""Rates and spans of time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits.limiters.units import parse_rate
from resty_django.text.durations import UNITS, parse_duration, split_rate


@pytest.mark.parametrize(
    ("text", "count", "seconds"),
    [
        ("200/s", 200, 1),
        ("30/m", 30, 60),
        ("30r/m", 30, 60),
        ("5 per hour", 5, 3600),
        ("5 requests per hour", 5, 3600),
        ("1 req / 2 min", 1, 120),
        ("10/30s", 10, 30),
        ("0.5/s", 0.5, 1),
        ("100/D", 100, 86_400),
        (" 7 / 500ms ", 7, 0.5),
        ("1/week", 1, 604_800),
        ("3/1h30m", 3, 5400),
    ],
)
def test_a_rate_is_a_number_in_a_time(text: str, count: float, seconds: float) -> None:
    assert split_rate(text) == (count, seconds)
    assert parse_rate(text) == count / seconds


def test_a_number_is_requests_per_second() -> None:
    assert parse_rate(200) == 200
    assert parse_rate(0.5) == 0.5


@pytest.mark.parametrize(
    "text", ["", "200", "/s", "200/", "200/x", "-1/s", "1e3/s", "200/s/s", "nan/s", "inf/s", "٣/s", "1" * 70 + "/s"]
)
def test_a_wrong_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (rate such as|duration such as|unit of time)"):
        parse_rate(text)


@pytest.mark.parametrize("rate", ["0/s", "5/0s", 0, -1, float("inf"), float("nan"), 10**400])
def test_a_rate_is_above_zero(rate: str | float) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        parse_rate(rate)


@pytest.mark.parametrize("rate", [None, True, b"1/s", [1]])
def test_a_rate_is_a_text_or_a_number(rate: object) -> None:
    with pytest.raises(TypeError, match="rate"):
        parse_rate(rate)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        ("1h", 3600),
        ("90s", 90),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("1h 30 m", 5400),
        ("hour", 3600),
        ("1.5 min", 90),
        ("0s", 0),
        (10, 10),
        (0.25, 0.25),
        (timedelta(minutes=2), 120),
    ],
)
def test_a_span_of_time_is_seconds(span: str | float | timedelta, seconds: float) -> None:
    assert parse_duration(span) == seconds


@pytest.mark.parametrize("text", ["", "h1", "1", "1h,30m", "1h-30m", "s s", "1 fortnight", "1h" * 40])
def test_a_wrong_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_duration(text)


@pytest.mark.parametrize("span", [-1, float("inf"), float("nan"), 10**400, timedelta(seconds=-1)])
def test_a_span_is_not_below_zero(span: float | timedelta) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        parse_duration(span)


@pytest.mark.parametrize("span", [None, True, b"1h"])
def test_a_span_is_of_a_known_type(span: object) -> None:
    with pytest.raises(TypeError, match="duration"):
        parse_duration(span)  # type: ignore[arg-type]


@given(st.integers(1, 10**6), st.integers(1, 1000), st.sampled_from(sorted(UNITS)))
def test_every_unit_reads_as_it_is_written(count: int, many: int, unit: str) -> None:
    assert split_rate(f"{count}/{many}{unit}") == (count, many * UNITS[unit])
    assert split_rate(f"{count} per {many} {unit}") == (count, many * UNITS[unit])


@given(st.text(max_size=80))
def test_any_other_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_rate, parse_duration):
        try:
            parsed = parse(text)
        except ValueError:
            continue
        assert 0 <= parsed < float("inf")
