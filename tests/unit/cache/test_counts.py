"""Counts of a cache, and their record."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.cache.statistics.counts import (
    MAX_LISTED_KEY_LENGTH,
    MAX_MISSED_KEYS,
    MAX_SLOW_KEYS,
    CacheStats,
    Slow,
    added,
    history,
    shortened,
)
from resty_django.cache.statistics.reporter import SlowKeys
from resty_django.minute_series.records import HOURS, MINUTES
from resty_django.minute_series.top_keys import FrequentKey

NOW = 1_800_000_000.0
"""An instant at which a minute and an hour begin."""


def stored(record: Any) -> Any:
    """A record as it comes back from a dictionary."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record))


def add(record: Any, now: float, *slow: Slow, **counts: float) -> Any:
    return stored(added(record, tuple(CacheStats(**counts)), now, slow))  # type: ignore[arg-type]


def test_the_minute_and_the_hour_under_way_are_at_the_end() -> None:
    summary = history(add(add(None, NOW, l1=2), NOW + 1, l3=1), NOW + 59)
    assert summary.total == CacheStats(l1=2, l3=1)
    assert len(summary.minutes) == MINUTES
    assert len(summary.hours) == HOURS
    assert summary.minutes[-1] == (NOW, CacheStats(l1=2, l3=1))
    assert summary.minutes[-2] == (NOW - 60, CacheStats())
    assert summary.hours[-1] == (NOW, CacheStats(l1=2, l3=1))
    assert summary.hours[-2] == (NOW - 3600, CacheStats())


def test_counts_older_than_an_hour_remain_only_by_hour() -> None:
    record = add(None, NOW, l1=1)
    for minute in range(1, 200):
        record = add(record, NOW + 60 * minute, l1=1)
    now = NOW + 60 * 199
    assert len(record["minutes"]) == MINUTES
    summary = history(record, now)
    assert summary.hour == CacheStats(l1=60)
    assert [span.counts.l1 for span in summary.hours[-4:]] == [60, 60, 60, 20]
    assert summary.total == CacheStats(l1=200)
    late = history(record, now + 3600 * HOURS)
    assert (late.hour, late.days, late.total) == (CacheStats(), CacheStats(), CacheStats(l1=200))


def test_the_record_is_bounded() -> None:
    record = None
    for hour in range(3 * HOURS):
        slow = [Slow(f"{'k' * MAX_LISTED_KEY_LENGTH}{hour}{number}", 1.0, NOW + 3600 * hour, 1) for number in range(30)]
        record = add(record, NOW + 3600 * hour, *slow, l1=2**40)
    assert record is not None
    assert len(record["hours"]) == HOURS
    assert len(record["slow"]) == MAX_SLOW_KEYS
    assert len(msgspec.msgpack.encode(record)) < 16_000


@given(st.lists(st.tuples(st.integers(-200, 200), st.integers(1, 9)), max_size=40))
def test_different_clocks_do_not_change_the_total(steps: list[tuple[int, int]]) -> None:
    record = None
    for seconds, count in steps:
        record = add(record, NOW + seconds, l2=count)
    total = sum(count for _, count in steps)
    summary = history(record, NOW + 200)
    assert summary.total.l2 == summary.hour.l2 == summary.days.l2 == total


@pytest.mark.parametrize(
    "foreign",
    [None, 7, "text", [1], {}, {"minutes": 7, "hours": [[1]], "slow": [1]}, {"minutes": [None], "slow": None}],
)
def test_a_record_of_another_program_counts_nothing(foreign: Any) -> None:
    summary = history(foreign, NOW)
    assert (summary.total, summary.hour, summary.days, summary.slow) == (
        CacheStats(),
        CacheStats(),
        CacheStats(),
        [],
    )
    assert history(add(foreign, NOW, l1=1), NOW).minutes[-1].counts == CacheStats(l1=1)


def test_a_record_with_only_sums_is_continued() -> None:
    summary = history(add({"total": list(CacheStats(l1=5))}, NOW, l1=1), NOW)
    assert (summary.total, summary.hour) == (CacheStats(l1=6), CacheStats(l1=1))
    assert history(None, NOW).total == CacheStats()


# --- slow keys ---


def test_the_slowest_keys_of_several_processes() -> None:
    record = add(None, NOW, Slow("a", 2.0, NOW, 3), Slow("b", 1.0, NOW, 1), l3=1)
    record = add(record, NOW + 9, Slow("a", 1.5, NOW + 9, 2), Slow("b", 3.0, NOW + 9, 1), l3=1)
    assert history(record, NOW + 9).slow == [Slow("b", 3.0, NOW + 9, 2), Slow("a", 2.0, NOW, 5)]


def test_a_slow_key_is_forgotten_after_two_days() -> None:
    record = add(None, NOW, Slow("old", 9.0, NOW, 1), Slow("later", 1.0, NOW + 60, 1), l3=1)
    assert [slow.key for slow in history(record, NOW + HOURS * 3600).slow] == ["later"]
    assert [row[0] for row in add(record, NOW + HOURS * 3600, l1=1)["slow"]] == ["later"]


def test_slow_keys_of_a_process_are_bounded_and_the_slowest_stay() -> None:
    keys = SlowKeys()
    for number in range(5000):
        keys.add(Slow(f"k{number}", float(number % 1000), NOW))
        assert len(keys.by_key) <= 8 * MAX_SLOW_KEYS
    slowest = keys.take()
    assert [slow.seconds for slow in slowest] == sorted((slow.seconds for slow in slowest), reverse=True)
    assert len(slowest) == MAX_SLOW_KEYS
    assert {f"k{number}" for number in (999, 1999, 2999, 3999, 4999)} <= {slow.key for slow in slowest}
    assert keys.take() == []


def test_a_key_that_is_slow_again_keeps_its_longest_time() -> None:
    keys = SlowKeys()
    for seconds, when in ((1.0, 1), (3.0, 2), (2.0, 3)):
        keys.add(Slow("k", seconds, when))
    assert keys.take() == [Slow("k", 3.0, 2, 3)]


@pytest.mark.parametrize("key", ["k" * 5000, "a\ud800b", "\udcff", "ü…"])
def test_keys_that_are_listed_can_be_stored(key: str) -> None:
    text = shortened(key)
    assert len(text) <= MAX_LISTED_KEY_LENGTH + 4
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(text)) == text
    assert shortened("ü…") == "ü…"


# --- most missed keys ---


def missed(*keys: tuple[str, int]) -> list[FrequentKey]:
    return [FrequentKey(key, times) for key, times in keys]


def test_the_most_missed_keys_of_several_processes_and_of_two_hours() -> None:
    record = added(None, tuple(CacheStats()), NOW, (), missed(("a", 5), ("b", 1)))
    record = added(record, tuple(CacheStats()), NOW + 9, (), missed(("b", 7)))
    assert history(record, NOW + 9).missed == missed(("b", 8), ("a", 5))
    record = added(record, tuple(CacheStats()), NOW + 3600, (), missed(("a", 4)))
    assert history(record, NOW + 3600).missed == missed(("a", 9), ("b", 8))
    assert history(record, NOW + 7200).missed == missed(("a", 4))
    assert added(record, tuple(CacheStats()), NOW + 3 * 3600)["missed"] == []


def test_the_list_of_missed_keys_is_bounded() -> None:
    record = None
    for hour in range(3):
        for part in range(5):
            keys = [(f"{'k' * 190}{hour}{part}{number}", 1 + number) for number in range(MAX_MISSED_KEYS)]
            record = added(record, tuple(CacheStats()), NOW + 3600 * hour, (), missed(*keys))
    assert record is not None
    assert len(record["missed"]) == 2 * MAX_MISSED_KEYS
    assert len(history(record, NOW + 7200).missed) == MAX_MISSED_KEYS
    assert len(msgspec.msgpack.encode(record)) < 10_000


@pytest.mark.parametrize("rows", [None, 7, [1], [[1, "k"]], [["x", "k", 1, 0]]])
def test_lists_of_missed_keys_that_are_none_of_ours_are_empty(rows: Any) -> None:
    assert history({"missed": rows}, NOW).missed == []
