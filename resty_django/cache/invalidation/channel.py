"""The channel that caches use to invalidate values in other processes.

| channel | data | effect in a listener |
|---|---|---|
| `mlcache:invalidations:<name>` | key | deletes the key from L1 |
| `mlcache:purge:<name>` | empty | empties L1 |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from resty_django.sansio import Step, Steps
from resty_django.text import logger

from ..errors import ChannelFailed

log = logger("resty_django.cache")

INVALIDATIONS: Final = "mlcache:invalidations:"
PURGE: Final = "mlcache:purge:"

Listeners = Mapping[str, Callable[[str], object]]
"""Functions that take the data, by channel."""


class Channel(Protocol):
    """The interface of a custom `ipc`. Its exceptions become `ChannelFailed`.

    It may also have `poll(timeout)`, which passes broadcasts of other processes to the listeners, and the async twins
    `abroadcast` and `apoll`; without them, async code calls the sync methods in a thread.
    """

    def register_listeners(self, listeners: Listeners, /) -> None: ...

    def broadcast(self, channel: str, data: str, /) -> None: ...


def to_broadcast(channel: Channel, name: str, data: str) -> Steps[None]:
    """Broadcast an event. Raise `ChannelFailed`."""
    try:
        yield Step(channel.broadcast, _twin(channel, "broadcast"), (name, data))
    except Exception as error:
        raise ChannelFailed(f"could not broadcast the event {name!r}: {error}") from error


def to_poll(channel: Any, timeout: float) -> Steps[None]:
    """Read the events of the other processes. Raise `ChannelFailed`."""
    try:
        yield Step(channel.poll, _twin(channel, "poll"), (timeout,))
    except Exception as error:
        raise ChannelFailed(f"could not poll ipc events: {error}") from error


def _twin(channel: Any, name: str) -> Callable[..., Awaitable[Any]]:
    twin = getattr(channel, f"a{name}", None)
    if twin is not None:
        return twin  # type: ignore[no-any-return]

    async def in_thread(*args: Any) -> None:
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
