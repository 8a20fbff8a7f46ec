"""A store in the memory of one process: for tests, for jobs in one process, and while another store is down."""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

from resty_django.processes.forks import after_fork
from resty_django.shdict.codec import milliseconds

_all: Final[weakref.WeakSet[LocalStore]] = weakref.WeakSet()

State = tuple[Any, int]
"""A value and the millisecond at which it expires (0: never)."""
Revision = tuple[Any, float | None, Any]
"""New state (None: change nothing), seconds to live (0: indefinitely, None: as before), and the result."""


class LocalStore:
    """Stores the states of at most `size` keys, and evicts the least recently used one.

    It has the methods of a shared dictionary that limiters need. `clock`: returns seconds, for the expiry. After a
    fork, each process has a separate copy.
    """

    def __init__(self, size: int = 10_000, *, clock: Callable[[], float] = time.monotonic, name: str = "local") -> None:
        if size < 1:
            raise ValueError(f"size of a LocalStore must be at least 1 key, not {size!r}.")
        self.name = name
        self._size = size
        self._clock = clock
        self._states: OrderedDict[Any, State] = OrderedDict()
        self._lock = threading.Lock()
        _all.add(self)

    def __repr__(self) -> str:
        return f"<LocalStore {self.name!r}>"

    def revise(self, key: object, function: Callable[[Any], Revision]) -> Any:
        """Behave like a shared dictionary in LMDB."""
        with self._lock:
            now = int(self._clock() * 1000)
            new, ttl, result = function(self._get(key, now))
            if new is not None:
                self._put(key, new, ttl, now)
            return result

    def revise_many(
        self, keys: Sequence[object], function: Callable[..., tuple[Sequence[Revision], Any]], *args: Any
    ) -> Any:
        """Behave like a shared dictionary in LMDB."""
        with self._lock:
            now = int(self._clock() * 1000)
            revisions, result = function([self._get(key, now) for key in keys], *args)
            for key, (new, ttl, _) in zip(keys, revisions, strict=True):
                if new is not None:
                    self._put(key, new, ttl, now)
            return result

    def delete(self, key: object) -> bool:
        """Delete a key. Return whether it existed."""
        with self._lock:
            existed = self._get(key, int(self._clock() * 1000)) is not None
            self._states.pop(key, None)
            return existed

    def _get(self, key: object, now: int) -> Any:
        state = self._states.get(key)
        if state is None or 0 < state[1] <= now:
            return None
        self._states.move_to_end(key)
        return state[0]

    def _put(self, key: object, value: Any, ttl: float | None, now: int) -> None:
        if ttl is None:
            _, expires = self._states.get(key, (None, 0))
            expires = 0 if expires <= now else expires
        else:
            expires = now + milliseconds(ttl) if ttl else 0
        self._states[key] = value, expires
        self._states.move_to_end(key)
        if len(self._states) > self._size:
            self._states.popitem(last=False)


def _after_fork() -> None:
    for store in list(_all):
        store._lock = threading.Lock()


after_fork(_after_fork)
