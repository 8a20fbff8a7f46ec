"""Lists under a key. Their elements are parts, whose positions count from the middle of a range in both directions."""

from __future__ import annotations

from typing import Any

from ..codec import LIST, decode, encode_element
from ..errors import WrongKind
from .items import Content, ItemStore, name_of
from .records import ITEM_OVERHEAD_BYTES, LIST_ENDS, ListEnds, Txn, head_of, part_key


class ListMixin(ItemStore):
    """The calls for lists."""

    def lpush(self, key: object, value: object) -> int:
        return self._push(key, value, at_head=True)

    def rpush(self, key: object, value: object) -> int:
        return self._push(key, value, at_head=False)

    def _push(self, key: object, value: Any, at_head: bool) -> int:
        kind, data = encode_element(value)
        name = name_of(key)

        def push(txn: Txn) -> int:
            record = txn.get(name)
            if record is not None and not self._live(record, int(self._clock() * 1000)):
                self._remove(txn, name, record)
                record = None
            if record is None:
                owner, first, end = self._next_seq(txn), 2**62, 2**62  # the middle of the range
            else:
                owner, first, end = self._ends(txn, record)
            need = len(data) + ITEM_OVERHEAD_BYTES
            if need > self._room:
                self._make_room(txn, name, need, safe=True)
            self._room -= need
            first, end = (first - 1, end) if at_head else (first, end + 1)
            self._save_list(txn, key, name, record, ListEnds(owner, first, end))
            item = bytes((kind,)) + data
            txn.put(part_key(owner, first if at_head else end - 1), item, True, True, False, self._parts)
            return end - first

        return self._transaction(push, name=name)

    def lpop(self, key: object) -> Any:
        return self._pop(key, at_head=True)

    def rpop(self, key: object) -> Any:
        return self._pop(key, at_head=False)

    def _pop(self, key: object, at_head: bool) -> Any:
        def pop(txn: Txn, name: bytes, record: bytes, live: bool, now: int) -> Any:
            if not live:
                return None
            owner, first, end = self._ends(txn, record)
            item = txn.pop(part_key(owner, first if at_head else end - 1), self._parts) or b""
            first, end = (first + 1, end) if at_head else (first, end - 1)
            if first == end:
                self._remove(txn, name, record)
            else:
                self._save_list(txn, key, name, record, ListEnds(owner, first, end))
            return decode(item[0], item[1:])

        return self._write(key, pop)

    def llen(self, key: object) -> int:
        def look(txn: Txn, name: bytes) -> int:
            record = txn.get(name)
            if record is None or not self._live(record, int(self._clock() * 1000)):
                return 0
            _, first, end = self._ends(txn, record)
            return end - first

        return self._read(key, look)

    def _ends(self, txn: Txn, record: bytes) -> ListEnds:
        if head_of(record).kind != LIST:
            raise WrongKind("The value is not a list. Use get().")
        return ListEnds._make(LIST_ENDS.unpack(self._payload(txn, record)))

    def _save_list(self, txn: Txn, key: object, name: bytes, record: bytes | None, ends: ListEnds) -> None:
        """Write the list over `record` (None: there is none), whose flags and expiry it keeps."""
        content = Content(LIST, LIST_ENDS.pack(*ends))
        if record is not None:
            head = head_of(record)
            content.flags, content.expires = head.flags, head.expires
        self._save(txn, key, name, record, content, safe=True)
