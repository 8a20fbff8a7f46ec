"""Transactions over items: saving, dropping, and eviction.

**Recency.** `order` lists the items by an increasing number; a new item goes to its end. While less than half of the
space is used, nothing is evicted soon, so items are not moved and a write costs one change. From then on the memory is
*crowded*: a written item moves to the end, unless it is in the newest eighth. Reads open no write transaction: a
process notes which items of the older half it has read, and its next writes move a few of them each. So a process that
never writes does not keep its items alive, and of two items used at about the same time either may be evicted first.

**Expiry.** `due` lists the items by the time at which they may have expired. If an item's expiry is postponed, its
early entry stays and is corrected when it comes due.

**Space.** Pages are counted with LMDB's own figures from time to time. Above three quarters of the file, a storing call
evicts more than it adds: expired items first, then the least recently used. The remaining quarter is spare: LMDB copies
changed pages, and the old pages become free for the transaction after the next, unless a reader still needs them. If
all spare pages were used at once, no write would be possible, so a transaction may change at most half of them.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from ..codec import LIST, encode_key
from ..errors import NoMemory
from .environment import Environment, StoreError
from .records import (
    BODY_PARTS,
    FORCIBLE,
    FORM_OFFSET,
    HEAD,
    HEAD_BYTES,
    IN_PARTS,
    ITEM_OVERHEAD_BYTES,
    LIST_ENDS,
    LONG_KEY,
    MAX_INLINE_BYTES,
    MAX_NAME_BYTES,
    PAGE_BYTES,
    PIECE_BYTES,
    ItemHead,
    Txn,
    front_of,
    head_of,
    order_key,
    part_key,
    payload_in,
    short_name,
    with_key,
)

MIN_EVICTED_BYTES: Final = 4096
"""An eviction frees at least this much."""

R = TypeVar("R")
RecordChange: TypeAlias = Callable[[Txn, bytes, bytes, bool, int], R]
"""Takes the transaction, the name, the stored record, whether it is live, and the time in milliseconds."""


class Content(Struct, gc=False):
    """The content of an item: the kind and the bytes of its value, flags, and expiry in milliseconds (0: never)."""

    kind: int
    body: bytes
    flags: int = 0
    expires: int = 0


class DroppedItems(NamedTuple):
    """The number of dropped items, the freed bytes, and the number of examined items."""

    dropped: int
    freed: int
    examined: int


class NoSpace(Exception):
    """There is no space for this number of bytes, and freeing it takes more than one transaction."""

    def __init__(self, need: int) -> None:
        super().__init__(need)
        self.need = need


def name_of(key: object) -> bytes:
    """Return the key as bytes, or its digest where it is too long to be a name. Raise `BadKey`."""
    try:
        name = key.encode() if type(key) is str else encode_key(key)
    except UnicodeEncodeError:
        name = encode_key(key)
    if 0 < len(name) <= MAX_NAME_BYTES:
        return name
    return short_name(encode_key(name))  # which raises if it is empty, or longer than a key may be


class ItemStore(Environment):
    """Read and write transactions over items, with the retries that LMDB may need, and eviction."""

    def __init__(self, name: str, size: int, path: str | None, clock: Callable[[], float]) -> None:
        super().__init__(name, size, path)
        self._clock = clock
        pages = self.size // PAGE_BYTES
        spare = max(pages // 4, 96)
        self._max_pages = pages - spare
        # Moving or dropping an item typically changes at most 6 pages; each transaction changes up to 24 others.
        self._max_changes = min(max((spare // 2 - 24) // 6, 2), 300)
        """Number of items that one transaction may move or drop; limited, to keep it short."""
        self._max_room = max(self.size // 1024, PAGE_BYTES)
        """Bytes that a process may store before it counts the pages again."""
        self._evicted_live = False
        """Whether a transaction that only evicted has removed items that had not expired."""

    # --- transactions, for calls that are not on a hot path ---

    def _read(self, key: object, look: Callable[[Txn, bytes], R]) -> R:
        return self._snapshot(look, name_of(key))

    def _snapshot(self, look: Callable[..., R], *args: object) -> R:
        """Return the result of a function in a read transaction; it takes the transaction and `args`."""
        tries = 0
        while True:
            try:
                with self._begin(self._items) as txn:
                    return look(txn, *args)
            except StoreError as error:
                tries = self._recover(error, tries)

    def _transaction(self, work: Callable[[Txn], R], safe: bool = True, name: bytes = b"") -> R:
        """Return the result of a function in a write transaction. It may be called again, after an eviction.

        `safe` and `name`: as in `_mend`.
        """
        tries = 0
        while True:
            try:
                if monotonic() >= self._check_files_at:
                    self._check_files()
                with self._writing, self._begin(self._items, None, True) as txn:
                    return work(txn)
            except (NoSpace, StoreError) as error:
                tries = self._mend(error, tries, name, safe)

    def _mend(self, error: NoSpace | StoreError, tries: int, name: bytes, safe: bool, caller: str = "") -> int:
        """Recover from an error of a write transaction and return the number of tries so far, or raise.

        `name`: the item to be spared. `safe`: items that have not expired must not be evicted. `caller`: the
        method whose argument is a function that ran in the transaction. Raise `RuntimeError` if it closed the memory.
        """
        if caller and "closed" in str(error):  # only this thread can have closed it
            raise RuntimeError(f"The function of {caller} of {self.name!r} forked or closed it.") from error
        if isinstance(error, NoSpace):
            self._evict(name, error.need, safe)
            return tries
        return self._recover(error, tries, safe)

    def _write(self, key: object, change: RecordChange[R]) -> R | None:
        """Change an existing record; return None if there is none."""
        name = name_of(key)

        def work(txn: Txn) -> R | None:
            record = txn.get(name)
            if record is None:
                return None
            now = int(self._clock() * 1000)
            return change(txn, name, record, self._live(record, now), now)

        return self._transaction(work)

    def _live(self, record: bytes, now: int) -> bool:
        expires, _, _, generation = front_of(record)
        return generation == self._flushes[0] and not 0 < expires <= now

    def _evict(self, name: bytes, need: int, safe: bool) -> None:
        """Free `need` bytes in separate transactions, sparing the item `name`. Raise `NoMemory`."""

        def evict(txn: Txn) -> int:
            room = (self._max_pages - self._used_pages(txn)) * PAGE_BYTES
            if room >= need:
                return 0
            return self._drop(txn, max(need - room, MIN_EVICTED_BYTES), safe, name) or -1

        if need <= self._max_pages * PAGE_BYTES // 2:
            for _ in range(1000):
                freed = self._transaction(evict, safe)
                if not freed:
                    return
                if freed < 0:
                    break
        raise NoMemory(f"There is no space for {need} bytes in {self._setting()}. Raise its SIZE ({self.size}).")

    # --- one item ---

    def _save(
        self, txn: Txn, key: object, name: bytes, record: bytes | None, content: Content, safe: bool = False
    ) -> bool:
        """Write an item over `record` (None: there is none). `name`: the name of `key`.

        Return whether items that had not expired were evicted. Raise `NoSpace`.
        """
        body, form = content.body, 0
        if len(name) > MAX_NAME_BYTES:
            body, form = with_key(encode_key(key), body), LONG_KEY
        crowded = self._crowded[0]
        if crowded and self._touched:
            self._move_touched(txn)
            if record is not None:
                record = txn.get(name)
        generation = self._flushes[0]
        forced = False
        if record is None:
            seq = due = 0
            moves = True
            need = len(name) + len(body) + ITEM_OVERHEAD_BYTES
        else:
            _, _, old_kind, old_form, old_generation, seq, due = HEAD.unpack_from(record)
            moves = generation != old_generation or (crowded != 0 and seq < (txn.id() << 16) - self._age)
            old = BODY_PARTS.unpack_from(record, HEAD_BYTES)[1] if old_form & IN_PARTS else len(record) - HEAD_BYTES
            need = len(body) - old
        if need > 0:
            if need > self._room:
                forced = self._make_room(txn, name, need, safe)
            self._room -= need
        if record is not None and (old_kind == LIST or old_form & IN_PARTS):
            self._drop_parts(txn, record, keep_list=content.kind == LIST)
        if moves:
            if seq:
                txn.delete(order_key(seq), b"", self._order)
            seq = self._next_seq(txn)
            txn.put(order_key(seq), name, True, True, True, self._order)
        expires = content.expires
        if expires and (not due or expires < due):
            due = self._set_due(txn, name, due, expires)
        if len(name) + len(body) > MAX_INLINE_BYTES:
            body = self._put_parts(txn, body)
            form |= IN_PARTS
        txn.put(name, HEAD.pack(expires, content.flags, content.kind, form, generation, seq, due) + body)
        return forced

    def _set_due(self, txn: Txn, name: bytes, old: int, due: int) -> int:
        """Replace an item's entry in `due` (0: none) and return the new one."""
        if old:
            txn.delete(order_key(old) + name, b"", self._due)
        if due:
            txn.put(order_key(due) + name, b"", True, True, False, self._due)
        return due

    def _next_seq(self, txn: Txn) -> int:
        """Return a number greater than all previous ones in every process: it begins with the transaction number."""
        seq: int = txn.id() << 16
        if seq >= self._next_look:
            self._age = (txn.stat(self._order)["entries"] // 8 + 2) << 16
            self._next_look = seq + self._age
        self._old = seq - 4 * self._age if self._crowded[0] else 0
        if seq <= self._seq:
            seq = self._seq + 1
        self._seq = seq
        return seq

    def _remove(self, txn: Txn, name: bytes, record: bytes) -> int:
        """Delete an item with all its parts. Return the approximate number of freed bytes."""
        _, _, kind, form, _, seq, due = HEAD.unpack_from(record)
        freed = len(name) + len(record) + ITEM_OVERHEAD_BYTES
        if form & IN_PARTS:
            freed += BODY_PARTS.unpack_from(record, HEAD_BYTES)[1]
        if form & IN_PARTS or kind == LIST:
            freed += self._drop_parts(txn, record)
        txn.delete(name)
        txn.delete(order_key(seq), b"", self._order)
        if due:
            txn.delete(order_key(due) + name, b"", self._due)
        return freed

    def _put_parts(self, txn: Txn, body: bytes) -> bytes:
        owner = self._next_seq(txn)
        for at in range(0, len(body), PIECE_BYTES):
            txn.put(part_key(owner, at), body[at : at + PIECE_BYTES], True, True, False, self._parts)
        return BODY_PARTS.pack(owner, len(body))

    def _drop_parts(self, txn: Txn, record: bytes, keep_list: bool = False) -> int:
        """Delete a body's pieces, and a list's items unless the list is kept. Return the freed bytes of list items."""
        head = head_of(record)
        freed = 0
        if head.kind == LIST and not keep_list:
            owner, first, end = LIST_ENDS.unpack(self._payload(txn, record))
            for position in range(first, end):
                freed += len(txn.pop(part_key(owner, position), self._parts) or b"") + ITEM_OVERHEAD_BYTES
        if head.form & IN_PARTS:
            owner, length = BODY_PARTS.unpack_from(record, HEAD_BYTES)
            for at in range(0, length, PIECE_BYTES):
                txn.delete(part_key(owner, at), b"", self._parts)
        return freed

    def _body(self, txn: Txn, record: bytes, form: int) -> bytes:
        if not form & IN_PARTS:
            return record[HEAD_BYTES:]
        owner, length = BODY_PARTS.unpack_from(record, HEAD_BYTES)
        return b"".join([txn.get(part_key(owner, at), b"", self._parts) for at in range(0, length, PIECE_BYTES)])

    def _payload(self, txn: Txn, record: bytes) -> bytes:
        """Return the bytes of the value, whether stored inline or in parts."""
        form = record[FORM_OFFSET]
        if not form:
            return record[HEAD_BYTES:]
        body = self._body(txn, record, form)
        return payload_in(body) if form & LONG_KEY else body

    # --- recency ---

    def _note(self, name: bytes) -> None:
        """Note a read item, unless 1024 are noted, so that a later write moves it."""
        if len(self._touched) < 1024:
            self._touched[name] = None

    def _move_touched(self, txn: Txn) -> None:
        """Move up to four of the items that this process has read to the end of `order`."""
        now = int(self._clock() * 1000)
        for _ in range(min(4, len(self._touched))):
            try:
                name, _ = self._touched.popitem()
            except KeyError:  # another thread was faster
                return
            record = txn.get(name)
            if record is None:
                continue
            head = head_of(record)
            if head.seq < self._old and self._live(record, now):
                txn.delete(order_key(head.seq), b"", self._order)
                seq = self._next_seq(txn)
                txn.put(order_key(seq), name, True, True, True, self._order)
                txn.put(name, HEAD.pack(*head._replace(seq=seq)) + record[HEAD_BYTES:])

    # --- space ---

    def _used_pages(self, txn: Txn) -> int:
        pages = 0
        for table in (self._items, self._order, self._due, self._parts, self._journal):
            stat = txn.stat(table)
            pages += stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return pages

    def _make_room(self, txn: Txn, name: bytes, need: int, safe: bool) -> bool:
        """Free `need` bytes. Return whether items that had not expired were evicted. Raise `NoSpace`."""
        used = self._used_pages(txn)
        room = (self._max_pages - used) * PAGE_BYTES
        self._crowded[0] = int(2 * (used + need // PAGE_BYTES) > self._max_pages)
        if room >= need:
            room //= 16
        else:
            want = max(2 * need, MIN_EVICTED_BYTES)
            freed = self._drop(txn, want, safe, name) if need <= MIN_EVICTED_BYTES else 0
            if freed < need:
                raise NoSpace(need)
            room += freed
        self._room = max(need, min(self._max_room, room))
        forced, self._evicted_live = self._evicted_live, False
        return forced

    def _squeeze(self, safe: bool) -> None:
        """Free pages for a transaction that found none.

        Any change, however small, releases the pages of the transaction before the last.
        """
        with self._writing, self._begin(self._items, None, True) as txn:
            txn.put(b"turn", txn.id().to_bytes(8, "little"), True, True, False, self._meta)
            if self._used_pages(txn) > self._max_pages:
                self._drop(txn, MIN_EVICTED_BYTES, safe)
        self._room = 0

    def _drop(self, txn: Txn, want: int, safe: bool, spare: bytes = b"") -> int:
        """Drop items until `want` bytes are free, within the limit of a transaction. Return the freed bytes."""
        now = int(self._clock() * 1000)
        stale = self._drop_stale(txn, now, want, self._max_changes, spare)
        if stale.freed >= want or safe:
            return stale.freed
        return stale.freed + self._drop_oldest(txn, now, want - stale.freed, self._max_changes - stale.examined, spare)

    def _drop_stale(self, txn: Txn, now: int, want: int, limit: int, spare: bytes = b"") -> DroppedItems:
        """Drop flushed items, then expired ones, until `want` bytes are free. Examine at most `limit` items."""
        dropped = freed = examined = 0
        generation = self._flushes[0]
        cursor = txn.cursor(self._order)
        has_entry = cursor.first()
        while has_entry and freed < want and examined < limit:
            name = cursor.value()
            record = txn.get(name, b"")
            if head_of(record).generation == generation:
                break
            examined += 1
            if name == spare:
                has_entry = cursor.next()
                continue
            freed += self._remove(txn, name, record)
            dropped += 1
            has_entry = cursor.first()
        cursor = txn.cursor(self._due)
        has_entry = cursor.first()
        while has_entry and freed < want and examined < limit:
            key = cursor.key()
            due, name = int.from_bytes(key[:8]), key[8:]
            if due > now:
                break
            examined += 1
            if name == spare:
                has_entry = cursor.next()
                continue
            record = txn.get(name, b"")
            head = head_of(record)
            if 0 < head.expires <= now:
                freed += self._remove(txn, name, record)
                dropped += 1
            else:
                self._move_due(txn, name, record, head)
            has_entry = cursor.first()
        return DroppedItems(dropped, freed, examined)

    def _move_due(self, txn: Txn, name: bytes, record: bytes, head: ItemHead) -> None:
        """Correct the entry of an item whose expiry was postponed."""
        due = self._set_due(txn, name, head.due, head.expires)
        txn.put(name, HEAD.pack(*head._replace(due=due)) + record[HEAD_BYTES:])

    def _drop_oldest(self, txn: Txn, now: int, want: int, limit: int, spare: bytes) -> int:
        """Drop the least recently used items until `want` bytes are free. Return the freed bytes."""
        freed = forcible = 0
        cursor = txn.cursor(self._order)
        for _ in range(limit):
            if freed >= want or not cursor.first():
                break
            if cursor.value() == spare and not cursor.next():
                break
            name = cursor.value()
            record = txn.get(name, b"")
            forcible += self._live(record, now)
            freed += self._remove(txn, name, record)
        if forcible:
            self._evicted_live = True
            forcible += int.from_bytes(txn.get(FORCIBLE, b"", self._meta), "little")
            txn.put(FORCIBLE, forcible.to_bytes(8, "little"), True, True, False, self._meta)
        return freed
