"""Looks at the tables of a dictionary in LMDB and says what is wrong with them."""

from __future__ import annotations

import shutil
from pathlib import Path

from lmdb.verify import verify as verify_pages

from resty_django.shdict.codec import LIST
from resty_django.shdict.lmdb import LmdbDict
from resty_django.shdict.lmdb.records import ENDS, IN_PARTS, PARTS, PIECE, SIZE, head_of, part_key


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
            name: ENDS.unpack(dictionary._payload(txn, items[name]))
            for name, head in heads.items()
            if head.kind == LIST
        }
    assert order == {head.seq.to_bytes(8): name for name, head in heads.items()}
    assert set(due) == {head.due.to_bytes(8) + name for name, head in heads.items() if head.due}
    for head in heads.values():
        assert head.expires == 0 or 0 < head.due <= head.expires
    wanted = []
    for name, head in heads.items():
        if head.form & IN_PARTS:
            owner, length = PARTS.unpack_from(items[name], SIZE)
            wanted += [part_key(owner, at) for at in range(0, length, PIECE)]
            assert sum(len(parts[part_key(owner, at)]) for at in range(0, length, PIECE)) == length
    for owner, first, end in lists.values():
        assert first < end
        wanted += [part_key(owner, position) for position in range(first, end)]
    assert sorted(wanted) == sorted(parts)
    flushes = dictionary._flushes[0]
    live = [heads[name].generation == flushes for _, name in sorted(order.items())]
    assert live == sorted(live)
    return len(items)


def check_pages(dictionary: LmdbDict, copy: Path) -> None:
    """Assert that the file is sound, page by page; `copy` is a path for a copy of it. Nobody else may use it."""
    dictionary.stats()
    assert dictionary._place is not None
    data = dictionary._place.data
    dictionary.close()
    shutil.copyfile(data, copy)
    assert verify_pages(str(copy), subdir=False) == []
    copy.unlink()
