"""Outgoing calls that obey a limit and the pauses of a service, with httpx and requests, to a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import httpx
import pytest
import requests

from resty_django.limits import Limited
from resty_django.limits.outgoing.calls import LONGEST_PAUSE, OutgoingLimit, pause_of
from resty_django.limits.outgoing.httpx import AsyncLimitedTransport, LimitedTransport
from resty_django.limits.outgoing.requests import LimitedAdapter
from resty_django.shdict import shdicts

pytestmark = pytest.mark.usefixtures("empty_limits")


class Service:
    """A service that answers with the statuses of a list, then with 200, and notes when it was called."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = []
        self.calls: list[tuple[float, bytes]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                service.calls.append((time.monotonic(), body))
                status, pause = service.answers.pop(0) if service.answers else (200, "")
                self.send_response(status)
                if pause:
                    self.send_header("Retry-After", pause)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def gaps(self) -> list[float]:
        times = [at for at, _ in self.calls]
        return [after - before for before, after in pairwise(times)]


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    yield running
    running.server.shutdown()
    running.server.server_close()


class Caller:
    """Calls a service with one of the clients: status, or `Limited`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def __call__(self, url: str, bodies: list[Any], rate: str, **options: Any) -> list[int]:
        if self.kind == "httpx async":
            async with httpx.AsyncClient(transport=AsyncLimitedTransport(rate, **options)) as client:
                return [(await client.post(url, content=body)).status_code for body in bodies]
        if self.kind == "httpx":
            with httpx.Client(transport=LimitedTransport(rate, **options)) as client:
                return [client.post(url, content=body).status_code for body in bodies]
        with requests.Session() as session:
            session.mount("http://127.0.0.1", LimitedAdapter(rate, **options))
            return [session.post(url, data=body).status_code for body in bodies]


@pytest.fixture(params=["httpx", "httpx async", "requests"])
def call(request: pytest.FixtureRequest) -> Caller:
    return Caller(request.param)


async def test_calls_wait_for_their_turn(service: Service, call: Caller) -> None:
    assert await call(service.url, [b"a", b"b", b"c"], "10/s capacity=1", wait="1m") == [200, 200, 200]
    assert sum(service.gaps()) >= 0.09  # a bucket is refilled at whole ticks
    assert [body for _, body in service.calls] == [b"a", b"b", b"c"]


async def test_a_call_that_may_not_wait_raises(
    service: Service, call: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Limited):
        await call(service.url, [b""] * 3, "2/h;9/d")
    assert len(service.calls) == 2
    assert "refused by outgoing: a call of 127.0.0.1; would pass in " in caplog.text


@pytest.mark.parametrize("status", [429, 503])
async def test_a_pause_is_obeyed_and_the_call_sent_again(service: Service, call: Caller, status: int) -> None:
    service.answers = [(status, "1")]
    assert await call(service.url, [b"a", b"b"], "1000/s", wait=60) == [200, 200]
    assert [body for _, body in service.calls] == [b"a", b"a", b"b"]
    assert service.gaps()[0] >= 0.99


async def test_without_time_to_wait_the_answer_is_returned_and_the_next_call_refused(
    service: Service, call: Caller
) -> None:
    service.answers = [(429, "600")]
    assert await call(service.url, [b"a"], "1000/s", wait=5) == [429]
    with pytest.raises(Limited) as caught:  # a new client, as in another process
        await call(service.url, [b"b"], "1000/s", wait=5)
    assert 590 < caught.value.decision.retry_after <= 600
    assert await call(service.url, [b"c"], "1000/s", name="other") == [200]
    assert len(service.calls) == 2


async def test_retries_are_bounded(service: Service, call: Caller) -> None:
    service.answers = [(503, "1")] * 9
    assert await call(service.url, [b"a"], "1000/s", wait=None, retries=2) == [503]
    assert len(service.calls) == 3


async def test_a_stream_is_not_sent_again(service: Service) -> None:
    service.answers = [(429, "1")]
    with requests.Session() as session:
        session.mount("http://127.0.0.1", LimitedAdapter("1000/s", wait=60))
        assert session.post(service.url, data=iter([b"a"]), headers={"Content-Length": "1"}).status_code == 429


async def test_keys_are_counted_separately(service: Service) -> None:
    def tenant(request: httpx.Request) -> str:
        return str(request.headers["X-Tenant"])

    with httpx.Client(transport=LimitedTransport("1/h", key=tenant)) as client:
        for name in ("a", "b"):
            assert client.get(service.url, headers={"X-Tenant": name}).status_code == 200
        with pytest.raises(Limited):
            client.get(service.url, headers={"X-Tenant": "a"})


@pytest.mark.parametrize(
    ("status", "header", "pause"),
    [
        (200, "5", 0),
        (429, None, 0),
        (429, "", 0),
        (429, " 5 ", 5),
        (503, "0", 0),
        (429, "-5", 0),
        (429, "1e9", 0),
        (429, "soon", 0),
        (429, "Wed, 21 Oct 2015 07:28:00 GMT", 0),
        (429, "9999999999", LONGEST_PAUSE),
        (429, "9" * 400, 0),
    ],
)
def test_the_header_is_read(status: int, header: str | None, pause: float) -> None:
    assert pause_of(status, header) == pause


def test_the_header_contains_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 80 < pause_of(429, later) <= 90


async def test_foreign_data_in_the_store_is_no_pause(service: Service, call: Caller) -> None:
    shdicts["limits"].set("pause:outgoing:127.0.0.1", "nonsense")
    assert await call(service.url, [b""], "1/h") == [200]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"retries": -1}, "retries must be at least 0"),
        ({"retries": 1.5}, "retries must be a whole number"),
        ({"wait": "soon"}, "is not a duration"),
        ({"store": object()}, "store must be the name"),
        ({"wiat": 1}, "wiat"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        OutgoingLimit("1/s", **options)
