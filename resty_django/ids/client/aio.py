"""The client for asyncio."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

from ..errors import Unavailable
from .nodes import Address, Node, NodesDown, Patience, plan, read_nodes
from .wire import Codec, MonitorReply, Reply, error_of, get_fields, ids_of, monitor_fields, position_of


class AsyncIdClient:
    """The asyncio version of `IdClient`: one socket per node, any number of concurrent requests, each can be cancelled.

    Bound to the event loop in which it is used; in another loop (a second `asyncio.run`) it opens new sockets.
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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._endpoints: dict[Node, _Endpoint] = {}
        self._locks: dict[Node, asyncio.Lock] = {}
        self._closed = False

    async def get(self, rule: str, app: str = "", salt: str = "") -> str:
        """Return the next ID of a rule.

        Raise the classes of `resty_django.ids.errors`, including NodesDown if no node answers.
        """
        (issued_id,) = await self.get_many(rule, 1, app, salt)
        return issued_id

    async def get_many(self, rule: str, count: int, app: str = "", salt: str = "") -> list[str]:
        """Return the next `count` IDs, never fewer; raise the errors of `get`. Takes one datagram each way."""
        return ids_of(await self._ask(get_fields(rule, app, salt, count)), count)

    async def monitor(self, rule: str, app: str = "") -> MonitorReply:
        """Return the position of a counter. Raise NotExist if it does not exist."""
        return position_of(await self._ask(monitor_fields(rule, app)))

    async def close(self) -> None:
        """Close the sockets; requests in flight fail. The client cannot be used afterwards."""
        self._closed = True
        self._drop()
        await asyncio.sleep(0)  # the loop closes the sockets in its next iteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(self, fields: dict[str, Any]) -> Reply:
        failures: dict[str, str] = {}
        for pause, node in plan(self._nodes, self._patience, time.monotonic()):
            if pause:
                await asyncio.sleep(pause)
            reply = await self._try(node, fields, failures)
            if reply is not None:
                return reply
        raise NodesDown(failures)

    async def _try(self, node: Node, fields: dict[str, Any], failures: dict[str, str]) -> Reply | None:
        """Return the reply of one node, or None to try another node; the reason is then in `failures`."""
        seq = self._codec.new_seq()
        datagram = self._codec.request(fields, seq)
        try:
            endpoint = await self._endpoint(node)
            reply = await endpoint.ask(datagram, seq, self._patience.timeout)
        except TimeoutError:
            failures[str(node)] = f"no answer within {self._patience.timeout:g} s"
            node.failed(time.monotonic())
            return None
        except OSError as error:
            failures[str(node)] = error.strerror or str(error)
            node.failed(time.monotonic())
            return None
        error_found = error_of(reply)
        if isinstance(error_found, Unavailable):
            failures[str(node)] = f"unavailable: {error_found}"
            node.failed(time.monotonic())
            return None
        node.worked()
        return reply

    async def _endpoint(self, node: Node) -> _Endpoint:
        loop = asyncio.get_running_loop()
        if self._is_closed():
            raise RuntimeError("This AsyncIdClient is closed. Create a new one.")
        if self._loop is not loop:
            self._drop()
            self._loop = loop
        async with self._locks.setdefault(node, asyncio.Lock()):
            endpoint = self._endpoints.get(node)
            if endpoint is None or endpoint.gone:
                infos = await loop.getaddrinfo(node.host, node.port, type=socket.SOCK_DGRAM)
                sock = node.connected(infos)
                try:
                    _, endpoint = await loop.create_datagram_endpoint(lambda: _Endpoint(self._codec, sock), sock=sock)
                except BaseException:
                    sock.close()
                    raise
                self._endpoints[node] = endpoint
        if self._is_closed():
            endpoint.close()
            raise RuntimeError("This AsyncIdClient is closed. Create a new one.")
        return endpoint

    def _is_closed(self) -> bool:
        return self._closed

    def _drop(self) -> None:
        endpoints, self._endpoints = self._endpoints, {}
        self._locks = {}
        for endpoint in endpoints.values():
            endpoint.close()


class _Endpoint(asyncio.DatagramProtocol):
    """The socket to one node, and the requests that wait for its replies."""

    def __init__(self, codec: Codec, sock: socket.socket) -> None:
        self._codec = codec
        self._socket = sock
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[str, asyncio.Future[Reply]] = {}

    @property
    def gone(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    async def ask(self, datagram: bytes, seq: str, timeout: float) -> Reply:
        """Send a request and return the reply with its `seq`. Raise TimeoutError, or OSError if the node refuses."""
        if self._transport is None:
            raise ConnectionResetError("The socket is closed.")
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[seq] = answer
        try:
            self._transport.sendto(datagram)
            async with asyncio.timeout(timeout):
                return await answer
        finally:
            del self._waiting[seq]
            if answer.done() and not answer.cancelled():
                answer.exception()

    def close(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            try:
                self._transport.abort()
            except RuntimeError:
                self._socket.close()  # the loop that would close it is closed
        self._transport = None
        self._fail(ConnectionAbortedError("The client was closed."))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        reply = self._codec.reply(data)
        answer = self._waiting.get(reply.seq) if reply is not None else None
        if reply is not None and answer is not None and not answer.done():
            answer.set_result(reply)

    def error_received(self, exc: Exception) -> None:
        # The system does not report which datagram was refused; assume that it received none of them.
        self._fail(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(exc or ConnectionResetError("The socket was closed."))

    def _fail(self, error: Exception) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
