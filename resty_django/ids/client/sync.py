"""The client for synchronous code."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from types import TracebackType
from typing import Self

from resty_django.sansio import run

from .base import Attempt, BaseClient
from .nodes import Node
from .wire import MonitorReply, UdpReply, get_fields, ids_of, monitor_fields, position_of


class IdClient(BaseClient):
    """A client for one or more UDP ID servers. The package docstring describes how it chooses nodes.

    `nodes`: "host:port" (IPv6 in brackets), or a list of such strings and (host, port) pairs. `timeout`: seconds to
    wait for each reply; choose well above the server's usual maximum. `attempts`: the maximum number of datagrams sent
    (None: each node twice, at least three). `backoff`: seconds of the pause after all nodes were tried, doubling each
    time, with jitter. `key`: the secret shared with the servers, if they require signed requests.

    Safe to share between threads, since each uses a separate socket while it waits, and safe to use after a fork.
    """

    def _prepare(self) -> None:
        self._idle: dict[Node, deque[socket.socket]] = {node: deque() for node in self._nodes}
        self._process = os.getpid()

    def get(self, rule: str, app: str = "", salt: str = "") -> str:
        """Return the next ID of a rule.

        Raise the classes of `resty_django.ids.errors`, including NodesDown if no node answers.
        """
        (issued_id,) = self.get_many(rule, 1, app, salt)
        return issued_id

    def get_many(self, rule: str, count: int, app: str = "", salt: str = "") -> list[str]:
        """Return the next `count` IDs, never fewer; raise the errors of `get`. Takes one datagram each way."""
        return ids_of(self._reply(get_fields(rule, app, salt, count)), count)

    def monitor(self, rule: str, app: str = "") -> MonitorReply:
        """Return the position of a counter. Raise NotExist if it does not exist."""
        return position_of(self._reply(monitor_fields(rule, app)))

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

    def _reply(self, fields: dict[str, object]) -> UdpReply:
        return run(self._ask(fields), self._perform)

    def _perform(self, step: float | Attempt) -> UdpReply | None:
        if not isinstance(step, Attempt):
            time.sleep(step)
            return None
        sock = self._socket(step.node)
        try:
            sock.send(step.datagram)
            reply = self._receive(sock, step.seq)
        except BaseException:  # a late reply must not reach the next request on this socket
            sock.close()
            raise
        self._keep(step.node, sock)
        return reply

    def _receive(self, sock: socket.socket, seq: str) -> UdpReply:
        """Return the reply with that `seq`, and ignore other datagrams. Raise TimeoutError."""
        deadline = time.monotonic() + self._timeout
        while (seconds := deadline - time.monotonic()) > 0:
            sock.settimeout(seconds)
            reply = self._codec.reply(sock.recv(65_535))
            if reply is not None and reply.seq == seq:
                return reply
        raise TimeoutError

    def _socket(self, node: Node) -> socket.socket:
        self._check_open()
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
