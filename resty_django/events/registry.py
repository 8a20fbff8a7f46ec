"""Registered callbacks, and the order in which they are called. Pure.

For one event: the callbacks for every event, then those for its source, then those for its source and name; in each of
these the weak ones before the strong ones; among these in the order of registration. A callback that is removed leaves
a hole, which the next run fills with the last one of the list.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from types import MethodType
from typing import Any, Final

HOLE: Final = object()
_Scope = tuple[str, ...]


class _Strong:
    """Callbacks in order, with holes."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def add(self, callback: object) -> None:
        self.entries.append(callback)

    def at(self, index: int) -> Any:
        """Return the callback at this index, or `HOLE`."""
        return self.entries[index]

    def remove(self, callback: object) -> bool:
        matches = [index for index in range(len(self.entries)) if _same(self.at(index), callback)]
        for index in matches:
            self.entries[index] = HOLE
        return bool(matches)

    def fill(self, index: int) -> Any:
        """Return the callback at this index, after filling a hole from the end; `HOLE` behind the end of the list."""
        while index < len(self.entries):
            callback = self.at(index)
            if callback is not HOLE:
                return callback
            last = self.entries.pop()
            if index < len(self.entries):
                self.entries[index] = last
        return HOLE


class _Weak(_Strong):
    """The same, but what nobody else refers to any more is a hole."""

    def add(self, callback: Any) -> None:
        self.entries.append(weakref.WeakMethod(callback) if isinstance(callback, MethodType) else weakref.ref(callback))

    def at(self, index: int) -> Any:
        entry = self.entries[index]
        callback = entry if entry is HOLE else entry()
        return HOLE if callback is None else callback


class Registry:
    """Only one run at a time may iterate over `matching`; the other calls may come from any thread meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: dict[_Scope, tuple[_Weak, _Strong]] = {}

    def add(self, callback: object, source: str | None = None, *names: str, weak: bool = False) -> None:
        """Register, once for each name; twice the same callback runs twice.

        Raises `TypeError` for a weak callback that cannot be referred to weakly.
        """
        with self._lock:
            for scope in _scopes(source, names):
                self._lists.setdefault(scope, (_Weak(), _Strong()))[0 if weak else 1].add(callback)

    def remove(self, callback: object, source: str | None = None, *names: str) -> bool:
        """Remove all entries of the callback there, weak and strong. True if there was one."""
        with self._lock:
            lists = [entries for scope in _scopes(source, names) for entries in self._lists.get(scope, ())]
            return sum(entries.remove(callback) for entries in lists) > 0

    def matching(self, source: str, event: str) -> Iterator[Any]:
        """Yield the callbacks for an event, in order; what is registered or removed meanwhile counts already."""
        for scope in ((), (source,), (source, event)):
            for entries in self._lists.get(scope, ()):
                index = 0
                while True:
                    with self._lock:
                        callback = entries.fill(index)
                    if callback is HOLE:
                        break
                    yield callback
                    del callback  # a weak one may go while it is not running
                    index += 1


def _scopes(source: str | None, names: tuple[str, ...]) -> Iterator[_Scope]:
    if source is None:
        if names:
            raise ValueError("source is required where names of events are given.")
        yield ()
    elif not names:
        yield (source,)
    else:
        yield from ((source, name) for name in names)


def _same(callback: object, other_callback: object) -> bool:
    return callback is other_callback or (isinstance(callback, MethodType) and callback == other_callback)
