"""The middleware of the login guard: a refused log-in receives a 429 instead of the form with an error.

MIDDLEWARE = [..., "resty_django.limits.login.LoginGuardMiddleware"]
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

from ..requests.response import response_to
from .backend import REFUSAL_ATTRIBUTE


class LoginGuardMiddleware:
    """Replaces the response to a refused log-in, in sync and async sites."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._asynchronous = iscoroutinefunction(get_response)
        if self._asynchronous:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._asynchronous:
            return self._acall(request)
        return _replaced(request, self.get_response(request))

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        return _replaced(request, await self.get_response(request))


def _replaced(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    refusal = getattr(request, REFUSAL_ATTRIBUTE, None)
    return response if refusal is None else response_to(request, refusal)
