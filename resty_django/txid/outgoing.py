"""The txid and the trace of now, for calls to other services.

    httpx.Client(event_hooks={"request": [add_headers]})
    httpx.AsyncClient(event_hooks={"request": [aadd_headers]})
    urllib.request.Request(url, headers=headers())

For requests: `resty_django.txid.requests`. A client sends them to every host that it calls, so have one of its own for
the services that should get them.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Protocol

from resty_django.conf import conf

from .context import current, current_trace


class HasHeaders(Protocol):
    """A request of httpx, requests, and others."""

    @property
    def headers(self) -> MutableMapping[str, Any]: ...


def headers() -> dict[str, str]:
    """`TXID["HEADER"]`, `traceparent` and `tracestate`, as far as there is something to tell."""
    headers: dict[str, str] = {}
    txid = current()
    if txid is not None:
        headers[conf.txid.header] = txid
    trace = current_trace()
    if trace is not None:
        headers["traceparent"] = trace.traceparent
        if trace.state:
            headers["tracestate"] = trace.state
    return headers


def add_headers(request: HasHeaders) -> None:
    """Add `headers()` to a request that is about to be sent; those that it has already stay as they are."""
    for name, value in headers().items():
        request.headers.setdefault(name, value)


async def aadd_headers(request: HasHeaders) -> None:
    """Do the same as `add_headers`, for the asynchronous client of httpx."""
    add_headers(request)
