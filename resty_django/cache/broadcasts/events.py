"""The default channel of a cache: the journal of its dictionary, or the site's events."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final
from weakref import WeakSet

from django.core.exceptions import ImproperlyConfigured

from resty_django import events
from resty_django.events import runtime
from resty_django.events.errors import Unavailable
from resty_django.events.wire import Event, encode
from resty_django.shdict import SharedDict, SharedDictError, UnknownDict
from resty_django.shdict.base import Entry

from ..circuit_breaker.breaker import StoreBreaker, breaker_of
from . import journal_entries
from .channel import BROADCAST_AFTER_WRITE, PURGE, Carried, Listeners, deliver
from .journal_entries import sender

EVENT_SOURCE: Final = "mlcache"
POLL_CHECK_SECONDS: Final = 0.0005
"""Time between checks whether another thread has finished polling."""


class EventChannel:
    """The default channel. `dictionary`: L2 of the cache; None: every broadcast is an event.

    | L2 | events | an invalidation is |
    |---|---|---|
    | LMDB | LMDB | an entry in the journal of L2, in the transaction of the write |
    | Redis | the same server | an event in the script of the write |
    | otherwise | | an event after the write; for LMDB, the entry as well |

    `broadcast` always posts an event, for broadcasts that no write carries. A process skips its own broadcasts.
    Processes that listen to events, such as web workers, receive them automatically. `poll` is for other processes, and
    for callers that need all broadcasts up to now.
    """

    def __init__(self, dictionary: SharedDict | None = None) -> None:
        self._listeners: dict[str, Callable[[str], object]] = {}
        self._dictionary = dictionary
        self._heads: dict[str, tuple[str, bytes]] = {}
        self._journal: Any = None
        self._follower: Any = None
        if dictionary is not None and dictionary.engine == "lmdb":
            from .follower import follower_of

            self._journal = dictionary
            self._follower = follower_of(self._journal)
            self._follower.channels.add(self)
        _channels.add(self)

    @property
    def is_local(self) -> bool:
        """Whether broadcasts travel in the memory of this machine."""
        try:
            return self._journal is not None and not runtime.channel().wakes
        except (ImproperlyConfigured, UnknownDict, SharedDictError):  # the broadcast raises it, too
            return False

    def register_listeners(self, listeners: Listeners) -> None:
        self._listeners.update(listeners)

    def carry(self, channel: str, data: str) -> Carried:
        """Return the entry with which a write to the dictionary carries the broadcast, and whether it must also be
        broadcast afterwards. Raise the errors of the settings."""
        if self._journal is not None:
            return Carried(self._entry(channel, data), runtime.channel().wakes)
        if self._dictionary is None:
            return BROADCAST_AFTER_WRITE
        entry = runtime.channel().entry(encode(_event(channel, data)), self._dictionary)
        return Carried(entry, entry is None)

    def broadcast(self, channel: str, data: str) -> None:
        events.post(EVENT_SOURCE, channel, [sender.token, data])

    async def abroadcast(self, channel: str, data: str) -> None:
        await events.apost(EVENT_SOURCE, channel, [sender.token, data])

    def poll(self, timeout: float = 0.3) -> None:
        """Receive all broadcasts up to now. Wait at most `timeout` seconds for another polling thread, then raise
        `TimeoutError`."""
        with polling():
            poll_events(timeout)
        self._raise_error()

    async def apoll(self, timeout: float = 0.3) -> None:
        """Do the same as `poll`."""
        with polling():
            await apoll_events(timeout)
        self._raise_error()

    def _raise_error(self) -> None:
        if self._follower is not None and self._follower.error is not None:
            raise self._follower.error

    def hear(self, channel: str, data: str) -> None:
        """Call the listener of the channel."""
        deliver(self._listeners, channel, data)

    def forget(self) -> None:
        """Make all listeners drop all values."""
        for channel in self._listeners:
            if channel.startswith(PURGE):
                deliver(self._listeners, channel, "")

    def _entry(self, channel: str, data: str) -> Entry:
        token, head = self._heads.get(channel, ("", b""))
        if token is not sender.token:
            token = sender.token
            head = journal_entries.head(token, channel)
            self._heads[channel] = token, head
        return head + (data.encode() if data.isascii() else journal_entries.data_bytes(data))


_channels: WeakSet[EventChannel] = WeakSet()


def events_breaker() -> StoreBreaker:
    """Return the breaker of the store of events."""
    channel, _ = runtime.configured_channel()
    return breaker_of(channel.dictionary)


def polling() -> AbstractContextManager[None]:
    """Wrap a poll. Raise `resty_django.shdict.Unavailable` at once while the store is down."""
    breaker = events_breaker()
    return breaker.trying(breaker.reads_down, (Unavailable,), reading=True)


def poll_events(timeout: float) -> None:
    """Receive all events posted so far. Raise `TimeoutError` and the errors of `resty_django.events`."""
    runtime.ensure()
    until = time.monotonic() + timeout
    while events.poll() == "recursive":
        if time.monotonic() > until:
            raise TimeoutError("timeout")
        time.sleep(POLL_CHECK_SECONDS)


async def apoll_events(timeout: float) -> None:
    """Do the same as `poll_events`."""
    await runtime.aensure()
    until = time.monotonic() + timeout
    while await events.apoll() == "recursive":
        if time.monotonic() > until:
            raise TimeoutError("timeout")
        await asyncio.sleep(POLL_CHECK_SECONDS)


def _event(channel: str, data: str) -> Event:
    return Event(EVENT_SOURCE, channel, [sender.token, data], None, os.getpid())


@events.on_event(EVENT_SOURCE)
def _heard(data: Any, event: str, source: str, pid: int | None) -> None:
    token, content = data
    if token != sender.token:
        for channel in list(_channels):
            channel.hear(event, content)


@events.on_event(events.events.source, events.events.started)
def _started(data: object, event: str, source: str, pid: int | None) -> None:
    """Drop values stored before this process received events, because they may be outdated."""
    if pid == os.getpid():
        for channel in list(_channels):
            channel.forget()


@events.on_event(events.events.source, events.events.missed)
def _missed(data: object, event: str, source: str, pid: int | None) -> None:
    """Drop all values, because events that invalidated them may have been lost."""
    for channel in list(_channels):
        channel.forget()
