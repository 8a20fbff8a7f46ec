"""What calls of a cache return, and what callbacks and serializers look like. Pure."""

from __future__ import annotations

import enum
from typing import Any, Final, NamedTuple, Protocol


class Level(enum.IntEnum):
    """Where a value came from."""

    L1 = 1
    """The memory of the process."""
    L2 = 2
    """The shared dictionary."""
    L3 = 3
    """The callback."""
    STALE = 4
    """Its time is over, or was when it was brought back."""
    MISS = -1
    """From nowhere: it is in no level, and there was no callback."""


L1: Final = Level.L1
L2: Final = Level.L2
L3: Final = Level.L3
STALE: Final = Level.STALE
MISS: Final = Level.MISS

Answer = tuple[Any, Level]
"""A value and its level, in code that is in a hurry."""


class Hit(NamedTuple):
    """A value, and the level that it came from."""

    value: Any
    level: Level


class Result(NamedTuple):
    """What became of one operation of `get_bulk`: a value and its level, or an error."""

    value: Any
    error: Exception | None
    level: Level | None


class Peek(NamedTuple):
    """What L2 has. `ttl`: seconds left, 0 for ever, below 0 where it has expired. `stale`: expired, or brought back."""

    ttl: float
    value: Any
    stale: bool


class Fresh(NamedTuple):
    """What a callback returns to give its value a time to live of its own.

    `ttl`: seconds; 0 is for ever, and below 0 the value is not cached. None, or anything but a number, changes nothing.
    """

    value: Any
    ttl: Any = None


class Serializer(Protocol):
    """Turns objects into what L2 can hold, and back. None is never given to it."""

    def encode(self, value: Any, /) -> Any:
        """A text, a number, True or False, bytes, or lists and dicts of these."""

    def decode(self, data: Any, /) -> Any:
        """The object. Whatever it raises makes the record a miss, and a line in the log."""


__all__ = ["L1", "L2", "L3", "MISS", "STALE", "Answer", "Fresh", "Hit", "Level", "Peek", "Result", "Serializer"]
