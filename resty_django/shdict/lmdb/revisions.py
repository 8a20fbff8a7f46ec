"""Calls for those who keep bytes of their own making in a dictionary, and count in it: limits above all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

from ..base import Change, Keep
from ..codec import BYTES, encode, encode_key, milliseconds
from .calls import Calls, name_of
from .memory import StoreError
from .records import FRONT, HEAD, LONG_KEY, LONGEST_NAME, SIZE, Txn, with_key
from .shelf import Crowded

PLAIN: Final = Struct("<q4xHI").unpack_from
"""Of a record: expires, kind and form as one number (`BYTES` alone: bytes under a short key), generation."""

Revision = tuple[bytes | None, float | None, Any]
"""New bytes (None: change nothing), seconds to live (0: for ever, None: as before), and the result."""


class Revisions(Calls):
    """`revise` and `update_many`."""

    @abstractmethod
    def update(self, key: object, function: Callable[[Any], Change | Keep]) -> Any: ...

    def revise(self, key: object, function: Callable[[Any], Revision]) -> Any:
        """As `update`, but the function returns a `Revision`. Quick where it puts bytes over bytes of their length."""
        name = key.encode() if type(key) is str and key.isascii() else encode_key(key)
        if 0 < len(name) <= LONGEST_NAME:
            try:
                with self._writing, self._begin(self._items, None, True) as txn:
                    record = txn.get(name)
                    if record is not None:
                        expires, kind, generation = PLAIN(record)
                        if (
                            kind == BYTES
                            and generation == self._flushes[0]
                            and not (expires and expires <= int(self._clock() * 1000))
                            and not self._crowded[0]
                        ):
                            new, ttl, result = function(record[SIZE:])
                            if new is None:
                                return result
                            if ttl is None and len(new) + SIZE == len(record):
                                txn.put(name, record[:SIZE] + new)
                                return result
            except StoreError:
                pass  # nothing has changed, and `update` knows how to mend it

        def change(old: Any) -> Change | Keep:
            new, ttl, result = function(old)
            return Keep(result) if new is None else Change(new, ttl, result)

        return self.update(key, change)

    def update_many(
        self, keys: Sequence[object], function: Callable[[list[Any]], tuple[Sequence[Change | None], Any]]
    ) -> Any:
        """As `update` for several different keys, as one step. LMDB alone has it.

        `function` gets the values, which it must leave as they are, and returns for each a `Change` that deletes
        nothing, or None, and the result.
        """
        names = [name_of(key) for key in keys]
        tries = 0
        while True:
            called = False
            try:
                with self._writing, self._begin(self._items, None, True) as txn:
                    now = int(self._clock() * 1000)
                    flushes = self._flushes[0]
                    records = []
                    values: list[Any] = []
                    for name in names:
                        record = txn.get(name)
                        records.append(record)
                        if record is None:
                            values.append(None)
                            continue
                        expires, kind, form, generation = FRONT(record)
                        if generation != flushes or 0 < expires <= now:
                            values.append(None)
                        elif kind == BYTES and not form:
                            values.append(record[SIZE:])
                        else:
                            values.append(self._value(kind, self._payload(txn, record)))
                    called = True
                    changes, result = function(values)
                    left = []
                    for index, change in enumerate(changes):
                        if change is None:
                            continue
                        old, new, record = values[index], change.value, records[index]
                        if (
                            change.ttl is None
                            and type(old) is bytes
                            and type(new) is bytes
                            and len(record) == SIZE + len(old) == SIZE + len(new)
                            and not self._crowded[0]
                        ):
                            txn.put(names[index], record[:SIZE] + new)
                        else:
                            left.append((keys[index], names[index], change))
                    for key, name, change in left:
                        self._put_change(txn, key, name, change, now)
                return result
            except (Crowded, StoreError) as error:
                if called and "closed" in str(error):
                    raise RuntimeError(
                        f"The function of update_many() of {self.name!r} forked or closed it."
                    ) from error
                tries = self._mend(error, tries, b"", safe=False)

    def _put_change(self, txn: Txn, key: object, name: bytes, change: Change, now: int) -> None:
        """What `update` does with a change, for a key of which nothing is known."""
        record = txn.get(name)
        head = None if record is None else HEAD.unpack_from(record)
        flags = expires = 0
        if head is not None and head[4] == self._flushes[0] and not 0 < head[0] <= now:
            expires, flags = head[:2]
        if change.ttl is not None:
            life = milliseconds(change.ttl)
            expires = now + life if life else 0
        kind, body = encode(change.value)
        form = 0
        if len(name) > LONGEST_NAME:
            body, form = with_key(encode_key(key), body), LONG_KEY
        self._save(txn, name, record, head, kind, body, form, flags, expires, now, False)
