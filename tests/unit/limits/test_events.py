"""Logs of events: what is added comes back, the bounds hold, and the sequence of a sampled key is complete."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits.statistics.events import (
    UNKNOWN,
    EventLog,
    Request,
    delay_code,
    is_sampled,
    newest_of,
    read_log,
    sampled,
    with_newest,
)

PLENTY = 10**9
requests_of = st.builds(
    Request,
    st.integers(0, 2**52),
    st.sampled_from(["a", "b", "\udc80"]),
    st.integers(0, 3),
    st.sampled_from(["", "GET ", "POST api/items/<int:pk>/"]),
    st.sampled_from([UNKNOWN, 0, 1500, delay_code(0.5)]),
)
events_of = st.lists(
    st.tuples(st.integers(0, 2**52), st.text(st.characters(), max_size=8), st.integers(0, 3)), max_size=60
)


@given(st.lists(events_of, max_size=4))
def test_what_is_added_comes_back(parts: list[list[tuple[int, str, int]]]) -> None:
    log = EventLog()
    for part in parts:
        log = log.added(part, 0, PLENTY, PLENTY)
    log = read_log(log.packed())
    everything = [event for part in parts for event in part]
    assert sorted(log.events()) == sorted(everything)
    assert log.total == len(everything)
    assert log.level == 0


@given(st.lists(st.lists(requests_of), max_size=4))
def test_the_events_of_some_keys(parts: list[list[Request]]) -> None:
    log = EventLog()
    for part in parts:
        log = log.added(part, 0, PLENTY, PLENTY)
    log = read_log(log.packed())
    for own in ("a", "\udc80"):
        expected = [request for request in log.requests() if request.key == own]
        assert log.of_keys(lambda key, own=own: key == own, [own]) == expected  # type: ignore[misc]
    assert log.of_keys(lambda key: False, ["a"]) == []


def test_a_delay_is_not_a_duration() -> None:
    delayed = [Request(1, "a", 1, "", delay_code(seconds)) for seconds in (0.25, 0.0001, 3600)]
    log = EventLog().added(delayed, 0, PLENTY, PLENTY)
    assert [request.delay for request in log.requests()] == [250, 1, 3_600_000]
    assert not any(request.measured for request in log.requests())
    for duration, measured in ((UNKNOWN, False), (0, True), (20, True)):
        request = Request(1, "a", 1, "", duration)
        assert (request.delay, request.measured) == (None, measured)


@given(st.lists(st.lists(requests_of), max_size=4))
def test_targets_and_durations_come_back(parts: list[list[Request]]) -> None:
    log = EventLog()
    for part in parts:
        log = log.added(part, 0, PLENTY, PLENTY)
    log = read_log(log.packed())
    assert sorted(log.requests()) == sorted(request for part in parts for request in part)


def test_few_targets_take_little_room() -> None:
    targets = [f"GET api/items/<int:pk>/part{number}/" for number in range(20)]
    plain = crowd(500, 20)
    events = [Request(*event, targets[position * 7 % 20]) for position, event in enumerate(plain)]
    size, plain_size = (EventLog().added(kind, 0, PLENTY, PLENTY).size for kind in (events, plain))
    assert size - plain_size < len(plain)


def crowd(keys: int, each: int) -> list[tuple[int, str, int]]:
    return [(1_790_000_000_000 + 7 * turn, f"10.0.{key // 256}.{key % 256}", turn % 4)
            for turn in range(each) for key in range(keys)]  # fmt: skip


@pytest.mark.parametrize(("most", "most_bytes"), [(1000, PLENTY), (PLENTY, 2000), (1, 1), (0, 0)])
def test_a_log_is_bounded_and_its_keys_are_complete(most: int, most_bytes: int) -> None:
    events = crowd(500, 20)
    log = EventLog()
    for start in range(0, len(events), 100):
        log = log.added(events[start : start + 100], 0, most, most_bytes)
        assert log.total <= most
        assert log.size <= max(most_bytes, 0)
    assert log.level > 0
    kept = {key for _, key, _ in log.events()}
    assert sorted(log.events()) == sorted(event for event in events if event[1] in kept)
    assert all(is_sampled(key, log.level) for key in kept)


def test_a_share_of_the_keys_is_sampled() -> None:
    keys = [f"user:{number}" for number in range(20_000)]
    for level in (1, 3, 5):
        share = sum(is_sampled(key, level) for key in keys) / len(keys)
        assert share == pytest.approx(1 / 2**level, rel=0.15)
    assert {key for key in keys if is_sampled(key, 5)} <= {key for key in keys if is_sampled(key, 3)}


def test_events_of_different_levels_are_sampled_alike() -> None:
    events = crowd(200, 3)
    log = EventLog().added(events, 0, PLENTY, PLENTY).added(sampled(events, 3), 3, PLENTY, PLENTY)
    assert log.level == 3
    assert sorted(log.events()) == sorted(sampled(events, 3) * 2)
    log = log.added(events, 0, PLENTY, PLENTY)
    assert log.total == 3 * len(sampled(events, 3)) == len(log.events())


@pytest.mark.parametrize(
    "foreign",
    [None, 7, "text", b"", b"\xff\xff", msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode([0, 3, [b"no zlib"]]),
     msgspec.msgpack.encode([0, 3, [zlib.compress(b"\xc1")]]),
     msgspec.msgpack.encode([0, 3, [zlib.compress(msgspec.msgpack.encode([0, [b"k"], [5], [], b"\0"]))]])],
)  # fmt: skip
def test_foreign_data_has_no_events(foreign: object) -> None:
    assert read_log(foreign).events() == []


def test_only_the_newest_events_are_kept() -> None:
    events = [(turn, key, 2) for turn in range(100) for key in ("often", f"key{turn}")]
    kept = newest_of(events, oldest=20, most=1000, each=5)
    assert [event for event in kept if event[1] == "often"] == [(turn, "often", 2) for turn in range(95, 100)]
    assert [at for at, key, _ in kept if key != "often"] == list(range(20, 100))
    assert [at for at, _, _ in newest_of(events, oldest=0, most=3, each=5)] == [98, 99, 99]


@pytest.mark.parametrize(("most", "most_bytes"), [(50, PLENTY), (PLENTY, 1500)])
def test_a_log_of_the_newest_events_is_bounded(most: int, most_bytes: int) -> None:
    events = [(number, f"key{number}", 2) for number in range(1500)]
    log = EventLog()
    for start in range(0, 1500, 3):
        log = with_newest(events[start : start + 3], log, oldest=0, most=most, each=5, most_bytes=most_bytes)
        assert log.total <= 2 * most
        assert log.size <= most_bytes
    kept = newest_of(log.events(), oldest=0, most=most, each=5)
    assert len(kept) >= 50
    assert kept == events[-len(kept) :]
    assert with_newest(events, log, oldest=0, most=most, each=5, most_bytes=1).size <= 1
