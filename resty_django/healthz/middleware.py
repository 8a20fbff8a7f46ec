"""Answers the health URLs before other middleware, which may redirect, limit or refuse a request, or use a store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve
from django.utils.decorators import sync_and_async_middleware

from .views import live, ready


@sync_and_async_middleware
def healthz_middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Answer the health URLs; to be first in MIDDLEWARE."""
    if iscoroutinefunction(get_response):

        async def amiddleware(request: HttpRequest) -> Any:
            answer = _answer(request)
            return await sync_to_async(answer, thread_sensitive=False)() if answer else await get_response(request)

        return amiddleware

    def middleware(request: HttpRequest) -> Any:
        answer = _answer(request)
        return answer() if answer else get_response(request)

    return middleware


def _answer(request: HttpRequest) -> Callable[[], HttpResponse] | None:
    """Return the call of the view, if the request is for one. Only URLs that end like ours are resolved."""
    if not request.path_info.endswith(("/live", "/ready")):
        return None
    try:
        match = resolve(request.path_info)
    except Resolver404:
        return None
    return partial(match.func, request, *match.args, **match.kwargs) if match.func in (live, ready) else None
