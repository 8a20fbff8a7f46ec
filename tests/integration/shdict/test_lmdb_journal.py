"""The journal of a dictionary in LMDB: its numbers, its size, and entries in the transaction of a write."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resty_django.shdict import Keep, NoMemory, Update
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.lmdb.journal import MAX_ENTRY_BYTES, begin_of
from resty_django.shdict.lmdb.journal import NUMBERS_PER_MS as PER_MS
from tests.dictionaries import MIB

from .structure import check, check_pages, journal_bytes


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[LmdbDict]:
    dictionary = LmdbDict("journal", MIB, str(tmp_path / "dicts"))
    yield dictionary
    check(dictionary)
    dictionary.close()


def entries(dictionary: LmdbDict, position: int = 0) -> list[bytes | None]:
    return [entry for _, entry in dictionary.read_journal(position).entries]


def test_numbers_are_consecutive_and_begin_with_the_time(shared: LmdbDict) -> None:
    assert shared.journal_end() == 0
    shared.append(b"a")
    shared.append(b"b", b"c")
    end = shared.journal_end()
    begin = end - 3
    assert begin % PER_MS == 0
    assert abs(begin / PER_MS - time.time() * 1000) < 60_000
    for position in (0, begin):
        batch = shared.read_journal(position)
        assert batch.entries == [(begin + 1, b"a"), (begin + 2, b"b"), (end, b"c")]
        assert (batch.last, batch.lost, batch.replaced) == (end, 0, False)
    assert entries(shared, begin + 2) == [b"c"]
    assert shared.read_journal(end).entries == []


WRITES: dict[str, tuple[Callable[[LmdbDict, Any], object], bool]] = {
    "set": (lambda shared, entry: shared.set("k", "new", 0, 0, entry), True),
    "set of None": (lambda shared, entry: shared.set("k", None, 0, 0, entry), True),
    "add where there is an item": (lambda shared, entry: shared.add("k", "new", 0, 0, entry), False),
    "add": (lambda shared, entry: shared.add("other", "new", 0, 0, entry), True),
    "delete": (lambda shared, entry: shared.delete("k", entry), True),
    "delete where there is none": (lambda shared, entry: shared.delete("other", entry), True),
    "delete_many": (lambda shared, entry: shared.delete_many(map(str, range(1000)), entry), True),
    "update": (lambda shared, entry: shared.update("k", lambda old: Update("new"), entry), True),
    "update that deletes": (lambda shared, entry: shared.update("k", lambda old: Update(None), entry), True),
    "update that keeps": (lambda shared, entry: shared.update("k", lambda old: Keep(), entry), False),
    "flush_all": (lambda shared, entry: shared.flush_all(entry), True),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_appends_one_entry_if_it_changes_something(shared: LmdbDict, write: str) -> None:
    call, appends = WRITES[write]
    shared.set("k", "old")
    assert shared.journal_end() == 0
    call(shared, b"entry")
    assert entries(shared) == ([b"entry"] if appends else [])


def test_a_write_that_fails_appends_nothing(shared: LmdbDict) -> None:
    with pytest.raises(NoMemory):
        shared.set("k", b"x" * 2 * MIB, 0, 0, b"entry")

    def fails(old: Any) -> Update:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shared.update("k", fails, b"entry")
    assert entries(shared) == []


def test_a_full_dictionary_loses_no_entry(shared: LmdbDict, tmp_path: Path) -> None:
    """Neither entries of writes that evict, nor entries of deletions."""
    position, appended, read = 0, [], []
    for number in range(3000):
        entry = b"%d" % number
        if number % 3:
            shared.set(f"k{number}", b"x" * 1500, 0, 0, entry)
        else:
            shared.delete(f"k{number - 2}", entry)
        appended.append(entry)
        if not number % 200:
            batch = shared.read_journal(position)
            assert not batch.lost
            position = batch.last
            read += [entry for _, entry in batch.entries]
    read += entries(shared, position)
    assert read == appended
    assert shared.stats().forcible
    check_pages(shared, tmp_path / "copy")


@pytest.mark.parametrize("length", [10, 500, MAX_ENTRY_BYTES - 10, MAX_ENTRY_BYTES + 1, 20_000])
def test_the_oldest_entries_leave_a_journal_that_is_too_large(shared: LmdbDict, length: int) -> None:
    shared.set("k", "an item")
    for number in range(4000 if length < 100 else 600):
        shared.append(b"%d " % number + b"x" * length)
    end = shared.journal_end()
    batch = shared.read_journal(end - 500)
    assert batch.lost or batch.entries[0][1] is None or length < 100
    assert all(entry is None or entry.endswith(b"x" * length) for _, entry in batch.entries)
    assert batch.entries[-1] == (end, b"%d " % (end % PER_MS - 1) + b"x" * length)
    assert journal_bytes(shared) < 2 * MIB / 16
    if length < 100:
        assert shared.get("k") == "an item"


def test_a_reader_that_is_far_behind_reads_in_batches(shared: LmdbDict) -> None:
    shared.append(*(b"%d" % number for number in range(2500)))
    position = shared.journal_end() - 1500
    read: list[bytes | None] = []
    while batch := shared.read_journal(position).entries:
        assert len(batch) <= 1000
        read += [entry for _, entry in batch]
        position = batch[-1][0]
    assert read == [b"%d" % number for number in range(1000, 2500)]


def test_a_journal_that_was_created_again_is_noticed(shared: LmdbDict, tmp_path: Path) -> None:
    shared.append(b"old")
    position = shared.journal_end()
    shared.close()
    shutil.rmtree(tmp_path / "dicts")
    assert shared.read_journal(position) == (position, [], 0, False), "nothing was appended since"
    shared.append(b"new")
    batch = shared.read_journal(position)
    assert [entry for _, entry in batch.entries] == [b"new"]
    assert batch.replaced


@pytest.mark.parametrize(
    ("position", "last", "begin"),
    [
        (0, 5 * PER_MS + 3, 5 * PER_MS),  # started on an empty journal
        (5 * PER_MS + 3, 5 * PER_MS + 9, 5 * PER_MS + 3),
        (5 * PER_MS, 6 * PER_MS - 1, 5 * PER_MS),  # far behind, but it is not a new beginning
        (6 * PER_MS - 2, 6 * PER_MS + 5, 6 * PER_MS - 2),  # more entries than a millisecond has numbers
        (5 * PER_MS + 9, 7 * PER_MS + 1, 7 * PER_MS),  # created again
        (5 * PER_MS + 9, 7 * PER_MS + 900, 7 * PER_MS),
        (5 * PER_MS + 9, 4 * PER_MS + 2, 4 * PER_MS),  # created again, and the clock was set back
        (5 * PER_MS + 9, 5 * PER_MS + 2, 5 * PER_MS),
    ],
)
def test_the_beginning_of_a_read(position: int, last: int, begin: int) -> None:
    assert begin_of(position, last) == begin
