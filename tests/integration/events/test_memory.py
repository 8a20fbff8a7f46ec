"""Events in memory: posters that are killed in the middle, numbers after a wipe, a dictionary that is full."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.events import NoRoom
from resty_django.events.memory import LAST, MemoryChannel, begin_of
from resty_django.events.options import Options
from resty_django.events.service import EventService
from resty_django.events.settings import EventsSettings
from resty_django.shdict import Change, NoMemory
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import MIB

MS = 2**21


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[MemoryChannel]:
    events_dict = LmdbDict("events", MIB, str(tmp_path / "dicts"))
    yield MemoryChannel(events_dict)
    events_dict.close()


def records(channel: MemoryChannel, position: int) -> list[bytes | None]:
    batch = channel.read(position)
    return [] if batch is None else [record for _, record in batch.records]


def test_numbers_are_one_after_the_other(channel: MemoryChannel) -> None:
    assert channel.last() == 0
    for number in range(5):
        channel.append(b"%d" % number, 0)
    begin = channel.last() - 5
    assert begin % MS == 0
    assert abs(begin / MS - time.time() * 1000) < 60_000
    assert records(channel, 0) == records(channel, begin) == [b"0", b"1", b"2", b"3", b"4"]
    assert records(channel, begin + 3) == [b"3", b"4"]
    assert channel.read(begin + 5) is None


def test_an_event_whose_poster_was_killed_is_heard_and_leaves_no_gap(channel: MemoryChannel) -> None:
    """It was killed after it had stored the record, and before it moved the counter."""
    channel.append(b"a", 0)
    last = channel.last()
    channel.dictionary.add(f"event:{last + 1}", b"untold")
    batch = channel.read(last)
    assert batch is not None
    assert batch.records == [(last + 1, b"untold")]
    assert channel.last() == last + 1
    channel.dictionary.add(f"event:{last + 2}", b"untold too")
    channel.append(b"b", 0)
    assert records(channel, last + 1) == [b"untold too", b"b"]


def test_the_counter_never_goes_back(channel: MemoryChannel) -> None:
    channel.append(b"a", 0)
    last = channel.last()
    channel.append(b"b", 0)
    channel.move_to(last)
    assert channel.last() == last + 1


def test_a_counter_that_was_thrown_out_goes_on_where_it_was(channel: MemoryChannel) -> None:
    """Between storing a record and moving the counter."""
    channel.append(b"a", 0)
    last = channel.last()
    channel.dictionary.add(f"event:{last + 1}", b"b")
    channel.dictionary.delete(LAST)
    assert channel.read(last) is None
    channel.move_to(last + 1)
    assert records(channel, last) == [b"b"]


def test_posters_at_once_leave_no_gap_and_lose_nothing(channel: MemoryChannel) -> None:
    channel.append(b"first", 0)
    begin = channel.last()

    def post(who: int) -> None:
        for number in range(100):
            channel.append(b"%d %d" % (who, number), 0)

    threads = [threading.Thread(target=post, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = records(channel, begin)
    assert len(stored) == 400
    for who in range(4):
        own_records = [record for record in stored if record is not None and record.startswith(b"%d " % who)]
        assert own_records == [b"%d %d" % (who, number) for number in range(100)]


@pytest.mark.parametrize(
    ("position", "last", "begin"),
    [
        (0, 5 * MS + 3, 5 * MS),  # started on an empty dictionary
        (5 * MS + 3, 5 * MS + 9, 5 * MS + 3),
        (5 * MS, 5 * MS + MS - 1, 5 * MS),  # far behind, but it is no new beginning
        (6 * MS - 2, 6 * MS + 5, 6 * MS - 2),  # more events than a millisecond has numbers
        (5 * MS + 9, 7 * MS + 1, 7 * MS),  # emptied
        (5 * MS + 9, 7 * MS + 900, 7 * MS),
        (5 * MS + 9, 4 * MS + 2, 4 * MS),  # emptied, and the clock was set back
        (5 * MS + 9, 5 * MS + 2, 5 * MS),
    ],
)
def test_where_reading_begins(position: int, last: int, begin: int) -> None:
    assert begin_of(position, last) == begin


def test_two_beginnings_are_never_in_one_millisecond(channel: MemoryChannel) -> None:
    begins = []
    for _ in range(5):
        channel.append(b"a", 0)
        begins.append(channel.last())
        channel.dictionary.flush_all()
    assert all(later - earlier >= MS for earlier, later in itertools.pairwise(begins))


# --- a full dictionary ---


def service(channel: MemoryChannel, **options: Any) -> EventService:
    return EventService(lambda: (channel, Options.of(EventsSettings()).changed(**options)))


def test_old_events_leave_when_there_is_no_room(channel: MemoryChannel) -> None:
    posts = service(channel)
    for number in range(3000):
        posts.post("s", "e", [number, "x" * 1000])
    batch = channel.read(channel.last() - 100)
    assert batch is not None
    assert all(record is not None for _, record in batch.records)
    assert channel.dictionary.get(f"event:{channel.last() - 2900}") is None


def test_a_listener_that_is_too_slow_hears_the_rest(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []
    listener = service(channel)
    listener.registry.add(lambda data, *event_args: heard.append(data[0]), "s")
    listener.begin(channel, Options.of(EventsSettings()).changed(wait_max=0))
    for number in range(3000):
        listener.post("s", "e", [number, "x" * 1000])
    assert listener.poll() == "done"
    assert heard == list(range(3000 - len(heard), 3000))
    assert 100 < len(heard) < 2900
    assert f"dropping {3000 - len(heard) + 1} events" in caplog.text


def test_an_event_that_does_not_fit_is_refused_with_its_size_alone(
    channel: MemoryChannel, caplog: pytest.LogCaptureFixture
) -> None:
    posts = service(channel, retries=2)
    posts.post("s", "e")
    with pytest.raises(NoRoom, match=r'^failed posting event "e" by "s"; no memory for its 20000\d\d bytes'):
        posts.post("s", "e", "secret " * 285714 + "xx")
    assert "An event of 20000" in caplog.text
    assert "secret" not in caplog.text
    posts.post("s", "f")
    assert b'"f"' in (channel.fetch(channel.last()) or b"")


def test_no_memory_is_tried_again_but_not_for_ever(channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []
    full = 3

    def add(key: object, value: object, ttl: float = 0, flags: int = 0) -> Any:
        tries.append(time.monotonic())
        if len(tries) <= full:
            raise NoMemory("full")
        return real(key, value, ttl, flags)

    channel.dictionary.update(LAST, lambda last: Change(MS, 0))
    real = channel.dictionary.add
    monkeypatch.setattr(channel.dictionary, "add", add)
    channel.append(b"a", 3)
    assert len(tries) == 4
    tries.clear()
    with pytest.raises(NoMemory):
        channel.append(b"b", 2)
    assert len(tries) == 3
    tries.clear()
    full = 10**9
    monkeypatch.setattr("resty_django.events.memory.PATIENCE", 0.05)
    with pytest.raises(NoMemory):
        channel.append(b"b", 10**9)
    assert tries[-1] - tries[0] < 1
