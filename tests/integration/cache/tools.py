"""A channel that joins caches of one process as if they were in several, callbacks that only counters know, and the
counts that are flushed."""

from __future__ import annotations

import time
from collections.abc import Callable

from resty_django.cache import CacheStats
from resty_django.cache.broadcasts.channel import Listeners
from resty_django.cache.broadcasts.journal_entries import decode
from resty_django.cache.statistics.counts import Slow, history
from resty_django.cache.statistics.reporter import CacheCounter
from resty_django.shdict import SharedDict
from resty_django.shdict.lmdb import LmdbDict


class Hub:
    """All broadcasts of its channels, in order. While `fault` is an error, its channels raise it in `poll`."""

    def __init__(self) -> None:
        self.broadcasts: list[tuple[str, str, str]] = []
        self.fault: Exception | None = None

    def channel(self, process: str) -> HubChannel:
        return HubChannel(self, process)


class HubChannel:
    """The channel of one process. `poll` delivers what the others have broadcast since the last one."""

    def __init__(self, hub: Hub, process: str) -> None:
        self.hub = hub
        self.process = process
        self._position = 0
        self._listeners: dict[str, Callable[[str], object]] = {}

    def register_listeners(self, listeners: Listeners) -> None:
        self._listeners.update(listeners)

    def broadcast(self, channel: str, data: str) -> None:
        self.hub.broadcasts.append((self.process, channel, data))

    async def abroadcast(self, channel: str, data: str) -> None:
        self.broadcast(channel, data)

    def poll(self, timeout: float = 0.3) -> None:
        if self.hub.fault is not None:
            raise self.hub.fault
        while self._position < len(self.hub.broadcasts):
            process, channel, data = self.hub.broadcasts[self._position]
            self._position += 1
            if process != self.process and channel in self._listeners:
                self._listeners[channel](data)

    async def apoll(self, timeout: float = 0.3) -> None:
        self.poll(timeout)


def in_journal(dictionary: SharedDict) -> list[tuple[str, str]]:
    """The channels and data of the invalidations that writers have appended to the journal of a dictionary."""
    assert isinstance(dictionary, LmdbDict)
    return [decode(entry)[1:] for _, entry in dictionary.read_journal(0).entries if entry is not None]


def callback_took(counter: CacheCounter, key: str, seconds: float) -> None:
    """Count a callback, as the cache does after it."""
    counter.now.callbacks += 1
    counter.now.callback_seconds += seconds
    counter.runs.append(Slow(key, seconds, counter.wall()))


def flushed(name: str, dictionary: SharedDict) -> CacheStats:
    """Return the counts of a cache that processes have flushed to a dictionary."""
    return history(dictionary.get(f"mlcache:stats2:{name}"), time.time()).total
