"""Values and keys as bytes, and back."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.shdict import BadKey, BadValue, codec
from resty_django.shdict.lmdb import records

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
INTS = st.integers(-(2**63), 2**63 - 1)
PLAIN = TEXTS | INTS | st.floats(allow_nan=False) | st.booleans() | st.binary()
NESTED = st.recursive(PLAIN | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8)
STRUCTURES = st.lists(NESTED) | st.dictionaries(TEXTS | INTS, NESTED)


@given(PLAIN | STRUCTURES)
def test_values_survive_a_round_trip(value: Any) -> None:
    kind, data = codec.encode(value)
    decoded = codec.decode(kind, data)
    assert type(decoded) is type(value)
    assert decoded == value


@given(PLAIN, PLAIN)
def test_equal_values_have_equal_bytes(first: Any, second: Any) -> None:
    same = type(first) is type(second) and first == second
    if isinstance(first, float) and first == second == 0:
        same = math.copysign(1, first) == math.copysign(1, second) and isinstance(second, float)
    assert (codec.encode(first) == codec.encode(second)) is same


@given(st.integers(2**63) | st.integers(max_value=-(2**63) - 1))
def test_integers_of_more_than_64_bits_are_refused(number: int) -> None:
    with pytest.raises(BadValue, match=f"{number.bit_length()} bits"):
        codec.encode(number)


def test_nan_keeps_its_bits() -> None:
    (nan,) = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000123))
    assert codec.encode(nan)[1] == struct.pack("<Q", 0x7FF8000000000123)


@pytest.mark.parametrize("value", [None, object(), 1j, {1}, "\ud800", ["\ud800"], [2**64]])
def test_values_that_cannot_be_stored(value: Any) -> None:
    with pytest.raises(BadValue):
        codec.encode(value)


@given(st.binary(min_size=1, max_size=100))
def test_any_key_survives_a_round_trip_as_text(name: bytes) -> None:
    text = codec.decode_key(name)
    assert codec.encode_key(name) == codec.encode_key(text) == name


@given(st.text(min_size=1))
def test_a_key_is_utf8_or_refused(key: str) -> None:
    if any(0xD800 <= ord(char) < 0xDC80 or 0xDCFF < ord(char) <= 0xDFFF for char in key):
        with pytest.raises(BadKey, match="UTF-8"):
            codec.encode_key(key)
    else:
        assert codec.encode_key(key) == key.encode("utf-8", "surrogateescape")


def test_bad_keys_are_refused() -> None:
    for key, sentence in (
        (None, "The key is None"),
        ("", "The key has 0 bytes"),
        (b"", "The key has 0 bytes"),
        ("k" * 65536, "The key has 65536 bytes. Use 1 to 65535 bytes."),
        ("é" * 32768, "The key has 65536 bytes"),
    ):
        with pytest.raises(BadKey, match=sentence):
            codec.encode_key(key)
    assert len(codec.encode_key("k" * 65535)) == 65535


@pytest.mark.parametrize(
    ("seconds", "milliseconds"),
    [(0, 0), (0.0, 0), (1, 1000), (0.001, 1), (0.0009, 1), (1e-9, 1), (1.9999, 1999), (1e11, 10**14), (True, 1000)],
)
def test_seconds_are_cut_to_milliseconds(seconds: float, milliseconds: int) -> None:
    assert codec.milliseconds(seconds) == milliseconds


@given(st.integers(0, 10**9))
def test_seconds_that_are_whole_milliseconds_are_exact(milliseconds: int) -> None:
    assert codec.milliseconds(milliseconds / 1000) == milliseconds


@given(st.binary(max_size=65535 - 480).map(lambda end: b"k" * 480 + end), st.binary())
def test_a_long_key_has_a_short_name_and_is_in_the_body(key: bytes, payload: bytes) -> None:
    body = records.with_key(key, payload)
    assert records.key_in(body) == key
    assert records.payload_in(body) == payload
    name = records.short_name(key)
    assert len(name) == 500 > records.MAX_NAME_BYTES
    assert len(records.order_key(2**63) + name) <= 511


def test_the_head_of_a_record_survives_a_round_trip() -> None:
    head = records.ItemHead(2**62, 2**32 - 1, 5, 3, 2**32 - 1, 2**64 - 1, 2**62)
    record = records.HEAD.pack(*head) + b"body"
    assert records.head_of(record) == head
    assert record[records.FORM_OFFSET] == head.form
    assert record[records.HEAD_BYTES :] == b"body"
    assert records.front_of(record) == (head.expires, head.kind, head.form, head.generation)
    assert records.seq_of(record) == (head.seq,)
