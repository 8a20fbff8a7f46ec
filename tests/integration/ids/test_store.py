"""Rules and counters in the database: constraints, messages, and reservations by compare-and-set."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections, transaction
from django.test.utils import override_settings

from resty_django.ids.engine.cycle import DAY_SECONDS, NO_END, Cycle
from resty_django.ids.engine.rule import MAX_NUMBER
from resty_django.ids.engine.segment import Grant
from resty_django.ids.errors import StepChanged, UnknownRule
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.store import CounterStore, NameGate, position

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

MakeRule = Callable[..., IdRule]
NOW = 1_800_000_000.0


def reserve(rule: IdRule, app: str = "", want: int = 10, *, shown: int | None = None, at: float = NOW) -> Grant:
    return CounterStore(lambda: at).reserve(rule.pk, rule.spec(), app, shown=shown, want=want)


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    def run(n: int) -> Any:
        try:
            return work(n)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


# Reservations


def test_a_reservation_is_a_row_that_others_see(order: IdRule) -> None:
    grant = reserve(order)
    assert grant.numbers == range(10)
    row = IdCounter.objects.get()
    assert (row.app_name, row.node_offset, row.step, row.bound) == ("", 0, 1, 10)
    assert (row.cycle_start, row.cycle_end, row.cycle_first) == (-NO_END, NO_END, 0)
    assert row.endless
    assert reserve(order, want=5).numbers == range(10, 15)
    assert position(order.pk, "") == (14, 0)
    assert position(order.pk, "x") is None


def test_a_new_cycle_notes_when_it_began_and_with_which_number(make_rule: MakeRule) -> None:
    rule = make_rule(source="{now:%y%m%d}{counter:06d}", max_counter=999_999, reset_seconds=DAY_SECONDS, min_counter=5)
    reserve(rule)
    first = IdCounter.objects.get()
    reserve(rule, at=NOW + 5)
    assert IdCounter.objects.get().cycle_began == first.cycle_began
    reserve(rule, at=NOW + DAY_SECONDS)
    row = IdCounter.objects.get()
    assert row.cycle_began > first.cycle_began
    assert (row.cycle_first, row.bound) == (5, 15)
    assert row.cycle_start == first.cycle_end


def test_threads_reserve_without_overlap(order: IdRule) -> None:
    def work(n: int) -> list[int]:
        store, spec = CounterStore(lambda: NOW), order.spec()
        return [number for _ in range(10) for number in store.reserve(order.pk, spec, "", shown=None, want=7).numbers]

    reserved = [number for mine in in_threads(6, work) for number in mine]
    assert sorted(reserved) == list(range(6 * 70))


def test_threads_that_make_one_counter_make_it_once(make_rule: MakeRule) -> None:
    rule = make_rule()
    gate = threading.Barrier(6)

    def work(n: int) -> range:
        gate.wait()
        return reserve(rule, "new").numbers

    reserved = [number for numbers in in_threads(6, work) for number in numbers]
    assert sorted(reserved) == list(range(60))
    assert IdCounter.objects.count() == 1


def test_a_node_of_a_known_name_does_not_count_as_a_new_name(make_rule: MakeRule) -> None:
    rule = make_rule(max_names=1)
    for offset in range(3):
        with override_settings(RESTY_DJANGO={"IDS": {"STEP": 3, "OFFSET": offset}}):
            assert reserve(rule).numbers == range(offset, 30, 3)


def test_a_counter_of_a_deleted_rule_is_not_made(order: IdRule) -> None:
    spec = order.spec()
    gone = order.pk
    order.delete()
    with pytest.raises(UnknownRule, match="deleted"):
        CounterStore(lambda: NOW).reserve(gone, spec, "", shown=None, want=1)


def test_a_reservation_refuses_to_be_part_of_a_transaction(order: IdRule) -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="transaction"):
        reserve(order)


def test_shown_time_of_the_process_counts_with_the_clock(make_rule: MakeRule) -> None:
    rule = make_rule(timezone="UTC")
    assert reserve(rule).shown == int(NOW)
    assert reserve(rule, shown=int(NOW) + 500).shown == int(NOW) + 500
    assert reserve(rule, at=NOW - 1000).shown == int(NOW) + 500


def test_a_tail_goes_back_unless_somebody_reserved_after_it(order: IdRule) -> None:
    store = CounterStore(lambda: NOW)
    first, second = reserve(order), reserve(order)
    assert not store.give_back(order.pk, "", first.cycle, first.numbers[5:], first.shown)
    assert store.give_back(order.pk, "", second.cycle, second.numbers[2:], second.shown)
    assert IdCounter.objects.get().bound == 12
    assert not store.give_back(order.pk, "unknown", first.cycle, range(3), 0)
    assert not store.give_back(order.pk, "", Cycle(0, 1), range(10, 12), 0)


def test_names_are_stored_and_compared_exactly(make_rule: MakeRule) -> None:
    rule = make_rule()
    names = ["a", "A", "á", "a\u0301", "ß", "ss", "\\", "\\\\", "日本", "😀", "a" * 64]
    with override_settings(RESTY_DJANGO={"IDS": {"NEW_NAMES_PER_SECOND": 0}}):
        for name in names:
            assert reserve(rule, name).numbers.start == 0
    assert sorted(IdCounter.objects.values_list("app_name", flat=True)) == sorted(names)
    for name in ("A", "ﬁ", "rule"):
        make_rule(name)
    make_rule("a")
    assert IdRule.objects.get(name="a").pk != IdRule.objects.get(name="A").pk


# Step and offset


def test_another_step_is_refused_for_a_known_counter_and_for_its_new_nodes(order: IdRule) -> None:
    reserve(order)
    for offset in (0, 1):
        with (
            override_settings(RESTY_DJANGO={"IDS": {"STEP": 2, "OFFSET": offset}}),
            pytest.raises(StepChanged, match="step 2"),
        ):
            reserve(order)
    assert IdCounter.objects.count() == 1


def test_a_confirmed_step_lets_all_nodes_continue_without_overlap(order: IdRule) -> None:
    from resty_django.ids.operations import confirm_step

    reserved = list(reserve(order, want=101).numbers)
    with override_settings(RESTY_DJANGO={"IDS": {"STEP": 3, "OFFSET": 1}}):
        confirm_step(IdCounter.objects.get(), floor=0)
    for offset in (2, 0, 1):
        with override_settings(RESTY_DJANGO={"IDS": {"STEP": 3, "OFFSET": offset}}):
            reserved += reserve(order, want=40).numbers
    assert sorted(reserved) == list(range(221))


# The gate for new names


def test_the_name_gate_admits_the_names_of_one_second() -> None:
    from resty_django.ids.errors import TooFast

    gate = NameGate(3)

    def admitted(now: float) -> bool:
        try:
            gate.admit(now)
        except TooFast:
            return False
        return True

    assert [admitted(10.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert [admitted(10.4) for _ in range(2)] == [True, False]
    assert [admitted(99.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert all(NameGate(0).admit(1.0) is None for _ in range(100))


# Constraints and versions


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_counter": -1},
        {"min_counter": 9, "max_counter": 9},
        {"min_counter": 10, "max_counter": 9},
        {"max_counter": MAX_NUMBER + 1},
        {"reset_seconds": -1},
        {"reset_seconds": 60, "reset_calendar": "month"},
        {"segment_size": 0},
        {"name": "order"},
    ],
)
def test_the_database_refuses_a_rule_that_cannot_be(order: IdRule, wrong: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        IdRule.objects.create(**{"name": "other", "source": "{counter}", **wrong})
    IdRule.objects.create(name="third", source="{counter}")
    with pytest.raises(IntegrityError), transaction.atomic():
        IdRule.objects.filter(name="third").update(**wrong)


@pytest.mark.parametrize("wrong", [{"cycle_end": 0}, {"node_offset": 1}, {"node_offset": 5, "step": 3}])
def test_the_database_refuses_a_counter_that_cannot_be(order: IdRule, wrong: dict[str, Any]) -> None:
    reserve(order)
    with pytest.raises(IntegrityError), transaction.atomic():
        IdCounter.objects.update(**{"cycle_start": 0, **wrong})


def test_a_counter_exists_once(order: IdRule) -> None:
    reserve(order)
    row = IdCounter.objects.get()
    row.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)


def test_the_largest_values_fit_the_columns(make_rule: MakeRule) -> None:
    rule = make_rule(source="{counter}", min_counter=MAX_NUMBER - 20, max_counter=MAX_NUMBER)
    with override_settings(RESTY_DJANGO={"IDS": {"STEP": 2**31 - 1, "OFFSET": 3}}):
        assert reserve(rule).numbers == range(MAX_NUMBER - 17, MAX_NUMBER, 2**31 - 1)
        assert IdCounter.objects.get().bound > MAX_NUMBER


def test_each_save_has_its_own_version(order: IdRule) -> None:
    first = order.version
    order.save()
    copy = IdRule.objects.get()
    assert order.version == copy.version == first + 1
    copy.save(update_fields=["description"])
    order.description = "x"
    order.save()
    assert IdRule.objects.get().version == first + 3
    assert order.updated_at > order.created_at


def test_each_rule_has_its_own_scramble_key(make_rule: MakeRule) -> None:
    first, second = make_rule("one"), make_rule("two")
    assert first.scramble_key != second.scramble_key
    assert len(bytes.fromhex(first.scramble_key)) == 16


# Messages of the form


@pytest.mark.parametrize(
    ("fields", "at", "message"),
    [
        ({"source": "{counter:06d"}, "source", "At character 1 ('{counter:06d'): A { has no matching }"),
        ({"source": "O{now:%y%n}{counter}"}, "source", "At character 9 ('%n}{counter}'): %n is not a directive"),
        ({"source": "O"}, "source", "At character 2 (''): A template needs the field {counter}"),
        ({"source": "{counter:03d}"}, "source", "max_counter 999999 needs 6 characters"),
        ({"source": "{counter:06d}", "reset_seconds": 86_400}, "source", "IDs would repeat"),
        ({"timezone": "Mars/Base"}, "timezone", "'Mars/Base' is not a time zone"),
        ({"name": "a b"}, "name", "forbidden character ' '"),
        ({"name": "a" * 65}, "name", "at most 64"),
        ({"reset_seconds": 60, "reset_calendar": "month"}, "reset_calendar", "Choose one of the two"),
        ({"reset_calendar": "decade"}, "reset_calendar", "not a valid choice"),
        ({"kind": "python", "source": "os.system"}, "source", "PYTHON_RULES"),
        ({"kind": "perl"}, "kind", "not a valid choice"),
        ({"min_counter": 5, "max_counter": 5}, "max_counter", "at least 6"),
        ({"min_counter": -1}, "min_counter", "at least 0"),
        ({"max_counter": 0}, "max_counter", "at least 1"),
        ({"max_counter": 2**62 + 1}, "max_counter", "at most 4611686018427387904"),
        ({"reset_seconds": -1}, "reset_seconds", "at least 0"),
        ({"segment_size": 0}, "segment_size", "at least 1"),
        ({"max_names": 0}, "max_names", "at least 1"),
        ({"max_counter": None}, "max_counter", "cannot be null"),
        ({"reset_seconds": None}, "reset_seconds", "cannot be null"),
        ({"max_counter": "many"}, "max_counter", "must be an integer"),
    ],
)
def test_a_wrong_rule_is_refused_at_its_field(fields: dict[str, Any], at: str, message: str) -> None:
    rule = IdRule(**{"name": "r", "source": "{counter}", **fields})
    with pytest.raises(ValidationError) as caught:
        rule.full_clean()
    assert any(message in text for text in caught.value.message_dict[at]), caught.value.message_dict
    assert "Constraint" not in str(caught.value)


def test_a_python_rule_that_fails_is_a_validation_error() -> None:
    path = f"{__name__}.Failing"
    with override_settings(RESTY_DJANGO={"IDS": {"PYTHON_RULES": [path]}}), pytest.raises(ValidationError) as caught:
        IdRule(name="r", kind="python", source=path).full_clean()
    assert "ZeroDivisionError" in str(caught.value.message_dict["source"])


class Failing:
    def create_id(self, take: Callable[[], int], now: Any, salt: str) -> str:
        return str(1 // 0)


def test_risks_of_an_edit_are_reported_for_a_rule_in_use(make_rule: MakeRule) -> None:
    rule = make_rule(source="{counter:09d:scramble}")

    def risks(**changes: Any) -> str:
        new = IdRule.objects.get(pk=rule.pk)
        for name, value in changes.items():
            setattr(new, name, value)
        return " ".join(new.risks(rule))

    everything = {"source": "{counter:scramble}", "max_counter": 5, "reset_seconds": 60, "timezone": "Asia/Tokyo"}
    assert risks(**everything) == ""
    reserve(rule)
    assert risks() == ""
    assert risks(segment_size=5, description="x", max_names=3) == ""
    reported = risks(**everything)
    for word in ("text of IDs", "scrambled", "reset changes", "time zone"):
        assert word in reported
    assert "scrambled" in risks(min_counter=3)


def test_rows_have_the_time_of_their_last_change(order: IdRule) -> None:
    reserve(order)
    before = IdCounter.objects.get().updated_at
    time.sleep(0.01)
    reserve(order)
    after = IdCounter.objects.get()
    assert timedelta(0) < after.updated_at - before < timedelta(minutes=1)
    assert after.created_at < after.updated_at
