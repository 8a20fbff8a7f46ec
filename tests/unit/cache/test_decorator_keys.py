"""Keys from the arguments of a call."""

from __future__ import annotations

import enum
import inspect
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.cache.decorators.keys import MAX_KEY_LENGTH, CallKeys, binder, class_path, values_text

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.dates(),
    st.times(),
    st.datetimes(timezones=st.sampled_from([None, UTC, ZoneInfo("Europe/Berlin")])),
    st.timedeltas(),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


class Colour(enum.Enum):
    RED = 1


class Weight(enum.IntEnum):
    HEAVY = 1


class Local(tzinfo):
    pass


def one(value: Any) -> str:
    return values_text((value,), ("value",), "load")


def identity(value: Any) -> Any:
    """The value with the types of all its parts; floats by their digits."""
    if type(value) is tuple:
        return tuple(map(identity, value))
    if isinstance(value, datetime | time):
        return type(value), value.replace(tzinfo=None, fold=0), value.fold, repr(value.tzinfo)
    return type(value), repr(value) if isinstance(value, float | Decimal) else value


@given(VALUES, VALUES)
def test_only_identical_values_have_the_same_text(first: Any, second: Any) -> None:
    assert (one(first) == one(second)) == (identity(first) == identity(second))


@given(st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.floats())))
def test_plain_values_are_written_as_python_writes_them(values: list[Any]) -> None:
    assert values_text(tuple(values), ["value"] * len(values), "load") == repr(tuple(values))


def test_equal_values_of_different_types_have_different_texts() -> None:
    values = (1, "1", True, 1.0, b"1", Decimal(1), Weight.HEAVY, Colour.RED, (1,), frozenset({1}), None, "None", int)
    assert len({one(value) for value in values}) == len(values)
    assert one(0.0) != one(-0.0)


def test_arguments_are_delimited() -> None:
    names = ("a", "b")
    assert values_text(("a', 'b", "c"), names, "load") != values_text(("a", "b', 'c"), names, "load")
    assert one((1, (2, 3))) != one((1, 2, 3)) != one(((1, 2), 3))


def test_the_order_of_a_set_does_not_matter() -> None:
    assert one(frozenset({"a", "b", "c"})) == one(frozenset({"c", "b", "a"}))


def test_values_of_many_types() -> None:
    assert one(UUID(int=7)) == "(UUID('00000000-0000-0000-0000-000000000007'),)"
    assert one(date(2026, 11, 21)) == "(datetime.date(2026, 11, 21),)"
    assert one(timedelta(seconds=1)) == "(datetime.timedelta(seconds=1),)"
    assert one(Colour) == f"({__name__}.Colour,)"
    assert one(10**5000).startswith("(0x")
    assert one(time(1, tzinfo=timezone(timedelta(hours=2)))) != one(time(1))


def test_numbers_with_more_digits_than_python_writes_have_a_key() -> None:
    keys = CallKeys(plain, "load")
    assert len({keys.of((10**5000,), {}), keys.of((10**5000 + 1,), {}), keys.of((), {"number": -(10**5000)})}) == 3


def test_lone_surrogates_can_be_hashed() -> None:
    assert CallKeys(plain, "load").of((1, "\udc80" * MAX_KEY_LENGTH), {}).startswith("load#")


class Product:
    pass


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, Product(), (1, [2]), object(), identity, Product().__init__])
def test_unsupported_arguments_are_named_in_the_error(value: Any) -> None:
    with pytest.raises(TypeError, match="'items'"):
        values_text((1, value), ("number", "items"), "load")


def test_a_time_of_an_unknown_zone_is_an_error() -> None:
    with pytest.raises(TypeError, match="'when'"):
        values_text((datetime(2026, 11, 21, tzinfo=Local()),), ("when",), "load")


def test_a_class_made_inside_of_a_function_is_an_error() -> None:
    class Inner:
        pass

    with pytest.raises(TypeError, match="defined inside a function"):
        class_path(Inner)
    with pytest.raises(TypeError, match="'value'"):
        one(Inner)


# --- arguments ---


def plain(number: int, language: str = "en") -> None: ...
def keyword(number: int, *, full: bool = False) -> None: ...
def positional(number: int, /, language: str = "en") -> None: ...
def many(*numbers: int, sorted: bool = True, **others: int) -> None: ...
def awkward(_default0: int = 7, values: Any = (1, 2), sorted: Any = Product) -> None: ...
def nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (plain, (7,), {}),
        (plain, (7, "en"), {}),
        (plain, (), {"language": "en", "number": 7}),
        (keyword, (7,), {}),
        (keyword, (), {"full": False, "number": 7}),
        (positional, (7,), {"language": "de"}),
        (many, (1, 2), {"b": 1, "a": 2}),
        (many, (), {}),
        (awkward, (), {}),
        (awkward, (1,), {"sorted": 2}),
        (nothing, (), {}),
    ],
)
def test_arguments_are_sorted_by_the_signature(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    bind, names = binder(function)
    assert bind(*args, **kwargs) == tuple(bound.arguments.values())
    assert tuple(name.lstrip("*") for name in names) == tuple(bound.arguments)


@pytest.mark.parametrize(
    ("args", "kwargs", "name"),
    [
        ((), {}, "number"),
        ((1, 2, 3), {}, "positional"),
        ((1,), {"number": 1}, "number"),
        ((1,), {"colour": 1}, "colour"),
    ],
)
def test_wrong_arguments_are_an_error_that_names_the_function(
    args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> None:
    with pytest.raises(TypeError):
        plain(*args, **kwargs)
    with pytest.raises(TypeError, match=rf"plain\(\).*{name}"):
        CallKeys(plain, "load").of(args, kwargs)


def test_the_order_of_keywords_does_not_matter() -> None:
    keys = CallKeys(many, "many")
    assert keys.of((1,), {"a": 1, "b": 2}) == keys.of((1,), {"b": 2, "a": 1}) == "many((1,), True, {'a': 1, 'b': 2})"
    assert keys.of((1,), {"a": 1}) != keys.of((1,), {"a": True})
    with pytest.raises(TypeError, match=r"'\*\*others'"):
        keys.of((), {"a": [1]})


def test_a_dict_is_not_an_argument_even_in_the_last_place() -> None:
    with pytest.raises(TypeError, match="'language'"):
        CallKeys(plain, "plain").of((1, {}), {})


# --- long keys ---


def test_the_hash_of_a_long_key_covers_all_of_it() -> None:
    keys = CallKeys(plain, "load")
    exact = "x" * (MAX_KEY_LENGTH - len("load(1, '')"))
    assert keys.of((1, exact), {}) == f"load(1, '{exact}')"
    first, second = keys.of((1, exact + "1"), {}), keys.of((1, exact + "2"), {})
    assert first != second
    assert first.startswith("load#")
    assert len(first) < MAX_KEY_LENGTH
    assert keys.of((1, exact + "1"), {}) == first
