"""Edits of rules reach every running process automatically, and a broken rule affects no other rule."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import override_settings

from resty_django.ids import next_id, stop
from resty_django.ids.errors import BadRule, Exhausted, UnknownRule
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service import service

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]

MakeRule = Callable[..., IdRule]
Eventually = Callable[..., bool]
WITHIN = 2.0
"""Seconds in which an edit has to be in force everywhere."""


def answer(rule: str = "order") -> str:
    """An ID, or the code of the error."""
    try:
        return next_id(rule)
    except (BadRule, UnknownRule, Exhausted) as error:
        return error.code


def edited_elsewhere(rule: IdRule, **changes: Any) -> None:
    """Edit a rule like another process, without a signal in this one."""
    IdRule.objects.filter(pk=rule.pk).update(version=F("version") + 1, **changes)


def test_an_edit_reaches_a_process_that_did_not_make_it(
    order: IdRule, worker: Callable[..., Any], eventually: Eventually
) -> None:
    process = worker("talk")

    def ask() -> str:
        count = len(process.lines)
        process.say('["order", "", "", 1]')
        return str(json.loads(process.wait_for(count + 1)[count]))

    assert ask() == "000000000"
    order.source = "Y{counter:09d}"
    order.save()
    assert eventually(lambda: ask().startswith("Y"), WITHIN)


def test_an_edit_of_this_process_takes_effect_at_once(order: IdRule, eventually: Eventually) -> None:
    with override_settings(RESTY_DJANGO={"IDS": {"REFRESH": 60.0}}):
        stop()
        next_id("order")
        order.source = "Z{counter:09d}"
        order.save()
        assert eventually(lambda: answer().startswith("Z"), 1.0)


def test_an_edit_loses_no_number(make_rule: MakeRule, eventually: Eventually) -> None:
    rule = make_rule(segment_size=100)
    ids = [next_id("order") for _ in range(30)]
    for size in (50, 7, 300):
        rule.segment_size = size
        rule.save()
        assert eventually(lambda size=size: service().rule("order").ready().spec.segment_size == size, WITHIN)
        ids += [next_id("order") for _ in range(30)]
    assert ids == [f"{number:09d}" for number in range(120)]


def test_a_smaller_maximum_holds_for_what_was_reserved_before(order: IdRule, eventually: Eventually) -> None:
    next_id("order")
    order.max_counter = 5
    order.save()
    assert eventually(lambda: service().rule("order").ready().spec.max_counter == 5, WITHIN)
    ids = []
    while (reply := answer()) != "exhausted":
        ids.append(int(reply))
    assert ids == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "broken",
    [
        {"source": "{counter.__class__}"},
        {"max_counter": 10**15},
        {"timezone": "Mars/Base"},
        {"kind": "perl"},
        {"kind": "lua", "source": "this is not lua"},
        {"kind": "python", "source": f"{__name__}.Failing"},
        {"kind": "python", "source": f"{__name__}.Unmakable"},
        {"scramble_key": "not hex"},
        {"reset_calendar": "aeon"},
        {"kind": "python", "source": f"{__name__}.Plain", "salt_length": 99},
    ],
    ids=str,
)
def test_a_rule_broken_in_the_database_is_reported_and_the_others_work(
    make_rule: MakeRule, eventually: Eventually, broken: dict[str, Any]
) -> None:
    allowed = [f"{__name__}.{name}" for name in ("Failing", "Unmakable", "Plain")]
    with override_settings(RESTY_DJANGO={"IDS": {"PYTHON_RULES": allowed, "REFRESH": 0.1}}):
        rule = make_rule()
        make_rule("other", "O{counter:09d}", segment_size=100)
        next_id("order")
        next_id("other")
        edited_elsewhere(rule, **broken)
        assert eventually(lambda: answer() == "bad_rule", WITHIN)
        for _ in range(3):
            assert answer() == "bad_rule"
        assert answer("other") == "O000000001"
        # Edits of the others are still read, and so are they by a process that starts now.
        IdRule.objects.filter(name="other").update(source="P{counter:09d}", version=9)
        assert eventually(lambda: answer("other").startswith("P"), WITHIN)
        stop()
        assert answer("other").startswith("P")
        assert answer() == "bad_rule"
        rule.save()
        assert eventually(lambda: answer().startswith("0000"), WITHIN)


class Failing:
    def create_id(self, take: Callable[[], int], now: Any, salt: str) -> str:
        return str(1 // 0)


class Unmakable:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class Plain:
    def create_id(self, take: Callable[[], int], now: Any, salt: str) -> str:
        return f"{take():09d}"


def test_the_error_of_a_broken_rule_does_not_grow_with_each_request(order: IdRule) -> None:
    edited_elsewhere(order, source="{}")
    depths = []
    for _ in range(20):
        with pytest.raises(BadRule) as caught:
            next_id("order")
        depth, tb = 0, caught.value.__traceback__
        while tb is not None:
            depth, tb = depth + 1, tb.tb_next
        depths.append(depth)
    assert depths[-1] <= depths[1]


def test_a_deleted_rule_is_unknown(order: IdRule, make_rule: MakeRule, eventually: Eventually) -> None:
    make_rule("other")
    next_id("order")
    IdCounter.objects.all().delete()
    with connection.cursor() as cursor:  # as another process does: no signal here
        cursor.execute("DELETE FROM resty_ids_idrule WHERE name = 'order'")
    assert eventually(lambda: answer() == "unknown_rule", WITHIN)
    assert answer("other") == "000000000"


def test_a_disabled_rule_is_unknown_until_it_is_enabled(order: IdRule, eventually: Eventually) -> None:
    assert answer() == "000000000"
    edited_elsewhere(order, enabled=False)
    assert eventually(lambda: answer() == "unknown_rule", WITHIN)
    bound = IdCounter.objects.get().bound
    IdRule.objects.update(enabled=True)
    assert eventually(lambda: answer() == f"{bound:09d}", WITHIN)


def test_a_renamed_rule_continues_under_its_new_name(order: IdRule, eventually: Eventually) -> None:
    answer()
    edited_elsewhere(order, name="bestellung")
    assert eventually(lambda: answer() == "unknown_rule", WITHIN)
    bound = IdCounter.objects.get().bound
    assert answer("bestellung") == f"{bound:09d}"


def test_rules_that_exchange_their_names_keep_their_numbers(make_rule: MakeRule, eventually: Eventually) -> None:
    """Unused numbers of one rule must not be returned to the counter of the other."""
    a = make_rule("a", "A{counter:09d}", segment_size=100)
    b = make_rule("b", "B{counter:09d}", segment_size=100)
    with override_settings(RESTY_DJANGO={"IDS": {"REFRESH": 0.05}}):
        stop()
        ids = [next_id("a") for _ in range(5)] + [next_id("b") for _ in range(40)]
        edited_elsewhere(a, name="x")
        IdRule.objects.filter(pk=b.pk).update(name="a", version=7)
        IdRule.objects.filter(pk=a.pk).update(name="b", version=7)
        assert eventually(lambda: "a" in service().load().rules and service().rule("a").row.pk == b.pk, WITHIN)
        time.sleep(0.1)
        ids += [next_id("a") for _ in range(200)] + [next_id("b") for _ in range(200)]
    assert len(set(ids)) == len(ids)
    assert sorted(issued_id for issued_id in ids if issued_id[0] == "A") == [f"A{number:09d}" for number in range(205)]
    assert sorted(issued_id for issued_id in ids if issued_id[0] == "B") == [f"B{number:09d}" for number in range(240)]


def test_a_new_rule_is_found_without_waiting(order: IdRule, make_rule: MakeRule) -> None:
    next_id("order")
    time.sleep(0.3)
    make_rule("later")
    assert next_id("later") == "000000000"
