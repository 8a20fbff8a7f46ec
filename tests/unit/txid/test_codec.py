"""The form of txids: layout, times, bounds, and what is said of texts that are none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.txid import InvalidTxid, is_txid, parse, txid, txid_max, txid_min
from resty_django.txid.codec import ALPHABET, encode, from_number, milliseconds, prefix

MS = st.integers(0, 2**42 - 1)
RANDOM = st.integers(0, 2**54 - 1)


@pytest.mark.parametrize(
    ("ms", "random", "encoded"),
    [
        (0, 0x00000000000000, "00000000000000000000"),
        (0, 0x3FFFFFFFFFFFFF, "000000007vvvvvvvvvvg"),
        (655829050000, 0x00000000000000, "4om9qi54000000000000"),
        (1522545688552, 0x2AAAAAAAAAAAAA, "b2fr5nvq5alalalalal0"),
        (1700000000123, 0x0123456789ABCD, "cbpvimguo4hkaps9lf6g"),
        (4398046511103, 0x00000000000001, "vvvvvvvvo0000000000g"),
        (4398046511104, 0x20000000000000, "00000000400000000000"),
        (-1, 0x00000000000000, "vvvvvvvvo00000000000"),
    ],
)
def test_time_and_random_bits_determine_the_id(ms: int, random: int, encoded: str) -> None:
    assert encode(ms, random) == encoded
    parsed = parse(encoded)
    assert (parsed.txid, parsed.ms, parsed.random) == (encoded, ms % 2**42, random)


@pytest.mark.parametrize(
    ("ms", "first"),
    [
        (655829050000, "4om9qi54"),
        (655929050000, "4on1lg74"),
        (1522545688552, "b2fr5nvq"),
        (4387530288000, "vthknin0"),
        (0, "00000000"),
        (4, "00000001"),
        (-1, "vvvvvvvv"),
        (4398046511103, "vvvvvvvv"),
        (4398046511104, "00000000"),
        (-1000000000, "vvohijc0"),
        (4397046511104, "vvohijc0"),
        (1000000000, "007edck0"),
        (4399046511104, "007edck0"),
    ],
)
def test_eight_characters_follow_from_the_time(ms: int, first: str) -> None:
    assert prefix(ms) == first
    assert txid(ms)[:8] == txid_min(ms)[:8] == txid_max(ms)[:8] == first


@pytest.mark.parametrize(
    ("txid", "ms", "utc"),
    [
        ("4om9qi54la8ffr4bd9sg", 655829050002, "1990-10-13T14:44:10.002+00:00"),
        ("4on1lg74nt0ud2ssllu0", 655929050002, "1990-10-14T18:30:50.002+00:00"),
        ("vvvvvvvvo00000000000", 4398046511103, "2109-05-15T07:35:11.103+00:00"),
    ],
)
def test_ids_of_other_implementations_have_their_time(txid: str, ms: int, utc: str) -> None:
    assert parse(txid).ms == ms
    assert parse(txid).time.isoformat(timespec="milliseconds") == utc


@given(MS, RANDOM)
def test_parse_returns_the_time_and_the_random_bits(ms: int, random: int) -> None:
    encoded = encode(ms, random)
    parsed = parse(encoded)
    assert (parsed.ms, parsed.random, parsed.number) == (ms, random, ms << 54 | random)
    assert from_number(parsed.number) == encoded
    assert is_txid(encoded)
    assert parse(encoded.upper()) == parsed
    padded = parsed.number << 4
    assert encoded == "".join(ALPHABET[padded >> 95 - 5 * at & 31] for at in range(20))


@given(MS, RANDOM, MS, RANDOM)
def test_texts_are_ordered_as_their_numbers(ms: int, random: int, other_ms: int, other_random: int) -> None:
    assert (encode(ms, random) < encode(other_ms, other_random)) == ((ms, random) < (other_ms, other_random))


@given(MS, RANDOM)
def test_bounds_hold_the_ids_of_their_millisecond_and_no_others(ms: int, random: int) -> None:
    assert txid_min(ms) <= encode(ms, random) <= txid_max(ms)
    if ms:
        assert txid_max(ms - 1) < txid_min(ms)


@pytest.mark.parametrize("time", [1522545688552.9, 1522545688552.0001])
def test_fractions_are_cut_off(time: float) -> None:
    assert milliseconds(time) == 1522545688552
    assert txid_min(time) == txid_min(1522545688552)
    assert milliseconds(-0.9) == 0
    assert milliseconds(-1.9) == -1


def test_a_datetime_is_a_time_to_the_millisecond() -> None:
    local = datetime(2018, 4, 1, 3, 21, 28, 552_999, tzinfo=timezone(timedelta(hours=2)))
    assert milliseconds(local) == 1522545688552
    assert txid_min(local) == "b2fr5nvq000000000000"
    assert milliseconds(datetime(1969, 12, 31, 23, 59, 59, 998_500, tzinfo=UTC)) == -1


@given(MS)
def test_the_time_inside_is_exact(ms: int) -> None:
    assert milliseconds(parse(txid_min(ms)).time) == ms


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone") as caught:
        txid_min(datetime(2026, 11, 21))
    assert "make_aware" in str(caught.value)


@pytest.mark.parametrize("time", [float("nan"), float("inf"), float("-inf")])
def test_a_time_without_end_is_refused(time: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        txid(time)


@pytest.mark.parametrize("time", ["5", b"5", [5]])
def test_a_time_of_another_type_is_refused(time: Any) -> None:
    with pytest.raises(TypeError, match=f"not {type(time).__name__}"):
        txid(time)


@pytest.mark.parametrize("random", [-1, 2**54])
def test_random_bits_that_do_not_fit_are_refused(random: int) -> None:
    with pytest.raises(ValueError, match="54 bits"):
        encode(0, random)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("b2fr5nvq5alalalalal", "A txid has 20 characters; 'b2fr5nvq5alalalalal' has 19."),
        ("", "A txid has 20 characters; '' has 0."),
        ("x" * 100, f"A txid has 20 characters; '{'x' * 40}...' has 100."),
        (
            "b2frwnvq5alalalalal0",
            "A txid consists of 0-9 and a-v; character 5 of 'b2frwnvq5alalalalal0' is 'w'.",
        ),
        (
            "b2fr5nvq5alalalalal\n",
            "A txid consists of 0-9 and a-v; character 20 of 'b2fr5nvq5alalalalal\\n' is '\\n'.",
        ),
        (
            "b2fr_nvq5alalalalal0",
            "A txid consists of 0-9 and a-v; character 5 of 'b2fr_nvq5alalalalal0' is '_'.",
        ),
        (
            "b2fr٣nvq5alalalalal0",
            "A txid consists of 0-9 and a-v; character 5 of 'b2fr٣nvq5alalalalal0' is '٣'.",
        ),
        (
            "b2fr5nvq5alalalalal8",
            "The last character of a txid must be 0 or g (it holds one bit), not '8' as in 'b2fr5nvq5alalalalal8'.",
        ),
        (b"b2fr5nvq5alalalalal0", "A txid must be a str of 20 characters, not bytes."),
        (None, "A txid must be a str of 20 characters, not NoneType."),
    ],
)
def test_the_error_says_what_is_wrong_with_a_text(value: Any, text: str) -> None:
    with pytest.raises(InvalidTxid) as caught:
        parse(value)
    assert str(caught.value) == text
    assert isinstance(caught.value, ValueError)
    assert not is_txid(value)


def test_a_letter_that_becomes_ascii_in_lower_case_is_refused() -> None:
    with pytest.raises(InvalidTxid, match="character 5"):
        parse("b2fr\N{KELVIN SIGN}nvq5alalalalal0")


@given(st.text(max_size=25))
def test_any_text_is_parsed_or_refused_in_words(text: str) -> None:
    try:
        parsed = parse(text)
    except InvalidTxid:
        assert not is_txid(text)
    else:
        assert encode(parsed.ms, parsed.random) == parsed.txid == text.lower()
