"""Applies invalidations from other processes at the start of each request, and flushes counts.

MIDDLEWARE = ["resty_django.cache.middleware.UpdateMiddleware", ...]

It covers the caches in `RESTY_DJANGO` and the caches in Django's `CACHES` that use this package's backend. Each request
costs one memory access, or one round trip to Redis, for all caches that use events, and one for each other channel.
Without it, a process receives invalidations within the interval of the events.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

from resty_django.sansio import arun, run
from resty_django.text import logger

from .backend.store import BackendStore, stores
from .broadcasts.channel import InvalidationChannel, to_poll
from .broadcasts.events import EventChannel
from .errors import ChannelFailed
from .mlcache.cache import MLCache
from .mlcache.registry import mlcaches

log = logger("resty_django.cache")

EVENT_TIMEOUT_SECONDS: Final = 0.3
"""Maximum time to wait for a missing event."""


class UpdateMiddleware:
    """Updates the caches in use before the view. A failing channel is logged; the request and other channels are not
    affected."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        self.get_response = get_response
        self.down: dict[object, float] = {}
        """Monotonic time at which failed channels are polled again: a second after the failure."""
        self._async = iscoroutinefunction(get_response)
        if self._async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._async:
            return self._acall(request)
        caches = _in_use()
        for identity, channel in _channels(caches).items():
            if self._may_poll(identity):
                with self._noting_failure(identity):
                    run(to_poll(channel, EVENT_TIMEOUT_SECONDS))
        for cache in caches:
            cache.counter.flush_due()
        return self.get_response(request)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        caches = _in_use()
        for identity, channel in _channels(caches).items():
            if self._may_poll(identity):
                with self._noting_failure(identity):
                    await arun(to_poll(channel, EVENT_TIMEOUT_SECONDS))
        for cache in caches:
            await cache.counter.aflush_due()
        return await cast("Awaitable[HttpResponseBase]", self.get_response(request))

    def _may_poll(self, identity: object) -> bool:
        return not self.down or time.monotonic() >= self.down.get(identity, 0.0)

    @contextmanager
    def _noting_failure(self, identity: object) -> Iterator[None]:
        try:
            yield
            self.down.pop(identity, None)
        except ChannelFailed as error:
            if identity not in self.down:
                log.error("Requests may see old values until the channel of the caches is back: %s", error)
            self.down[identity] = time.monotonic() + 1


def _in_use() -> list[MLCache | BackendStore]:
    return [*mlcaches.all(initialized_only=True), *stores.values()]


def _channels(caches: Iterable[MLCache | BackendStore]) -> dict[object, InvalidationChannel]:
    """Return the channels of the caches by identity; only one over events, because it covers all of them."""
    channels: dict[object, InvalidationChannel] = {}
    for cache in caches:
        channel = cache.channel
        if channel is not None and hasattr(channel, "poll"):
            channels[EventChannel if isinstance(channel, EventChannel) else id(channel)] = channel
    return channels
