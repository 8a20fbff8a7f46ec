"""The record of a series of counts."""

from __future__ import annotations

from math import inf, nan
from typing import Any, NamedTuple

import msgspec
import pytest

from resty_django.minute_series.records import HOURS, MINUTES, CountHistory, Counts, added

NOW = 1_800_000_000.0
"""An instant at which a minute and an hour begin."""


class One(NamedTuple):
    number: int = 0


class Two(NamedTuple):
    number: int = 0
    seconds: float = 0


def add(record: Any, counts: Counts, now: float, **options: bool) -> Any:
    """Return the record as a dictionary returns it."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(added(record, counts, now, **options)))


def test_counts_are_added_to_their_minute_and_to_the_total() -> None:
    record = add(add(add(None, (1, 0.5), NOW - 60), (2, 0.25), NOW), (4, 0.25), NOW + 59)
    assert record == {"total": [7, 1.0], "minutes": [[NOW // 60 - 1, 1, 0.5], [NOW // 60, 6, 0.5]]}
    history = CountHistory(record, Two(), NOW + 59)
    assert history.total == history.hour == Two(7, 1.0)
    assert history.last(1) == Two(6, 0.5)
    assert len(history.minutes) == MINUTES
    assert history.minutes[-3:] == [(NOW - 120, Two()), (NOW - 60, Two(1, 0.5)), (NOW, Two(6, 0.5))]
    assert history.days == Two()


def test_hours_are_kept_on_request() -> None:
    record = None
    for hour in range(HOURS + 5):
        record = add(record, (1,), NOW + 3600 * hour, hours=True)
    now = NOW + 3600 * (HOURS + 4)
    history = CountHistory(record, One(), now)
    assert [span.counts for span in history.hours] == [One(1)] * HOURS
    assert history.hours[-1].start == now
    assert history.days == One(HOURS)
    assert len(record["hours"]) == HOURS
    assert len(record["minutes"]) == 1


def test_counts_from_a_clock_far_ahead_do_not_stay_forever() -> None:
    record = add(add(None, (1,), NOW + 86_400), (2,), NOW)
    assert record == {"total": [3], "minutes": [[NOW // 60, 2]]}


@pytest.mark.parametrize(
    "foreign",
    [
        None,
        7,
        "text",
        [[3], [[1, 3]]],
        {"total": 3, "minutes": {"1": 3}},
        {"total": [1, 2], "minutes": [[NOW // 60, 1, 2]]},
        {"total": ["3"], "minutes": [None, [], ["1", 3], [[1], 3]]},
        {"total": [inf], "minutes": [[inf, 3], [nan, 3], [NOW // 60, inf], [NOW // 60, 10**400]]},
    ],
)
def test_a_malformed_record_counts_as_empty(foreign: Any) -> None:
    history = CountHistory(foreign, One(), NOW)
    assert history.total == history.hour == history.days == One()
    assert add(foreign, (2,), NOW) == {"total": [2], "minutes": [[NOW // 60, 2]]}
