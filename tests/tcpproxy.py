"""A TCP proxy in front of the database, which can drop traffic without closing a connection."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator

import pytest
from django.db import connection, connections


class Proxy:
    """A TCP proxy which from `silence()` on drops all that its present connections bring, and stays connected."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._silent: set[socket.socket] = set()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._mute_new = False
        self.accepted = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def silence(self, *, new: bool = False) -> None:
        """Drop the traffic of the connections there are; with `new`, also of those to come."""
        self._mute_new = new
        self._silent |= set(self._pairs)

    def close(self) -> None:
        self._ended.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._ended.is_set():
            readable, _, _ = select.select([self._listener, *self._pairs], [], [], 0.05)
            for sock in readable:
                if sock is self._listener:
                    client, _ = sock.accept()
                    server = socket.create_connection(self._target)
                    self._pairs |= {client: server, server: client}
                    self.accepted += 1
                    if self._mute_new:
                        self._silent |= {client, server}
                elif sock in self._pairs:
                    self._forward(sock)
        for sock in {self._listener, *self._pairs, *self._pairs.values()}:
            sock.close()

    def _forward(self, sock: socket.socket) -> None:
        target = self._pairs[sock]
        try:
            data = sock.recv(65536)
            if data and sock not in self._silent:
                target.sendall(data)
        except OSError:
            data = b""
        if not data:
            # The end of a silent connection is not forwarded either: the other side hears nothing of it.
            for end in (sock,) if sock in self._silent else (sock, target):
                self._pairs.pop(end, None)
                self._silent.discard(end)
                end.close()


@pytest.fixture
def silent_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy between the connections of other threads and the database; the test's own connection does without."""
    if connection.vendor == "sqlite":
        pytest.skip("RESTY_TEST_DB names no server")
    connection.ensure_connection()
    database = connections.settings["default"]
    proxy = Proxy("127.0.0.1", int(database["PORT"] or {"mysql": 3306, "postgresql": 5432}[connection.vendor]))
    original = connection.settings_dict
    connection.settings_dict = dict(original)
    monkeypatch.setitem(database, "HOST", "127.0.0.1")
    monkeypatch.setitem(database, "PORT", str(proxy.port))
    yield proxy
    connection.settings_dict = original
    proxy.close()
