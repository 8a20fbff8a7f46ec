"""The journal of a dictionary: entries in order, for processes that follow it.

An entry can be appended in the transaction that changes an item, so that all processes see both or neither.
Entries have consecutive numbers. The first number is derived from the time at which the journal was created, so that a
reader notices that a file was replaced, even if more entries were appended since then than before.

Entries have a separate table: they are neither items nor in the order of use, and `flush_all` keeps them. Above
`journal_size` bytes, appending deletes the oldest entries. An entry of more than `MAX_ENTRY_BYTES` is stored as an
item, because LMDB would need contiguous pages, and may be evicted before the journal reaches it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ..base import Entry
from ..codec import BYTES
from .environment import StoreError
from .items import Content, ItemStore
from .records import PAGE_BYTES, Txn, order_key

if TYPE_CHECKING:
    from lmdb import Cursor

MAX_ENTRY_BYTES: Final = 1800
"""Maximum size in bytes of an entry within the journal."""
NUMBERS_PER_MS: Final = 2**21
"""Numbers reserved per millisecond of a journal's creation. Later entries use the numbers of following milliseconds."""

_number: Final = int.from_bytes


class Entries(NamedTuple):
    """Entries after a position, with their numbers; None for an entry that was evicted.

    `last`: the position after them. `lost`: number of entries that were deleted before they could be read.
    `replaced`: the journal was created again since the position, so an unknown number of entries is lost.
    """

    last: int
    entries: list[tuple[int, bytes | None]]
    lost: int = 0
    replaced: bool = False


class JournalMixin(ItemStore):
    """Appends to the journal of a dictionary, and reads it.

    `journal_size`: maximum size in bytes; a sixteenth of the file unless it is raised.
    """

    def __init__(self, name: str, size: int, path: str | None, clock: Callable[[], float]) -> None:
        super().__init__(name, size, path, clock)
        self.journal_size = self.size // 16

    def append(self, *entries: Entry) -> None:
        """Append entries to the journal. Raise `NoMemory`."""

        def append(txn: Txn) -> None:
            for entry in entries:
                self._append(txn, entry)

        self._transaction(append, safe=False)

    def journal_end(self) -> int:
        """Return the number of the last entry; 0 if there has never been one."""
        cursor: Cursor[bytes] | None
        tries = 0
        while True:
            try:
                cursor = self._begin(self._journal).cursor()
                return _number(cursor.key()) if cursor.last() else 0
            except StoreError as error:
                cursor = None  # the traceback of an error must not keep a transaction alive
                tries = self._recover(error, tries)

    def read_journal(self, position: int) -> Entries:
        """Return the entries after the number `position`, at most 1000."""
        return self._snapshot(self._entries, position)

    def _entries(self, txn: Txn, position: int) -> Entries:
        cursor = txn.cursor(self._journal)
        last = _number(cursor.key()) if cursor.last() else 0
        if last in (0, position):
            return Entries(position, [])
        begin = begin_of(position, last)
        cursor.set_range(order_key(begin + 1))
        entries = [
            (_number(key), entry or self._long_entry(txn, _number(key)))
            for key, entry in islice(cursor.iternext(), 1000)
        ]
        return Entries(entries[-1][0], entries, entries[0][0] - begin - 1, position != 0 and begin != position)

    def _append(self, txn: Txn, entry: Entry) -> None:
        """Append an entry within a transaction. Ring before it is committed, so that a crash cannot prevent it."""
        if not isinstance(entry, bytes):
            raise TypeError(f"An entry of the journal must be bytes, not {entry!r}.")
        if self._waiting[0] and self.bell is not None:
            self.bell.ring()
        cursor = txn.cursor(self._journal)
        number = _number(cursor.key()) + 1 if cursor.last() else _first_number()
        if len(entry) > MAX_ENTRY_BYTES:
            name = _name(number)
            self._save(txn, name, name, None, Content(BYTES, entry))
            entry = b""
        txn.put(order_key(number), entry, True, True, True, self._journal)
        if not number % 16:
            self._trim(txn)

    def _trim(self, txn: Txn) -> None:
        """Delete the oldest entries of a journal that is too large, twice as many as are appended between calls."""
        stat = txn.stat(self._journal)
        if (stat["branch_pages"] + stat["leaf_pages"]) * PAGE_BYTES <= self.journal_size:
            return
        cursor = txn.cursor(self._journal)
        cursor.first()
        for _ in range(min(32, stat["entries"] - 1)):
            key, entry = cursor.item()
            if not entry:
                name = _name(_number(key))
                record = txn.get(name)
                if record is not None:
                    self._remove(txn, name, record)
            cursor.delete()

    def _long_entry(self, txn: Txn, number: int) -> bytes | None:
        record = txn.get(_name(number))
        return None if record is None else self._payload(txn, record)


def begin_of(position: int, last: int) -> int:
    """Return the position, or the beginning of a journal that was created again since.

    A journal that was created in another millisecond and ends far ahead of the position was created again.
    """
    begin = last - last % NUMBERS_PER_MS
    if position < last and (begin <= position or last < position + 2**20):
        return position
    return begin


def _first_number() -> int:
    return int(time.time() * 1000) * NUMBERS_PER_MS + 1


def _name(number: int) -> bytes:
    return b"journal:%d" % number
