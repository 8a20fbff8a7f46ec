"""Looks at the tables of a dictionary in LMDB and says what is wrong with them, and at its files and its readers.

Private attributes of `LmdbDict` are used here alone: the tables, the open file and its lock table are not part of the
interface of a dictionary, but corrupt files, readers left behind and files that were replaced show nowhere else.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lmdb.verify import verify as verify_pages

from resty_django.shdict.codec import LIST
from resty_django.shdict.lmdb import LmdbDict, environment
from resty_django.shdict.lmdb.files import DictFile
from resty_django.shdict.lmdb.records import (
    BODY_PARTS,
    HEAD_BYTES,
    IN_PARTS,
    LIST_ENDS,
    PAGE_BYTES,
    PIECE_BYTES,
    head_of,
    part_key,
)


def open_file(dictionary: LmdbDict) -> DictFile:
    """The files that the dictionary has open."""
    assert dictionary._dict_file is not None
    return dictionary._dict_file


def is_open(dictionary: LmdbDict) -> bool:
    return dictionary._env is not None


def readers(dictionary: LmdbDict) -> list[list[str]]:
    """The lock table of an open dictionary: the process, the thread and the transaction ("-": none) of each reader."""
    assert dictionary._env is not None
    return [line.split() for line in dictionary._env.readers().splitlines()[1:]]


def reader_pids(dictionary: LmdbDict) -> set[int]:
    return {int(reader[0]) for reader in readers(dictionary)}


def transactions(dictionary: LmdbDict) -> int:
    """Return the number of write transactions of an open dictionary."""
    assert dictionary._env is not None
    return int(dictionary._env.info()["last_txnid"])


def journal_bytes(dictionary: LmdbDict) -> int:
    """Return the size of the journal of an open dictionary."""
    with dictionary._begin(dictionary._items) as txn:
        stat = txn.stat(dictionary._journal)
    return int(stat["leaf_pages"] + stat["branch_pages"]) * PAGE_BYTES


def look_at_once(dictionary: LmdbDict) -> None:
    """Have the next write check that the files still exist, as it does once per second."""
    dictionary._check_files_at = 0.0


def after_fork() -> None:
    """Do in a child what PyOS_AfterFork_Child calls."""
    environment._after_fork()


def check(dictionary: LmdbDict) -> int:
    """Assert that the tables fit together; the number of items.

    Each item is in the order of use once, and due once if it may expire; nothing is there that belongs to no item; and
    what was flushed comes before all that was not.
    """
    dictionary.stats()  # opens it
    with dictionary._begin(dictionary._items) as txn:
        items, order, due, parts = (
            dict(txn.cursor(table))
            for table in (dictionary._items, dictionary._order, dictionary._due, dictionary._parts)
        )
        heads = {name: head_of(record) for name, record in items.items()}
        lists = {
            name: LIST_ENDS.unpack(dictionary._payload(txn, items[name]))
            for name, head in heads.items()
            if head.kind == LIST
        }
    assert order == {head.seq.to_bytes(8): name for name, head in heads.items()}
    assert set(due) == {head.due.to_bytes(8) + name for name, head in heads.items() if head.due}
    for head in heads.values():
        assert head.expires == 0 or 0 < head.due <= head.expires
    expected = []
    for name, head in heads.items():
        if head.form & IN_PARTS:
            owner, length = BODY_PARTS.unpack_from(items[name], HEAD_BYTES)
            expected += [part_key(owner, at) for at in range(0, length, PIECE_BYTES)]
            assert sum(len(parts[part_key(owner, at)]) for at in range(0, length, PIECE_BYTES)) == length
    for owner, first, end in lists.values():
        assert first < end
        expected += [part_key(owner, position) for position in range(first, end)]
    assert sorted(expected) == sorted(parts)
    flushes = dictionary._flushes[0]
    live = [heads[name].generation == flushes for _, name in sorted(order.items())]
    assert live == sorted(live)
    return len(items)


def check_pages(dictionary: LmdbDict, copy: Path) -> None:
    """Assert that the file is sound, page by page; `copy` is a path for a copy of it. Nobody else may use it."""
    dictionary.stats()
    data = open_file(dictionary).data
    dictionary.close()
    shutil.copyfile(data, copy)
    assert verify_pages(str(copy), subdir=False) == []
    copy.unlink()
