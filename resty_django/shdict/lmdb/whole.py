"""The calls for a dictionary as a whole: its keys, flushes and figures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from ..base import DictStats, Entry
from ..codec import decode_key
from ..patterns import KeyPattern
from .journal import JournalMixin
from .records import FORCIBLE, FORM_OFFSET, LONG_KEY, PAGE_BYTES, Txn, key_in, order_key

MAX_ITEMS_EXAMINED: Final = 128
"""Maximum number of items that a transaction examines, to keep it short."""


class WholeMixin(JournalMixin):
    """The calls for all items. Each is several transactions, between which other calls continue."""

    def get_keys(self, limit: int = 1024) -> list[str]:
        keys: dict[str, None] = {}
        start = 0
        while start >= 0:
            start = self._snapshot(self._keys_from, keys, start, limit)
        return list(keys)

    def _keys_from(self, txn: Txn, keys: dict[str, None], start: int, limit: int) -> int:
        """Add the keys of a window of items from number `start` on. Return the start of the next window, or -1."""
        now = int(self._clock() * 1000)
        cursor = txn.cursor(self._order)
        if not cursor.set_range(order_key(start)):
            return -1
        for count, (seq, name) in enumerate(cursor.iternext()):
            if count == MAX_ITEMS_EXAMINED:
                return int.from_bytes(seq)
            record = txn.get(name, b"")
            if self._live(record, now):
                form = record[FORM_OFFSET]
                key = key_in(self._body(txn, record, form)) if form & LONG_KEY else name
                keys[decode_key(key)] = None
                if len(keys) == limit:
                    break
        return -1

    def iter_keys(self, pattern: str = "*") -> Iterator[str]:
        key_pattern = KeyPattern(pattern)
        start, end = 0, self._snapshot(self._newest)
        while 0 <= start <= end:
            keys: dict[str, None] = {}
            start = self._snapshot(self._keys_from, keys, start, 0)
            yield from filter(key_pattern.matches, keys)

    def _newest(self, txn: Txn) -> int:
        """Return the largest number in `order`. Items that are written later are moved behind it."""
        cursor = txn.cursor(self._order)
        return int.from_bytes(cursor.key()) if cursor.last() else -1

    def flush_all(self, entry: Entry = None) -> None:
        def flush(txn: Txn) -> None:
            if entry is not None:
                self._append(txn, entry)
            self._flushes[0] = (self._flushes[0] + 1) % 2**32

        self._transaction(flush, safe=entry is None)

    def flush_expired(self, limit: int = 0) -> int:
        total = 0
        unfinished = True
        while unfinished and (not limit or total < limit):
            freed, unfinished = self._transaction(
                partial(self._free_some, limit - total if limit else MAX_ITEMS_EXAMINED)
            )
            total += freed
        return total

    def _free_some(self, limit: int, txn: Txn) -> tuple[int, bool]:
        """Free at most `limit` expired items. Return their number and whether there may be more."""
        limit = min(limit, self._max_changes)
        stale = self._drop_stale(txn, int(self._clock() * 1000), self.size, limit)
        return stale.dropped, stale.examined == limit

    def capacity(self) -> int:
        return self.size

    def free_space(self) -> int:
        return self.stats().free_space

    def stats(self) -> DictStats:
        return self._snapshot(self._stats)

    def _stats(self, txn: Txn) -> DictStats:
        free = max(0, self._max_pages - self._used_pages(txn)) * PAGE_BYTES
        forcible = int.from_bytes(txn.get(FORCIBLE, b"", self._meta), "little")
        return DictStats(txn.stat(self._items)["entries"], self._max_pages * PAGE_BYTES, free, forcible)
