"""Logs of events: what is added comes back, and the bounds hold."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits.statistics.events import EventLog, RefusalEvent, newest_of, read_log, with_newest
from resty_django.txid import txid

PLENTY = 10**9
texts = st.text(st.characters(), max_size=8)
events_of = st.lists(
    st.builds(
        RefusalEvent,
        st.integers(0, 2**52),
        texts,
        st.integers(0, 3),
        st.from_regex("[0-9a-v]{0,20}", fullmatch=True),
        texts,
    ),
    max_size=60,
)


def added(parts: list[list[RefusalEvent]]) -> EventLog:
    """A log to which the parts were added."""
    log = EventLog()
    for part in parts:
        log = with_newest(part, log, oldest=0, most=PLENTY, each=PLENTY, most_bytes=PLENTY)
    return log


@given(st.lists(events_of, max_size=40))
def test_what_is_added_comes_back(parts: list[list[RefusalEvent]]) -> None:
    log = read_log(added(parts).packed())
    everything = [event for part in parts for event in part]
    assert sorted(log.events()) == sorted(everything)
    assert log.total == len(everything)
    assert len(log.blocks) <= 32


def crowd(keys: int, each: int) -> list[RefusalEvent]:
    return [RefusalEvent(1_790_000_000_000 + 7 * turn, f"10.0.{key // 256}.{key % 256}", turn % 4)
            for turn in range(each) for key in range(keys)]  # fmt: skip


def test_events_take_few_bytes() -> None:
    events = crowd(500, 20)
    assert added([events]).size < len(events)
    with_requests = [event._replace(txid=txid(), request="GET /api/prices/") for event in events[:1000]]
    assert added([with_requests]).size < 13 * len(with_requests)


def test_events_of_earlier_versions_are_read() -> None:
    block = zlib.compress(msgspec.msgpack.encode([5, [b"k", b"l"], [0, 1], [2], b"\0\1"]))
    assert read_log(msgspec.msgpack.encode([2, [block]])).events() == [RefusalEvent(5, "k", 0), RefusalEvent(7, "l", 1)]


@pytest.mark.parametrize(
    "foreign",
    [None, 7, "text", b"", b"\xff\xff", msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode([3, [b"no zlib"]]),
     msgspec.msgpack.encode([3, [zlib.compress(b"\xc1")]]),
     msgspec.msgpack.encode([3, [zlib.compress(msgspec.msgpack.encode([0, [b"k"], [5], [], b"\0"]))]]),
     msgspec.msgpack.encode([3, [zlib.compress(msgspec.msgpack.encode([0, [b"k"], [0], [1], b"\0"]))]])],
)  # fmt: skip
def test_foreign_data_has_no_events(foreign: object) -> None:
    assert read_log(foreign).events() == []


def test_only_the_newest_events_are_kept() -> None:
    events = [RefusalEvent(turn, key, 2) for turn in range(100) for key in ("often", f"key{turn}")]
    kept = newest_of(events, oldest=20, most=1000, each=5)
    assert [event[:3] for event in kept if event.key == "often"] == [(turn, "often", 2) for turn in range(95, 100)]
    assert [event.time for event in kept if event.key != "often"] == list(range(20, 100))
    assert [event.time for event in newest_of(events, oldest=0, most=3, each=5)] == [98, 99, 99]


@pytest.mark.parametrize(("most", "most_bytes"), [(50, PLENTY), (PLENTY, 1500)])
def test_a_log_of_the_newest_events_is_bounded(most: int, most_bytes: int) -> None:
    events = [RefusalEvent(number, f"key{number}", 2) for number in range(1500)]
    log = EventLog()
    for start in range(0, 1500, 3):
        log = with_newest(events[start : start + 3], log, oldest=0, most=most, each=5, most_bytes=most_bytes)
        assert log.total <= 2 * most
        assert log.size <= most_bytes
    kept = newest_of(log.events(), oldest=0, most=most, each=5)
    assert len(kept) >= 50
    assert kept == events[-len(kept) :]
    assert with_newest(events, log, oldest=0, most=most, each=5, most_bytes=1).size <= 1
