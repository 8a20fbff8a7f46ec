"""The most frequent keys in fixed memory: counts are right within the reported errors."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from resty_django.minute_series.top_keys import FrequentKey, TopKeys, merged

SIZE = 4
KEYS = st.lists(st.integers(0, 200).map(lambda number: f"k{number % 7 if number % 3 else number}"), max_size=400)


def counted(keys: list[str]) -> list[FrequentKey]:
    top = TopKeys(SIZE)
    for key in keys:
        top.add(key)
    assert len(top) <= 8 * SIZE
    return top.most()


def check(top: list[FrequentKey], true: Counter[str]) -> None:
    assert len(top) <= SIZE
    assert [entry.times for entry in top] == sorted((entry.times for entry in top), reverse=True)
    for entry in top:
        assert entry.times - entry.error <= true[entry.key] <= entry.times
    listed = {entry.key for entry in top}
    least = top[-1].times if len(top) == SIZE else 0
    for key, count in true.items():
        assert key in listed or count <= least, f"{key} came {count} times and is not listed"


@settings(max_examples=200, deadline=None)
@given(KEYS)
def test_counts_are_within_their_errors_and_nothing_frequent_is_missed(keys: list[str]) -> None:
    check(counted(keys), Counter(keys))


@settings(max_examples=200, deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=5))
def test_merging_keeps_that(parts: list[list[str]]) -> None:
    top: list[FrequentKey] = []
    true: Counter[str] = Counter()
    for keys in parts:
        top = merged(top, counted(keys), SIZE)
        true.update(keys)
    check(top, true)


def test_few_keys_are_counted_exactly() -> None:
    assert counted(["a", "b", "a"]) == [FrequentKey("a", 2, 0), FrequentKey("b", 1, 0)]
    assert merged([FrequentKey("a", 2)], [FrequentKey("a", 1), FrequentKey("c", 5)], SIZE) == [
        FrequentKey("c", 5, 0),
        FrequentKey("a", 3, 0),
    ]


def test_long_keys_are_shortened() -> None:
    top = TopKeys(SIZE, longest=10)
    top.add("x" * 5000)
    top.add("x" * 5001)
    assert top.most() == [FrequentKey("x" * 9 + "…", 2, 0)]
