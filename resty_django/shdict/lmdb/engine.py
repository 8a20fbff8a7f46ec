"""The calls of an LMDB dictionary, each of which is one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Any, ClassVar, Final, NamedTuple

from .. import codec
from ..base import Change, Entry, Item, Keep, OnError, Outcome, SharedDict, Stats
from ..codec import (
    BYTES,
    FLOAT,
    INT,
    LIST,
    LONGEST_TTL,
    ROUNDING,
    SHORTEST_TTL,
    TEXT,
    WHOLE,
    check_flags,
    decode,
    encode,
    encode_key,
    milliseconds,
    unreadable,
)
from ..errors import BadValue, NoMemory, NotANumber, NotFound, Unreadable, WrongKind
from ..patterns import KeyPattern
from .atomic import RevisionMixin
from .environment import MapFull, StoreError
from .items import NoSpace, name_of
from .journal import JournalMixin
from .records import (
    COUNT,
    COUNTER,
    COUNTER_SIZE,
    ENDS,
    ENTRY,
    FORCIBLE,
    FORM,
    FRONT,
    HEAD,
    LONG_KEY,
    LONGEST_NAME,
    MIDDLE,
    PAGE,
    SEQ,
    SIZE,
    Txn,
    counted,
    head_of,
    key_in,
    order_key,
    part_key,
)

ALWAYS: Final = 0
IF_ABSENT: Final = 1
IF_PRESENT: Final = 2

LARGE: Final = 2**62
"""Numbers below this limit can be added without a 64-bit overflow."""

EVICTIONS: Final = 5
"""Maximum number of tries to make space for several items together; then they are stored one by one."""

WINDOW: Final = 128
"""Maximum number of items that a transaction examines, to keep it short."""


class NewItem(NamedTuple):
    """An item to be stored. `life`: milliseconds, 0: forever."""

    key: Any
    name: bytes
    kind: int
    body: bytes
    life: int


class LmdbDict(RevisionMixin, JournalMixin, SharedDict):
    """A dictionary in this machine's memory.

    `size`: size of the file in bytes; three quarters of it hold items. `path`: folder of the file (None: memory).
    `clock`: monotonic seconds, common to all processes; replaced only in tests.
    """

    engine: ClassVar[str] = "lmdb"

    def __init__(
        self, name: str, size: int, path: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name, size, path, clock)

    # --- reading ---

    def get(self, key: object, default: Any = None) -> Any:
        tries = 0
        while True:
            try:
                name = key.encode() if type(key) is str else encode_key(key)
                if len(name) > LONGEST_NAME:
                    name = name_of(key)
                txn = self._begin(self._items)
                record = txn.get(name)
                if record is None:
                    return default
                expires, kind, form, generation = FRONT(record)
                if generation != self._flushes[0] or 0 < expires <= self._clock() * 1000:
                    return default
                if self._old and SEQ(record)[0] < self._old:
                    self._note(name)
                payload = self._payload(txn, record) if form else record[SIZE:]
                break
            except UnicodeEncodeError:
                key = encode_key(key)
            except StoreError as error:
                txn = None
                name_of(key)  # raises for an empty key, which LMDB rejects
                tries = self._recover(error, tries)
        txn = None  # the traceback of an error must not keep a transaction alive
        try:
            return payload.decode() if kind == TEXT else self._value(kind, payload)
        except UnicodeDecodeError as error:
            raise unreadable(error) from None

    def get_item(self, key: object) -> Item | None:
        return self._look(key, with_stale=False)

    def get_stale(self, key: object) -> Item | None:
        return self._look(key, with_stale=True)

    def _look(self, key: object, with_stale: bool) -> Item | None:
        def look(txn: Txn, name: bytes) -> Item | None:
            record = txn.get(name)
            if record is None:
                return None
            head = head_of(record)
            stale = head.generation != self._flushes[0] or 0 < head.expires <= self._clock() * 1000
            if stale and not with_stale:
                return None
            if not stale and head.seq < self._old:
                self._note(name)
            return Item(self._value(head.kind, self._payload(txn, record)), head.flags, stale)

        return self._read(key, look)

    def ttl(self, key: object) -> float | None:
        def look(txn: Txn, name: bytes) -> float | None:
            record = txn.get(name)
            now = int(self._clock() * 1000)
            if record is None or not self._live(record, now):
                return None
            expires = head_of(record).expires
            return (expires - now) / 1000 if expires else 0.0

        return self._read(key, look)

    def get_keys(self, limit: int = 1024) -> list[str]:
        keys: dict[str, None] = {}
        start = 0
        while start >= 0:
            start = self._snapshot(partial(self._keys_from, keys, start, limit))
        return list(keys)

    def _keys_from(self, keys: dict[str, None], start: int, limit: int, txn: Txn) -> int:
        """Add the keys of a window of items from number `start` on. Return the start of the next window, or -1."""
        now = int(self._clock() * 1000)
        cursor = txn.cursor(self._order)
        if not cursor.set_range(order_key(start)):
            return -1
        for count, (seq, name) in enumerate(cursor.iternext()):
            if count == WINDOW:
                return int.from_bytes(seq)
            record = txn.get(name)
            if self._live(record, now):
                form = record[FORM]
                key = key_in(self._body(txn, record, form)) if form & LONG_KEY else name
                keys[codec.decode_key(key)] = None
                if len(keys) == limit:
                    break
        return -1

    def get_many(self, keys: Iterable[Any], on_error: OnError | None = None) -> dict[Any, Any]:
        names = {key: name_of(key) for key in keys}

        def look(txn: Txn) -> dict[Any, tuple[int, bytes]]:
            now = int(self._clock() * 1000)
            payloads = {}
            for key, name in names.items():
                record = txn.get(name)
                if record is not None and self._live(record, now):
                    payloads[key] = FRONT(record)[1], self._payload(txn, record)
                    if SEQ(record)[0] < self._old:
                        self._note(name)
            return payloads

        values = {}
        for key, (kind, payload) in self._snapshot(look).items():
            try:
                values[key] = self._value(kind, payload)
            except (WrongKind, Unreadable) as error:
                if on_error is None:
                    raise
                on_error(key, error)
        return values

    def iter_keys(self, pattern: str = "*") -> Iterator[str]:
        key_pattern = KeyPattern(pattern)
        start, end = 0, self._snapshot(self._newest)
        while 0 <= start <= end:
            keys: dict[str, None] = {}
            start = self._snapshot(partial(self._keys_from, keys, start, 0))
            yield from filter(key_pattern.matches, keys)

    def _newest(self, txn: Txn) -> int:
        """Return the largest number in `order`. Items that are written later are moved behind it."""
        cursor = txn.cursor(self._order)
        return int.from_bytes(cursor.key()) if cursor.last() else -1

    # --- writing ---

    def set(self, key: object, value: Any, ttl: float = 0, flags: int = 0, entry: Entry = None) -> Outcome:
        return self._store(key, value, ttl, flags, ALWAYS, False, entry)

    def safe_set(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self._store(key, value, ttl, flags, ALWAYS, True)

    def add(self, key: object, value: Any, ttl: float = 0, flags: int = 0, entry: Entry = None) -> Outcome:
        return self._store(key, value, ttl, flags, IF_ABSENT, False, entry)

    def safe_add(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self._store(key, value, ttl, flags, IF_ABSENT, True)

    def replace(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self._store(key, value, ttl, flags, IF_PRESENT, False)

    def _store(
        self, key: object, value: Any, ttl: float, flags: int, when: int, safe: bool, entry: Entry = None
    ) -> Outcome:
        if value is None:
            return self._store_nothing(key, when, entry)
        name = name_of(key)
        kind, body = (BYTES, value) if type(value) is bytes else encode(value)
        life = 0
        if ttl:  # as `milliseconds`, without a call for the usual times
            life = int(ttl * 1000 + ROUNDING) if SHORTEST_TTL <= ttl <= LONGEST_TTL else milliseconds(ttl)
        if flags:
            check_flags(flags)
        tries = 0
        while True:
            try:
                if monotonic() >= self._look_at:
                    self._look_at_files()
                with self._writing, self._begin(self._items, None, True) as txn:
                    now = int(self._clock() * 1000)
                    record = txn.get(name)
                    head = HEAD.unpack_from(record) if record is not None else None
                    if when:
                        live = head is not None and head[4] == self._flushes[0] and not 0 < head[0] <= now
                        if live and when == IF_ABSENT:
                            return Outcome.EXISTS
                        if not live and when == IF_PRESENT:
                            return Outcome.NOT_FOUND
                    expires = now + life if life else 0
                    forced = self._save(txn, name, record, head, key, kind, body, flags, expires, now, safe)
                    if entry is not None:
                        self._append(txn, entry)
                return Outcome.FORCED if forced else Outcome.STORED
            except (NoSpace, StoreError) as error:
                tries = self._mend(error, tries, name, safe)

    def _store_nothing(self, key: object, when: int, entry: Entry) -> Outcome:
        """`set` of None deletes; `add` and `replace` of None have nothing to store."""
        if when != ALWAYS:
            raise BadValue("None cannot be stored. Use delete().")
        self.delete(key, entry)
        return Outcome.STORED

    def delete(self, key: object, entry: Entry = None) -> bool:
        name = name_of(key)
        tries = 0
        while True:
            try:
                if monotonic() >= self._look_at:
                    self._look_at_files()
                with self._writing, self._begin(self._items, None, True) as txn:
                    record = txn.get(name)
                    live = record is not None and self._live(record, int(self._clock() * 1000))
                    if record is not None:
                        self._remove(txn, name, record)
                    if entry is not None:
                        self._append(txn, entry)
                return live
            except (NoSpace, StoreError) as error:
                tries = self._mend(error, tries, name, safe=entry is None)

    def delete_if(self, key: object, value: Any) -> bool:
        expected = (BYTES, value) if type(value) is bytes else encode(value)
        name = name_of(key)
        tries = 0
        while True:
            try:
                if monotonic() >= self._look_at:
                    self._look_at_files()
                with self._writing, self._begin(self._items, None, True) as txn:
                    record = txn.get(name)
                    if record is None:
                        return False
                    expires, kind, form, generation = FRONT(record)
                    if generation != self._flushes[0] or 0 < expires <= self._clock() * 1000:
                        return False
                    if (kind, self._payload(txn, record) if form else record[SIZE:]) != expected:
                        return False
                    self._remove(txn, name, record)
                return True
            except (NoSpace, StoreError) as error:
                tries = self._mend(error, tries, name, safe=True)

    def expire(self, key: object, ttl: float) -> bool:
        return self._expire(key, ttl, None)

    def expire_if(self, key: object, value: Any, ttl: float) -> bool:
        return self._expire(key, ttl, encode(value))

    def _expire(self, key: object, ttl: float, expected: tuple[int, bytes] | None) -> bool:
        life = milliseconds(ttl)

        def expire(txn: Txn, name: bytes, record: bytes, live: bool, now: int) -> bool:
            head = head_of(record)
            if not live or (expected is not None and (head.kind, self._payload(txn, record)) != expected):
                return False
            expires, due = (now + life if life else 0), head.due
            if expires and (not due or expires < due):
                if due:
                    txn.delete(order_key(due) + name, b"", self._due)
                due = expires
                txn.put(order_key(due) + name, b"", True, True, False, self._due)
            txn.put(name, HEAD.pack(*head._replace(expires=expires, due=due)) + record[SIZE:])
            return True

        return self._write(key, expire) is True

    def incr(self, key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
        if init_ttl and init is None:
            raise ValueError("init_ttl is the time to live of a new number. Pass init as well.")
        if type(by) is not int and type(by) is not float:
            raise BadValue(f"{by!r} is not a number.")
        if init is not None and type(init) is not int and type(init) is not float:
            raise BadValue(f"{init!r} is not a number.")
        name = name_of(key)
        life = milliseconds(init_ttl) if init_ttl else 0
        is_small_int = type(by) is int and -LARGE < by < LARGE
        if not is_small_int and type(by) is int:
            encode(by)  # raises for more than 64 bits even if the sum fits, because Redis must do so too
        tries = 0
        while True:
            try:
                if monotonic() >= self._look_at:
                    self._look_at_files()
                with self._writing, self._begin(self._items, None, True) as txn:
                    record = txn.get(name)
                    if is_small_int and record is not None and len(record) == COUNTER_SIZE:
                        expires, kind, generation, number = COUNTER(record)
                        if (
                            kind == INT
                            and generation == self._flushes[0]
                            and not self._crowded[0]
                            and not (expires and expires <= self._clock() * 1000)
                            and -LARGE < number < LARGE
                        ):
                            number += by
                            txn.put(name, counted(record, number))
                            return number
                    head = None
                    now = int(self._clock() * 1000)
                    if record is not None:
                        head = expires, flags, kind, old_form, generation, _, _ = HEAD.unpack_from(record)
                    if record is None or generation != self._flushes[0] or 0 < expires <= now:
                        if init is None:
                            raise NotFound(f"The key {key!r} does not exist. Pass init to incr() to create it.")
                        total, flags, expires = init + by, 0, now + life if life else 0
                    else:
                        if kind != INT and kind != FLOAT:
                            raise NotANumber(f"The value of the key {key!r} is not a number.")
                        payload = self._payload(txn, record) if old_form else record[SIZE:]
                        total = decode(kind, payload) + by
                    kind, body = encode(total)
                    self._save(txn, name, record, head, key, kind, body, flags, expires, now, False)
                return total
            except (NoSpace, StoreError) as error:
                tries = self._mend(error, tries, name, safe=False)

    def update(self, key: object, function: Callable[[Any], Change | Keep], entry: Entry = None) -> Any:
        name = name_of(key)
        tries = 0
        while True:
            called = False
            try:
                if monotonic() >= self._look_at:
                    self._look_at_files()
                with self._writing, self._begin(self._items, None, True) as txn:
                    record = txn.get(name)
                    now = int(self._clock() * 1000)
                    old = head = payload = None
                    flags = expires = 0
                    if record is not None:
                        head = expires, flags, old_kind, old_form, generation, seq, due = HEAD.unpack_from(record)
                        if generation != self._flushes[0] or 0 < expires <= now:
                            flags = expires = 0
                        elif old_form:
                            old = self._value(old_kind, self._payload(txn, record))
                        else:
                            payload = record[SIZE:]
                            if old_kind == BYTES:
                                old = payload
                            elif old_kind == INT:
                                (old,) = WHOLE.unpack(payload)
                            else:
                                old = self._value(old_kind, payload)
                    called = True
                    change = function(old)
                    if type(change) is Keep:
                        return change.result
                    if type(change) is not Change:
                        raise TypeError(f"The function of update() returned {change!r}, neither a Change nor a Keep.")
                    if entry is not None:
                        self._append(txn, entry)
                    value = change.value
                    if value is None:
                        if record is not None:
                            self._remove(txn, name, record)
                        return change.result
                    if change.ttl is not None:
                        life = milliseconds(change.ttl)
                        expires = now + life if life else 0
                    kind, body = (BYTES, value) if type(value) is bytes else encode(value)
                    if payload is not None and len(body) == len(payload) and not self._crowded[0]:
                        if kind == old_kind and change.ttl is None:
                            txn.put(name, record[:SIZE] + body)
                            return change.result
                        if not expires or 0 < due <= expires:
                            txn.put(name, HEAD.pack(expires, flags, kind, 0, generation, seq, due) + body)
                            return change.result
                    self._save(txn, name, record, head, key, kind, body, flags, expires, now, False)
                return change.result
            except (NoSpace, StoreError) as error:
                if called and "closed" in str(error):
                    raise RuntimeError(f"The function of update() of {self.name!r} forked or closed it.") from error
                tries = self._mend(error, tries, name, safe=False)

    # --- lists ---

    def lpush(self, key: object, value: Any) -> int:
        return self._push(key, value, at_head=True)

    def rpush(self, key: object, value: Any) -> int:
        return self._push(key, value, at_head=False)

    def _push(self, key: object, value: Any, at_head: bool) -> int:
        kind, data = encode(value)
        if kind not in (TEXT, INT, FLOAT, BYTES):
            raise BadValue(f"A list can contain str, numbers and bytes, not a {type(value).__name__}.")
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
            need = len(data) + ENTRY
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
        owner, first, end = ENDS.unpack(self._payload(txn, record))
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
        self._save(txn, name, record, head, key, LIST, ENDS.pack(*ends), flags, expires, now, True)

    # --- many keys ---

    def set_many(
        self, values: Mapping[Any, Any], ttl: float | Mapping[Any, float] = 0, flags: int = 0, entry: Entry = None
    ) -> list[Any]:
        check_flags(flags)
        if not isinstance(ttl, Mapping):
            milliseconds(ttl)
        items = [
            NewItem(key, name_of(key), *encode(value), milliseconds(ttl[key] if isinstance(ttl, Mapping) else ttl))
            for key, value in values.items()
            if value is not None
        ]
        absent = [key for key, value in values.items() if value is None]
        failed = []
        for batch in self._batches(items):
            last_entry = entry if batch[-1] is items[-1] and not absent else None
            if not self._store_together(batch, flags, last_entry):
                failed += [item.key for item in batch if not self._fits(item, values[item.key], flags)]
                if last_entry is not None:
                    self.append(last_entry)
        if absent:
            self.delete_many(absent, entry)
        return failed

    def _batches(self, items: list[NewItem]) -> Iterator[list[NewItem]]:
        """Yield the items in parts that one transaction can store."""
        batch: list[NewItem] = []
        room = 0
        for item in items:
            if batch and (len(batch) >= self._changes or len(item.body) > room):
                yield batch
                batch = []
            if not batch:
                room = self._changes * PAGE
            batch.append(item)
            room -= len(item.body)
        if batch:
            yield batch

    def _store_together(self, items: list[NewItem], flags: int, entry: Entry) -> bool:
        """Store items in one transaction. Return False, with nothing stored, if there is no space for all of them."""

        def store(txn: Txn) -> None:
            now = int(self._clock() * 1000)
            need = sum(len(item.name) + len(item.body) + ENTRY for item in items)
            if need > self._room:
                self._make_room(txn, b"", need, now, safe=False)
            for item in items:
                record = txn.get(item.name)
                head = HEAD.unpack_from(record) if record is not None else None
                expires = now + item.life if item.life else 0
                self._save(txn, item.name, record, head, item.key, item.kind, item.body, flags, expires, now, False)
            if entry is not None:
                self._append(txn, entry)

        tries = 0
        while True:
            try:
                if monotonic() >= self._look_at:
                    self._look_at_files()
                with self._writing, self._begin(self._items, None, True) as txn:
                    store(txn)
                return True
            except NoSpace as error:
                self._room = 0  # the pages are to be counted again, because nothing was stored
                if tries >= EVICTIONS or not self._may_evict(error.need):
                    return False
                tries += 1
            except MapFull:
                return False
            except StoreError as error:
                tries = self._recover(error, tries)

    def _may_evict(self, need: int) -> bool:
        """Free this number of bytes. Return whether that succeeded."""
        try:
            self._evict(b"", need, safe=False)
        except NoMemory:
            return False
        return True

    def _fits(self, item: NewItem, value: Any, flags: int) -> bool:
        """Store an item in a separate transaction, evicting others. Return whether there was space."""
        try:
            self._store(item.key, value, item.life / 1000, flags, ALWAYS, safe=False)
        except NoMemory:
            return False
        return True

    def delete_many(self, keys: Iterable[Any], entry: Entry = None) -> int:
        names = list(dict.fromkeys(map(name_of, keys)))
        deleted = 0
        for start in range(0, len(names), self._changes):
            end = start + self._changes
            last_entry = entry if end >= len(names) else None
            delete = partial(self._delete_some, names[start:end], last_entry)
            deleted += self._transaction(delete, safe=last_entry is None)
        return deleted

    def _delete_some(self, names: list[bytes], entry: Entry, txn: Txn) -> int:
        deleted = 0
        if entry is not None:
            self._append(txn, entry)
        now = int(self._clock() * 1000)
        for name in names:
            record = txn.get(name)
            if record is not None:
                deleted += self._live(record, now)
                self._remove(txn, name, record)
        return deleted

    # --- the whole ---

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
            freed, unfinished = self._transaction(partial(self._free_some, limit - total if limit else WINDOW))
            total += freed
        return total

    def _free_some(self, limit: int, txn: Txn) -> tuple[int, bool]:
        """Free at most `limit` expired items. Return their number and whether there may be more."""
        limit = min(limit, self._changes)
        dropped, _, looked = self._drop_stale(txn, int(self._clock() * 1000), self.size, limit)
        return dropped, looked == limit

    def capacity(self) -> int:
        return self.size

    def free_space(self) -> int:
        return self.stats().free_space

    def stats(self) -> Stats:
        tries = 0
        while True:
            try:
                with self._begin(self._items) as txn:
                    free = max(0, self._mark - self._used_pages(txn)) * PAGE
                    (forcible,) = COUNT.unpack(txn.get(FORCIBLE, b"", self._meta))
                    return Stats(txn.stat(self._items)["entries"], self._mark * PAGE, free, forcible)
            except StoreError as error:
                tries = self._recover(error, tries)
