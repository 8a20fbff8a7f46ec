"""Locks of Django's cache backend."""

from __future__ import annotations

import math
from typing import Final

from resty_django.lock import HeldLock, Lock, LockTimeout
from resty_django.shdict import SharedDict

MAX_TIMEOUT_SECONDS: Final = 1e10
"""Seconds after which a lock without a timeout expires."""


class CacheLock(HeldLock):
    """The lock that `cache.lock()` returns: a context manager, sync and async, with the calls of redis-py's locks.

    `timeout`: seconds until the lock expires (None: never). `sleep`: seconds between tries. `blocking_timeout`: maximum
    wait in seconds (None: no maximum). A `with` block raises `resty_django.lock.LockTimeout` if the lock was not free
    in time. Use a separate object in each thread or task.
    """

    def __init__(
        self, dictionary: SharedDict, key: str, timeout: float | None, sleep: float, blocking_timeout: float | None
    ) -> None:
        exptime = MAX_TIMEOUT_SECONDS if timeout is None else timeout
        super().__init__(Lock(dictionary, exptime=exptime, step=sleep, ratio=1, max_step=sleep), key)
        self.blocking_timeout = math.inf if blocking_timeout is None else blocking_timeout
        self.lock.timeout = self.blocking_timeout

    @property
    def locked(self) -> bool:
        """Whether this object acquired the lock and has not released it. The lock may have expired."""
        return self.lock.locked

    def acquire(self, blocking: bool = True, blocking_timeout: float | None = None) -> bool:
        """Acquire the lock. Return False if it was not free in time.

        `blocking`: whether to wait. `blocking_timeout`: the maximum wait for this call. Raise `AlreadyLocked`.
        """
        try:
            self._waiting(blocking, blocking_timeout).acquire(self.key)
        except LockTimeout:
            return False
        return True

    async def aacquire(self, blocking: bool = True, blocking_timeout: float | None = None) -> bool:
        """Do the same as `acquire`."""
        try:
            await self._waiting(blocking, blocking_timeout).aacquire(self.key)
        except LockTimeout:
            return False
        return True

    def release(self) -> None:
        """Release the lock. Raise `NotLocked`, or `LockLost` if it had expired."""
        self.lock.release()

    async def arelease(self) -> None:
        """Do the same as `release`."""
        await self.lock.arelease()

    def _waiting(self, blocking: bool, blocking_timeout: float | None) -> Lock:
        timeout = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        self.lock.timeout = timeout if blocking else 0
        return self.lock
