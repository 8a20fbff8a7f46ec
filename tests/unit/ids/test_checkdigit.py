"""Check digits against python-stdnum, and the errors that they exist to find."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from stdnum import damm as stdnum_damm
from stdnum import isin as stdnum_isin
from stdnum import luhn as stdnum_luhn
from stdnum.iso7064 import mod_97_10

from resty_django.ids.engine.checkdigit import CHECKS, WIDTHS, damm, luhn, mod97

numbers = st.text(string.digits, min_size=1, max_size=40)
codes = st.text(string.digits + string.ascii_uppercase, min_size=1, max_size=40)


def expanded(text: str) -> str:
    return "".join(str(int(c, 36)) for c in text)


@given(numbers)
def test_numbers_agree_with_stdnum(number: str) -> None:
    assert luhn(number) == stdnum_luhn.calc_check_digit(number)
    assert damm(number) == stdnum_damm.calc_check_digit(number)
    assert mod97(number) == mod_97_10.calc_check_digits(number)


@given(codes)
def test_letters_count_as_in_isin_and_iban(code: str) -> None:
    assert luhn(code) == stdnum_isin.calc_check_digit(code)
    assert damm(code) == stdnum_damm.calc_check_digit(expanded(code))
    assert mod97(code) == mod_97_10.calc_check_digits(code)
    assert mod_97_10.is_valid(code + mod97(code))


@given(codes)
def test_case_and_punctuation_do_not_count(code: str) -> None:
    spaced = "-".join(code.lower()) + " /é٣"
    for check in CHECKS.values():
        assert check(spaced) == check(code)


@given(numbers, st.data())
def test_one_wrong_digit_is_found(number: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(number) - 1))
    digit = data.draw(st.sampled_from(string.digits))
    assume(digit != number[at])
    wrong = number[:at] + digit + number[at + 1 :]
    for check in CHECKS.values():
        assert check(wrong) != check(number)


@given(numbers, st.data())
def test_damm_and_mod97_find_neighbours_exchanged(number: str, data: st.DataObject) -> None:
    assume(len(number) > 1)
    at = data.draw(st.integers(0, len(number) - 2))
    assume(number[at] != number[at + 1])
    wrong = number[:at] + number[at + 1] + number[at] + number[at + 2 :]
    assert damm(wrong) != damm(number)
    assert mod97(wrong) != mod97(number)


@pytest.mark.parametrize("text", ["", "---", "é"])
def test_text_without_letters_or_digits_has_check_digits_too(text: str) -> None:
    assert (luhn(text), damm(text), mod97(text)) == ("0", "0", "98")


@given(codes)
def test_check_digits_have_their_documented_widths(code: str) -> None:
    assert {name: len(check(code)) for name, check in CHECKS.items()} == WIDTHS
