"""One poll for each request, where no thread may run in the background, or where a request must not see old data.

MIDDLEWARE = ["resty_django.events.middleware.PollMiddleware", ...]

Costs one look into the memory, or one round trip to Redis, in each request. Without a listener (INTERVAL 0 or AUTOSTART
False) the first request starts hearing events.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

from . import process
from .errors import EventError, NotConfigured

log = logging.getLogger("resty_django.events")

PAUSE: Final = 1.0
"""Seconds for which a store that failed is not asked again."""


class PollMiddleware:
    """Polls before the view. A store that is down fails no request: it is logged, and left alone for a while."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._down = False
        self._closed_until = 0.0
        self._async = iscoroutinefunction(get_response)
        if self._async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._async:
            return self._acall(request)
        with self._asking() as may_ask:
            if may_ask:
                process.ensure()
                process.poll()
        return self.get_response(request)  # type: ignore[no-any-return]

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        with self._asking() as may_ask:
            if may_ask:
                await process.aensure()
                await process.apoll()
        return await self.get_response(request)  # type: ignore[no-any-return]

    @contextmanager
    def _asking(self) -> Iterator[bool]:
        may_ask = time.monotonic() >= self._closed_until
        try:
            yield may_ask
            self._down = self._down and not may_ask
        except NotConfigured:
            pass  # somebody else is about to start
        except EventError as error:
            if not self._down:
                log.error("requests do not hear of events until the store is back: %s", error)
            self._down = True
            self._closed_until = time.monotonic() + PAUSE


__all__ = ["PollMiddleware"]
