"""Calls to other services, with requests and httpx, against a real server."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import requests
from pytest_django import Settings

from resty_django.txid import bound
from resty_django.txid.outgoing import aadd_headers, add_headers, headers
from resty_django.txid.requests import TxidAdapter
from resty_django.txid.traceparent import Trace, continue_trace

ID = "cbpvimguo4hkaps9lf6g"
OTHER = "b2fr5nvq5alalalalal0"
NAMES = ("x-request-id", "traceparent", "tracestate")


class Echo(BaseHTTPRequestHandler):
    """Answers with the headers that it got; /away goes to the same server under another name."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        away = self.path == "/away"
        self.send_response(302 if away else 200)
        if away:
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def trace() -> Trace:
    continued = continue_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "congo=t61rcWkgMzE")
    assert continued is not None
    return continued


def got(reply: Any) -> dict[str, str]:
    """Return our headers that arrived."""
    return {name: value for name, value in reply.json().items() if name in NAMES}


def told(trace: Trace) -> dict[str, str]:
    return {"x-request-id": ID, "traceparent": trace.traceparent, "tracestate": "congo=t61rcWkgMzE"}


def test_headers_are_empty_without_a_txid_and_a_trace(trace: Trace, settings: Settings) -> None:
    assert headers() == {}
    with bound(ID):
        assert headers() == {"X-Request-Id": ID}
        settings.RESTY_DJANGO = {"TXID": {"HEADER": "X-Txid"}}
        assert headers() == {"X-Txid": ID}
    with bound(ID, trace):
        assert headers()["traceparent"] == trace.traceparent


def test_the_request_id_of_the_caller_goes_on_under_its_name(
    base: str, session: requests.Session, settings: Settings
) -> None:
    sent = "0f8fad5bd9cb469fa165708677289501"
    with bound(ID, request_id=sent), httpx.Client(event_hooks={"request": [add_headers]}, trust_env=False) as client:
        assert headers() == {"X-Txid": ID, "X-Request-Id": sent}
        for reply in (client.get(base), session.get(base)):
            assert (reply.json()["x-txid"], reply.json()["x-request-id"]) == (ID, sent)
        settings.RESTY_DJANGO = {"TXID": {"HEADER": "X-Transaction"}}
        assert headers() == {"X-Transaction": ID, "X-Request-Id": sent}


def test_urllib(base: str, trace: Trace) -> None:
    with bound(ID, trace), urllib.request.urlopen(urllib.request.Request(base, headers=headers())) as reply:  # noqa: S310
        assert {name: value for name, value in json.load(reply).items() if name in NAMES} == told(trace)


def test_httpx(base: str, trace: Trace) -> None:
    with httpx.Client(event_hooks={"request": [add_headers]}, trust_env=False) as client:
        with bound(ID, trace):
            assert got(client.get(base)) == told(trace)
            assert got(client.get(base, headers={"X-Request-Id": OTHER}))["x-request-id"] == OTHER
        assert got(client.get(base)) == {}


async def test_httpx_async(base: str, trace: Trace) -> None:
    async with httpx.AsyncClient(event_hooks={"request": [aadd_headers]}, trust_env=False) as client:
        with bound(ID, trace):
            assert got(await client.get(base)) == told(trace)
        assert got(await client.get(base)) == {}


@pytest.fixture
def session(base: str) -> Iterator[requests.Session]:
    with requests.Session() as new_session:
        new_session.trust_env = False
        new_session.mount(f"{base}/", TxidAdapter())
        yield new_session


def test_requests(base: str, trace: Trace, session: requests.Session) -> None:
    with bound(ID, trace):
        assert got(session.get(base)) == told(trace)
        assert got(session.get(base, headers={"x-request-id": OTHER}))["x-request-id"] == OTHER
    assert got(session.get(base)) == {}


def test_requests_sends_the_headers_to_no_other_host(base: str, trace: Trace, session: requests.Session) -> None:
    with bound(ID, trace):
        assert got(session.get(base.replace("127.0.0.1", "localhost"))) == {}
        reply = session.get(f"{base}/away")
        assert reply.url.startswith("http://localhost:")
        assert got(reply) == {}
        assert got(reply.history[0]) == told(trace)
