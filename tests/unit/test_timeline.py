"""The times of the timeline's page, and the merging of its stored log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from resty_django.admin.timeline import LONGEST, BadTime, _query, span_of
from resty_django.timeline import HOUR, MINUTE, MOST_ENTRIES, Entry, Span, story
from resty_django.timeline.log import MOST, Log, StoredOutage, with_deploy, with_outage

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 3, 28, 12, 0, 30, tzinfo=BERLIN).timestamp()


def at(*values: int) -> float:
    return datetime(*values, tzinfo=BERLIN).timestamp()  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("parameters", "start", "end"),
    [
        ({}, NOW - HOUR, NOW),
        ({"hours": "6"}, NOW - 6 * HOUR, NOW),
        ({"hours": "-6"}, NOW - HOUR, NOW),
        ({"hours": "0"}, NOW - HOUR, NOW),
        ({"hours": "999"}, NOW - LONGEST, NOW),
        ({"at": "03:12"}, at(2026, 3, 28, 2, 42), at(2026, 3, 28, 3, 42)),
        ({"at": "23:12"}, at(2026, 3, 27, 22, 42), at(2026, 3, 27, 23, 42)),
        ({"at": "2026-03-01T03:12"}, at(2026, 3, 1, 2, 42), at(2026, 3, 1, 3, 42)),
        ({"from": "2026-03-01T03:00", "to": "2026-03-01T05:00"}, at(2026, 3, 1, 3), at(2026, 3, 1, 5)),
        ({"from": "2026-03-01T02:00Z", "to": "2026-03-01T05:00"}, at(2026, 3, 1, 3), at(2026, 3, 1, 5)),
        ({"to": "2026-03-01T05:00"}, at(2026, 3, 1, 4), at(2026, 3, 1, 5)),
        ({"from": "11:00"}, at(2026, 3, 28, 11), NOW),
        ({"from": "2020-03-01", "to": "2026-03-01T05:00"}, at(2026, 3, 1, 5) - LONGEST, at(2026, 3, 1, 5)),
    ],
)
def test_spans_come_from_the_address(parameters: dict[str, str], start: float, end: float) -> None:
    with timezone.override(BERLIN):
        span = span_of(parameters, NOW)
    assert (span.start, span.end) == (start, end)


@pytest.mark.parametrize(
    "parameters",
    [
        {"at": "soon"},
        {"at": "25:00"},
        {"at": "2026-02-30T03:12"},
        {"from": "2026-03-02T00:00", "to": "2026-03-01T00:00"},
        {"from": "\x00"},
        {"to": "0001-01-01T00:00"},
        {"to": "9999-12-31T23:59"},
    ],
)
def test_wrong_times_are_explained(parameters: dict[str, str]) -> None:
    with pytest.raises(BadTime):
        span_of(parameters, NOW)


def test_the_link_to_a_span_means_the_same_in_each_zone() -> None:
    from django.http import QueryDict
    from django.test import RequestFactory

    request = RequestFactory().get("/?hours=6&find=pdf")
    with timezone.override(BERLIN):
        query = _query(request, NOW - 600, NOW)
    with timezone.override(UTC):
        span = span_of(QueryDict(query[1:]), NOW)
    assert (span.start, span.end) == (NOW - 600, NOW)
    assert QueryDict(query[1:]).keys() == {"from", "to", "find"}


def test_columns_are_minutes_or_hours() -> None:
    assert Span(3590, 3790, 0).columns() == [3540, 3600, 3660, 3720, 3780]
    assert Span(3600, 3660, 0).columns() == [3600]
    assert Span(3600, 3660, 0).step == MINUTE
    long = Span(100, 100 + 3 * HOUR, 0)
    assert (long.step, long.columns()) == (HOUR, [0, 3600, 7200, 10800])
    assert Span(0, 10, 0).contains(0)
    assert not Span(0, 10, 0).contains(10)
    assert Span(5, 10, 0).contains(0, 5)
    assert not Span(5, 10, 0).contains(0, 4)


def test_stories_are_bounded_and_in_the_order_of_time() -> None:
    told = story([Entry(float(n), "x") for n in range(MOST_ENTRIES + 7, 0, -1)])
    assert [entry.at for entry in told.entries] == list(range(1, MOST_ENTRIES + 1))
    assert told.more == 7


def test_outages_of_one_store_that_overlap_are_one_entry() -> None:
    log = Log()
    for outage in (
        StoredOutage("redis", 100, 200, "first"),
        StoredOutage("redis", 90, 150, "earliest"),
        StoredOutage("redis", 190, 300, "late"),
        StoredOutage("lmdb", 100, 200, "other"),
        StoredOutage("redis", 900, 950, "second"),
    ):
        log = with_outage(log, outage)
    assert [(each.store, each.at, each.until, each.error) for each in log.outages] == [
        ("redis", 90, 300, "earliest"),
        ("lmdb", 100, 200, "other"),
        ("redis", 900, 950, "second"),
    ]
    for number in range(2 * MOST):
        log = with_outage(log, StoredOutage("redis", 1e6 + 1000 * number, 1e6 + 1000 * number + 1, ""))
    assert len(log.outages) == MOST


def test_an_outage_ends_once_its_end_is_noted_or_nobody_notes_it_any_more() -> None:
    log = with_outage(Log(), StoredOutage("redis", 100, 100, "first", ended=False))
    log = with_outage(log, StoredOutage("redis", 100, 130, "second", ended=False))
    (outage,) = log.outages
    assert (outage.at, outage.until, outage.error, outage.ended) == (100, 130, "first", False)
    assert outage.lasts(190)
    assert not outage.lasts(191)
    log = with_outage(log, StoredOutage("redis", 100, 140, "first"))
    log = with_outage(log, StoredOutage("redis", 100, 140, "noted late", ended=False))
    (outage,) = log.outages
    assert (outage.until, outage.ended) == (140, True)
    assert not outage.lasts(141)


def test_a_version_is_a_deploy_when_it_follows_another() -> None:
    log: Any = Log()
    for now, version in enumerate(("1", "1", "2", "2", "1")):
        log = with_deploy(log, version, "web", now)
    assert [(each.at, each.version, each.before) for each in log.deploys] == [
        (0, "1", ""),
        (2, "2", "1"),
        (4, "1", "2"),
    ]
    assert with_deploy(log, "1", "worker", 9) is log
