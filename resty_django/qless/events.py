"""What the core announces: `client.events()`. docs/qless/core.md has the table of the channels.

events = client.events()

@events.on("log")
def tell(message: str) -> None: ...

events.listen()
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from resty_django.redis import StoreDown
from resty_django.redis.pubsub import AsyncSubscription, Heard, Subscription

from .texts import as_bytes, text

if TYPE_CHECKING:
    from .clients import Client

log = logging.getLogger("resty_django.qless")

Handler: TypeAlias = Callable[[str], Awaitable[None] | None]
Callback: TypeAlias = Callable[[str, str], Awaitable[None] | None]
Message: TypeAlias = tuple[str, str]
"""The channel without its prefix, and the payload."""

TICK: Final = 0.25
"""Seconds after which a listener notices that it is to stop, or to hear other channels."""

LONGEST_WAIT: Final = 2.0
"""Seconds between two attempts to reach a lost server, at most."""


class Events:
    """A listener on a connection of its own. Names of channels have no prefix: "log", "failed", "w:<worker>".

    While the server is down it tries to reach it again, and goes on; what was announced meanwhile is lost. `on_ready`
    functions are called whenever it hears all its channels from then on. Once stopped it stays so.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._handlers: dict[str, list[Handler]] = {}
        self._ready: list[Callable[[], None]] = []
        self._stopped = threading.Event()

    @overload
    def on(self, name: str, handler: Handler) -> Handler: ...
    @overload
    def on(self, name: str) -> Callable[[Handler], Handler]: ...
    def on(self, name: str, handler: Handler | None = None) -> Any:
        """Call a function with each payload of a channel, also while listening; without a function, a decorator."""
        if handler is None:
            return lambda given: self.on(name, given)
        self._handlers[name] = [*self._handlers.get(name, ()), handler]
        return handler

    def off(self, name: str) -> None:
        """Call no function for this channel any more."""
        self._handlers.pop(name, None)

    def on_ready(self, function: Callable[[], None]) -> Callable[[], None]:
        """Call a function each time it hears all its channels: at first, and after each loss of the server."""
        self._ready.append(function)
        return function

    def stop(self) -> None:
        """End `listen`, and all that comes out of `messages`, within a moment; from any thread."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def listen(self, names: Sequence[str] = (), callback: Callback | None = None) -> None:
        """Hear these channels and those of `on`, and call the functions, until stopped. An error in one is logged."""
        for channel, message in self.messages(*names):
            for handler, args in self._called(channel, message, names, callback):
                with _logged(channel):
                    if inspect.iscoroutine(found := handler(*args)):
                        found.close()
                        raise TypeError(f"{handler} is a coroutine function. Use alisten().")

    async def alisten(self, names: Sequence[str] = (), callback: Callback | None = None) -> None:
        """The same for asyncio; the functions may be coroutine functions."""
        async for channel, message in self.amessages(*names):
            for handler, args in self._called(channel, message, names, callback):
                with _logged(channel):
                    if inspect.isawaitable(found := handler(*args)):
                        await found

    def messages(self, *names: str) -> Iterator[Message]:
        """What is published on these channels and those of `on`, until stopped."""
        outage = _Outage(self.client)
        while not self.stopped:
            channels = _Channels(self, names)
            try:
                heard = Subscription(self.client.source.sync())
                with contextlib.closing(heard):
                    while not self.stopped:
                        more, less = channels.changes()
                        heard.change(more, less)
                        if not channels.any:
                            self._stopped.wait(TICK)
                            continue
                        found = channels.take(heard.get(TICK))
                        outage.over()
                        if found is not None:
                            yield found
            except StoreDown as error:
                self._stopped.wait(outage.wait(error))

    async def amessages(self, *names: str) -> AsyncIterator[Message]:
        """The same for asyncio."""
        outage = _Outage(self.client)
        while not self.stopped:
            channels = _Channels(self, names)
            try:
                heard = AsyncSubscription(self.client.source.asynchronous())
                async with contextlib.aclosing(heard):
                    while not self.stopped:
                        more, less = channels.changes()
                        await heard.change(more, less)
                        if not channels.any:
                            await asyncio.sleep(TICK)
                            continue
                        found = channels.take(await heard.get(TICK))
                        outage.over()
                        if found is not None:
                            yield found
            except StoreDown as error:
                await asyncio.sleep(outage.wait(error))

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.amessages()

    def _called(
        self, channel: str, message: str, names: Sequence[str], callback: Callback | None
    ) -> Iterator[tuple[Callable[..., Any], tuple[str, ...]]]:
        for handler in self._handlers.get(channel, ()):
            yield handler, (message,)
        if callback is not None and channel in names:
            yield callback, (channel, message)


class _Channels:
    """Which channels are heard on one connection, and which are to be."""

    def __init__(self, events: Events, names: Sequence[str]) -> None:
        self._events = events
        self._names = names
        self._prefix: Final = as_bytes(events.client.prefix)
        self._asked: set[bytes] = set()
        self._unsure: set[bytes] = set()

    @property
    def any(self) -> bool:
        return bool(self._asked)

    def changes(self) -> tuple[set[bytes], set[bytes]]:
        wanted = {self._prefix + as_bytes(name) for name in (*self._names, *list(self._events._handlers))}
        more, less = wanted - self._asked, self._asked - wanted
        self._asked = wanted
        self._unsure = (self._unsure | more) & wanted
        return more, less

    def take(self, heard: Heard | None) -> Message | None:
        """The message; or None, for a word of another kind."""
        if heard is None or heard.kind == "unsubscribe":
            return None
        if heard.kind == "subscribe":
            self._unsure.discard(heard.channel)
            if not self._unsure:
                for function in self._events._ready:
                    with _logged("ready"):
                        function()
            return None
        return text(heard.channel.removeprefix(self._prefix)), text(heard.payload)


class _Outage:
    """How long to wait for a server that is down; and one line in the log for each outage."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tries = 0

    def wait(self, error: StoreDown) -> float:
        if not self._tries:
            log.warning("%r hears no events, because its server is down: %s", self._client, error)
        self._tries += 1
        return min(LONGEST_WAIT, 0.05 * 2.0 ** min(self._tries, 10))

    def over(self) -> None:
        if self._tries:
            log.info("%r hears events again", self._client)
            self._tries = 0


@contextlib.contextmanager
def _logged(channel: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        log.exception("A handler of the events of %r failed", channel)


__all__ = ["Events", "Message"]
