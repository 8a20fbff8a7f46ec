"""A limit of a site with several processes under more requests than it allows."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from project import ports
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
HOST, ROUTE = "127.0.0.1", "/stock/"
RATE, BURST = 50, 100
"""The rate and the burst of the demo's view."""
SECONDS = 4.0
ROUNDS = 5
"""Attempts with more requests while the machine is too busy to exceed the limit."""
CLIENTS = 6
PAUSE = 0.05
"""Seconds that a client waits after a refusal. Together, clients offer more than twice the rate."""
WORKERS = 2

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.slow]

SERVERS = {
    "uvicorn": ("uvicorn", "project.asgi:application", "--workers", str(WORKERS), "--lifespan", "off"),
    "gunicorn": ("gunicorn", "project.wsgi:application", "--workers", str(WORKERS)),
}


@dataclass
class Response:
    """A response, with the times of the request and of the complete response."""

    sent: float
    received: float
    status: int
    headers: dict[str, str]


@pytest.fixture(params=sorted(SERVERS))
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """Return the port of the site on a server with two workers and a separate shared dictionary."""
    port = ports.find_free(HOST)
    module, *arguments = SERVERS[request.param]
    where = ("--bind", f"{HOST}:{port}") if module == "gunicorn" else ("--host", HOST, "--port", str(port))
    env = {name: value for name, value in os.environ.items() if name not in {"RESTY_TEST_DB", "REDIS_URL"}}
    env |= {"RESTY_VAR": str(tmp_path), "RESTY_DICTS": str(tmp_path / "dictionaries")}
    with (tmp_path / "log").open("wb") as log:
        server = processes.Process(
            [sys.executable, "-m", module, *arguments, *where, "--log-level", "error"],
            cwd=ROOT,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 60
        while not ports.accepts(HOST, port):
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.1)
        with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=60)) as connection:
            assert get(connection, "/nothing/")[0] == 404
        yield port
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    assert "Traceback" not in (tmp_path / "log").read_text()


def get(connection: http.client.HTTPConnection, route: str) -> tuple[int, dict[str, str]]:
    """Return status and headers of the response; the body is under the key `body`."""
    connection.request("GET", route)
    response = connection.getresponse()
    return response.status, {**dict(response.headers), "body": response.read().decode()}


def offer(port: int, seconds: float) -> list[Response]:
    """Send requests from `CLIENTS` threads, and return all responses."""
    end = time.monotonic() + seconds

    def client() -> list[Response]:
        responses: list[Response] = []
        with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
            while (sent := time.monotonic()) < end:
                status, headers = get(connection, ROUTE)
                responses.append(Response(sent, time.monotonic(), status, headers))
                if status != 200:
                    time.sleep(PAUSE)
        return responses

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(client) for _ in range(CLIENTS)]
        return [response for future in clients for response in future.result()]


def test_exactly_the_rate_passes_at_any_load(port: int) -> None:
    """Both bounds hold however slow the machine is.

    At most: the burst and the rate over the whole time. If a busy machine serves less than that, all must pass. At
    least: whenever a request is refused, the bucket is full. So since the begin the burst and the rate have passed, but
    for times in which the bucket may have run empty: the burst lasts for `BURST / RATE` seconds after a refusal, and at
    the begin a server may still be slow.
    """
    responses: list[Response] = []
    for _ in range(ROUNDS):
        responses += offer(port, SECONDS)
        if sum(response.status != 200 for response in responses) > 10:
            break
    passed = [response for response in responses if response.status == 200]
    refusals = sorted(
        (response for response in responses if response.status != 200), key=lambda response: response.sent
    )
    elapsed = max(response.received for response in responses) - min(response.sent for response in responses)
    allowed = RATE * elapsed + BURST + 1
    assert len(passed) <= allowed
    assert len(refusals) > 10 or len(responses) <= allowed
    if not refusals:
        return

    begin = min(response.received for response in passed)
    gaps = [refusals[0].received - begin]
    gaps += [later.received - earlier.sent for earlier, later in pairwise(refusals)]
    idle = sum(gap for gap in gaps if gap >= BURST / RATE)
    busy = refusals[-1].sent - begin - idle
    before = [response for response in passed if response.sent <= refusals[-1].received]
    assert len(before) >= 0.99 * (RATE * busy + BURST)

    for refusal in refusals:
        headers = refusal.headers
        assert (refusal.status, headers["Retry-After"], headers["X-RateLimit-Remaining"]) == (429, "1", "0")
        assert headers["RateLimit-Policy"] == f'"stock";q={BURST + 1};w=3'
        assert json.loads(headers["body"])["violated-policies"] == ["stock"]
