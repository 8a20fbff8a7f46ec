"""Headers with the current txid and trace, for calls to other services.

    httpx.Client(event_hooks={"request": [add_headers]})
    httpx.AsyncClient(event_hooks={"request": [aadd_headers]})
    urllib.request.Request(url, headers=headers())

For requests, see `resty_django.txid.requests`. A client sends the headers to every host that it calls, so use a
separate client for the services that should receive them.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Protocol

from .context import current, current_request_id, current_trace, id_headers


class HasHeaders(Protocol):
    """A request object of httpx, requests or a similar library."""

    @property
    def headers(self) -> MutableMapping[str, Any]: ...


def headers() -> dict[str, str]:
    """Return the headers with the IDs, `traceparent` and `tracestate`, without those that have no value."""
    txid = current()
    headers = {} if txid is None else id_headers(txid, current_request_id())
    trace = current_trace()
    return headers if trace is None else headers | trace.headers()


def add_headers(request: HasHeaders) -> None:
    """Add `headers()` to a request before it is sent. Existing headers are kept."""
    for name, value in headers().items():
        request.headers.setdefault(name, value)


async def aadd_headers(request: HasHeaders) -> None:
    """Do the same as `add_headers`, for httpx.AsyncClient."""
    add_headers(request)
