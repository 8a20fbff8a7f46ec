"""Results of cache calls, and interfaces of callbacks and serializers. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol


class Level(enum.IntEnum):
    """The level that a value came from."""

    L1 = 1
    """The memory of the process."""
    L2 = 2
    """The shared dictionary."""
    L3 = 3
    """The callback."""
    STALE = 4
    """Expired, or resurrected after it had expired."""
    MISS = -1
    """Not found, and no callback was passed."""


L1: Final = Level.L1
L2: Final = Level.L2
L3: Final = Level.L3
STALE: Final = Level.STALE
MISS: Final = Level.MISS

Callback = Callable[..., Any]
"""A function or coroutine function that returns a value, a `Fresh`, or None."""


class Hit(NamedTuple):
    """A value and the level that it came from."""

    value: Any
    level: Level


class GetCall(NamedTuple):
    """The arguments of a `get`. `options`: for this call. `unwrap`: raise the callback's error itself in place of
    `CallbackFailed`."""

    key: str
    callback: Callback | None
    args: tuple[object, ...]
    options: Mapping[str, Any]
    unwrap: bool = False


class GetResult(NamedTuple):
    """The result of one operation of `get_bulk`: a value and its level, or an error."""

    value: Any
    error: Exception | None
    level: Level | None


class Peek(NamedTuple):
    """An entry in L2. `ttl`: remaining seconds (0: forever, negative: expired). `stale`: it has expired; a resurrected
    value is not stale until `resurrect_ttl` has passed."""

    ttl: float
    value: Any
    stale: bool


class Fresh(NamedTuple):
    """Returned by a callback to set the time to live of its value.

    `ttl`: seconds, a timedelta or a text such as "10m"; 0: forever, negative: not cached. None, or anything else, keeps
    the default.
    """

    value: Any
    ttl: Any = None


class Serializer(Protocol):
    """Converts objects to types that L2 supports, and back. It never receives None."""

    def encode(self, value: object, /) -> Any:
        """Return a str, number, bool, bytes, or lists and dicts of these."""

    def decode(self, data: object, /) -> Any:
        """Return the object. After an error the record counts as a miss, and the error is logged."""
