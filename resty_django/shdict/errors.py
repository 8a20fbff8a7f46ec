"""Errors of shared dictionaries. Each message names the dictionary and what to change."""

from __future__ import annotations


class SharedDictError(Exception):
    """The base of all errors of shared dictionaries."""


class BadKey(SharedDictError, ValueError):
    """An empty key, or one of more than 65535 bytes."""


class BadValue(SharedDictError, TypeError):
    """A value of a type that cannot be stored, or a number that needs more than 64 bits."""


class NotFound(SharedDictError, KeyError):
    """`incr` without `init` of a key that is absent or expired."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotANumber(SharedDictError, TypeError):
    """`incr` of a key that holds something else than a number."""


class WrongKind(SharedDictError, TypeError):
    """A list where a plain value is wanted, or the other way round."""


class Unreadable(SharedDictError, ValueError):
    """An item whose bytes another program has written or changed. It can be deleted and written anew."""


class NoMemory(SharedDictError, MemoryError):
    """The dictionary is full, and the call may not throw out items, or eviction did not help."""


class Unavailable(SharedDictError):
    """The memory or the server behind the dictionary cannot be used now."""


class DiskFull(Unavailable):
    """There is no room for the file of the dictionary."""


class WrongOwner(Unavailable):
    """The folder of the dictionary belongs to another user, or others may write to it."""


class SizeChanged(Unavailable):
    """Running processes use the dictionary with another size than the settings of this process."""
