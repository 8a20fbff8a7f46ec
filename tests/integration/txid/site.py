"""A site whose views return the IDs that they see; every view logs a line."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.http import FileResponse, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from resty_django.txid import carry, current, current_request_id, current_trace

log = logging.getLogger("tests.site")


def seen(request: HttpRequest) -> dict[str, object]:
    log.warning("seen")
    trace = current_trace()
    return {
        "request": request.txid,  # type: ignore[attr-defined]
        "current": current(),
        "request_ids": [request.request_id, current_request_id()],  # type: ignore[attr-defined]
        "same_trace": trace is request.trace,  # type: ignore[attr-defined]
        "traceparent": trace.traceparent if trace else None,
        "tracestate": trace.state if trace else None,
    }


def sync_view(request: HttpRequest) -> HttpResponse:
    return JsonResponse(seen(request))


async def async_view(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0.001)
    response = seen(request)
    in_thread = await asyncio.to_thread(current)
    in_sync = await sync_to_async(current)()
    task = await asyncio.create_task(asyncio.sleep(0, current()))
    loop = asyncio.get_running_loop()
    carried = await loop.run_in_executor(None, carry(current))
    return JsonResponse({**response, "others": [in_thread, in_sync, task, carried]})


def failing(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("broken on purpose")


async def async_failing(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("broken on purpose")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    def pieces() -> Iterator[str]:
        for number in range(3):
            log.warning("piece %d", number)
            yield f"{current()}\n"
        log.warning("last")

    return StreamingHttpResponse(pieces())


async def async_stream(request: HttpRequest) -> StreamingHttpResponse:
    async def pieces() -> AsyncIterator[str]:
        for number in range(3):
            log.warning("piece %d", number)
            await asyncio.sleep(0.001)
            yield f"{current()}\n"
        log.warning("last")

    return StreamingHttpResponse(pieces())


def broken_stream(request: HttpRequest) -> StreamingHttpResponse:
    def pieces() -> Iterator[str]:
        yield "one"
        raise RuntimeError("broken while streaming")

    return StreamingHttpResponse(pieces())


def file(request: HttpRequest) -> FileResponse:
    return FileResponse(io.BytesIO(b"bytes of a file"), filename="a.txt")


urlpatterns = [
    path("sync/", sync_view),
    path("async/", async_view),
    path("failing/", failing),
    path("async-failing/", async_failing),
    path("stream/", stream),
    path("async-stream/", async_stream),
    path("broken-stream/", broken_stream),
    path("file/", file),
]
