"""The middleware under both kinds of handlers: ids, headers, trust, log lines, streams, failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.util import FileWrapper

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.core.handlers.wsgi import WSGIHandler
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.utils.deprecation import MiddlewareMixin
from pytest_django import Settings

from resty_django.txid import current, is_txid, parse
from resty_django.txid.logging import TxidFilter
from resty_django.txid.middleware import TxidMiddleware

pytestmark = pytest.mark.urls("tests.integration.txid.site")

OURS = "cbpvimguo4hkaps9lf6g"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
FIRST = "resty_django.txid.middleware.TxidMiddleware"


class SyncOnly(MiddlewareMixin):
    """A middleware that knows no async: Django puts the rest of the chain into a thread."""

    async_capable = False

    def __call__(self, request: Any) -> Any:
        logging.getLogger("tests.site").warning("sync only")
        return self.get_response(request)


@pytest.fixture(autouse=True)
def _middleware(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests here meet no database: their end must not look at a connection that an earlier test has opened."""
    monkeypatch.setattr(BaseDatabaseWrapper, "close_if_unusable_or_obsolete", lambda connection: None)
    settings.MIDDLEWARE = [FIRST, "django.middleware.common.CommonMiddleware"]
    settings.RESTY_DJANGO = {"TXID": {"PROXIES": ["127.0.0.1"]}}


@pytest.fixture
def lines() -> Iterator[list[tuple[str, str]]]:
    """Txid and message of each log line of the site and of Django."""
    with kept("txid") as entries:
        yield entries


@pytest.fixture
def request_ids() -> Iterator[list[tuple[str, str]]]:
    """The caller's request ID and the message of each log line."""
    with kept("request_id") as entries:
        yield entries


@contextmanager
def kept(attribute: str) -> Iterator[list[tuple[str, str]]]:
    entries: list[tuple[str, str]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            entries.append((getattr(record, attribute), record.getMessage()))

    handler = Keep()
    handler.addFilter(TxidFilter())
    loggers = [logging.getLogger("tests.site"), logging.getLogger("django.request")]
    for logger in loggers:
        logger.addHandler(handler)
    yield entries
    for logger in loggers:
        logger.removeHandler(handler)


class Reply:
    def __init__(self, response: Any, body: str) -> None:
        self.status: int = response.status_code
        self.headers = response.headers
        self.body = body
        self.json = response.json() if response.headers.get("Content-Type") == "application/json" else None


@pytest.fixture(params=["sync", "async"])
def get(request: pytest.FixtureRequest) -> Any:
    """Return a coroutine function that sends a request through the WSGI or the ASGI handler."""

    async def by_wsgi(path: str, **headers: str) -> Reply:
        def ask() -> Reply:
            response: Any = Client(raise_request_exception=False).get(path, headers=headers)
            body = b"".join(response) if response.streaming else response.content
            assert current() is None
            return Reply(response, body.decode())

        return await asyncio.to_thread(ask)

    async def by_asgi(path: str, **headers: str) -> Reply:
        response: Any = await AsyncClient(raise_request_exception=False).get(path, headers=headers)
        body = b"".join([piece async for piece in aiter(response)]) if response.streaming else response.content
        assert current() is None
        return Reply(response, body.decode())

    return by_wsgi if request.param == "sync" else by_asgi


@pytest.mark.parametrize("path", ["/sync/", "/async/"])
async def test_a_request_has_one_id_everywhere(get: Any, path: str, lines: list[Any]) -> None:
    reply = await get(path)
    request_id = reply.json["request"]
    assert is_txid(request_id)
    assert reply.json["current"] == reply.headers["X-Request-Id"] == request_id
    assert set(reply.json.get("others", [request_id])) == {request_id}
    assert lines == [(request_id, "seen")]


async def test_each_request_has_its_own_id(get: Any) -> None:
    replies = await asyncio.gather(*(get("/async/") for _ in range(20)))
    assert len({reply.json["request"] for reply in replies}) == 20
    for reply in replies:
        assert reply.json["request"] == reply.json["current"] == reply.headers["X-Request-Id"]


async def test_the_txid_of_a_trusted_proxy_is_kept(get: Any) -> None:
    for sent in (OURS, OURS.upper(), f" {OURS} "):
        reply = await get("/sync/", **{"X-Request-Id": sent.strip()})
        assert reply.json["request"] == reply.headers["X-Request-Id"] == OURS


FORMS = (
    *(
        "f058ebd6-02f7-4d3f-942e-904344e8cde5",
        "F058EBD6-02F7-4D3F-942E-904344E8CDE5",
        "0f8fad5bd9cb469fa165708677289501",
    ),
    *("12345678", "a" * 128, "web-1.example_7", OURS + "0", OURS[:-1] + "1"),
)
OTHERS = (
    *("", "x", "1234567", "a" * 129, "a b c d e f", "a\tb345678", "a,b345678", "12345678\u00e4", "<script>alert(1)"),
    *(
        '"quoted-id"',
        "12345678\\n",
        "{12345678}",
        "12345678;x=1",
        "1234\n5678",
        "12345678\n",
        "12345678\r\nSet-Cookie: a=b",
    ),
)
"""Texts that are not request IDs. Servers refuse headers with line breaks; another middleware may still set one."""


@pytest.mark.parametrize("sent", FORMS)
async def test_the_request_id_of_a_trusted_proxy_is_kept_next_to_the_txid(get: Any, sent: str) -> None:
    for path in ("/sync/", "/async/"):
        reply = await get(path, **{"X-Request-Id": sent})
        assert reply.json["request_ids"] == [sent, sent]
        assert reply.headers["X-Request-Id"] == sent
        assert is_txid(reply.json["request"])
        assert reply.json["request"] == reply.json["current"] == reply.headers["X-Txid"]


@pytest.mark.parametrize("sent", OTHERS)
async def test_other_texts_are_ignored_and_never_returned(get: Any, sent: str) -> None:
    reply = await get("/sync/", **{"X-Request-Id": sent})
    assert reply.json["request_ids"] == [None, None]
    assert is_txid(reply.json["request"])
    assert reply.headers["X-Request-Id"] == reply.json["request"]
    assert "X-Txid" not in reply.headers
    assert not sent.strip() or sent.strip() not in str(dict(reply.headers)).replace(reply.json["request"], "")


async def test_a_txid_is_not_kept_twice(get: Any) -> None:
    reply = await get("/sync/", **{"X-Request-Id": OURS.upper()})
    assert reply.json["request_ids"] == [None, None]
    assert "X-Txid" not in reply.headers


async def test_the_header_x_txid_is_not_read(get: Any) -> None:
    """A proxy that does not know this header forwards it from any client."""
    reply = await get("/sync/", **{"X-Request-Id": FORMS[0], "X-Txid": OURS})
    assert reply.json["request"] == reply.headers["X-Txid"] != OURS


@pytest.mark.parametrize("proxies", [[], ["10.0.0.0/8"], ["unix"]])
async def test_ids_of_other_callers_are_replaced(get: Any, proxies: list[str], settings: Settings) -> None:
    settings.RESTY_DJANGO = {"TXID": {"PROXIES": proxies}}
    reply = await get("/sync/", **{"X-Request-Id": OURS, "traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert reply.json["request"] != OURS
    assert TRACE not in reply.json["traceparent"]
    reply = await get("/sync/", **{"X-Request-Id": FORMS[0]})
    assert reply.json["request_ids"] == [None, None]
    assert reply.headers["X-Request-Id"] == reply.json["request"]
    assert FORMS[0] not in str(dict(reply.headers))


async def test_log_lines_have_the_request_id(get: Any, request_ids: list[Any]) -> None:
    for path in ("/sync/", "/async/", "/nowhere/", ""):
        await get(path or "/sync/", **({"X-Request-Id": FORMS[0]} if path else {}))
    assert [request_id for request_id, _ in request_ids] == [*[FORMS[0]] * 3, "-"]


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
async def test_a_stream_has_the_request_id(get: Any, request_ids: list[Any]) -> None:
    await get("/stream/", **{"X-Request-Id": FORMS[0]})
    assert {request_id for request_id, _ in request_ids} == {FORMS[0]}


async def test_the_header_has_the_name_in_the_settings(get: Any, settings: Settings) -> None:
    settings.RESTY_DJANGO = {"TXID": {"PROXIES": ["127.0.0.1"], "HEADER": "X-Txid"}}
    reply = await get("/sync/", **{"X-Txid": OURS, "X-Request-Id": "b2fr5nvq5alalalalal0"})
    assert reply.json["request"] == reply.headers["X-Txid"] == OURS
    assert reply.json["request_ids"] == ["b2fr5nvq5alalalalal0"] * 2
    assert reply.headers["X-Request-Id"] == "b2fr5nvq5alalalalal0"
    reply = await get("/sync/", **{"X-Txid": OURS})
    assert "X-Request-Id" not in reply.headers


def test_headers_of_the_view_are_replaced() -> None:
    request = RequestFactory().get("/")
    view = TxidMiddleware(
        lambda request: HttpResponse(headers={"x-request-ID": "a", "Traceparent": "b", "X-Other": "c"})
    )
    response: Any = view(request)
    trace = request.trace.traceparent  # type: ignore[attr-defined]
    expected = {"X-Request-Id": request.txid, "traceparent": trace, "X-Other": "c"}  # type: ignore[attr-defined]
    assert {name: value for name, value in response.items() if name != "Content-Type"} == expected


async def test_a_trace_continues_with_a_new_span(get: Any) -> None:
    reply = await get("/sync/", **{"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "congo=t61rcWkgMzE"})
    header = reply.json["traceparent"]
    assert header.startswith(f"00-{TRACE}-")
    assert header.endswith("-01")
    assert PARENT not in header
    assert reply.headers["traceparent"] == header
    assert reply.json["tracestate"] == "congo=t61rcWkgMzE"
    assert reply.json["same_trace"]


async def test_a_trace_begins_here_without_a_valid_header(get: Any) -> None:
    for sent in ("", "nonsense", f"00-{TRACE}-{PARENT}-01,00-{TRACE}-{PARENT}-01"):
        reply = await get("/sync/", traceparent=sent, tracestate="congo=t61rcWkgMzE")
        trace_id = reply.headers["traceparent"].split("-")[1]
        assert int(trace_id[:24], 16) == parse(reply.json["request"]).number
        assert reply.json["tracestate"] == ""


async def test_traces_can_be_switched_off(get: Any, settings: Settings) -> None:
    settings.RESTY_DJANGO = {"TXID": {"PROXIES": ["127.0.0.1"], "TRACEPARENT": False}}
    reply = await get("/sync/", traceparent=f"00-{TRACE}-{PARENT}-01")
    assert (reply.json["traceparent"], reply.json["same_trace"]) == (None, True)
    assert "traceparent" not in reply.headers


@pytest.mark.parametrize("path", ["/failing/", "/async-failing/"])
async def test_a_failing_view_is_logged_and_answered_under_its_id(get: Any, path: str, lines: list[Any]) -> None:
    reply = await get(path)
    request_id = reply.headers["X-Request-Id"]
    assert reply.status == 500
    assert is_txid(request_id)
    assert lines == [(request_id, f"Internal Server Error: {path}")]


async def test_lines_that_django_logs_after_the_middleware_have_the_id(get: Any, lines: list[Any]) -> None:
    reply = await get("/nowhere/")
    assert reply.status == 404
    assert lines == [(reply.headers["X-Request-Id"], "Not Found: /nowhere/")]


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
@pytest.mark.parametrize("path", ["/stream/", "/async-stream/"])
async def test_a_stream_is_made_under_the_id_of_its_request(get: Any, path: str, lines: list[Any]) -> None:
    reply = await get(path)
    request_id = reply.headers["X-Request-Id"]
    assert reply.body == f"{request_id}\n" * 3
    assert lines == [(request_id, "piece 0"), (request_id, "piece 1"), (request_id, "piece 2"), (request_id, "last")]


def test_between_two_pieces_of_a_stream_nothing_is_current(client: Client) -> None:
    first: Any = client.get("/stream/")
    second: Any = client.get("/stream/")
    texts = []
    for pair in zip(first, second, strict=True):
        assert current() is None
        texts.append([piece.decode().strip() for piece in pair])
    assert texts == [[first.headers["X-Request-Id"], second.headers["X-Request-Id"]]] * 3


async def test_between_two_pieces_of_an_async_stream_nothing_is_current(async_client: AsyncClient) -> None:
    response: Any = await async_client.get("/async-stream/")
    count = 0
    async for piece in aiter(response):
        assert current() is None
        assert piece.decode().strip() == response.headers["X-Request-Id"]
        count += 1
    assert count == 3


def test_a_stream_that_breaks_leaves_nothing_behind(client: Client) -> None:
    response: Any = client.get("/broken-stream/")
    with pytest.raises(RuntimeError, match="while streaming"):
        list(response)
    assert current() is None


def test_a_stream_that_is_not_read_to_its_end_is_closed(client: Client) -> None:
    response: Any = client.get("/stream/")
    next(iter(response))
    response.close()
    assert current() is None
    assert list(response.streaming_content) == []


def by_wsgi(path: str, **environ: Any) -> tuple[Any, dict[str, str]]:
    """Return the response and the headers that a WSGI server gets from Django."""
    wsgi_environ = Client()._base_environ(PATH_INFO=path, **environ)  # type: ignore[attr-defined]
    headers: dict[str, str] = {}
    return WSGIHandler()(wsgi_environ, lambda status, pairs: headers.update(pairs)), headers


def test_a_file_stays_a_file_for_the_server() -> None:
    response, headers = by_wsgi("/file/", **{"wsgi.file_wrapper": FileWrapper})
    assert isinstance(response, FileWrapper)
    assert b"".join(response) == b"bytes of a file"
    assert is_txid(headers["X-Request-Id"])
    response.close()


@pytest.mark.parametrize("position", ["before", "after"])
async def test_a_middleware_without_async_changes_nothing(
    get: Any, position: str, settings: Settings, lines: list[Any]
) -> None:
    sync_only = f"{__name__}.SyncOnly"
    settings.MIDDLEWARE = [FIRST, sync_only] if position == "after" else [sync_only, FIRST]
    reply = await get("/async/")
    request_id = reply.headers["X-Request-Id"]
    assert reply.json["request"] == reply.json["current"] == request_id
    assert ("-" if position == "before" else request_id, "sync only") in lines
    assert (request_id, "seen") in lines


def test_a_wsgi_server_over_a_unix_socket_has_no_address(settings: Settings) -> None:
    settings.RESTY_DJANGO = {"TXID": {"PROXIES": ["unix"]}}
    response, headers = by_wsgi("/sync/", REMOTE_ADDR="", HTTP_X_REQUEST_ID=OURS)
    assert headers["X-Request-Id"] == OURS
    response.close()


async def test_websockets_get_no_txid() -> None:
    """As a router in front of Django has it: WebSockets go elsewhere, between requests that have their ids."""
    django = get_asgi_application()
    during: list[str | None] = []

    async def router(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            return await django(scope, receive, send)
        await receive()
        await send({"type": "websocket.accept"})
        message = await receive()
        during.append(current())
        await send({"type": "websocket.send", "text": message["text"].upper()})

    socket = ApplicationCommunicator(router, {"type": "websocket", "path": "/sync/", "headers": []})
    await socket.send_input({"type": "websocket.connect"})
    assert await socket.receive_output(10) == {"type": "websocket.accept"}
    scope = {"type": "http", "method": "GET", "path": "/sync/", "headers": [(b"host", b"localhost")]}
    http = ApplicationCommunicator(router, {**scope, "query_string": b"", "http_version": "1.1"})
    await http.send_input({"type": "http.request", "body": b""})
    start = await http.receive_output(10)
    assert is_txid(dict(start["headers"])[b"X-Request-Id"].decode())
    await http.receive_output(10)
    await http.wait(10)
    await socket.send_input({"type": "websocket.receive", "text": "hello"})
    assert await socket.receive_output(10) == {"type": "websocket.send", "text": "HELLO"}
    await socket.wait(10)
    assert during == [None]


async def test_a_disconnected_client_ends_the_stream_and_its_txid() -> None:
    ended: list[str] = []
    django: Any = get_asgi_application()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
                await asyncio.sleep(0.005)
        finally:
            ended.append("ended")

    async def respond(request: Any) -> StreamingHttpResponse:
        return StreamingHttpResponse(endless())

    django._middleware_chain = TxidMiddleware(respond)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    http = ApplicationCommunicator(django, {**scope, "query_string": b"", "http_version": "1.1"})
    await http.send_input({"type": "http.request", "body": b""})
    await http.receive_output(10)
    await http.receive_output(10)
    await http.send_input({"type": "http.disconnect"})
    await http.wait(10)
    for _ in range(200):
        if ended:
            break
        await asyncio.sleep(0.01)
    assert ended == ["ended"]
    assert current() is None
