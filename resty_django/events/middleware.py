"""Polls once per request, for sites without background threads, or where requests must not see outdated data.

MIDDLEWARE = ["resty_django.events.middleware.PollMiddleware", ...]

Each request costs one memory access, or one round trip to Redis. Without a listener (INTERVAL 0 or AUTOSTART False),
the process receives events from its first request on.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

from resty_django.text import logger

from . import runtime
from .errors import EventError, NotConfigured

log = logger("resty_django.events")


class PollMiddleware:
    """Polls before the view. An outage of the store is logged and pauses polling; requests are answered as usual."""

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
        try:
            if time.monotonic() >= self.closed_until:
                if not runtime.service().is_current():
                    runtime.ensure()
                    runtime.poll()
                self._down = False
        except EventError as error:
            self._note_failure(error)
        response: HttpResponseBase = self.get_response(request)
        return response

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        try:
            if time.monotonic() >= self.closed_until:
                if not runtime.service().is_current():
                    await runtime.aensure()
                    await runtime.apoll()
                self._down = False
        except EventError as error:
            self._note_failure(error)
        response: HttpResponseBase = await self.get_response(request)
        return response

    def _note_failure(self, error: EventError) -> None:
        if isinstance(error, NotConfigured):
            return  # another thread is starting
        if not self._down:
            log.error("Requests do not receive events until the store is back: %s", error)
        self._down = True
        self.closed_until = time.monotonic() + 1.0  # seconds until the store is polled again
