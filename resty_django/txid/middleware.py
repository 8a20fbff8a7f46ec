"""A txid for each request.

    MIDDLEWARE = ["resty_django.txid.middleware.TxidMiddleware", ...]   # the first, so that all others have it

It sets `request.txid`, and `request.trace`, the W3C trace or None; both are current for all that runs until the
response is sent. The response has the txid in the header `TXID["HEADER"]`, and the trace in `traceparent`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import FileResponse, HttpRequest, HttpResponseBase, StreamingHttpResponse

from resty_django.conf import conf

from . import traceparent
from .codec import InvalidTxid, parse
from .context import bind, unbind
from .make import txid
from .traceparent import Trace
from .trust import is_trusted


class TxidMiddleware:
    """Sync and async in one. WebSockets do not pass Django's middleware, so they are left alone."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._async = iscoroutinefunction(get_response)
        if self._async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._async:
            return self._acall(request)
        mine, trace = name(request)
        token = bind(mine, trace)
        try:
            return label(self.get_response(request), mine, trace)
        finally:
            unbind(token)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        mine, trace = name(request)
        token = bind(mine, trace)
        try:
            return label(await self.get_response(request), mine, trace)
        finally:
            unbind(token)


def name(request: HttpRequest) -> tuple[str, Trace | None]:
    """Give the request its txid and its trace: those that it brings, if a trusted proxy sent it, else new ones."""
    settings = conf.txid
    trusted = is_trusted(request.META.get("REMOTE_ADDR"), settings.proxies)
    mine = _brought(request, settings.header) if trusted else ""
    mine = mine or txid()
    trace = None
    if settings.traceparent:
        headers = request.headers
        if trusted and "traceparent" in headers:
            trace = traceparent.go_on(headers["traceparent"], headers.get("tracestate", ""))
        trace = trace or traceparent.begin(mine)
    request.txid = mine  # type: ignore[attr-defined]
    request.trace = trace  # type: ignore[attr-defined]
    return mine, trace


def label(response: HttpResponseBase, mine: str, trace: Trace | None) -> HttpResponseBase:
    """Write both into the headers; the content of a streaming response is then made under them too."""
    response.headers[conf.txid.header] = mine
    if trace is not None:
        response.headers["traceparent"] = trace.traceparent
    if isinstance(response, StreamingHttpResponse) and not isinstance(response, FileResponse):
        content: Any = response.streaming_content
        streamed = _astream(content, mine, trace) if response.is_async else _stream(content, mine, trace)
        response.streaming_content = streamed
    return response


def _brought(request: HttpRequest, header: str) -> str:
    try:
        return parse(request.headers.get(header, "")).txid
    except InvalidTxid:
        return ""


def _stream(content: Iterator[bytes], mine: str, trace: Trace | None) -> Iterator[bytes]:
    """The content; between two pieces the caller has its own context."""
    while True:
        token = bind(mine, trace)
        try:
            piece = next(content, None)
        finally:
            unbind(token)
        if piece is None:
            return
        yield piece


async def _astream(content: AsyncIterator[bytes], mine: str, trace: Trace | None) -> AsyncIterator[bytes]:
    while True:
        token = bind(mine, trace)
        try:
            piece = await anext(content, None)
        finally:
            unbind(token)
        if piece is None:
            return
        yield piece


__all__ = ["TxidMiddleware"]
