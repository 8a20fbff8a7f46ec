"""The outlook of a counter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.ids.forecast import FURTHEST_SECONDS, LEAST_SECONDS, Forecast, Outlook, Progress, forecast

HOUR = 3600.0
BUSY = Progress(since=0, issued=1000, updated=HOUR, bound=1000, maximum=9999, ends=24 * HOUR)


def test_a_steady_counter_ends_where_its_line_meets_the_maximum() -> None:
    assert forecast(BUSY, HOUR) == Forecast(Outlook.RUNS_OUT, 10 * HOUR, 1000 / HOUR)


def test_a_counter_that_stands_still_gets_slower_with_time() -> None:
    outlook = forecast(BUSY, 2 * HOUR)
    assert outlook == Forecast(Outlook.RUNS_OUT, 20 * HOUR, 500 / HOUR)


def test_numbers_that_outlive_the_cycle_last() -> None:
    assert forecast(replace(BUSY, ends=9 * HOUR), HOUR).outlook is Outlook.LASTS
    assert forecast(replace(BUSY, ends=10.5 * HOUR), HOUR).outlook is Outlook.RUNS_OUT


def test_a_cycle_that_never_turns_has_no_end_to_last_to() -> None:
    assert forecast(replace(BUSY, ends=None), HOUR).outlook is Outlook.RUNS_OUT
    slow = replace(BUSY, ends=None, issued=1, bound=1, maximum=2**60)
    assert forecast(slow, HOUR) == Forecast(Outlook.LASTS, None, 1 / HOUR)


def test_a_cycle_that_is_over_says_nothing_of_the_next() -> None:
    assert forecast(BUSY, 24 * HOUR) == Forecast(Outlook.TURNED)
    assert forecast(replace(BUSY, bound=10_000), 24 * HOUR) == Forecast(Outlook.TURNED)


def test_no_number_left_is_used_up() -> None:
    assert forecast(replace(BUSY, bound=10_000), 2 * HOUR) == Forecast(Outlook.USED_UP, HOUR)
    assert forecast(replace(BUSY, bound=9_999), 2 * HOUR).outlook is Outlook.RUNS_OUT


@pytest.mark.parametrize(
    "young",
    [
        replace(BUSY, since=None),
        replace(BUSY, since=HOUR - LEAST_SECONDS + 1),
        replace(BUSY, issued=0),
        replace(BUSY, since=2 * HOUR),
    ],
)
def test_nothing_is_told_from_too_little(young: Progress) -> None:
    assert forecast(young, HOUR) == Forecast(Outlook.UNKNOWN)


def test_a_node_counts_its_own_numbers_alone() -> None:
    second_of_ten = Progress(since=0, issued=100, updated=HOUR, bound=1001, maximum=9999, step=10, ends=None)
    assert second_of_ten.left == 900
    assert forecast(second_of_ten, HOUR).at == pytest.approx(10 * HOUR)


@given(
    issued=st.integers(-1, 10**6),
    used=st.integers(0, 10**6),
    remaining=st.integers(-5, 10**6),
    step=st.integers(1, 9),
    age=st.floats(0, 10**9),
    ends=st.none() | st.floats(-(10**6), 10**10),
)
def test_it_never_ends_before_now_nor_after_the_cycle(
    issued: int, used: int, remaining: int, step: int, age: float, ends: float | None
) -> None:
    bound = used * step
    progress = Progress(
        since=0, issued=issued, updated=0, bound=bound, maximum=bound + remaining * step - 1, step=step, ends=ends
    )
    outlook = forecast(progress, age)
    if outlook.outlook is Outlook.RUNS_OUT:
        assert outlook.at is not None
        assert age <= outlook.at <= age + FURTHEST_SECONDS
        assert ends is None or outlook.at < ends
        assert progress.left > 0
    if outlook.outlook is Outlook.USED_UP:
        assert progress.left == 0
