"""Errors of shared dictionaries. Each message names the dictionary and what to change."""

from __future__ import annotations


class SharedDictError(Exception):
    """Base class of all errors of shared dictionaries."""


class BadKey(SharedDictError, ValueError):
    """The key is empty, None, or longer than 65535 bytes; or a pattern of keys is invalid."""


class BadValue(SharedDictError, TypeError):
    """The value's type cannot be stored, or a number needs more than 64 bits."""


class NotFound(SharedDictError, KeyError):
    """`incr` was called without `init` for a key that is absent or expired."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotANumber(SharedDictError, TypeError):
    """`incr` was called for a value that is not a number."""


class WrongKind(SharedDictError, TypeError):
    """The key has a list where a plain value is expected, or vice versa."""


class Unreadable(SharedDictError, ValueError):
    """Another program has written or changed the item's bytes. Delete or overwrite it."""


class NoMemory(SharedDictError, MemoryError):
    """The dictionary is full, and the call may not evict items, or eviction did not help."""


class Unavailable(SharedDictError):
    """The memory or the server of the dictionary cannot be used at the moment."""


class DiskFull(Unavailable):
    """There is no space for the dictionary's file."""


class WrongOwner(Unavailable):
    """The dictionary's folder belongs to another user, or other users may write to it."""


class SizeChanged(Unavailable):
    """Running processes use the dictionary with a different SIZE."""
