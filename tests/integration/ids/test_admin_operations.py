"""Counters set by hand: raise, lower, confirm a step. Without HTTP."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import override_settings

from resty_django import ids
from resty_django.ids import operations
from resty_django.ids.engine.wall_clock import wall_at
from resty_django.ids.errors import StepChanged
from resty_django.ids.models import IdCounter
from resty_django.ids.operations import CounterRefused, Moved, confirm_step, lower_counter, raise_counter, standing
from tests.integration.ids.admin_tools import make_counter, make_rule

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]

DAY_SECONDS = 86_400


def site(step: int, offset: int = 0) -> Any:
    return override_settings(RESTY_DJANGO={"IDS": {"STEP": step, "OFFSET": offset}})


def number(issued_id: object) -> int:
    return int(str(issued_id)[-6:])


def reserved_while(monkeypatch: pytest.MonkeyPatch, counter: IdCounter, amount: int, times: int = 1) -> None:
    """Have somebody reserve `amount` numbers between the look and the write of an operation."""
    swap, remaining = operations.swap_row, [times]

    def late(stored: IdCounter, new: Any) -> bool:
        if remaining[0]:
            remaining[0] -= 1
            row = IdCounter.objects.get(pk=counter.pk)
            IdCounter.objects.filter(pk=row.pk).update(bound=row.bound + amount)
        return swap(stored, new)

    monkeypatch.setattr(operations, "swap_row", late)


def test_raise_continues_at_the_requested_number() -> None:
    counter = make_counter(make_rule())
    assert raise_counter(counter, to=5000).bound == 5000
    assert number(ids.next_id("order", app="shop")) == 5000


def test_raise_keeps_to_the_numbers_of_the_node() -> None:
    rule = make_rule(min_counter=1)
    counter = make_counter(rule, bound=14, node_offset=1, step=3, cycle_first=2)
    assert [raise_counter(counter, to=to).bound for to in (14, 15, 17, 18)] == [14, 17, 17, 20]


def test_raise_never_goes_down_nor_past_the_maximum() -> None:
    counter = make_counter(make_rule(), bound=100)
    with pytest.raises(CounterRefused, match="100"):
        raise_counter(counter, to=99)
    with pytest.raises(CounterRefused, match="maximum"):
        raise_counter(counter, to=1_000_001)
    assert IdCounter.objects.get().bound == 100
    assert raise_counter(counter, to=1_000_000).bound == 1_000_000
    with pytest.raises(ids.errors.Exhausted):
        ids.next_id("order", app="shop")


def test_raise_does_not_undo_a_reservation_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = make_counter(make_rule(), bound=100)
    reserved_while(monkeypatch, counter, 50)
    assert raise_counter(counter, to=120 + 80).bound == 200
    reserved_while(monkeypatch, counter, 1000)
    with pytest.raises(CounterRefused, match="1,200"):
        raise_counter(counter, to=300)
    assert IdCounter.objects.get().bound == 1200


def test_raise_takes_effect_in_the_cycle_of_now() -> None:
    rule = make_rule()
    counter = make_counter(rule, bound=7000)
    IdCounter.objects.update(
        cycle_start=counter.cycle_start - DAY_SECONDS,
        cycle_end=counter.cycle_end - DAY_SECONDS,
        shown=counter.shown - DAY_SECONDS,
    )
    done = raise_counter(counter, to=300)
    assert (done.bound, done.cycle_start) == (300, counter.cycle_start)
    assert number(ids.next_id("order", app="shop")) == 300


def test_lower_repeats_numbers_and_processes_forget_theirs() -> None:
    make_rule(segment_size=10)
    assert number(ids.next_id("order", app="shop")) == 0
    counter = IdCounter.objects.get()
    lower_counter(counter, to=0)
    deadline = time.monotonic() + 5
    issued = [number(ids.next_id("order", app="shop"))]
    while issued[-1] != 0 and time.monotonic() < deadline:
        time.sleep(0.05)
        issued.append(number(ids.next_id("order", app="shop")))
    assert issued[-1] == 0
    assert IdCounter.objects.get().bound == 10


def test_lower_is_refused_below_the_first_number_and_above_the_present_one() -> None:
    counter = make_counter(make_rule(min_counter=10), bound=100)
    with pytest.raises(CounterRefused, match="first number is 10"):
        lower_counter(counter, to=9)
    with pytest.raises(CounterRefused, match="raise"):
        lower_counter(counter, to=101)
    version = counter.rule.version
    assert lower_counter(counter, to=10).bound == 10
    assert IdCounter.objects.get().rule.version == version + 1


def test_lower_does_not_overwrite_a_reservation_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = make_counter(make_rule(), bound=100)
    reserved_while(monkeypatch, counter, 50)
    with pytest.raises(Moved):
        lower_counter(counter, to=0)


def test_a_counter_ahead_of_the_clock_comes_back_when_asked() -> None:
    rule = make_rule()
    counter = make_counter(rule, bound=50)
    IdCounter.objects.update(
        cycle_start=counter.cycle_start + 3 * DAY_SECONDS,
        cycle_end=counter.cycle_end + 3 * DAY_SECONDS,
        shown=counter.shown + 3 * DAY_SECONDS,
    )
    ahead = IdCounter.objects.select_related("rule").get()
    assert operations.is_ahead(ahead)
    assert lower_counter(ahead, to=20).cycle_start == counter.cycle_start + 3 * DAY_SECONDS
    done = lower_counter(ahead, to=700, cycle_back=True)
    assert (done.bound, done.cycle_start, done.cycle_end) == (700, counter.cycle_start, counter.cycle_end)
    assert done.shown <= wall_at(time.time(), rule.spec().zone)
    assert not operations.is_ahead(done)
    with pytest.raises(CounterRefused, match="ahead"):
        lower_counter(done, to=0, cycle_back=True)


def test_a_changed_step_is_refused_until_it_is_confirmed() -> None:
    counter = make_counter(make_rule(), bound=101)
    with site(2):
        with pytest.raises(StepChanged):
            ids.next_id("order", app="shop")
        ids.stop()
        done = confirm_step(counter, floor=150)
        assert (done.step, done.node_offset, done.bound) == (2, 0, 150)
        assert number(ids.next_id("order", app="shop")) == 150
        ids.stop()
    with site(2, offset=1):
        assert number(ids.next_id("order", app="shop")) == 151


def test_no_node_of_the_new_step_begins_with_numbers_of_the_old() -> None:
    """A node without a counter would begin at its first number, which the one node of before had given out."""
    counter = make_counter(make_rule(), bound=100)
    with site(3):
        confirm_step(counter, floor=0)
    assert [(row.node_offset, row.bound) for row in IdCounter.objects.all()] == [(0, 102), (1, 100), (2, 101)]
    assert set(IdCounter.objects.values_list("step", flat=True)) == {3}


def test_fewer_nodes_continue_above_all_earlier_numbers() -> None:
    rule = make_rule()
    rows = [make_counter(rule, bound=bound, node_offset=node, step=3) for node, bound in enumerate((30, 400, 92))]
    neighbour = make_counter(rule, "other", bound=31, node_offset=1, step=3)
    with site(1):
        done = confirm_step(rows[2], floor=7)
        assert (done.node_offset, done.step, done.bound) == (0, 1, 400)
        assert [row.pk for row in IdCounter.objects.filter(app_name="shop")] == [rows[0].pk]
        assert number(ids.next_id("order", app="shop")) == 400
    assert IdCounter.objects.get(pk=neighbour.pk).step == 3


def test_confirming_twice_changes_nothing_more() -> None:
    counter = make_counter(make_rule(), bound=100)
    with site(2):
        first = confirm_step(counter, floor=200)
        before = list(IdCounter.objects.values())
        assert confirm_step(counter, floor=900).bound == first.bound
        assert list(IdCounter.objects.values()) == before


def test_a_confirmation_that_comes_too_late_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = make_rule()
    rows = [make_counter(rule, bound=bound, node_offset=node, step=2) for node, bound in enumerate((30, 41))]
    reserved_while(monkeypatch, rows[0], 2)
    with site(4), pytest.raises(Moved):
        confirm_step(rows[1], floor=0)
    assert IdCounter.objects.count() == 2
    assert set(IdCounter.objects.values_list("step", flat=True)) == {2}


def test_a_floor_above_the_maximum_is_refused() -> None:
    counter = make_counter(make_rule())
    with site(2), pytest.raises(CounterRefused, match="maximum"):
        confirm_step(counter, floor=2_000_000)


def test_a_counter_that_is_gone_is_refused() -> None:
    counter = make_counter(make_rule())
    IdCounter.objects.all().delete()
    for call in (
        lambda: raise_counter(counter, to=1),
        lambda: lower_counter(counter, to=1),
        lambda: confirm_step(counter, floor=1),
    ):
        with pytest.raises(CounterRefused):
            call()


def test_standing_returns_the_next_number_to_reserve() -> None:
    counter = make_counter(make_rule(), bound=1_000_000)
    assert standing(counter).bound == 1_000_000
    counter.cycle_start, counter.cycle_end, counter.shown = (
        value - DAY_SECONDS for value in (counter.cycle_start, counter.cycle_end, counter.shown)
    )
    assert standing(counter).bound == 0
