"""Lists under a key. Their elements are parts, whose positions count from the middle of a range in both directions."""

from __future__ import annotations

from typing import Any

from ..codec import LIST, decode, encode_element
from ..errors import WrongKind
from .items import ItemStore, name_of
from .records import ITEM_OVERHEAD_BYTES, LIST_ENDS, MIDDLE, Txn, head_of, part_key


class ListMixin(ItemStore):
    """The calls for lists."""

    def lpush(self, key: object, value: Any) -> int:
        return self._push(key, value, at_head=True)

    def rpush(self, key: object, value: Any) -> int:
        return self._push(key, value, at_head=False)

    def _push(self, key: object, value: Any, at_head: bool) -> int:
        kind, data = encode_element(value)
        name = name_of(key)

        def push(txn: Txn) -> int:
            now = int(self._clock() * 1000)
            record, flags, expires = txn.get(name), 0, 0
            if record is not None and not self._live(record, now):
                self._remove(txn, name, record)
                record = None
            if record is None:
                owner, first, end = self._next_seq(txn), MIDDLE, MIDDLE
            else:
                head = head_of(record)
                owner, first, end = self._ends(txn, record)
                flags, expires = head.flags, head.expires
            need = len(data) + ITEM_OVERHEAD_BYTES
            if need > self._room:
                self._make_room(txn, name, need, now, safe=True)
            self._room -= need
            first, end = (first - 1, end) if at_head else (first, end + 1)
            self._save_list(txn, key, name, record, (owner, first, end), flags, expires, now)
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
            item = txn.pop(part_key(owner, first if at_head else end - 1), self._parts)
            first, end = (first + 1, end) if at_head else (first, end - 1)
            if first == end:
                self._remove(txn, name, record)
            else:
                head = head_of(record)
                self._save_list(txn, key, name, record, (owner, first, end), head.flags, head.expires, now)
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

    def _ends(self, txn: Txn, record: bytes) -> tuple[int, int, int]:
        if head_of(record).kind != LIST:
            raise WrongKind("The value is not a list. Use get().")
        owner, first, end = LIST_ENDS.unpack(self._payload(txn, record))
        return owner, first, end

    def _save_list(
        self,
        txn: Txn,
        key: object,
        name: bytes,
        record: bytes | None,
        ends: tuple[int, int, int],
        flags: int,
        expires: int,
        now: int,
    ) -> None:
        head = None if record is None else head_of(record)
        self._save(txn, name, record, head, key, LIST, LIST_ENDS.pack(*ends), flags, expires, now, True)
