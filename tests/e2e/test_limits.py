"""A limit in a site of several processes, asked from outside by more clients than it lets pass."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from project import ports

ROOT = Path(__file__).resolve().parents[2]
HOST, ROUTE = "127.0.0.1", "/stock/"
RATE, BURST = 50, 100
"""Those of the demo's view."""
SECONDS = 10.0
CLIENTS = 6
WORKERS = 2

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SERVERS = {
    "uvicorn": ("uvicorn", "project.asgi:application", "--workers", str(WORKERS), "--lifespan", "off"),
    "gunicorn": ("gunicorn", "project.wsgi:application", "--workers", str(WORKERS)),
}


@dataclass
class Load:
    """What the clients have seen. `began` is before the first request, `ended` after the last response."""

    statuses: list[int] = field(default_factory=list)
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    latest_refusal: float = 0.0
    began: float = 0.0
    ended: float = 0.0

    @property
    def passed(self) -> int:
        return self.statuses.count(200)


@pytest.fixture(params=sorted(SERVERS))
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The site under a server with two workers, with memory of its own."""
    port = ports.find_free(HOST)
    module, *arguments = SERVERS[request.param]
    where = ("--bind", f"{HOST}:{port}") if module == "gunicorn" else ("--host", HOST, "--port", str(port))
    env = {name: value for name, value in os.environ.items() if name not in {"RESTY_TEST_DB", "REDIS_URL"}}
    env |= {"RESTY_VAR": str(tmp_path), "RESTY_DICTS": str(tmp_path / "dictionaries")}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
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
        warm_up(port)
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
    """Status and headers of the response, with its body among them."""
    connection.request("GET", route)
    response = connection.getresponse()
    return response.status, {**dict(response.headers), "body": response.read().decode()}


def warm_up(port: int) -> None:
    """Ask for nothing until every worker answers at once."""
    deadline = time.monotonic() + 60
    quick = 0
    while quick < 40:
        began = time.monotonic()
        assert began < deadline
        with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
            assert get(connection, "/nothing/")[0] == 404
        quick = quick + 1 if time.monotonic() - began < 0.25 else 0


def offer(port: int, seconds: float) -> Load:
    """Ask from `CLIENTS` threads, as fast as they can."""
    load, adding = Load(), threading.Lock()
    failed: list[BaseException] = []
    load.began = time.monotonic()
    end = load.began + seconds

    def client() -> None:
        try:
            with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
                while time.monotonic() < end:
                    status, told = get(connection, ROUTE)
                    with adding:
                        load.statuses.append(status)
                        if status != 200:
                            load.latest_refusal = time.monotonic()
                            load.refusals = [*load.refusals[-9:], (status, told)]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.ended = time.monotonic()
    assert not failed
    return load


def test_exactly_the_rate_passes_whatever_is_offered(port: int) -> None:
    load = offer(port, SECONDS)
    elapsed = load.ended - load.began
    assert load.ended - load.latest_refusal < 1, "the clients did not offer more than the limit"
    assert load.passed <= RATE * elapsed + BURST + 1
    assert load.passed >= 0.99 * (RATE * SECONDS + BURST + 1)
    assert set(load.statuses) == {200, 429}
    for status, told in load.refusals:
        assert (status, told["Retry-After"], told["X-RateLimit-Remaining"]) == (429, "1", "0")
        assert told["RateLimit-Policy"] == f'"stock";q={BURST + 1};w=3'
        assert json.loads(told["body"])["violated-policies"] == ["stock"]
