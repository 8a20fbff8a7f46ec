"""A WebSocket as an ASGI server offers it to an application, and applications for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

SECONDS = 30


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Accept the connection and send each message back."""
    while True:
        event = await receive()
        if event["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
        elif event["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": event["text"]})
        else:
            return


class Socket:
    """A connection to an application: `async with Socket(application) as socket`. The client leaves at the end."""

    def __init__(
        self,
        application: Any,
        ip: str | None = "192.0.2.1",
        path: str = "/chat/",
        headers: Iterable[tuple[str, str]] = (),
        **scope: Any,
    ) -> None:
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self._sent: asyncio.Queue[Any] = asyncio.Queue()
        self._application = application
        self._scope = {
            "type": "websocket",
            "path": path,
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
            "client": None if ip is None else (ip, 50000),
            "subprotocols": [],
            **scope,
        }
        self.task: asyncio.Future[None]

    async def __aenter__(self) -> Self:
        self.events.put_nowait({"type": "websocket.connect"})
        self.task = asyncio.ensure_future(self._application(self._scope, self.events.get, self._sent.put))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Disconnect, and wait until the application has ended."""
        self.events.put_nowait({"type": "websocket.disconnect", "code": 1001})
        await asyncio.wait_for(self.task, SECONDS)

    def write(self, *texts: str) -> None:
        for text in texts:
            self.events.put_nowait({"type": "websocket.receive", "text": text})

    async def next(self) -> Any:
        """The next event that the client gets."""
        getting = asyncio.ensure_future(self._sent.get())
        await asyncio.wait([getting, self.task], timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            getting.cancel()
            await self.task  # raises the error of the application
            raise AssertionError("the application sent nothing")
        return await getting

    async def read(self) -> str:
        """The text of the next message."""
        event = await self.next()
        assert event["type"] == "websocket.send", event
        return str(event["text"])

    async def accepted(self) -> bool:
        return bool((await self.next())["type"] == "websocket.accept")

    @property
    def is_silent(self) -> bool:
        return self._sent.empty()


async def is_accepted(application: Any, **options: Any) -> bool:
    """Whether a new connection is accepted. It ends at once."""
    async with Socket(application, **options) as socket:
        return await socket.accepted()
