"""Limits of WebSockets in real servers with real clients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from websocket import WebSocket, WebSocketBadStatusException

from project import ports
from tests import processes
from tests.servers import until

HOST = "127.0.0.1"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


class Server:
    """A uvicorn with the application of `websocket_site`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.port = ports.find_free(HOST)
        self._log = folder / f"{name}.log"
        env = {name: value for name, value in os.environ.items() if name not in {"RESTY_TEST_DB", "REDIS_URL"}}
        env |= {"RESTY_VAR": str(folder), "RESTY_DICTS": str(folder / "dictionaries")}
        application = "tests.integration.limits.websocket_site:application"
        where = ("--host", HOST, "--port", str(self.port), "--ws", "wsproto", "--lifespan", "off")
        with self._log.open("wb") as log:
            self.process = processes.Process(
                [sys.executable, "-m", "uvicorn", application, *where, "--log-level", "error"],
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def is_up(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        return ports.accepts(HOST, self.port)

    @contextmanager
    def connected(self) -> Iterator[WebSocket]:
        connection = WebSocket()
        connection.settimeout(30)
        try:
            connection.connect(f"ws://{HOST}:{self.port}/chat/")
            yield connection
        finally:
            connection.shutdown()

    def refusal(self) -> WebSocketBadStatusException:
        with pytest.raises(WebSocketBadStatusException) as caught, self.connected():
            pass
        return caught.value

    def accepts(self) -> bool:
        with suppress(WebSocketBadStatusException), self.connected():
            return True
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Two servers with the same dictionaries."""
    running = [Server(tmp_path, name) for name in ("one", "two")]
    try:
        for server in running:
            until(server.is_up, 60)
        yield running
    finally:
        for server in running:
            if server.process.poll() is None:
                server.kill()


def test_servers_share_the_limits_and_a_killed_one_frees_its_connections(servers: list[Server]) -> None:
    one, two = servers
    with one.connected() as connection:
        refused = two.refusal()
        assert refused.status_code == 429
        assert refused.resp_headers is not None
        assert refused.resp_headers["retry-after"] == "1"
        assert refused.resp_headers["content-type"] == "application/problem+json"
        assert refused.resp_body is not None
        assert b'"violated-policies": ["connections"]' in refused.resp_body

        connection.send("first")
        assert connection.recv() == "first"
        one.kill()
    until(two.accepts, 60)  # the lease has ended


def test_a_connection_with_too_many_messages_is_closed(servers: list[Server]) -> None:
    one, two = servers
    with one.connected() as connection:
        for text in ("first", "second", "third"):
            connection.send(text)
        assert [connection.recv(), connection.recv()] == ["first", "second"]
        opcode, data = connection.recv_data()
        assert opcode == 8
        assert int.from_bytes(data[:2], "big") == 4429
        assert data[2:].startswith(b"Too many messages. Try again in ")
    until(two.accepts, 60)  # the slot was released
