"""Slots of concurrency are given back, however a request ends."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import path

from resty_django.limits import Concurrency
from resty_django.limits.decorators import limit, limit_conn, limit_count
from resty_django.limits.requests.results import HeldSlot
from tests.threads import together as in_threads

from .view_tools import Site, serving, sync_requests

pytestmark = pytest.mark.usefixtures("open_connections")

urlpatterns: list[Any] = []


class Broken(Exception):
    pass


@pytest.fixture
def conn(empty_limits: None) -> Concurrency:
    return Concurrency(3, default_delay=0.1, prefix="leaving:", name="conn")


def busy(conn: Concurrency, key: str = "192.0.2.1") -> int:
    """How many slots are in use."""
    return conn.max - conn.peek(key).remaining


async def until(check: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.01)


async def test_after_a_response(site: Site, limits_store: str, conn: Concurrency) -> None:
    during: list[int] = []

    def body(request: Any) -> HttpResponse:
        during.append(busy(conn))
        return HttpResponse(b"done")

    view = site.view(limit(conn), body=body)
    assert await site.statuses(view, 5) == [200] * 5
    assert during == [1] * 5
    assert busy(conn) == 0


@pytest.mark.parametrize("raised", [Broken, SystemExit])
async def test_after_an_exception(site: Site, conn: Concurrency, raised: type[BaseException]) -> None:
    def body(request: Any) -> HttpResponse:
        raise raised

    view = site.view(limit(conn), body=body)
    for _ in range(5):
        with pytest.raises(raised):
            await site.get(view)
    assert busy(conn) == 0


async def test_after_a_refusal_by_a_limit_inside(site: Site, conn: Concurrency) -> None:
    view = site.view(limit(conn), limit_count(1, per="1h", name="inside"))
    assert await site.statuses(view, 5) == [200] + [429] * 4
    assert busy(conn) == 0


async def test_after_a_refusal_by_a_limit_that_decides_together_with_it(site: Site, conn: Concurrency) -> None:
    """Decided together, and the slot is asked for last, wherever it stands."""
    from resty_django.limits import FixedWindow

    quota = FixedWindow(2, 3600, prefix="leaving:other:", name="other")
    view = site.view(limit(conn, quota))
    assert await site.statuses(view, 5) == [200, 200, 429, 429, 429]
    assert busy(conn) == 0


async def test_a_refused_request_takes_no_slot(site: Site, conn: Concurrency) -> None:
    tokens = [conn.hit("192.0.2.1").token for _ in range(3)]
    view = site.view(limit(conn))
    assert await site.statuses(view, 3) == [429] * 3
    assert busy(conn) == 3
    for token in tokens:
        conn.leaving("192.0.2.1", token=token)
    assert await site.statuses(view, 1) == [200]


async def test_a_dry_run_releases_its_slot(site: Site, conn: Concurrency) -> None:
    view = site.view(limit(conn, dry_run=True))
    assert await site.statuses(view, 5) == [200] * 5
    assert busy(conn) == 0


async def test_the_number_of_concurrent_requests_is_the_number_of_slots(conn: Concurrency) -> None:
    site = Site(True)
    go_on = asyncio.Event()

    async def body(request: Any) -> HttpResponse:
        await go_on.wait()
        return HttpResponse()

    view = site.view(limit(conn), body=body)
    tasks = [asyncio.create_task(site.get(view)) for _ in range(5)]
    await until(lambda: sum(task.done() for task in tasks) == 2)
    assert busy(conn) == 3
    go_on.set()
    assert sorted([(await task).status_code for task in tasks]) == [200, 200, 200, 429, 429]
    assert busy(conn) == 0


# --- streams ---


async def test_a_stream_holds_its_slot_until_it_is_closed(site: Site, conn: Concurrency) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a"
        yield b"b"

    async def apieces() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    view = site.view(
        limit(conn), body=lambda request: StreamingHttpResponse(apieces() if site.asynchronous else pieces())
    )
    read_fully, cut = await site.get(view), await site.get(view)
    assert busy(conn) == 2
    if site.asynchronous:
        assert [piece async for piece in read_fully] == [b"a", b"b"]
        assert await anext(aiter(cut)) == b"a"
    else:
        assert list(read_fully) == [b"a", b"b"]
        assert next(iter(cut)) == b"a"
    read_fully.close()
    assert busy(conn) == 1
    cut.close()
    cut.close()
    assert busy(conn) == 0


async def test_a_stream_that_breaks(conn: Concurrency) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"a"
        raise Broken

    site = Site(False)
    response = await site.get(site.view(limit(conn), body=lambda request: StreamingHttpResponse(pieces())))
    with pytest.raises(Broken):
        list(response)
    response.close()
    assert busy(conn) == 0


async def test_a_response_that_is_never_closed_releases_its_slot_when_it_is_collected(
    site: Site, conn: Concurrency
) -> None:
    response = await site.get(site.view(limit(conn), body=lambda request: StreamingHttpResponse([b"a"])))
    assert busy(conn) == 1
    del response
    gc.collect()
    assert busy(conn) == 0


async def test_a_file_is_still_sent_by_the_server(conn: Concurrency, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    site = Site(False)
    response = await site.get(site.view(limit(conn), body=lambda request: FileResponse((tmp_path / "file").open("rb"))))
    assert response.file_to_stream is not None
    assert busy(conn) == 1
    response.close()
    assert busy(conn) == 0


async def test_a_page_that_is_rendered_later_holds_its_slot_until_then(site: Site, conn: Concurrency) -> None:
    template = engines["django"].from_string("{{ busy }}")
    view = site.view(
        limit(conn), body=lambda request: TemplateResponse(request, template, {"busy": lambda: busy(conn)})
    )
    response = await site.get(view)
    assert response.render().content == b"1"
    response.close()
    assert busy(conn) == 0


async def test_a_page_whose_rendering_fails(site: Site, conn: Concurrency) -> None:
    def fail() -> None:
        raise Broken

    template = engines["django"].from_string("{{ fail }}")
    response = await site.get(
        site.view(limit(conn), body=lambda request: TemplateResponse(request, template, {"fail": fail}))
    )
    with pytest.raises(Broken) as caught:
        response.render()
    del response, caught
    gc.collect()
    assert busy(conn) == 0


async def test_a_response_in_a_cache_holds_nothing(conn: Concurrency) -> None:
    site = Site(False)
    template = engines["django"].from_string("page")
    response = await site.get(site.view(limit(conn), body=lambda request: TemplateResponse(request, template)))
    response.render()
    copy = pickle.loads(pickle.dumps(response))  # noqa: S301 - our own
    copy.close()
    del copy
    assert busy(conn) == 1
    response.close()
    assert busy(conn) == 0


def test_a_slot_is_released_once(conn: Concurrency) -> None:
    decision = conn.hit("k")
    conn.hit("k")
    slot = HeldSlot(conn, "k", decision.token)
    slot.release()
    slot.release()
    del slot
    assert busy(conn, "k") == 1


# --- cancelled ---


@pytest.mark.parametrize("again", [False, True])
async def test_a_cancelled_view(limits_store: str, conn: Concurrency, again: bool) -> None:
    """Also one that is cancelled again while it leaves."""
    site = Site(True)
    view = site.view(limit(conn), body=lambda request: asyncio.sleep(3600))
    task = asyncio.create_task(site.get(view))
    await until(lambda: busy(conn) == 1)
    task.cancel()
    if again:
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if again:
        await until(lambda: busy(conn) == 0)
    assert busy(conn) == 0


async def test_a_request_that_is_cancelled_at_any_moment(limits_store: str, conn: Concurrency) -> None:
    """Also while the decision is on its way."""
    site = Site(True)
    view = site.view(limit(conn), body=lambda request: asyncio.sleep(0.001, HttpResponse()))
    await site.get(view)
    for turns in range(25):
        task = asyncio.create_task(site.get(view))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await until(lambda: busy(conn) == 0)


async def test_a_request_that_is_cancelled_while_it_waits_for_its_turn(limits_store: str) -> None:
    site = Site(True)
    conn = Concurrency(1, 1, default_delay=3600, prefix="leaving:", name="conn")
    conn.hit("192.0.2.1")
    task = asyncio.create_task(site.get(site.view(limit(conn))))
    await until(lambda: 2 - conn.peek("192.0.2.1").remaining == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 2 - conn.peek("192.0.2.1").remaining == 1


# --- the latency ---


async def test_the_latency_is_the_time_of_the_view_without_the_delay(empty_limits: None) -> None:
    site = Site(True)
    conn = Concurrency(1, 1, default_delay=0.5, prefix="leaving:", name="conn", lease=None)
    conn.hit("192.0.2.1")
    view = site.view(limit(conn))
    await site.get(view)  # sleeps for half a second, and takes next to nothing
    assert 0.25 <= conn.unit_delay < 0.5


async def test_a_limit_by_numbers(site: Site, empty_limits: None) -> None:
    during: list[str] = []

    def body(request: Any) -> HttpResponse:
        during.append("run")
        return HttpResponse()

    view = site.view(limit_conn(2, burst=1, default_delay="10ms", lease="5m"), body=body)
    response = await site.get(view)
    assert response["RateLimit-Policy"] == '"conn-ip";q=3;qu="concurrent-requests"'
    assert response["RateLimit"] == '"conn-ip";r=2;t=0'
    assert await site.statuses(view, 5) == [200] * 5


# --- under Django's handlers ---


@pytest.fixture
def served(settings: Any) -> Iterator[Callable[[Any], None]]:
    """Views under URLs, for a client or a server."""

    def serve(**views: Any) -> None:
        urlpatterns[:] = [path(f"{name}/", view) for name, view in views.items()]

    with serving(settings, urlpatterns):
        yield serve  # type: ignore[misc]


async def asgi(route: str, gone: asyncio.Event, sent: asyncio.Event) -> list[dict[str, Any]]:
    """A request by ASGI; its client goes when `gone` is set. `sent` is set with the first piece of the body."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": route,
        "query_string": b"",
        "headers": [(b"host", b"testserver")],
        "client": ("192.0.2.1", 4711),
    }
    called = False
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        nonlocal called
        if called:
            await gone.wait()
            return {"type": "http.disconnect"}
        called = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)
        if message["type"] == "http.response.body":
            sent.set()

    handler = ASGIHandler()
    handler.load_middleware(is_async=True)
    await handler(scope, receive, send)  # type: ignore[arg-type]
    return messages


async def test_a_client_that_goes_while_the_view_runs(served: Any, limits_store: str, conn: Concurrency) -> None:
    async def slow(request: Any) -> HttpResponse:
        await asyncio.sleep(3600)
        return HttpResponse()

    served(slow=limit(conn)(slow))
    gone = asyncio.Event()
    request = asyncio.create_task(asgi("/slow/", gone, asyncio.Event()))
    await until(lambda: busy(conn) == 1)
    gone.set()
    await asyncio.gather(request, return_exceptions=True)
    await until(lambda: busy(conn) == 0)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_client_that_goes_while_it_is_sent_a_stream(served: Any, conn: Concurrency, kind: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"piece"
            await asyncio.sleep(0.01)

    async def aview(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(pieces())

    def view(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(pieces())

    served(stream=limit(conn)(aview if kind == "async" else view))
    gone, sent = asyncio.Event(), asyncio.Event()
    request = asyncio.create_task(asgi("/stream/", gone, sent))
    await asyncio.wait_for(sent.wait(), 20)
    assert busy(conn) == 1
    gone.set()
    await asyncio.gather(request, return_exceptions=True)
    await until(lambda: busy(conn) == 0)


async def test_a_client_that_goes_while_a_sync_view_makes_its_stream(served: Any, conn: Concurrency) -> None:
    """The response is then thrown away, and nobody closes it."""
    began, go_on = threading.Event(), threading.Event()

    def view(request: Any) -> StreamingHttpResponse:
        began.set()
        go_on.wait(20)
        return StreamingHttpResponse([b"a"])

    served(slow=limit(conn)(view))
    gone = asyncio.Event()
    request = asyncio.create_task(asgi("/slow/", gone, asyncio.Event()))
    await until(began.is_set)
    assert busy(conn) == 1
    gone.set()
    await asyncio.sleep(0.05)
    go_on.set()
    await asyncio.gather(request, return_exceptions=True)
    del request

    def left() -> bool:
        gc.collect()
        return busy(conn) == 0

    await until(left)


def test_many_threads(limits_store: str, conn: Concurrency) -> None:
    together = threading.Barrier(8)
    most: list[int] = []

    def body(request: Any) -> HttpResponse:
        most.append(busy(conn))
        return HttpResponse()

    view = limit(conn)(body)
    statuses: list[int] = []

    def work() -> None:
        together.wait(20)
        for _ in range(30):
            request = sync_requests.get("/", REMOTE_ADDR="192.0.2.1")
            statuses.append(view(request).status_code)

    in_threads(*[work] * 8)
    assert len(statuses) == 240
    assert set(statuses) <= {200, 429}
    assert max(most) <= 3
    assert busy(conn) == 0


async def test_a_request_with_a_cost_releases_all_its_slots(site: Site, empty_limits: None) -> None:
    for lease in (None, 60):
        limiter = Concurrency(5, lease=lease, prefix=f"leaving {lease}:", name="dear")
        view = site.view(limit(limiter, cost=3), body=lambda request: HttpResponse(b"done"))
        assert await site.statuses(view, 4) == [200] * 4
        assert busy(limiter) == 0
