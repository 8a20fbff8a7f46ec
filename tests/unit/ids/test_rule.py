"""Rules as such: bounds, names, and the checks around scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resty_django.ids.engine.rule import MAX_NUMBER, MAX_TAKES, RuleSpec, ScriptRule, check_name, compile_rule
from resty_django.ids.engine.wall_clock import Moment
from resty_django.ids.errors import BadName, BadRule, BadSalt, Exhausted, RuleFailed

PATH = f"{__name__}."


class Plain:
    def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
        return f"P{now.year:04d}{take():06d}{salt}"


class Growing:
    def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
        return f"G{take()}"


class Raising:
    def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
        return f"{1 // 0}"


class NotARule:
    pass


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class Returning:
    """Returns whatever the test puts here."""

    value: Any = "ok"

    def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
        take()
        returned = Returning.value
        return returned() if callable(returned) else returned  # type: ignore[no-any-return]


def spec(name: str = "Plain", **options: Any) -> RuleSpec:
    options = {"max_counter": 999_999, "kind": "python", "python_rules": [PATH + name], **options}
    return RuleSpec(name="it", source=PATH + name, **options)


@pytest.mark.parametrize(
    "bounds",
    [
        {"min_counter": 5, "max_counter": 5},
        {"min_counter": 6, "max_counter": 5},
        {"min_counter": -1, "max_counter": 5},
        {"max_counter": MAX_NUMBER + 1},
    ],
)
def test_a_range_needs_two_numbers_within_62_bits(bounds: dict[str, int]) -> None:
    with pytest.raises(BadRule, match=r"min_counter < max_counter <= 2\*\*62"):
        compile_rule(RuleSpec(name="it", source="{counter}", **bounds))


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "", "Europe", "a\0b", "é" * 300])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(BadRule, match="time zone"):
        compile_rule(RuleSpec(name="it", source="{counter}", max_counter=9, timezone=zone))


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(BadRule, match="kind"):
        compile_rule(RuleSpec(name="it", source="{counter}", max_counter=9, kind="perl"))


# Names


@pytest.mark.parametrize(
    "name", ["", "a", "A-Z_9.", "back\\slash", "Ünïcödé", "日本", "a" * 64, "ü" * 64, "a/b", "a:b", "{x}"]
)
def test_a_name_may_have_these_characters(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "char", [*map(chr, range(36)), *"%&'<>", "\x7f", "\x85", "\u2028", "\u200b", "\ud800", "\u3000"]
)
def test_a_name_must_not_have_these(char: str) -> None:
    with pytest.raises(BadName, match="forbidden"):
        check_name(f"a{char}b")


def test_a_name_has_at_most_64_characters() -> None:
    with pytest.raises(BadName, match="64"):
        check_name("a" * 65)


# Scripts


def made(rule: Any, *, numbers: Callable[[], int] = lambda: 7, salt: str = "") -> str:
    return str(rule.create(numbers, 0, salt))


def test_a_listed_python_rule_makes_ids() -> None:
    rule = compile_rule(spec())
    assert isinstance(rule, ScriptRule)
    assert made(rule, salt="ab") == "P1970000007ab"
    assert rule.shape(86_400 * 365, "").render(8, "") == "P1971000008"


@pytest.mark.parametrize("listed", [[], ["os.path.join"], ["tests.unit.ids.test_rule"]])
def test_a_python_rule_that_is_not_listed_is_refused(listed: list[str]) -> None:
    with pytest.raises(BadRule, match="PYTHON_RULES"):
        compile_rule(spec(python_rules=listed))


@pytest.mark.parametrize("name", ["Missing", "NotARule", "Broken"])
def test_a_python_rule_that_cannot_be_used_is_a_bad_rule(name: str) -> None:
    with pytest.raises(BadRule, match=name):
        compile_rule(spec(name))


@pytest.mark.parametrize("path", ["nowhere.Rule", "Rule", "", "tests.unit.ids.test_rule.", "..x"])
def test_a_path_that_cannot_be_imported_is_a_bad_rule(path: str) -> None:
    with pytest.raises(BadRule, match="cannot be imported"):
        compile_rule(RuleSpec(name="it", source=path, kind="python", max_counter=9, python_rules=[path]))


def test_a_script_that_fails_on_its_bounds_is_a_bad_rule() -> None:
    with pytest.raises(BadRule, match="ZeroDivisionError"):
        compile_rule(spec("Raising"))


def test_ids_that_grow_are_refused_unless_allowed() -> None:
    with pytest.raises(BadRule, match="min_counter"):
        compile_rule(spec("Growing"))
    assert made(compile_rule(spec("Growing", fixed_length=False))) == "G7"


@pytest.mark.parametrize("value", [None, "", 5, b"x", "a\nb", "x" * 256, "\x00", ["x"]])
def test_only_printable_text_is_an_id(value: object) -> None:
    rule = compile_rule(spec("Returning", fixed_length=False))
    Returning.value = value
    try:
        with pytest.raises(RuleFailed, match="printable"):
            made(rule)
    finally:
        Returning.value = "ok"


def test_a_script_that_raises_is_a_failed_rule() -> None:
    rule = compile_rule(spec("Raising", fixed_length=False))
    with pytest.raises(RuleFailed, match="ZeroDivisionError"):
        made(rule)


def test_errors_of_taking_a_number_propagate() -> None:
    rule = compile_rule(spec(fixed_length=False))

    def none() -> int:
        raise Exhausted("nothing left")

    with pytest.raises(Exhausted, match="nothing left"):
        made(rule, numbers=none)


def test_a_script_that_swallows_the_lack_of_numbers_makes_no_id() -> None:
    class Swallowing:
        def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
            try:
                return str(take())
            except Exception:
                return "invented"

    def none() -> int:
        raise Exhausted("nothing left")

    with pytest.raises(Exhausted):
        made(ScriptRule(spec(fixed_length=False), Swallowing()), numbers=none)


def test_a_script_takes_a_bounded_number_of_numbers() -> None:
    class Greedy:
        def create_id(self, take: Callable[[], int], now: Moment, salt: str) -> str:
            while True:
                take()

    with pytest.raises(RuleFailed, match=f"more than {MAX_TAKES}"):
        made(ScriptRule(spec(fixed_length=False), Greedy()))


def test_a_script_gets_a_checked_salt() -> None:
    rule = compile_rule(spec(salt_length=4))
    rule.check_salt("ab12")
    for salt in ("", "ab1", "ab-1", "ab123"):
        with pytest.raises(BadSalt):
            rule.check_salt(salt)
    free = compile_rule(spec())
    free.check_salt("")
    free.check_salt("x" * 32)
    with pytest.raises(BadSalt):
        free.check_salt("x" * 33)


def test_a_salt_length_that_no_salt_can_have_is_a_bad_rule() -> None:
    with pytest.raises(BadRule, match="salt_length"):
        compile_rule(spec(salt_length=33))
