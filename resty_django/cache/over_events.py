"""The channel of a cache that travels as events of the site: heard in the background, and by whoever polls."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from resty_django import events

from .channel import PURGE, Listeners, deliver, sender

SOURCE: Final = "mlcache"
PAUSE: Final = 0.0005
"""Seconds between two looks at whether another thread is through with polling."""


class EventChannel:
    """One event for each broadcast. Those of the own process are skipped.

    Processes that listen to events, as web workers do, hear them without any call. `poll` is for those that do not, and
    for whoever has to know all that was told until now.
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
        """Where another thread polls, wait for it: at most `timeout` seconds, then that is a `TimeoutError`."""
        poll_events(timeout)

    async def apoll(self, timeout: float = 0.3) -> None:
        """As `poll`."""
        await apoll_events(timeout)

    def hear(self, channel: str, data: str) -> None:
        """Tell the listener of the channel."""
        deliver(self._listeners, channel, data)

    def forget(self) -> None:
        """Tell all listeners to forget everything."""
        for channel in self._listeners:
            if channel.startswith(PURGE):
                deliver(self._listeners, channel, "")


_channels: WeakSet[EventChannel] = WeakSet()


def poll_events(timeout: float) -> None:
    """Hear all events that were posted until now. Raises `TimeoutError` and the errors of `resty_django.events`."""
    events.process.ensure()
    until = time.monotonic() + timeout
    while events.poll() == "recursive":
        if time.monotonic() > until:
            raise TimeoutError("timeout")
        time.sleep(PAUSE)


async def apoll_events(timeout: float) -> None:
    """As `poll_events`."""
    await events.process.aensure()
    until = time.monotonic() + timeout
    while await events.apoll() == "recursive":
        if time.monotonic() > until:
            raise TimeoutError("timeout")
        await asyncio.sleep(PAUSE)


@events.on_event(SOURCE)
def _heard(data: Any, event: str, source: str, pid: int | None) -> None:
    who, told = data
    if who != sender.token:
        for channel in list(_channels):
            channel.hear(event, told)


@events.on_event(events.events._source, events.events.started)
def _started(data: Any, event: str, source: str, pid: int | None) -> None:
    """This process hears events from now on: what it keeps from before may be outdated."""
    if pid == os.getpid():
        for channel in list(_channels):
            channel.forget()


__all__ = ["EventChannel", "apoll_events", "poll_events"]
