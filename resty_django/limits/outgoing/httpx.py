"""Transports for httpx that obey a limit, and the pauses that services ask for.

    client = httpx.Client(transport=LimitedTransport("10/s", wait=30))
    client = httpx.AsyncClient(transport=AsyncLimitedTransport("10/s", wait=30))

`resty_django` does not depend on httpx; import this module only if it is installed.
"""

from __future__ import annotations

from typing import Any

from httpx import AsyncBaseTransport, AsyncHTTPTransport, BaseTransport, ByteStream, HTTPTransport, Request, Response

from resty_django.sansio import Step, arun, run

from ..enforcement.chosen_rates import Rate
from .calls import OutgoingLimit


class LimitedTransport(BaseTransport):
    """Sends requests through `transport` (default: `HTTPTransport`). Other arguments: see `OutgoingLimit`.

    A request raises `Limited` if it would have to wait for too long.
    """

    def __init__(self, rate: Rate, *, transport: BaseTransport | None = None, **options: Any) -> None:
        self._limit = OutgoingLimit(rate, **options)
        self._transport = HTTPTransport() if transport is None else transport

    def handle_request(self, request: Request) -> Response:
        send = Step(self._transport.handle_request, _not_async, (request,))
        key = self._limit.key(request, request.url.host)
        return run(self._limit.sending(key, send, _repeatable(request), _close))  # type: ignore[no-any-return]

    def close(self) -> None:
        self._transport.close()


class AsyncLimitedTransport(AsyncBaseTransport):
    """Do the same for asyncio, without blocking the event loop."""

    def __init__(self, rate: Rate, *, transport: AsyncBaseTransport | None = None, **options: Any) -> None:
        self._limit = OutgoingLimit(rate, **options)
        self._transport = AsyncHTTPTransport() if transport is None else transport

    async def handle_async_request(self, request: Request) -> Response:
        send = Step(_not_sync, self._transport.handle_async_request, (request,))
        key = self._limit.key(request, request.url.host)
        return await arun(self._limit.sending(key, send, _repeatable(request), _close))

    async def aclose(self) -> None:
        await self._transport.aclose()


def _repeatable(request: Request) -> bool:
    """Return whether the body can be sent again: it is in memory, not a stream."""
    return isinstance(request.stream, ByteStream)


def _close(response: Response) -> Step:
    return Step(response.close, response.aclose)


async def _not_async(*args: Any) -> Any:
    raise AssertionError("A sync transport runs no async steps.")


def _not_sync(*args: Any) -> Any:
    raise AssertionError("An async transport runs no sync steps.")
