"""Middleware that assigns a txid to each request.

    MIDDLEWARE = ["resty_django.txid.middleware.TxidMiddleware", ...]   # first, so that all others can use it

It sets `request.txid` and `request.trace` (the W3C trace, or None). Both are current for all code that runs until
the response is sent. The response carries the txid in the header `TXID["HEADER"]` and the trace in `traceparent`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import FileResponse, HttpRequest, HttpResponseBase, StreamingHttpResponse

from resty_django.conf import conf

from . import traceparent
from .codec import InvalidTxid, parse
from .context import Binding, Bound, bind, unbind
from .generator import txid as new_txid
from .traceparent import Trace

UNIX: Final = "unix"
"""Represents callers without an address, which connect over a Unix socket. Unit names them "unix:"."""


class TxidMiddleware:
    """Assign a txid to each request, sync or async.

    WebSockets bypass Django's middleware, so they get no txid.
    """

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
        ids = assign_ids(request)
        token = bind(ids)
        try:
            return write_headers(self.get_response(request), *ids)
        finally:
            unbind(token)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        txid, trace = assign_ids(request)
        with Binding(txid, trace):
            return write_headers(await self.get_response(request), txid, trace)


def assign_ids(request: HttpRequest) -> Bound:
    """Set `request.txid` and `request.trace` from the headers if a trusted proxy sent them, else create new ones."""
    settings = conf.txid
    txid, trace = "", None
    if is_trusted(request.META.get("REMOTE_ADDR"), settings.proxies):
        headers = request.headers
        txid = _txid_from(headers.get(settings.header, ""))
        if settings.traceparent and "traceparent" in headers:
            trace = traceparent.continue_trace(headers["traceparent"], headers.get("tracestate", ""))
    txid = txid or new_txid()
    if settings.traceparent and trace is None:
        trace = traceparent.begin(txid)
    ids = Bound(txid, trace)
    request.txid, request.trace = ids  # type: ignore[attr-defined]
    return ids


@lru_cache(maxsize=1024)
def is_trusted(address: str | None, proxies: tuple[str, ...]) -> bool:
    """Return whether the caller's `address` is in `proxies`, a list of CIDR blocks or "unix".

    Txids in the headers of other callers are ignored.
    """
    if not address or address == f"{UNIX}:":
        return UNIX in proxies
    try:
        caller = ipaddress.ip_address(address)
    except ValueError:
        return False
    caller = getattr(caller, "ipv4_mapped", None) or caller
    return any(caller in ipaddress.ip_network(block) for block in proxies if block != UNIX)


def write_headers(response: HttpResponseBase, txid: str, trace: Trace | None) -> HttpResponseBase:
    """Write both into the headers. Streaming content is then also generated with both current.

    Write to the private mapping of Django's `ResponseHeaders`: the public method checks names and values, which are
    ASCII without line breaks here, and would take a quarter of the middleware's time.
    """
    fields: dict[str, tuple[str, str]] = response.headers._store
    name = conf.txid.header
    fields[name.lower()] = (name, txid)
    if trace is not None:
        fields["traceparent"] = ("traceparent", trace.traceparent)
    if isinstance(response, StreamingHttpResponse) and not isinstance(response, FileResponse):
        stream: Any = _astream if response.is_async else _stream
        response.streaming_content = stream(response.streaming_content, Binding(txid, trace))
    return response


def _txid_from(header: str) -> str:
    try:
        return parse(header).txid
    except InvalidTxid:
        return ""


def _stream(content: Iterator[bytes], binding: Binding) -> Iterator[bytes]:
    """Yield the content. Between two chunks the caller's context is restored."""
    while True:
        with binding:
            piece = next(content, None)
        if piece is None:
            return
        yield piece


async def _astream(content: AsyncIterator[bytes], binding: Binding) -> AsyncIterator[bytes]:
    while True:
        with binding:
            piece = await anext(content, None)
        if piece is None:
            return
        yield piece
