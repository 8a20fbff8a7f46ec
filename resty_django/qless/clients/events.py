"""Events that the core announces: `client.events()`. docs/reference/jobs/core.md lists the channels.

events = client.events()

@events.on("log")
def on_log(message: str) -> None: ...

events.listen()
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, overload

from resty_django.redis.errors import StoreDown
from resty_django.text import logger

from .serialization import as_bytes, text

if TYPE_CHECKING:
    from resty_django.redis.pubsub import Heard

    from .client import Client

log = logger("resty_django.qless")

Handler: TypeAlias = Callable[[str], Awaitable[None] | None]
"""A function that takes the payload of a message."""
ChannelHandler: TypeAlias = Callable[[str, str], Awaitable[None] | None]
"""A function that takes the channel and the payload of a message."""


class ChannelMessage(NamedTuple):
    """A message. `channel`: its name without the prefix."""

    channel: str
    payload: str


POLL_SECONDS: Final = 0.25
"""Interval of the checks whether to stop, or to listen to other channels."""


class Events:
    """A listener with its own connection. Channel names have no prefix: "log", "failed", "w:<worker>".

    It reconnects after an outage; events during the outage are lost. `on_ready` functions are called whenever all
    channels are subscribed. A stopped listener cannot be started again.
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
        """Call a function with each payload of a channel, also while listening. Without a function, return a
        decorator."""
        if handler is None:
            return lambda decorated: self.on(name, decorated)
        self._handlers[name] = [*self._handlers.get(name, ()), handler]
        return handler

    def off(self, name: str) -> None:
        """Stop calling functions for this channel."""
        self._handlers.pop(name, None)

    def on_ready(self, function: Callable[[], None]) -> Callable[[], None]:
        """Call a function each time all channels are subscribed: at first, and after each outage."""
        self._ready.append(function)
        return function

    def stop(self) -> None:
        """End `listen` and `messages` within a moment; callable from any thread."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def listen(self, names: Sequence[str] = (), callback: ChannelHandler | None = None) -> None:
        """Listen to these channels and to the channels of `on`, and call the functions, until stopped. Errors of
        functions are logged."""
        for channel, message in self.messages(*names):
            for handler, args in self._calls_for(channel, message, names, callback):
                with _logged(channel):
                    if inspect.iscoroutine(outcome := handler(*args)):
                        outcome.close()
                        raise TypeError(f"{handler} is a coroutine function. Use alisten().")

    async def alisten(self, names: Sequence[str] = (), callback: ChannelHandler | None = None) -> None:
        """Do the same for asyncio; the functions may be coroutine functions."""
        async for channel, message in self.amessages(*names):
            for handler, args in self._calls_for(channel, message, names, callback):
                with _logged(channel):
                    if inspect.isawaitable(outcome := handler(*args)):
                        await outcome

    def messages(self, *names: str) -> Iterator[ChannelMessage]:
        """Yield the messages of these channels and of the channels of `on`, until stopped."""
        from resty_django.redis.pubsub import Subscription

        outage = _Outage(self.client)
        while not self.stopped:
            channels = _Channels(self, names)
            try:
                subscription = Subscription(self.client.source.sync())
                with contextlib.closing(subscription):
                    while not self.stopped:
                        added, removed = channels.changes()
                        subscription.change(added, removed)
                        if not channels.any:
                            self._stopped.wait(POLL_SECONDS)
                            continue
                        message = channels.message_of(subscription.get(POLL_SECONDS))
                        outage.end()
                        if message is not None:
                            yield message
            except StoreDown as error:
                self._stopped.wait(outage.wait(error))

    async def amessages(self, *names: str) -> AsyncIterator[ChannelMessage]:
        """Do the same for asyncio."""
        from resty_django.redis.pubsub import AsyncSubscription

        outage = _Outage(self.client)
        while not self.stopped:
            channels = _Channels(self, names)
            try:
                subscription = AsyncSubscription(self.client.source.asynchronous())
                async with contextlib.aclosing(subscription):
                    while not self.stopped:
                        added, removed = channels.changes()
                        await subscription.change(added, removed)
                        if not channels.any:
                            await asyncio.sleep(POLL_SECONDS)
                            continue
                        message = channels.message_of(await subscription.get(POLL_SECONDS))
                        outage.end()
                        if message is not None:
                            yield message
            except StoreDown as error:
                await asyncio.sleep(outage.wait(error))

    def __iter__(self) -> Iterator[ChannelMessage]:
        return self.messages()

    def __aiter__(self) -> AsyncIterator[ChannelMessage]:
        return self.amessages()

    def _calls_for(
        self, channel: str, message: str, names: Sequence[str], callback: ChannelHandler | None
    ) -> Iterator[tuple[Callable[..., Any], tuple[str, ...]]]:
        for handler in self._handlers.get(channel, ()):
            yield handler, (message,)
        if callback is not None and channel in names:
            yield callback, (channel, message)


class _Channels:
    """The channels subscribed on one connection, and the channels yet to be confirmed."""

    def __init__(self, events: Events, names: Sequence[str]) -> None:
        self._events = events
        self._names = names
        self._prefix: Final = as_bytes(events.client.prefix)
        self._subscribed: set[bytes] = set()
        self._unconfirmed: set[bytes] = set()

    @property
    def any(self) -> bool:
        return bool(self._subscribed)

    def changes(self) -> tuple[set[bytes], set[bytes]]:
        channels = {self._prefix + as_bytes(name) for name in (*self._names, *list(self._events._handlers))}
        added, removed = channels - self._subscribed, self._subscribed - channels
        self._subscribed = channels
        self._unconfirmed = (self._unconfirmed | added) & channels
        return added, removed

    def message_of(self, heard: Heard | None) -> ChannelMessage | None:
        """Return the message; None for a confirmation of a subscription."""
        if heard is None or heard.kind == "unsubscribe":
            return None
        if heard.kind == "subscribe":
            self._unconfirmed.discard(heard.channel)
            if not self._unconfirmed:
                for function in self._events._ready:
                    with _logged("ready"):
                        function()
            return None
        return ChannelMessage(text(heard.channel.removeprefix(self._prefix)), text(heard.payload))


class _Outage:
    """Reconnection delays, and one line in the log for each outage."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._attempts = 0

    def wait(self, error: StoreDown) -> float:
        """Return the seconds until the next attempt to reconnect."""
        if not self._attempts:
            log.warning("%r receives no events, because its server is down: %s", self._client, error)
        self._attempts += 1
        return min(2.0, 0.05 * 2.0 ** min(self._attempts, 10))

    def end(self) -> None:
        if self._attempts:
            log.info("%r receives events again", self._client)
            self._attempts = 0


@contextlib.contextmanager
def _logged(channel: str) -> Iterator[None]:
    try:
        yield
    except Exception:
        log.exception("A handler of the events of %r failed", channel)
