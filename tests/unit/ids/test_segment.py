"""Reservations, as pure decisions: rows in, rows and segments out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.ids.engine.cycle import DAY_SECONDS, ENDLESS, NO_END, Cycle, Reset
from resty_django.ids.engine.rule import MAX_NUMBER, RuleSpec
from resty_django.ids.engine.segment import CounterRow, confirm_step, first_number, give_back, reserve
from resty_django.ids.engine.wall_clock import wall_of
from resty_django.ids.errors import Exhausted, StepChanged

D = wall_of(datetime(2026, 11, 21))
DAILY, HOURLY, MONTHLY, NEVER = Reset(DAY_SECONDS), Reset(3600), Reset(calendar="month"), Reset()


def rule(reset: Reset = DAILY, **options: Any) -> RuleSpec:
    return RuleSpec(name="r", source="", reset=reset, **{"max_counter": 9999, **options})


def take(
    row: CounterRow | None, spec: RuleSpec, wall: int, want: int = 10, **node: int
) -> tuple[CounterRow, range, Cycle]:
    new, grant = reserve(row, spec, wall=wall, want=want, **{"step": 1, "offset": 0, **node})
    assert grant.cycle.start <= grant.shown < grant.cycle.end
    assert grant.shown == new.shown
    return new, grant.numbers, grant.cycle


def test_segments_follow_one_another() -> None:
    row, first, cycle = take(None, rule(), D + 5)
    assert (first, cycle) == (range(10), Cycle(D, D + DAY_SECONDS))
    row, second, cycle = take(row, rule(), D + 6, 20)
    assert second == range(10, 30)
    assert row == CounterRow(1, Cycle(D, D + DAY_SECONDS), 30, D + 6)


def test_a_new_cycle_begins_at_the_minimum() -> None:
    row, _, _ = take(None, rule(min_counter=5, anchor=5), D)
    row, numbers, cycle = take(row, rule(min_counter=5, anchor=5), D + DAY_SECONDS)
    assert (numbers.start, cycle) == (5, Cycle(D + DAY_SECONDS, D + 2 * DAY_SECONDS))


def test_a_clock_set_back_stays_in_the_stored_cycle() -> None:
    row, _, _ = take(None, rule(), D + DAY_SECONDS)
    row, numbers, cycle = take(row, rule(), D + 100)
    assert (numbers, cycle) == (range(10, 20), Cycle(D + DAY_SECONDS, D + 2 * DAY_SECONDS))
    assert row.shown == D + DAY_SECONDS


def test_a_reservation_is_clipped_at_the_maximum_and_then_exhausted() -> None:
    row, numbers, _ = take(None, rule(max_counter=24), D, 20)
    row, numbers, _ = take(row, rule(max_counter=24), D, 20)
    assert numbers == range(20, 25)
    with pytest.raises(Exhausted, match="24") as caught:
        take(row, rule(max_counter=24), D)
    assert caught.value.until == datetime(2026, 11, 22, tzinfo=UTC).timestamp()
    _, numbers, _ = take(row, rule(max_counter=24), D + DAY_SECONDS)
    assert numbers.start == 0


def test_exhausted_contains_the_instant_and_not_the_wall_clock() -> None:
    spec = rule(max_counter=4, timezone="Asia/Tokyo")
    row, _, _ = take(None, spec, D)
    with pytest.raises(Exhausted) as caught:
        take(row, spec, D)
    assert caught.value.until == datetime(2026, 11, 21, 15, tzinfo=UTC).timestamp()


def test_a_counter_without_reset_is_exhausted_for_good() -> None:
    row, _, _ = take(None, rule(NEVER, max_counter=9), D)
    assert row.cycle == ENDLESS
    with pytest.raises(Exhausted) as caught:
        take(row, rule(NEVER, max_counter=9), D + 10**9)
    assert caught.value.until is None
    assert "starts again" not in str(caught.value)


def test_the_largest_numbers_work() -> None:
    spec = rule(NEVER, min_counter=MAX_NUMBER - 5, max_counter=MAX_NUMBER, anchor=MAX_NUMBER - 5)
    row, numbers, _ = take(None, spec, D, 100)
    assert numbers[-1] == MAX_NUMBER
    assert row.bound < 2**63


@given(st.integers(1, 9), st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 50))
def test_nodes_share_the_range_without_overlap(step: int, anchor: int, minimum: int, want: int) -> None:
    spec = rule(min_counter=minimum, max_counter=minimum + 100, anchor=anchor)
    reserved: list[int] = []
    for offset in range(step):
        assert 0 <= first_number(spec, step, offset) - minimum < step
        row = None
        while True:
            try:
                row, numbers, _ = take(row, spec, D, want, step=step, offset=offset)
            except Exhausted:
                break
            assert all((number - anchor - offset) % step == 0 for number in numbers)
            reserved += numbers
    assert sorted(reserved) == list(range(minimum, minimum + 101))


@given(st.integers(1, 7), st.integers(0, 6), st.integers(0, 300), st.integers(0, 300))
def test_an_edited_minimum_leaves_each_node_its_own_numbers(step: int, offset: int, before: int, after: int) -> None:
    offset %= step
    row, first, _ = take(None, rule(min_counter=before, anchor=before), D, step=step, offset=offset)
    row, second, _ = take(row, rule(min_counter=after, anchor=before), D, step=step, offset=offset)
    assert second.start >= max(after, first.stop)
    assert (second.start - first.start) % step == 0


def test_another_step_is_refused() -> None:
    row, _, _ = take(None, rule(), D)
    with pytest.raises(StepChanged, match="step 2"):
        take(row, rule(), D, step=2)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 8), st.integers(0, 500), st.integers(0, 500))
def test_a_confirmed_step_continues_above_all_issued_numbers(
    old: int, new: int, offset: int, floor: int, minimum: int
) -> None:
    offset %= new
    spec = rule(min_counter=minimum, anchor=minimum, max_counter=10**6)
    row, numbers, _ = take(None, spec, D, step=old, offset=0)
    confirmed = confirm_step(row, spec, step=new, offset=offset, floor=floor)
    assert confirmed.bound >= max(floor, numbers.stop)
    assert confirmed.bound < max(floor, numbers.stop) + new
    _, later, _ = take(confirmed, spec, D, step=new, offset=offset)
    assert later.start == confirmed.bound
    assert (later.start - minimum - offset) % new == 0


# Giving back


def test_an_unused_tail_goes_back_when_nobody_reserved_after_it() -> None:
    row, numbers, cycle = take(None, rule(), D)
    back = give_back(row, cycle, numbers[4:], D + 3)
    assert back is not None
    assert (back.bound, back.shown) == (4, D + 3)


def test_tails_of_two_segments_go_back_one_after_the_other() -> None:
    row, first, cycle = take(None, rule(), D, step=3, offset=1)
    row, second, cycle = take(row, rule(), D, step=3, offset=1)
    assert give_back(row, cycle, first[5:], D) is None
    back = give_back(row, cycle, second, D)
    assert back is not None
    back = give_back(back, cycle, first[5:], D)
    assert back is not None
    assert back.bound == first[5]


def test_a_tail_of_another_cycle_or_step_stays_out() -> None:
    row, numbers, cycle = take(None, rule(), D)
    turned, _, _ = take(row, rule(), D + DAY_SECONDS)
    assert turned.bound == row.bound
    assert give_back(turned, cycle, numbers[4:], D) is None
    assert give_back(row, cycle, range(4, 10, 2), D) is None
    assert give_back(row, cycle, range(10, 10), D) is None


def test_returning_a_tail_does_not_turn_shown_time_back() -> None:
    row, _, cycle = take(None, rule(), D + 50)
    back = give_back(row, cycle, range(5, 10), D + 3)
    assert back is not None
    assert back.shown == D + 50


# Edited rules


def test_a_shorter_reset_takes_effect_when_the_cycle_under_way_has_ended() -> None:
    row, _, _ = take(None, rule(DAILY), D)
    row, numbers, _ = take(row, rule(HOURLY), D + 5 * 3600)
    assert numbers.start == 10
    row, numbers, _ = take(row, rule(HOURLY), D + 6 * 3600)
    assert numbers.start == 20
    row, numbers, cycle = take(row, rule(HOURLY), D + DAY_SECONDS)
    assert (numbers.start, cycle) == (0, Cycle(D + DAY_SECONDS, D + DAY_SECONDS + 3600))


def test_a_longer_reset_takes_the_cycle_under_way_in() -> None:
    row, _, _ = take(None, rule(HOURLY), D)
    row, numbers, cycle = take(row, rule(DAILY), D + 60)
    assert (numbers.start, cycle) == (10, Cycle(D, D + DAY_SECONDS))
    row, numbers, _ = take(row, rule(DAILY), D + 3600)
    assert numbers.start == 20
    row, numbers, _ = take(row, rule(DAILY), D + DAY_SECONDS)
    assert numbers.start == 0


def test_a_reset_edited_to_and_fro_does_not_bring_the_text_of_a_day_again() -> None:
    """Daily IDs made inside the first hour, hourly ones after it, then daily ones: one day, no number twice."""
    row, _, _ = take(None, rule(HOURLY), D)
    row, daily, _ = take(row, rule(DAILY), D + 60)
    row, _, _ = take(row, rule(HOURLY), D + 3600)
    row, numbers, _ = take(row, rule(DAILY), D + 3660)
    assert not set(daily) & set(numbers)


def test_a_segment_ends_with_its_rules_cycle_even_if_the_row_continues() -> None:
    """A week that crosses into a month: numbers shown in the month are reserved in it, so that it is covered whole."""
    monday = wall_of(datetime(2026, 9, 28))
    october = wall_of(datetime(2026, 10, 1))
    row, _, _ = take(None, rule(Reset(7 * DAY_SECONDS)), monday)
    row, _, cycle = take(row, rule(MONTHLY), monday + DAY_SECONDS)
    assert cycle == Cycle(monday, october)
    row, numbers, cycle = take(row, rule(MONTHLY), october)
    assert (numbers.start, cycle) == (20, Cycle(monday, wall_of(datetime(2026, 11, 1))))


def test_a_reset_switched_off_lets_the_counter_continue() -> None:
    row, _, _ = take(None, rule(DAILY), D)
    row, numbers, cycle = take(row, rule(NEVER), D + 5 * DAY_SECONDS)
    assert (numbers.start, cycle) == (10, Cycle(D, NO_END))
    _, later, _ = take(row, rule(NEVER), D + 50 * DAY_SECONDS)
    assert later.start == numbers.stop


def test_a_reset_switched_on_takes_effect_with_the_next_cycle() -> None:
    row, _, _ = take(None, rule(NEVER), D)
    row, numbers, cycle = take(row, rule(DAILY), D + 60)
    assert (numbers.start, cycle) == (10, Cycle(D, D + DAY_SECONDS))
    row, numbers, cycle = take(row, rule(DAILY), D + DAY_SECONDS)
    assert (numbers.start, cycle.start) == (0, D + DAY_SECONDS)


resets = st.sampled_from(
    [DAILY, HOURLY, MONTHLY, NEVER, Reset(calendar="year"), Reset(7 * DAY_SECONDS), Reset(5000), Reset(3 * DAY_SECONDS)]
)


@given(
    st.lists(
        st.tuples(resets, st.integers(-3 * DAY_SECONDS, 40 * DAY_SECONDS), st.integers(1, 2000)),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_edits_and_clocks_do_no_cycle_holds_a_number_twice(steps: list[tuple[Reset, int, int]]) -> None:
    row: CounterRow | None = None
    shown = -NO_END
    reserved: set[tuple[int, int]] = set()
    clock = D
    for reset, jump, want in steps:
        clock += jump
        before = row
        try:
            row, numbers, _cycle = take(row, rule(reset), clock, want)
        except Exhausted:
            assert row is not None
            assert row.bound > 9999
            continue
        if before is not None:
            assert row.cycle.start >= before.cycle.start
            assert numbers.start == before.bound or (numbers.start == 0 and row.cycle.start >= before.cycle.end)
        assert row.shown >= shown
        shown = row.shown
        lineage = row.cycle.start
        assert not reserved & {(lineage, number) for number in numbers}
        reserved |= {(lineage, number) for number in numbers}
        assert numbers[-1] <= 9999
