"""What can go wrong with a cache. Messages begin with the words of the original where it has any.

The calls of the levels may also raise the errors of `resty_django.shdict`: `Unavailable` when L2 cannot be used, and,
in `set`, `NoMemory` when it has no room.
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
    """Raised by a callback: the source cannot answer now, serve a stale value if there is one.

    `get` raises it again where nothing stale may be served. `value`: what the callback could tell nevertheless.
    """

    def __init__(self, error: object, value: Any = None) -> None:
        super().__init__(str(error))
        self.value = value


class CallbackFailed(CacheError):
    """A callback raised something else than `SourceError`; `error` is that, and the cause."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"callback threw an error: {error}")
        self.error = error


class SerializerFailed(CacheError):
    """`l1_serializer` raised, or returned None. The value is in L2, and not in L1."""


class LockFailed(CacheError):
    """The lock of the callback could not be had: the dictionary of the locks does not answer."""


class LockTimeout(LockFailed, TimeoutError):
    """Somebody else held the lock of the callback for all the time that this call may wait, and nothing is stale."""


class NoChannel(CacheError, RuntimeError):
    """A call that has to tell other processes, of a cache without a channel to them."""


class ChannelFailed(CacheError):
    """The channel to other processes failed, or lost an event."""


class UnknownCache(CacheError, LookupError):
    """No cache has this name."""


__all__ = [
    "BadKey",
    "BadOption",
    "BadValue",
    "CacheError",
    "CallbackFailed",
    "ChannelFailed",
    "LockFailed",
    "LockTimeout",
    "NoChannel",
    "SerializerFailed",
    "SourceError",
    "UnknownCache",
]
