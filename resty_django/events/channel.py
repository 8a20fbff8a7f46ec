"""Channels: carry events between processes, as records in one order for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, TypeAlias

from resty_django.shdict import SharedDict

Position: TypeAlias = int | bytes
"""The id of an event. Ids of one channel have an order, and each is greater than those before it."""


class Batch(NamedTuple):
    """Records by id, in order; None where a record is missing. `last` is the position after them."""

    last: Any
    records: list[tuple[Any, bytes | None]]


class Channel(ABC):
    """The calls raise the errors of `resty_django.shdict`. Those with an `a` before the name never block a loop."""

    wakes: ClassVar[bool]
    """Whether `wait` returns as soon as there is news; else it must not be called."""

    def __init__(self, dictionary: SharedDict) -> None:
        self.dictionary = dictionary

    @abstractmethod
    def last(self) -> Any:
        """Return the position after the last event."""

    @abstractmethod
    def between(self, position: Any, last: Any) -> int:
        """Return how many events there are after `position`, up to `last`."""

    @abstractmethod
    def append(self, record: bytes, retries: int) -> None:
        """Store an event behind all others, as one step: all processes see it, or none.

        `retries`: further attempts where there is no room. Raises `NoMemory`.
        """

    @abstractmethod
    def read(self, position: Any) -> Batch | None:
        """Return the events after `position`, not always all of them; None when there are none."""

    @abstractmethod
    def fetch(self, number: Any) -> bytes | None:
        """Return a record that was missing, if it is there now."""

    @abstractmethod
    def wait(self, position: Any, seconds: float) -> None:
        """Return when there is an event after `position`, or after `seconds`."""

    def claim(self, unique: str, pid: int, seconds: float) -> bool:
        """Take a unique value for some time. False when somebody has it."""
        return bool(self.dictionary.add(f"unique:{unique}", pid, seconds))

    @abstractmethod
    async def alast(self) -> Any: ...

    @abstractmethod
    async def aappend(self, record: bytes, retries: int) -> None: ...

    @abstractmethod
    async def aread(self, position: Any) -> Batch | None: ...

    @abstractmethod
    async def afetch(self, number: Any) -> bytes | None: ...

    @abstractmethod
    async def await_news(self, position: Any, seconds: float) -> None:
        """Do the same as `wait`."""

    async def aclaim(self, unique: str, pid: int, seconds: float) -> bool:
        return bool(await self.dictionary.aadd(f"unique:{unique}", pid, seconds))


def channel_of(dictionary: SharedDict, keep: int) -> Channel:
    """Return a dictionary's channel: in its memory, or a stream of about `keep` events next to it in Redis."""
    if dictionary.engine == "redis":
        from resty_django.shdict.redis import RedisDict

        from .stream import StreamChannel

        assert isinstance(dictionary, RedisDict)  # noqa: S101
        return StreamChannel(dictionary, keep)
    from .memory import MemoryChannel

    return MemoryChannel(dictionary)
