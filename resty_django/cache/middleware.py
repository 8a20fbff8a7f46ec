"""What other processes have told to forget is forgotten before a request looks, and counts are handed in.

MIDDLEWARE = ["resty_django.cache.middleware.UpdateMiddleware", ...]

For the caches of `RESTY_DJANGO`, and for those in Django's `CACHES` that use our backend. Costs one look into the
memory, or one round trip to Redis, in each request: for all caches that travel by events together, and one for each
cache with a channel of its own. Without it a process hears within the interval of the events.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

from resty_django.events.steps import arun, run

from .channel import Channel, to_poll
from .errors import ChannelFailed
from .handler import mlcaches
from .mlcache import MLCache
from .over_events import EventChannel
from .store import Store, stores

log = logging.getLogger("resty_django.cache")

PAUSE: Final = 1.0
"""Seconds for which a channel that failed is not asked again."""
TIMEOUT: Final = 0.3
"""Seconds at most for which an event that is missing is waited for."""


class UpdateMiddleware:
    """Updates the caches of the settings before the view. A channel that fails is logged, and fails no request; the
    others go on."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._down: dict[object, float] = {}
        """The moments until which channels that failed are left alone."""
        self._async = iscoroutinefunction(get_response)
        if self._async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._async:
            return self._acall(request)
        for which, channel in _channels().items():
            if self._may_ask(which):
                with self._asking(which):
                    run(to_poll(channel, TIMEOUT))
        for cache in _in_use():
            cache.hand_in()
        return self.get_response(request)  # type: ignore[no-any-return]

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        for which, channel in _channels().items():
            if self._may_ask(which):
                with self._asking(which):
                    await arun(to_poll(channel, TIMEOUT))
        for cache in _in_use():
            await cache.ahand_in()
        return await self.get_response(request)  # type: ignore[no-any-return]

    def _may_ask(self, which: object) -> bool:
        return not self._down or time.monotonic() >= self._down.get(which, 0.0)

    @contextmanager
    def _asking(self, which: object) -> Iterator[None]:
        try:
            yield
            self._down.pop(which, None)
        except ChannelFailed as error:
            if which not in self._down:
                log.error("requests may see old values until the channel of the caches is back: %s", error)
            self._down[which] = time.monotonic() + PAUSE


def _in_use() -> list[MLCache | Store]:
    return [*mlcaches.values(), *stores.values()]


def _channels() -> dict[object, Channel]:
    """The channels of the caches in use, but only one of those over events, since that one hears for all."""
    found: dict[object, Channel] = {}
    for cache in _in_use():
        channel = cache.channel
        if channel is not None and hasattr(channel, "poll"):
            found[EventChannel if isinstance(channel, EventChannel) else id(channel)] = channel
    return found


__all__ = ["UpdateMiddleware"]
