"""Replay of recorded requests: the decisions are those of the algorithm at the recorded times."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from resty_django.limits.policies.replay import MOST_KEYS, NotReplayable, Replay, replay
from resty_django.limits.policies.spec import PolicySpec, from_values
from resty_django.limits.statistics.events import PASSED, REFUSED, SHADOWED, Event, Request
from resty_django.limits.statistics.recorder import MOST_EVENTS, Recording, with_tier

START = 1_790_000_000_000


def every(interval: int, count: int, key: str = "k", outcome: int = PASSED) -> list[Event]:
    return [(START + number * interval, key, outcome) for number in range(count)]


def replayed(
    events: Sequence[Event | Request],
    recorded_key: str = "ip",
    level: int = 0,
    saved: PolicySpec | None = None,
    **values: Any,
) -> Replay:
    spec = from_values({"name": "p", "key": "ip", **values})
    requests = sorted(Request(*event) for event in events)
    return replay(spec, Recording(requests, level), saved or dataclasses.replace(spec, key=recorded_key))


@pytest.mark.parametrize(
    ("values", "refused", "delayed"),
    [
        ({"algorithm": "fixed_window", "limit": 2, "window": "5s"}, 6, 0),
        ({"algorithm": "fixed_window", "limit": 2, "window": "5s", "cost": 2}, 8, 0),
        ({"algorithm": "sliding_window", "limit": 100, "window": "1h"}, 0, 0),
        ({"algorithm": "leaky_bucket", "rate": "30/min", "burst": 1}, 4, 5),
        ({"algorithm": "leaky_bucket", "rate": "30/min"}, 5, 0),
        ({"algorithm": "token_bucket", "rate": "30/min", "capacity": 1, "max_wait": "0s"}, 5, 0),
        ({"algorithm": "token_bucket", "interval": "2s", "capacity": 1, "max_wait": "2s"}, 4, 5),
        ({"algorithm": "fixed_window", "rate": "4/h;1/2s"}, 6, 0),
        ({"algorithm": "sliding_window", "rate": "3/h;5/h"}, 7, 0),
        ({"algorithm": "leaky_bucket", "rate": "30/min burst=1;10/s"}, 4, 5),
        ({"algorithm": "token_bucket", "rate": "30/min capacity=1;10/s", "max_wait": "0s"}, 5, 0),
    ],
)
def test_the_algorithms_decide_at_the_recorded_times(values: dict[str, Any], refused: int, delayed: int) -> None:
    result = replayed(every(1000, 10), **values)
    assert (result.requests, result.refused, result.delayed) == (10, refused, delayed)
    assert result.first is not None
    assert result.last is not None
    assert (result.last - result.first).total_seconds() == 9


def test_keys_are_separate_and_the_most_refused_come_first() -> None:
    events = [event for number in range(30) for event in every(10, number, f"key{number:02}")]
    events += every(10, 5, "old", REFUSED) + every(10, 4, "shadow", SHADOWED)
    result = replayed(events, algorithm="fixed_window", limit=10, window="1h")
    assert result.key_count == 31
    assert [counts.key for counts in result.keys[:3]] == ["key29", "key28", "key27"]
    assert len(result.keys) == MOST_KEYS
    assert result.refused == sum(range(1, 20))
    assert (result.refused_then, result.shadowed_then) == (5, 4)
    old = next(counts for counts in result.keys if counts.key == "old")
    assert (old.requests, old.refused_then, old.refused) == (5, 5, 0)


def test_a_key_with_fewer_parts_can_be_tested() -> None:
    events = every(10, 3, "192.0.2.1|/a") + every(10, 3, "192.0.2.1|/b") + every(10, 1, "192.0.2.2|/a")
    numbers: dict[str, Any] = {"algorithm": "fixed_window", "limit": 2, "window": "1h"}
    assert replayed(events, "ip+path", key="ip+path", **numbers).refused == 2
    assert replayed(events, "ip+path", key="ip + path", **numbers).refused == 2
    by_address = replayed(events, "ip+path", key="ip", **numbers)
    assert [(counts.key, counts.refused) for counts in by_address.keys] == [("192.0.2.1", 4), ("192.0.2.2", 0)]
    assert replayed(events, "ip+path", key="path+ip", **numbers).keys[0].key == "/a|192.0.2.1"
    assert replayed(events, "ip+path", key="all", **numbers).refused == 5


@pytest.mark.parametrize(
    ("tiers", "refused"),
    [("", 14), ("pro: 4/h", 10), ("pro: none", 6), ("pro: 5/h;1/s", 10), ("pro: 8/h\nother: none", 6), ("x: none", 14)],
)
def test_each_tier_has_its_rate(tiers: str, refused: int) -> None:
    events = every(500, 8, "a") + every(500, 8, with_tier("pro", "a"))
    result = replayed(events, algorithm="fixed_window", limit=2, window="1h", tiers=tiers)
    assert result.refused == refused
    assert [(counts.key, counts.requests) for counts in result.keys] == [("a", 16)]


def test_a_rate_that_refuses_takes_nothing_from_the_others() -> None:
    events = every(100, 20, with_tier("pro", "a")) + every(1000, 5, with_tier("pro", "b"))
    numbers: dict[str, Any] = {"algorithm": "fixed_window", "limit": 1, "window": "1h"}
    by_key = {counts.key: counts.refused for counts in replayed(events, tiers="pro: 3/h;1/s", **numbers).keys}
    assert by_key == {"a": 18, "b": 2}
    assert replayed(events, "ip", key="all", tiers="pro: 10/h", **numbers).refused == 15


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"algorithm": "concurrency", "limit": 2}, "their durations were not measured, because the saved policy"),
        ({"algorithm": "fixed_window", "limit": 2, "window": "1h", "key": "user"}, "recorded with the key ip"),
        ({"algorithm": "fixed_window", "limit": 2, "window": "1h", "key": "all", "level": 1}, "Only some of the keys"),
    ],
)
def test_what_cannot_be_tested_is_refused_with_a_reason(values: dict[str, Any], reason: str) -> None:
    level = values.pop("level", 0)
    with pytest.raises(NotReplayable, match=reason):
        replayed(every(1, 3), level=level, **values)


def running(*requests: tuple[int, int], key: str = "k", outcome: int = PASSED) -> list[Request]:
    """Requests that began after so many milliseconds, and took the given time."""
    return [Request(START + at, key, outcome, "GET api/items/", duration) for at, duration in requests]


@pytest.mark.parametrize(
    ("limit", "burst", "refused", "delayed"),
    [(1, 0, 3, 0), (2, 0, 2, 0), (3, 0, 0, 0), (1, 1, 2, 2), (1, 5, 0, 4)],
)
def test_concurrency_is_replayed_with_the_measured_durations(
    limit: int, burst: int, refused: int, delayed: int
) -> None:
    requests = running((0, 500), (100, 500), (200, 250), (450, 20), (600, 100))
    saved = from_values({"name": "p", "algorithm": "concurrency", "limit": 9})
    values: dict[str, Any] = {"algorithm": "concurrency", "limit": limit, "burst": burst, "default_delay": "1ms"}
    result = replayed(requests, saved=saved, **values)
    assert (result.refused, result.delayed, result.assumed) == (refused, delayed, None)


def test_requests_without_a_duration_take_the_median_of_the_others() -> None:
    requests = [*running((0, 100), (1000, 300), (2000, 900)), *running((5000, -1), (5200, -1), outcome=REFUSED)]
    values: dict[str, Any] = {"algorithm": "concurrency", "limit": 1}
    result = replayed(requests, **values)
    assert (result.refused, result.refused_then, result.assumed) == (1, 2, 300)
    window = replayed(requests, algorithm="fixed_window", limit=4, window="1h")
    assert (window.refused, window.assumed) == (1, None)


def test_requests_that_hold_a_slot_longer_than_its_lease() -> None:
    values: dict[str, Any] = {"algorithm": "concurrency", "limit": 1, "lease": "1s"}
    assert replayed(running((0, 60_000), (1500, 10), (70_000, 10)), **values).refused == 0
    assert replayed(running((0, 60_000), (1500, 10)), **{**values, "lease": "none"}).refused == 1


def test_conditions_release_requests() -> None:
    targets = ["GET api/items/", "POST api/items/", "GET api/items/<int:pk>/", ""]
    requests = [Request(START + number, "k", PASSED, targets[number % 4]) for number in range(40)]
    saved = from_values({"name": "p", "algorithm": "fixed_window", "limit": 5, "window": "1h", "path": "/api/*"})
    numbers: dict[str, Any] = {"algorithm": "fixed_window", "limit": 5, "window": "1h"}

    def counts(**values: Any) -> tuple[int, int, int]:
        result = replayed(requests, saved=saved, **numbers, **values)
        assert result.limited == 40 - result.released
        return result.released, result.uncertain, result.refused

    assert counts(path="/api/*") == (0, 10, 35)
    assert counts(path="/api/*", methods="POST") == (20, 10, 15)
    assert counts(path="/api/items/*/", exempt_paths="/api/items/") == (20, 10, 15)
    assert counts(path="/api/items/7/") == (20, 20, 15)
    assert counts(path="/shop/*") == (30, 10, 5)


def test_a_key_can_get_the_view_of_the_route() -> None:
    targets = ["GET metrics", "GET admin/resty_limits/limitpolicy/add/", "GET gone/"]
    requests = [Request(START + number, "a", PASSED, targets[number % 3]) for number in range(9)]
    numbers: dict[str, Any] = {"algorithm": "fixed_window", "limit": 2, "window": "1h"}
    result = replayed(requests, key="ip+view", level=1, **numbers)
    assert [(counts.key, counts.refused) for counts in result.keys] == [
        ("a|-", 1),
        ("a|admin:resty_limits_limitpolicy_add", 1),
        ("a|metrics", 1),
    ]


def test_nothing_recorded() -> None:
    result = replayed([], algorithm="fixed_window", limit=2, window="1h")
    assert (result.requests, result.refused, result.first, result.keys) == (0, 0, None, [])


def test_the_work_is_bounded() -> None:
    events = every(1, MOST_EVENTS + 5)
    result = replayed(events, algorithm="fixed_window", limit=1, window="1h")
    assert result.refused == MOST_EVENTS - 1
