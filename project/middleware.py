"""Middleware for the strict content security policy with which all pages of the demo and of the apps must work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware


def _protect(response: HttpResponseBase) -> HttpResponseBase:
    response.headers.setdefault("Content-Security-Policy", settings.CONTENT_SECURITY_POLICY)
    return response


@sync_and_async_middleware
def content_security_policy(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Set the `Content-Security-Policy` header of `settings.CONTENT_SECURITY_POLICY`, unless a view has set its own."""
    if iscoroutinefunction(get_response):

        async def amiddleware(request: HttpRequest) -> HttpResponseBase:
            answer: Awaitable[HttpResponseBase] = get_response(request)
            return _protect(await answer)

        return amiddleware

    def middleware(request: HttpRequest) -> HttpResponseBase:
        return _protect(get_response(request))

    return middleware
