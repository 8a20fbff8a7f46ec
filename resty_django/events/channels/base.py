"""Channels: transport of events between processes, as records in the same order for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, TypeAlias

from resty_django.shdict import SharedDict
from resty_django.shdict.base import Entry

Position: TypeAlias = int | bytes
"""The ID of an event. IDs of a channel increase strictly."""


class Batch(NamedTuple):
    """Records by ID, in order; None for a record that was evicted. `last` is the position after them.

    `lost`: number of events before them that were evicted.
    """

    last: Any
    records: list[tuple[Any, bytes | None]]
    lost: int = 0


class Channel(ABC):
    """The interface of a channel. Calls raise errors of `resty_django.shdict`; async calls never block the loop."""

    wakes: ClassVar[bool]
    """Whether `wait` is supported: it returns as soon as there is a new event."""

    def __init__(self, dictionary: SharedDict) -> None:
        self.dictionary = dictionary

    @abstractmethod
    def last(self) -> Any:
        """Return the position after the last event."""

    @abstractmethod
    def between(self, position: Any, last: Any) -> int:
        """Return the number of events after `position`, up to `last`."""

    @abstractmethod
    def append(self, record: bytes, retries: int) -> None:
        """Append an event atomically: all processes see it, or none.

        `retries`: further attempts if there is no space. Raise `NoMemory`.
        """

    @abstractmethod
    def read(self, position: Any) -> Batch | None:
        """Return events after `position`, possibly not all of them; None if there are none."""

    def wait(self, position: Any, seconds: float) -> None:
        """Return when there is an event after `position`, or after `seconds`. Not for channels in memory."""
        raise NotImplementedError

    def entry(self, record: bytes, dictionary: SharedDict) -> Entry:
        """Return the entry with which a write to `dictionary` appends an event to this channel; None if it cannot."""
        return None

    def claim(self, unique: str, pid: int, seconds: float) -> bool:
        """Claim a unique value for some seconds. Return False if another process has claimed it."""
        return bool(self.dictionary.add(f"unique:{unique}", pid, seconds))

    # In memory, calls take microseconds and never wait for a network.

    async def alast(self) -> Any:
        return self.last()

    async def aappend(self, record: bytes, retries: int) -> None:
        self.append(record, retries)

    async def aread(self, position: Any) -> Batch | None:
        return self.read(position)

    async def await_news(self, position: Any, seconds: float) -> None:
        """Do the same as `wait`."""
        raise NotImplementedError

    async def aclaim(self, unique: str, pid: int, seconds: float) -> bool:
        return bool(await self.dictionary.aadd(f"unique:{unique}", pid, seconds))
