"""The default channel of a cache, over the site's events."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from resty_django import events
from resty_django.events import runtime
from resty_django.forks import after_fork

from .channel import PURGE, Listeners, deliver

SOURCE: Final = "mlcache"
PAUSE: Final = 0.0005
"""Seconds between checks whether another thread has finished polling."""


class _Sender:
    """Identifies this process's broadcasts among the broadcasts of all processes and machines."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        self.token = f"{os.getpid()}:{secrets.token_hex(8)}"


sender: Final = _Sender()
after_fork(sender.after_fork)


class EventChannel:
    """A channel with one event per broadcast. A process skips its own events.

    Processes that listen to events, such as web workers, receive them automatically. `poll` is for other processes, and
    for callers that need all events up to now.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, Callable[[str], object]] = {}
        _channels.add(self)

    def register_listeners(self, listeners: Listeners) -> None:
        self._listeners.update(listeners)

    def broadcast(self, channel: str, data: str) -> None:
        events.post(SOURCE, channel, [sender.token, data])

    async def abroadcast(self, channel: str, data: str) -> None:
        await events.apost(SOURCE, channel, [sender.token, data])

    def poll(self, timeout: float = 0.3) -> None:
        """Receive all events up to now. Wait at most `timeout` seconds for another polling thread, then raise
        `TimeoutError`."""
        poll_events(timeout)

    async def apoll(self, timeout: float = 0.3) -> None:
        """Do the same as `poll`."""
        await apoll_events(timeout)

    def hear(self, channel: str, data: str) -> None:
        """Call the listener of the channel."""
        deliver(self._listeners, channel, data)

    def forget(self) -> None:
        """Make all listeners drop all values."""
        for channel in self._listeners:
            if channel.startswith(PURGE):
                deliver(self._listeners, channel, "")


_channels: WeakSet[EventChannel] = WeakSet()


def poll_events(timeout: float) -> None:
    """Receive all events posted so far. Raise `TimeoutError` and the errors of `resty_django.events`."""
    runtime.ensure()
    until = time.monotonic() + timeout
    while events.poll() == "recursive":
        if time.monotonic() > until:
            raise TimeoutError("timeout")
        time.sleep(PAUSE)


async def apoll_events(timeout: float) -> None:
    """Do the same as `poll_events`."""
    await runtime.aensure()
    until = time.monotonic() + timeout
    while await events.apoll() == "recursive":
        if time.monotonic() > until:
            raise TimeoutError("timeout")
        await asyncio.sleep(PAUSE)


@events.on_event(SOURCE)
def _heard(data: Any, event: str, source: str, pid: int | None) -> None:
    token, content = data
    if token != sender.token:
        for channel in list(_channels):
            channel.hear(event, content)


@events.on_event(events.events.source, events.events.started)
def _started(data: Any, event: str, source: str, pid: int | None) -> None:
    """Drop values stored before this process received events, because they may be outdated."""
    if pid == os.getpid():
        for channel in list(_channels):
            channel.forget()
