"""The client for asyncio."""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Self, cast

from resty_django.sansio import arun

from .base import Attempt, BaseClient
from .nodes import Node
from .wire import Codec, MonitorReply, UdpReply, get_fields, ids_of, monitor_fields, position_of


class AsyncIdClient(BaseClient):
    """The asyncio version of `IdClient`: one socket per node, any number of concurrent requests, each can be cancelled.

    Bound to the event loop in which it is used; in another loop (a second `asyncio.run`) it opens new sockets.
    """

    def _prepare(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._endpoints: dict[Node, _Endpoint] = {}
        self._locks: dict[Node, asyncio.Lock] = {}

    async def get(self, rule: str, app: str = "", salt: str = "") -> str:
        """Return the next ID of a rule.

        Raise the classes of `resty_django.ids.errors`, including NodesDown if no node answers.
        """
        (issued_id,) = await self.get_many(rule, 1, app, salt)
        return issued_id

    async def get_many(self, rule: str, count: int, app: str = "", salt: str = "") -> list[str]:
        """Return the next `count` IDs, never fewer; raise the errors of `get`. Takes one datagram each way."""
        return ids_of(await self._reply(get_fields(rule, app, salt, count)), count)

    async def monitor(self, rule: str, app: str = "") -> MonitorReply:
        """Return the position of a counter. Raise NotExist if it does not exist."""
        return position_of(await self._reply(monitor_fields(rule, app)))

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

    async def _reply(self, fields: dict[str, object]) -> UdpReply:
        return await arun(self._ask(fields), self._perform)

    async def _perform(self, step: float | Attempt) -> UdpReply | None:
        if not isinstance(step, Attempt):
            await asyncio.sleep(step)
            return None
        endpoint = await self._endpoint(step.node)
        return await endpoint.ask(step.datagram, step.seq, self._timeout)

    async def _endpoint(self, node: Node) -> _Endpoint:
        loop = asyncio.get_running_loop()
        self._check_open()
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
        if self._closed:
            endpoint.close()
            self._check_open()
        return endpoint

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
        self._waiting: dict[str, asyncio.Future[UdpReply]] = {}

    @property
    def gone(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    async def ask(self, datagram: bytes, seq: str, timeout: float) -> UdpReply:
        """Send a request and return the reply with its `seq`. Raise TimeoutError, or OSError if the node refuses."""
        if self._transport is None:
            raise ConnectionResetError("The socket is closed.")
        answer: asyncio.Future[UdpReply] = asyncio.get_running_loop().create_future()
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

    def datagram_received(self, data: bytes, addr: object) -> None:
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
