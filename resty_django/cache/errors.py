"""Errors of caches. Messages begin like those in lua-resty-mlcache where it has an equivalent.

Calls may also raise `resty_django.lock.LockTimeout` if another process holds the callback's lock for too long, and
errors of `resty_django.shdict`: `Unavailable` if L2 cannot be used, and, in `set`, `NoMemory` if it is full.
"""

from __future__ import annotations

from typing import Any


class CacheError(Exception):
    """Base class of all cache errors."""


class BadOption(CacheError, ValueError):
    """An option that is unknown, of the wrong type, or out of range."""


class BadKey(CacheError, ValueError):
    """A key that is None or empty."""


class BadValue(CacheError, TypeError):
    """The value's type cannot be stored in L2, and the cache has no serializer."""


class SourceError(CacheError):
    """Raised by a callback if its source is unavailable, so that a stale value is served if possible.

    `get` reraises it if no stale value may be served. `value`: a partial result of the callback.
    """

    def __init__(self, error: object, value: Any = None) -> None:
        super().__init__(str(error))
        self.value = value


class CallbackFailed(CacheError):
    """A callback raised `error`, which is not a `SourceError`; it is also the cause.

    With `error_ttl`, `error` may be a copy of the exception, or a `RemoteError`.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(f"callback threw an error: {error}")
        self.error = error


class RemoteError(CacheError):
    """The name of the class and the message of an exception that a callback raised in another process.

    It takes the place of an exception that is shared for `error_ttl`, also within a process if that cannot be copied.
    """


class SerializerFailed(CacheError):
    """`l1_serializer` raised, or returned None. The value is in L2, but not in L1."""


class LockFailed(CacheError):
    """The callback's lock is unavailable, because the dictionary for locks is."""


class NoChannel(CacheError, RuntimeError):
    """The call must notify other processes, but the cache has no channel."""


class ChannelFailed(CacheError):
    """The channel to other processes failed."""


class UnknownCache(CacheError, LookupError):
    """No cache has this name."""
