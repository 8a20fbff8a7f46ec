"""Records, keys, options, counts and the parts of a bulk."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import uuid
from typing import Any

import pytest
from django.utils.safestring import SafeString
from hypothesis import given
from hypothesis import strategies as st

from resty_django.cache import BadKey, BadOption, BadValue, Bulk, CacheStats
from resty_django.cache.mlcache.bulk import chunks
from resty_django.cache.mlcache.loading import lifetime
from resty_django.cache.mlcache.options import CacheOptions, CallOptions, ViewOptions
from resty_django.cache.storage.records import ENTRY, Record, decode, encode, key_text, packed_head, plain
from resty_django.text.durations import is_number

# --- records ---

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
keys = st.text() | st.integers(-(2**63), 2**63 - 1) | st.binary()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20)


def same(first: Any, second: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(first) is not type(second):
        return False
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return (
            list(map(type, first)) == list(map(type, second))
            and list(first) == list(second)
            and all(same(first[key], second[key]) for key in first)
        )
    return bool(first == second)


@given(values, st.floats(0, 1e10), st.floats(0, 1e10), st.booleans())
def test_a_record_comes_back(value: Any, stored: float, ttl: float, stale: bool) -> None:
    record = decode(encode(value, stored, ttl, stale))
    assert record is not None
    assert same(record.value, value)
    assert (record.stored, record.ttl, record.stale) == (stored, ttl, stale)


@given(st.binary() | st.text() | st.integers() | st.none())
def test_bytes_of_another_program_are_not_a_record(raw: object) -> None:
    assert decode(raw) is None or (isinstance(raw, bytes) and raw[0] == 0xC1)


def test_an_entry_of_the_backend_is_not_a_record() -> None:
    assert decode(packed_head(0, 1.0, 60.0, None) + b"\x01") == Record(1, 1.0, 60.0, False)
    assert decode(packed_head(ENTRY, 1.0, 60.0, None) + b"\x01") is None


@given(values, st.data())
def test_a_record_that_was_cut_off_is_none_or_another_value(value: Any, data: st.DataObject) -> None:
    raw = encode(value, 1.0, 2.0, False)
    cut = decode(raw[: data.draw(st.integers(0, len(raw) - 1))])
    assert cut is None or isinstance(cut, Record)


@given(values)
def test_plain_values_are_unchanged(value: Any) -> None:
    assert same(plain(value), value)


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 9


class Row(tuple[Any, ...]):
    __slots__ = ()


class Map(dict[str, Any]):
    pass


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (SafeString("<b>"), "<b>"),
        (Colour.RED, "red"),
        (Size.BIG, 9),
        ((1, (2, 3)), [1, [2, 3]]),
        (Row((1,)), [1]),
        (Map(a=(1,)), {"a": [1]}),
        ({Colour.RED: 1}, {"red": 1}),
        ([bytearray(b"x")], [b"x"]),
        ({"deep": [{"er": (None, Colour.RED)}]}, {"deep": [{"er": [None, "red"]}]}),
    ],
)
def test_values_are_normalized_like_values_from_l2(value: Any, expected: Any) -> None:
    plain_value = plain(value)
    assert same(plain_value, expected)
    record = decode(encode(plain_value, 0, 0, False))
    assert record is not None
    assert same(record.value, plain_value)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
        decimal.Decimal(1),
        uuid.UUID(int=1),
        1j,
        [object()],
        {"a": {"b": {1}}},
        {(1, 2): 3},
    ],
)
def test_other_types_are_refused(value: Any) -> None:
    with pytest.raises(BadValue, match=r"cannot be cached\. Use None"):
        plain(value)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800", {"a": 2**70}])
def test_values_beyond_msgpack_are_refused(value: Any) -> None:
    with pytest.raises(BadValue, match="cannot be written as msgpack"):
        encode(plain(value), 0, 0, False)


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadValue, match="contains itself"):
        plain(endless)


@pytest.mark.parametrize(
    ("key", "text"),
    [("a", "a"), (7, "7"), (b"a", "a"), (b"\xff", "\udcff"), (Colour.RED, "red"), (SafeString("s"), "s"), (1.5, "1.5")],
)
def test_keys_become_texts(key: object, text: str) -> None:
    assert key_text(key) == text
    assert type(key_text(key)) is str


@pytest.mark.parametrize("key", [None, "", b""])
def test_a_key_must_be_something(key: object) -> None:
    with pytest.raises(BadKey, match="Use a str"):
        key_text(key)


# --- options ---


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ttl", -1),
        ("ttl", "5"),
        ("ttl", None),
        ("ttl", True),
        ("ttl", math.inf),
        ("neg_ttl", -0.001),
        ("resurrect_ttl", -1),
        ("stale_while_revalidate", None),
        ("jitter", 1),
        ("shm_set_tries", 0),
        ("shm_set_tries", 1.0),
        ("l1_serializer", "upper"),
        ("lock_options", {"timeout": -1}),
        ("lock_options", {"timout": 1}),
        ("lock_options", 3),
        ("failures", ValueError),
        ("failures", (KeyboardInterrupt,)),
    ],
)
def test_a_wrong_option_is_named(name: str, value: Any) -> None:
    with pytest.raises(BadOption, match=f"^{name} must be "):
        CacheOptions().changed({name: value})


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(BadOption, match=r"negttl.*neg_ttl"):
        CacheOptions().changed({"negttl": 1})


def test_the_keyword_arguments_that_type_checkers_know_are_the_options() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(CacheOptions)}
    assert CallOptions.__annotations__.keys() == fields.keys()
    taken = {name: annotation.__forward_arg__ for name, annotation in CallOptions.__annotations__.items()}
    assert {name: text.replace("Duration", "float") for name, text in taken.items()} == fields  # stored as seconds
    assert ViewOptions.__annotations__.keys() == fields.keys() - {"ttl", "error_ttl", "l1_serializer"}


def test_right_options_are_taken() -> None:
    changes = {"ttl": 0, "neg_ttl": 0.5, "resurrect_ttl": None, "lock_options": {"timeout": 1}, "failures": (OSError,)}
    options = CacheOptions(resurrect_ttl=3).changed(changes)
    assert (options.ttl, options.neg_ttl, options.resurrect_ttl) == (0, 0.5, None)
    assert CacheOptions().changed({}) == CacheOptions()


def test_jitter_shortens_by_a_share_at_most() -> None:
    options = CacheOptions(ttl=100, neg_ttl=10, jitter=0.2)
    lives = [lifetime("v", options) for _ in range(500)]
    assert all(80 < life <= 100 for life in lives)
    assert max(lives) - min(lives) > 10
    assert all(8 < lifetime(None, options) <= 10 for _ in range(50))
    assert lifetime("v", CacheOptions(ttl=0, jitter=0.2)) == 0
    assert lifetime("v", CacheOptions(ttl=7)) == 7


@pytest.mark.parametrize("value", [True, None, "1", math.nan, math.inf, 1j])
def test_values_that_are_not_numbers(value: object) -> None:
    assert not is_number(value)


# --- counts ---


def test_the_hit_ratio_is_the_share_of_the_calls_that_the_levels_answered() -> None:
    stats = CacheStats(l1=1, l2=1, l3=1, stale=1, misses=1, errors=1)
    assert stats.calls == 6
    assert stats.hit_ratio == 0.5
    assert CacheStats().hit_ratio == 0


# --- bulk ---


@given(st.integers(0, 50), st.integers(1, 10))
def test_chunks(count: int, concurrency: int) -> None:
    missing = list(range(count))
    parts = chunks(missing, concurrency)
    assert [position for positions in parts for position in positions] == missing
    assert len(parts) <= concurrency
    assert {len(positions) for positions in parts[:-1]} <= {math.ceil(count / concurrency)}


def test_a_wrong_operation_is_named() -> None:
    bulk = Bulk().add("a", len)
    for wrong, message in (
        (lambda: bulk.add(None, len), "operation 2: The key is None"),
        (lambda: bulk.add("b", 7), "operation 2: callback must be"),  # type: ignore[arg-type]
        (lambda: bulk.add("b", len, ttl=-1), "operation 2: ttl must be"),
    ):
        with pytest.raises((BadKey, BadOption), match=f"^{message}"):
            wrong()
    assert len(bulk) == 1
