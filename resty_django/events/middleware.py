"""One poll for each request, where no thread may run in the background, or where a request must not see old data.

MIDDLEWARE = ["resty_django.events.middleware.PollMiddleware", ...]

Costs one look into the memory, or one round trip to Redis, in each request. Without a listener (INTERVAL 0 or AUTOSTART
False) the first request starts hearing events.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

from resty_django.text import logger

from . import runtime
from .errors import EventError, NotConfigured

log = logger("resty_django.events")

PAUSE: Final = 1.0
"""Seconds for which a store that failed is not asked again."""


class PollMiddleware:
    """Polls before the view. A store that is down fails no request: it is logged, and left alone for a while."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._down = False
        self.closed_until = 0.0
        self._async = iscoroutinefunction(get_response)
        if self._async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._async:
            return self._acall(request)
        with self._asking() as may_ask:
            if may_ask:
                runtime.ensure()
                runtime.poll()
        return self.get_response(request)  # type: ignore[no-any-return]

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        with self._asking() as may_ask:
            if may_ask:
                await runtime.aensure()
                await runtime.apoll()
        return await self.get_response(request)  # type: ignore[no-any-return]

    @contextmanager
    def _asking(self) -> Iterator[bool]:
        may_ask = time.monotonic() >= self.closed_until
        try:
            yield may_ask
            self._down = self._down and not may_ask
        except NotConfigured:
            pass  # somebody else is about to start
        except EventError as error:
            if not self._down:
                log.error("requests do not hear of events until the store is back: %s", error)
            self._down = True
            self.closed_until = time.monotonic() + PAUSE
