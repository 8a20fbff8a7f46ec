"""The client for synchronous code."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from ..errors import Unavailable
from .nodes import Address, Node, NodesDown, Patience, plan, read_nodes
from .wire import Codec, MonitorReply, Reply, error_of, get_fields, ids_of, monitor_fields, position_of

_LARGEST = 65_535


class IdClient:
    """A client for one or more UDP ID servers. The package docstring describes how it chooses nodes.

    `nodes`: "host:port" (IPv6 in brackets), or a list of such strings and (host, port) pairs. `timeout`, `attempts`
    and `backoff`: see `Patience`. `key`: the secret shared with the servers, if they require signed requests.

    Safe to share between threads, since each uses a separate socket while it waits, and safe to use after a fork.
    """

    def __init__(
        self,
        nodes: str | Sequence[str | Address] = "127.0.0.1:1200",
        *,
        timeout: float = 0.2,
        attempts: int | None = None,
        backoff: float = 0.05,
        key: str | bytes | None = None,
    ) -> None:
        self._nodes = read_nodes(nodes)
        self._patience = Patience(timeout, attempts, backoff)
        self._codec = Codec(key)
        self._idle: dict[Node, deque[socket.socket]] = {node: deque() for node in self._nodes}
        self._process = os.getpid()
        self._closed = False

    def get(self, rule: str, app: str = "", salt: str = "") -> str:
        """Return the next ID of a rule.

        Raise the classes of `resty_django.ids.errors`, including NodesDown if no node answers.
        """
        (issued_id,) = self.get_many(rule, 1, app, salt)
        return issued_id

    def get_many(self, rule: str, count: int, app: str = "", salt: str = "") -> list[str]:
        """Return the next `count` IDs, never fewer; raise the errors of `get`. Takes one datagram each way."""
        return ids_of(self._ask(get_fields(rule, app, salt, count)), count)

    def monitor(self, rule: str, app: str = "") -> MonitorReply:
        """Return the position of a counter. Raise NotExist if it does not exist."""
        return position_of(self._ask(monitor_fields(rule, app)))

    def close(self) -> None:
        """Close the sockets. The client cannot be used afterwards."""
        self._closed = True
        self._drop_idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_idle"):
            self._drop_idle()

    def _ask(self, fields: dict[str, Any]) -> Reply:
        failures: dict[str, str] = {}
        for pause, node in plan(self._nodes, self._patience, time.monotonic()):
            if pause:
                time.sleep(pause)
            reply = self._try(node, fields, failures)
            if reply is not None:
                return reply
        raise NodesDown(failures)

    def _try(self, node: Node, fields: dict[str, Any], failures: dict[str, str]) -> Reply | None:
        """Return the reply of one node, or None to try another node; the reason is then in `failures`."""
        seq = self._codec.new_seq()
        datagram = self._codec.request(fields, seq)
        sock: socket.socket | None = None
        try:
            sock = self._socket(node)
            sock.send(datagram)
            reply = self._receive(sock, seq)
        except OSError as error:
            if sock is not None:
                sock.close()
            failures[str(node)] = error.strerror or str(error)
            node.failed(time.monotonic())
            return None
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        if reply is None:
            # A late reply must not reach the next request on this socket.
            sock.close()
            failures[str(node)] = f"no answer within {self._patience.timeout:g} s"
            node.failed(time.monotonic())
            return None
        self._keep(node, sock)
        error_found = error_of(reply)
        if isinstance(error_found, Unavailable):
            failures[str(node)] = f"unavailable: {error_found}"
            node.failed(time.monotonic())
            return None
        node.worked()
        return reply

    def _receive(self, sock: socket.socket, seq: str) -> Reply | None:
        """Return the reply with that `seq`, or None if it does not arrive in time.

        Other datagrams are ignored.
        """
        deadline = time.monotonic() + self._patience.timeout
        while (seconds := deadline - time.monotonic()) > 0:
            sock.settimeout(seconds)
            try:
                reply = self._codec.reply(sock.recv(_LARGEST))
            except TimeoutError:
                return None
            if reply is not None and reply.seq == seq:
                return reply
        return None

    def _socket(self, node: Node) -> socket.socket:
        if self._closed:
            raise RuntimeError("This IdClient is closed. Create a new one.")
        if self._process != os.getpid():
            self._drop_idle()
            self._process = os.getpid()
        try:
            return self._idle[node].pop()
        except IndexError:
            return node.connected(socket.getaddrinfo(node.host, node.port, type=socket.SOCK_DGRAM))

    def _keep(self, node: Node, sock: socket.socket) -> None:
        self._idle[node].append(sock)
        if self._closed:
            self._drop_idle()

    def _drop_idle(self) -> None:
        for idle in self._idle.values():
            while idle:
                try:
                    idle.pop().close()
                except IndexError:
                    break
