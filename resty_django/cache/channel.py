"""How processes tell each other to forget: the channel of a cache, and the one that `ipc_shm` makes.

| channel | data | who hears it |
|---|---|---|
| `mlcache:invalidations:<name>` | key | deletes the key from its L1 |
| `mlcache:purge:<name>` | empty | empties its L1 |
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from resty_django.events.steps import Step, Steps, arun, run
from resty_django.shdict import SharedDict

from .errors import ChannelFailed

log = logging.getLogger("resty_django.cache")

INVALIDATIONS: Final = "mlcache:invalidations:"
PURGE: Final = "mlcache:purge:"
KEEP: Final = 10_000
"""Events that a dictionary keeps at most."""
_LAST: Final = "mlcache:ipc:last"
_BEGUN: Final = "mlcache:ipc:evicted"
_EVENT: Final = "mlcache:ipc:event:"

Listeners = Mapping[str, Callable[[str], object]]
"""Functions of the data by channel."""


class Channel(Protocol):
    """What a site may give as `ipc`. Whatever it raises becomes a `ChannelFailed`.

    It may also have `poll(timeout)`, which calls the listeners with what other processes have broadcast, and the twins
    `abroadcast` and `apoll`; where it has none, async code calls it in a thread.
    """

    def register_listeners(self, listeners: Listeners, /) -> None: ...

    def broadcast(self, channel: str, data: str, /) -> None: ...


def to_broadcast(channel: Channel, name: str, data: str) -> Steps[None]:
    """Raises `ChannelFailed`."""
    try:
        yield Step(channel.broadcast, _twin(channel, "broadcast"), (name, data))
    except Exception as error:
        raise ChannelFailed(f"could not broadcast the event {name!r}: {error}") from error


def to_poll(channel: Any, timeout: float) -> Steps[None]:
    """Raises `ChannelFailed`."""
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


class _Sender:
    """Tells the broadcasts of this process from those of others, on other machines too."""

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        self.token = f"{os.getpid()}:{secrets.token_hex(8)}"


sender: Final = _Sender()
os.register_at_fork(after_in_child=sender.start_anew)


def deliver(listeners: Listeners, channel: str, data: str) -> None:
    """Call the listener of a channel, where there is one. What it raises is logged and goes no further."""
    listener = listeners.get(channel)
    if listener is not None:
        try:
            listener(data)
        except Exception:
            log.exception("the listener of %r failed for %r", channel, data)


class ShmChannel:
    """Events in a shared dictionary: a counter, and a record for each. Nobody listens in the background.

    `me`: what tells this process from others (None: made of its id). `sleep`, `asleep`: another one is for tests.
    """

    def __init__(
        self,
        dictionary: SharedDict,
        *,
        me: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        asleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.dictionary = dictionary
        self._me = me
        self._sleep = sleep
        self._asleep = asleep
        self._position = 0
        self._listeners: dict[str, Callable[[str], object]] = {}

    @property
    def me(self) -> str:
        return self._me or sender.token

    def register_listeners(self, listeners: Listeners) -> None:
        self._listeners.update(listeners)

    def broadcast(self, channel: str, data: str) -> None:
        run(self._broadcast(channel, data))

    async def abroadcast(self, channel: str, data: str) -> None:
        await arun(self._broadcast(channel, data))

    def _broadcast(self, channel: str, data: str) -> Steps[None]:
        shm = self.dictionary
        number = yield Step(shm.incr, shm.aincr, (_LAST, 1, 0))
        outcome = yield Step(shm.set, shm.aset, (f"{_EVENT}{number}", [self.me, channel, data]))
        if number > KEEP:
            yield Step(shm.delete, shm.adelete, (f"{_EVENT}{number - KEEP}",))
        if outcome.forcible or number > KEEP:
            yield Step(shm.add, shm.aadd, (_BEGUN, True))

    def poll(self, timeout: float = 0.3) -> None:
        """Call the listeners with the events of other processes. Waits at most `timeout` seconds for one whose record
        is missing; then everything is forgotten, since it might have told to forget anything, and that is a
        `TimeoutError`.
        """
        run(self._poll(timeout))

    async def apoll(self, timeout: float = 0.3) -> None:
        """As `poll`."""
        await arun(self._poll(timeout))

    def _poll(self, timeout: float) -> Steps[None]:
        shm = self.dictionary
        last = (yield Step(shm.get, shm.aget, (_LAST,))) or 0
        if last == self._position:
            return
        if last < self._position:  # the dictionary was emptied
            self._lost(last)
            return
        if not self._position and (yield Step(shm.get, shm.aget, (_BEGUN,))):
            self._lost(last - 1)
        waited = 0.0
        position = self._position  # another thread or task may poll as well: then both deliver, which does no harm
        while position < last:
            record = yield Step(shm.get, shm.aget, (f"{_EVENT}{position + 1}",))
            pause = 0.001
            while record is None and waited < timeout:
                pause = min(pause, timeout - waited)
                yield Step(self._sleep, self._asleep, (pause,))
                waited += pause
                pause *= 2
                record = yield Step(shm.get, shm.aget, (f"{_EVENT}{position + 1}",))
            if record is None:
                self._lost(last)
                raise TimeoutError("timeout")
            position += 1
            who, channel, data = record
            if who != self.me:
                deliver(self._listeners, channel, data)
            self._position = max(self._position, position)

    def _lost(self, position: int) -> None:
        """Go on from there. What is between may have told to forget anything."""
        self._position = position
        for channel in self._listeners:
            if channel.startswith(PURGE):
                deliver(self._listeners, channel, "")


__all__ = [
    "INVALIDATIONS",
    "PURGE",
    "Channel",
    "Listeners",
    "ShmChannel",
    "deliver",
    "sender",
    "to_broadcast",
    "to_poll",
]
