"""The scrambler: a bijection of its range, of any size, that depends on the key."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resty_django.ids.engine.scramble import Scrambler

keys = st.binary(min_size=16, max_size=64)


@settings(max_examples=60)
@given(st.integers(0, 2**62), st.integers(1, 600), keys)
def test_every_number_of_the_range_comes_out_once(low: int, size: int, key: bytes) -> None:
    scrambler = Scrambler(low, low + size - 1, key)
    numbers = range(low, low + size)
    assert sorted(map(scrambler.scramble, numbers)) == list(numbers)


@given(st.data(), keys)
def test_scrambling_can_be_undone(data: st.DataObject, key: bytes) -> None:
    low = data.draw(st.integers(0, 2**62))
    high = data.draw(st.integers(low, 2**62))
    number = data.draw(st.integers(low, high))
    scrambler = Scrambler(low, high, key)
    image = scrambler.scramble(number)
    assert low <= image <= high
    assert scrambler.unscramble(image) == number
    assert scrambler.scramble(scrambler.unscramble(number)) == number


def test_key_and_range_each_make_another_mapping() -> None:
    def mapping(high: int, key: bytes) -> list[int]:
        scrambler = Scrambler(0, high, key)
        return [scrambler.scramble(number) for number in range(100)]

    first = mapping(999_999, b"a" * 16)
    assert first == mapping(999_999, b"a" * 16)
    for changed in (mapping(999_999, b"a" * 15 + b"b"), mapping(999_998, b"a" * 16)):
        assert sum(a == b for a, b in zip(first, changed, strict=True)) < 5


def test_neighbours_do_not_stay_neighbours() -> None:
    scrambler = Scrambler(0, 999_999, b"k" * 16)
    images = [scrambler.scramble(number) for number in range(2000)]
    rising = sum(a < b for a, b in itertools.pairwise(images))
    assert 850 < rising < 1150
    assert all(abs(a - b) > 0 for a, b in itertools.pairwise(images))
    # Spread over the whole range: each tenth of it holds about a tenth of the images.
    tenths = [sum(image // 100_000 == tenth for image in images) for tenth in range(10)]
    assert min(tenths) > 120


@pytest.mark.parametrize("number", [9, 21, -1])
def test_a_number_outside_the_range_is_refused(number: int) -> None:
    scrambler = Scrambler(10, 20, b"k" * 16)
    with pytest.raises(ValueError, match="10 and 20"):
        scrambler.scramble(number)
    with pytest.raises(ValueError, match="10 and 20"):
        scrambler.unscramble(number)


@pytest.mark.parametrize(("low", "high", "size"), [(5, 4, 16), (0, 9, 15), (0, 9, 65)])
def test_a_wrong_range_or_key_is_refused(low: int, high: int, size: int) -> None:
    with pytest.raises(ValueError, match="16 to 64 bytes"):
        Scrambler(low, high, b"k" * size)
