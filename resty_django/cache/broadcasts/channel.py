"""The channel that caches use to invalidate values in other processes.

| channel | data | effect in a listener |
|---|---|---|
| `mlcache:invalidations:<name>` | key | deletes the key from L1 |
| `mlcache:many:<name>` | JSON list of keys | deletes the keys from L1 |
| `mlcache:purge:<name>` | empty | empties L1 |
| `mlcache:tags:<name>` | JSON list of tags | deletes the keys with one of these tags from L1 |
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from resty_django.sansio import Step, Steps
from resty_django.shdict.base import Entry
from resty_django.text import logger

from ..errors import ChannelFailed
from ..storage.lru import LRU
from ..tags.index import index_of

log = logger("resty_django.cache")

INVALIDATIONS: Final = "mlcache:invalidations:"
MANY: Final = "mlcache:many:"
PURGE: Final = "mlcache:purge:"
TAGS: Final = "mlcache:tags:"

MAX_KEYS_PER_BROADCAST: Final = 500

Listeners = Mapping[str, Callable[[str], object]]
"""Functions that take the data, by channel."""


class Broadcast(NamedTuple):
    """An event for the other processes; see the table above."""

    channel: str
    data: str


class Carried(NamedTuple):
    """How a write to L2 carries its broadcast: in `entry`. `broadcasts`: it must be broadcast after the write, too."""

    entry: Entry
    broadcasts: bool


BROADCAST_AFTER_WRITE: Final = Carried(None, True)


def parts_of(keys: Iterable[str]) -> Iterator[list[str]]:
    """Yield the keys in lists of at most `MAX_KEYS_PER_BROADCAST`."""
    iterator = iter(keys)
    while part := list(islice(iterator, MAX_KEYS_PER_BROADCAST)):
        yield part


class InvalidationChannel(Protocol):
    """The interface of a custom `ipc`. Its exceptions become `ChannelFailed`.

    It may also have `poll(timeout)`, which passes broadcasts of other processes to the listeners, and the async twins
    `abroadcast` and `apoll`; without them, async code calls the sync methods in a thread.
    """

    def register_listeners(self, listeners: Listeners, /) -> None: ...

    def broadcast(self, channel: str, data: str, /) -> None: ...


def listen(channel: InvalidationChannel, name: str, lru: LRU) -> None:
    """Apply the broadcasts about the cache of this name to its L1. Raise the channel's exceptions."""
    index = index_of(lru)
    channel.register_listeners(
        {
            INVALIDATIONS + name: lru.delete,
            MANY + name: lambda data: lru.delete_many(json.loads(data)),
            PURGE + name: lambda data: lru.flush_all(),
            TAGS + name: lambda data: index.invalidate(lru, json.loads(data)),
        }
    )


def carried(channel: InvalidationChannel, broadcast: Broadcast) -> Carried:
    """Return how a write to L2 carries a broadcast. A custom channel broadcasts after the write. Raise
    `ChannelFailed`."""
    carry: Callable[[str, str], Carried] | None = getattr(channel, "carry", None)
    if carry is None:
        return BROADCAST_AFTER_WRITE
    try:
        return carry(broadcast.channel, broadcast.data)
    except Exception as error:
        raise ChannelFailed(f"could not broadcast the event {broadcast.channel!r}: {error}") from error


def to_broadcast(channel: InvalidationChannel, broadcast: Broadcast) -> Steps[None]:
    """Broadcast an event. Raise `ChannelFailed`."""
    try:
        yield Step(channel.broadcast, _twin(channel, "broadcast"), broadcast)
    except Exception as error:
        raise ChannelFailed(f"could not broadcast the event {broadcast.channel!r}: {error}") from error


def to_poll(channel: Any, timeout: float) -> Steps[None]:
    """Read the events of the other processes. Raise `ChannelFailed`."""
    try:
        yield Step(channel.poll, _twin(channel, "poll"), (timeout,))
    except Exception as error:
        raise ChannelFailed(f"could not poll ipc events: {error}") from error


def _twin(channel: object, name: str) -> Callable[..., Awaitable[object]]:
    twin: Callable[..., Awaitable[object]] | None = getattr(channel, f"a{name}", None)
    if twin is not None:
        return twin

    async def in_thread(*args: object) -> None:
        await asyncio.to_thread(getattr(channel, name), *args)

    return in_thread


def deliver(listeners: Listeners, channel: str, data: str) -> None:
    """Call the listener of a channel, if any. Its exceptions are logged and not propagated."""
    listener = listeners.get(channel)
    if listener is not None:
        try:
            listener(data)
        except Exception:
            log.exception("The listener of %r failed for %r", channel, data)
