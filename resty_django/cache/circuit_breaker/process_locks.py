"""Locks in the memory of this process, which replace the dictionary of the locks while its store is down."""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple, cast

from resty_django.processes.forks import after_fork
from resty_django.shdict import SharedDict, StoreOutcome


class HeldToken(NamedTuple):
    """`expires`: monotonic time."""

    token: bytes
    expires: float


class ProcessLocks:
    """The calls of a dictionary that `resty_django.lock.Lock` makes, for the threads and tasks of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop the locks of the parent's threads."""
        self._held: dict[object, HeldToken] = {}
        self._changing = threading.Lock()

    def add(self, key: object, token: bytes, ttl: float) -> StoreOutcome:
        now = time.monotonic()
        with self._changing:
            held = self._held.get(key)
            if held is not None and held.expires > now:
                return StoreOutcome.EXISTS
            self._held[key] = HeldToken(token, now + ttl)
        return StoreOutcome.STORED

    def delete_if(self, key: object, token: bytes) -> bool:
        with self._changing:
            held = self._held.get(key)
            if held is None or held.token != token:
                return False
            del self._held[key]
        return True

    async def aadd(self, key: object, token: bytes, ttl: float) -> StoreOutcome:
        return self.add(key, token, ttl)

    async def adelete_if(self, key: object, token: bytes) -> bool:
        return self.delete_if(key, token)


_locks: Final = ProcessLocks()
after_fork(_locks.forget)

process_locks: Final = cast("SharedDict", _locks)
"""The locks of this process. It has only the calls of `ProcessLocks`."""
