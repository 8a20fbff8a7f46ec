"""The errors of caches. Messages begin with the words of lua-resty-mlcache where it has any.

Calls may also raise `resty_django.lock.LockTimeout` when another process holds the lock of the callback for too long,
and the errors of `resty_django.shdict`: `Unavailable` when L2 cannot be used, and, in `set`, `NoMemory` when it has no
room.
"""

from __future__ import annotations

from typing import Any


class CacheError(Exception):
    """The base of all errors of caches."""


class BadOption(CacheError, ValueError):
    """An option that is unknown, of the wrong type, or out of range."""


class BadKey(CacheError, ValueError):
    """A key that is None or empty."""


class BadValue(CacheError, TypeError):
    """A value of a type that L2 cannot hold, and no serializer was given."""


class SourceError(CacheError):
    """Raised by a callback: the source cannot answer now, serve a stale value if one exists.

    `get` raises it again where no stale value may be served. `value`: a partial answer of the callback.
    """

    def __init__(self, error: object, value: Any = None) -> None:
        super().__init__(str(error))
        self.value = value


class CallbackFailed(CacheError):
    """A callback raised `error`, which is not a `SourceError`, and is the cause."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"callback threw an error: {error}")
        self.error = error


class SerializerFailed(CacheError):
    """`l1_serializer` raised, or returned None. The value is in L2, and not in L1."""


class LockFailed(CacheError):
    """The lock of the callback is not available: the dictionary of the locks does not answer."""


class NoChannel(CacheError, RuntimeError):
    """A call has to tell other processes, but the cache has no channel to them."""


class ChannelFailed(CacheError):
    """The channel to other processes failed, or lost an event."""


class UnknownCache(CacheError, LookupError):
    """No cache has this name."""
