"""Results of calls of a cache, and the interfaces of callbacks and serializers. Pure."""

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
    """Expired, or resurrected after it had expired."""
    MISS = -1
    """In no level, and no callback was given."""


L1: Final = Level.L1
L2: Final = Level.L2
L3: Final = Level.L3
STALE: Final = Level.STALE
MISS: Final = Level.MISS

Answer = tuple[Any, Level]
"""A value and its level, where speed matters."""


class Hit(NamedTuple):
    """A value, and the level that it came from."""

    value: Any
    level: Level


class Result(NamedTuple):
    """The result of one operation of `get_bulk`: a value and its level, or an error."""

    value: Any
    error: Exception | None
    level: Level | None


class Peek(NamedTuple):
    """What L2 has. `ttl`: remaining seconds, 0 forever, below 0 after it has expired. `stale`: it has expired; a value
    that `resurrect_ttl` has brought back is not stale until that time has passed."""

    ttl: float
    value: Any
    stale: bool


class Fresh(NamedTuple):
    """Returned by a callback to set the time to live of its value.

    `ttl`: seconds; 0 is forever, and below 0 the value is not cached. None, or anything but a number, changes nothing.
    """

    value: Any
    ttl: Any = None


class Serializer(Protocol):
    """Converts objects to what L2 can hold, and back. It never gets None."""

    def encode(self, value: Any, /) -> Any:
        """Return a text, a number, True or False, bytes, or lists and dicts of these."""

    def decode(self, data: Any, /) -> Any:
        """Return the object. An error makes the record a miss, and is logged."""
