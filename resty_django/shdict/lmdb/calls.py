"""How a call becomes a transaction, for the calls that are not in a hurry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..codec import LIST, decode, encode_key
from ..errors import NoMemory, WrongKind
from .memory import StoreError
from .records import LONGEST_NAME, PAGE, Txn, head_of, short_name
from .shelf import CHUNK, Crowded, Shelf

ROUNDS: Final = 1000
"""Transactions that make room for one item at most."""

R = TypeVar("R")
Step = Callable[[Txn, bytes, bytes, bool, int], R]
"""Gets the transaction, the name, the record that is there, whether it is live, and the time in milliseconds."""


def name_of(key: object) -> bytes:
    """The name of a key of any length."""
    if type(key) is str and key.isascii() and 0 < len(key) <= LONGEST_NAME:
        return key.encode()
    name = encode_key(key)
    return name if len(name) <= LONGEST_NAME else short_name(name)


class Calls(Shelf):
    """Read and write with the retries that LMDB may want."""

    def _read(self, key: object, look: Callable[[Txn, bytes], R]) -> R:
        name = name_of(key)
        tries = 0
        while True:
            try:
                with self._begin(self._items) as txn:
                    return look(txn, name)
            except StoreError as error:
                tries = self._recover(error, tries)

    def _transaction(self, work: Callable[[Txn], R], safe: bool = True, name: bytes = b"") -> R:
        tries = 0
        while True:
            try:
                with self._writing, self._begin(self._items, None, True) as txn:
                    return work(txn)
            except (Crowded, StoreError) as error:
                tries = self._mend(error, tries, name, safe)

    def _mend(self, error: Crowded | StoreError, tries: int, name: bytes, safe: bool) -> int:
        """After an error of a write transaction: the number of tries so far, when another may do better."""
        if isinstance(error, Crowded):
            self._evict(name, error.need, safe)
            return tries
        return self._recover(error, tries, safe)

    def _write(self, key: object, step: Step[R]) -> R | None:
        """Change a record that is there; None where there is none."""
        name = name_of(key)

        def work(txn: Txn) -> R | None:
            record = txn.get(name)
            if record is None:
                return None
            now = int(self._clock() * 1000)
            return step(txn, name, record, self._live(record, now), now)

        return self._transaction(work)

    def _live(self, record: bytes, now: int) -> bool:
        head = head_of(record)
        return head.generation == self._flushes[0] and not 0 < head.expires <= now

    def _value(self, kind: int, payload: bytes) -> Any:
        if kind == LIST:
            raise WrongKind("The value is a list. Use lpop(), rpop() or llen().")
        return decode(kind, payload)

    def _evict(self, name: bytes, need: int, safe: bool) -> None:
        """Make room for `need` bytes in transactions of its own, sparing the item `name`. Raises `NoMemory`."""

        def evict(txn: Txn) -> int:
            room = (self._mark - self._used_pages(txn)) * PAGE
            if room >= need:
                return 0
            now = int(self._clock() * 1000)
            return self._drop(txn, now, max(need - room, CHUNK), safe, name) or -1

        left = 1 if need <= self._mark * PAGE // 2 else -1
        rounds = ROUNDS
        while left > 0 and rounds:
            left = self._transaction(evict, safe)
            rounds -= 1
        if left:
            raise NoMemory(f"There is no room for {need} bytes in {self._setting()}. Raise its SIZE ({self.size}).")
