"""Middleware that assigns a transaction ID (txid) to each request.

    MIDDLEWARE = ["resty_django.txid.middleware.TxidMiddleware", ...]   # first, so that all others can use it

    def view(request):
        request.txid            # "d1vsq2rd4gsil73umvdg"
        request.trace.trace_id  # of the W3C trace; `request.trace` is None if `TXID["TRACEPARENT"]` is off
        request.request_id      # the caller's ID for the request; None if a trusted proxy has sent none

    def total(order):  # code that has no request
        resty_django.txid.current()  # the same txid

The response carries the txid in the header `TXID["HEADER"]` (default: X-Request-Id) and the trace in `traceparent`. If
a trusted proxy (`TXID["PROXIES"]`) sends these headers, the request takes its txid and trace from them. If the proxy
sends another ID in X-Request-Id, the response returns that one, and the txid in X-Txid.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import FileResponse, HttpRequest, HttpResponseBase, StreamingHttpResponse

from resty_django.conf import conf

from .codec import InvalidTxid, parse
from .context import BoundIds, CurrentIds, id_headers, valid_request_id
from .generator import txid as generate_txid
from .traceparent import begin_trace, continue_trace


class TxidMiddleware:
    """Assign a txid to each request, sync or async.

    WebSockets bypass Django's middleware, so they get no txid.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._is_async:
            return self._acall(request)
        ids = assign_ids(request)
        with BoundIds(ids):
            return finish_response(self.get_response(request), ids)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        ids = assign_ids(request)
        with BoundIds(ids):
            return finish_response(await self.get_response(request), ids)


def assign_ids(request: HttpRequest) -> CurrentIds:
    """Set `request.txid` and `request.trace`: to valid ones in the headers from a trusted proxy, else to new ones.

    `request.request_id` is a valid one from a trusted proxy that is not the txid, else None.
    """
    options = conf.txid
    txid = trace = request_id = None
    if is_trusted(request.META.get("REMOTE_ADDR"), options.proxies):
        txid = _valid_txid(request.headers.get(options.header, ""))
        request_id = valid_request_id(request.META.get("HTTP_X_REQUEST_ID"))
        if request_id is not None and request_id.lower() == txid:
            request_id = None
        if options.traceparent:
            trace = continue_trace(request.headers.get("traceparent", ""), request.headers.get("tracestate", ""))
    if txid is None:
        txid = generate_txid()
    if trace is None and options.traceparent:
        trace = begin_trace(txid)
    request.txid, request.trace, request.request_id = txid, trace, request_id  # type: ignore[attr-defined]
    return CurrentIds(txid, trace, request_id)


@lru_cache(maxsize=1024)
def is_trusted(address: str | None, proxies: tuple[str, ...]) -> bool:
    """Return whether `proxies` contains the caller's IP address: CIDR blocks, and "unix" for callers over Unix sockets.

    `proxies` is a tuple because `lru_cache` needs hashable arguments. A caller over a Unix socket has no IP address:
    most servers report None or an empty string, NGINX Unit reports "unix:".
    """
    if not address or address == "unix:":
        return "unix" in proxies
    try:
        caller = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(caller, ipaddress.IPv6Address) and caller.ipv4_mapped:
        caller = caller.ipv4_mapped
    return any(caller in ipaddress.ip_network(block) for block in proxies if block != "unix")


def finish_response(response: HttpResponseBase, ids: CurrentIds) -> HttpResponseBase:
    """Add the headers to the response. Keep the IDs current while the content of a streaming response is generated."""
    for name, value in id_headers(ids.txid, ids.request_id).items():
        response.headers[name] = value
    if ids.trace is not None:
        response.headers["traceparent"] = ids.trace.traceparent
    # A `FileResponse` is not wrapped, so that the server can send its file without running Python code for each chunk.
    if isinstance(response, StreamingHttpResponse) and not isinstance(response, FileResponse):
        stream: Any = _astream if response.is_async else _stream
        response.streaming_content = stream(response.streaming_content, BoundIds(ids))
    return response


def _valid_txid(header: str) -> str | None:
    """Return the txid in a header, in lower case; None if the header is not a txid."""
    try:
        return parse(header).txid
    except InvalidTxid:
        return None


def _stream(content: Iterator[bytes], bound_ids: BoundIds) -> Iterator[bytes]:
    """Yield the content. The IDs are current only while a chunk is made.

    Between two chunks, code of the server runs in the same context; its log lines must not get the IDs of the request.
    `bound_ids` may be entered again and again.
    """
    while True:
        with bound_ids:
            chunk = next(content, None)
        if chunk is None:
            return
        yield chunk


async def _astream(content: AsyncIterator[bytes], bound_ids: BoundIds) -> AsyncIterator[bytes]:
    """Do the same for asyncio."""
    while True:
        with bound_ids:
            chunk = await anext(content, None)
        if chunk is None:
            return
        yield chunk
