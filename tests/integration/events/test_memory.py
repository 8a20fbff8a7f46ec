"""Events in memory: the order of concurrent posts, a replaced file, a full dictionary."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from resty_django.conf.sections.core import EventsSettings
from resty_django.events import NoRoom
from resty_django.events.channels.memory import MemoryChannel
from resty_django.events.options import EventOptions
from resty_django.events.service import EventService
from resty_django.shdict import NoMemory
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import MIB
from tests.threads import together

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


def test_posters_at_once_leave_no_gap_and_lose_nothing(channel: MemoryChannel) -> None:
    channel.append(b"first", 0)
    begin = channel.last()

    def post(who: int) -> None:
        for number in range(100):
            channel.append(b"%d %d" % (who, number), 0)

    together(*[partial(post, who) for who in range(4)])
    stored = records(channel, begin)
    assert len(stored) == 400
    for who in range(4):
        own_records = [record for record in stored if record is not None and record.startswith(b"%d " % who)]
        assert own_records == [b"%d %d" % (who, number) for number in range(100)]


def test_a_file_that_was_replaced_is_noticed(channel: MemoryChannel, tmp_path: Path) -> None:
    """Regardless of the number of events posted since."""
    for number in range(3):
        channel.append(b"%d" % number, 0)
    position = channel.last()
    channel.dictionary.close()
    shutil.rmtree(tmp_path / "dicts")
    for number in range(5):
        channel.append(b"new %d" % number, 0)
    assert records(channel, position) == [b"new %d" % number for number in range(5)]


def test_flushing_the_dictionary_keeps_the_events(channel: MemoryChannel) -> None:
    channel.append(b"a", 0)
    begin = channel.last() - 1
    channel.dictionary.flush_all()
    channel.dictionary.flush_expired()
    channel.append(b"b", 0)
    assert records(channel, begin) == [b"a", b"b"]


# --- a full dictionary ---


def service(channel: MemoryChannel, **options: Any) -> EventService:
    return EventService(lambda: (channel, EventOptions.of(EventsSettings()).changed(**options)))


def test_the_oldest_events_are_deleted_when_the_journal_is_full(channel: MemoryChannel) -> None:
    posts = service(channel)
    for number in range(3000):
        posts.post("s", "e", [number, "x" * 1000])
    batch = channel.read(channel.last() - 100)
    assert batch is not None
    assert all(record is not None for _, record in batch.records)
    old = channel.read(channel.last() - 2900)
    assert old is not None
    assert old.lost > 1000


def test_a_listener_that_is_too_slow_hears_the_rest(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []
    listener = service(channel)
    listener.registry.add(lambda data, *event_args: heard.append(data[0]), "s")
    listener.begin(channel, EventOptions.of(EventsSettings()))
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
    assert b'"f"' in (records(channel, channel.last() - 1)[0] or b"")


def test_a_large_event_is_stored_in_pieces_and_leaves_with_the_journal(channel: MemoryChannel) -> None:
    begin = channel.last()
    channel.append(b"x" * 100_000, 0)
    assert records(channel, begin) == [b"x" * 100_000]
    position = channel.last()
    for number in range(3000):
        channel.append(b"%d" % number + b"y" * 1000, 0)
    batch = channel.read(position - 1)
    assert batch is not None
    assert batch.lost > 0
    assert channel.dictionary.get_keys() == [], "the journal has deleted its item"


def test_a_large_event_that_was_evicted_is_dropped(channel: MemoryChannel, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    listener = service(channel)
    listener.registry.add(lambda data, event, *event_args: heard.append(event), "s")
    listener.begin(channel, EventOptions.of(EventsSettings()))
    listener.post("s", "large", "x" * 10_000)
    listener.post("s", "small")
    channel.dictionary.delete(*channel.dictionary.get_keys())
    assert listener.poll() == "done"
    assert heard == ["small"]
    assert "dropping 1 events" in caplog.text


def test_an_append_without_space_is_retried_but_not_forever(
    channel: MemoryChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []
    full = 3

    def append(record: bytes) -> None:
        tries.append(time.monotonic())
        if len(tries) <= full:
            raise NoMemory("full")

    monkeypatch.setattr(channel.dictionary, "append", append)
    channel.append(b"a", 3)
    assert len(tries) == 4
    tries.clear()
    with pytest.raises(NoMemory):
        channel.append(b"b", 2)
    assert len(tries) == 3
    tries.clear()
    full = 10**9
    monkeypatch.setattr("resty_django.events.channels.memory.APPEND_RETRY_SECONDS", 0.05)
    with pytest.raises(NoMemory):
        channel.append(b"b", 10**9)
    assert tries[-1] - tries[0] < 1
