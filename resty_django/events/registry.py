"""Registered callbacks and their order. Pure.

Callbacks for all events are called first, then callbacks for the event's source, then callbacks for source and name.
Within each group, weak callbacks precede strong ones, in the order of registration. A removed callback leaves a hole,
which the next run fills with the last callback of the list.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from types import MethodType
from typing import Any, Final, NamedTuple, TypeAlias

HOLE: Final = object()
_Scope: TypeAlias = tuple[str, ...]


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
        """Return the callback at this index, after filling a hole from the end; `HOLE` beyond the end of the list."""
        while index < len(self.entries):
            callback = self.at(index)
            if callback is not HOLE:
                return callback
            last = self.entries.pop()
            if index < len(self.entries):
                self.entries[index] = last
        return HOLE


class _Weak(_Strong):
    """Weakly referenced callbacks in order; a callback that was garbage-collected is a hole."""

    def add(self, callback: Any) -> None:
        self.entries.append(weakref.WeakMethod(callback) if isinstance(callback, MethodType) else weakref.ref(callback))

    def at(self, index: int) -> Any:
        entry = self.entries[index]
        callback = entry if entry is HOLE else entry()
        return HOLE if callback is None else callback


class _Callbacks(NamedTuple):
    """The callbacks of a scope, in the order of the calls."""

    weak: _Weak
    strong: _Strong


class Registry:
    """Only one run at a time may iterate over `matching`; other methods may be called from any thread meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: dict[_Scope, _Callbacks] = {}

    def add(self, callback: object, source: str | None = None, *names: str, weak: bool = False) -> None:
        """Register a callback for each name. A callback that is registered twice runs twice.

        Raise `TypeError` for a weak callback that does not support weak references.
        """
        with self._lock:
            for scope in _scopes(source, names):
                callbacks = self._lists.setdefault(scope, _Callbacks(_Weak(), _Strong()))
                (callbacks.weak if weak else callbacks.strong).add(callback)

    def remove(self, callback: object, source: str | None = None, *names: str) -> bool:
        """Remove all matching entries of the callback, weak and strong. Return whether there was one."""
        with self._lock:
            lists = [entries for scope in _scopes(source, names) for entries in self._lists.get(scope, ())]
            return sum(entries.remove(callback) for entries in lists) > 0

    def matching(self, source: str, event: str) -> Iterator[Any]:
        """Yield the callbacks for an event in order. Registrations and removals during the iteration take effect."""
        for scope in ((), (source,), (source, event)):
            for entries in self._lists.get(scope, ()):
                index = 0
                while True:
                    with self._lock:
                        callback = entries.fill(index)
                    if callback is HOLE:
                        break
                    yield callback
                    del callback  # lets a weak callback be collected while it is not running
                    index += 1


def _scopes(source: str | None, names: tuple[str, ...]) -> Iterator[_Scope]:
    if source is None:
        if names:
            raise ValueError("source is required if event names are given. Pass the source.")
        yield ()
    elif not names:
        yield (source,)
    else:
        yield from ((source, name) for name in names)


def _same(callback: object, other_callback: object) -> bool:
    return callback is other_callback or (isinstance(callback, MethodType) and callback == other_callback)
