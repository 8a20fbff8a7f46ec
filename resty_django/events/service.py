"""The event service of a process: posting, polling, and calling handlers."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import NoMemory, SharedDictError
from resty_django.text import logger

from .channel import Batch, Channel
from .errors import NoRoom, NotConfigured, Unavailable
from .handlers import Dispatcher
from .names import events
from .options import Options
from .registry import Registry
from .wire import Event, check, decode, encode, failed

log = logger("resty_django.events")

Outcome = Literal["done", "recursive"]
UNKNOWN: Final = object()


class EventService:
    """The event service of a process. Tests may create several, each with its own clock.

    `configured_channel` returns the channel and the options to use until `begin` sets others; it is called for each
    event that is posted before that.
    """

    def __init__(
        self,
        configured_channel: Callable[[], tuple[Channel, Options]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        asleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        pid: int | None = None,
    ) -> None:
        self.registry = Registry()
        self.dispatcher = Dispatcher()
        self.pid = os.getpid() if pid is None else pid
        self.channel: Channel | None = None
        self.options: Options | None = None
        self.position: Any = UNKNOWN
        self.handled: Any = UNKNOWN
        """The ID of the last event whose handlers have finished; a forked child continues after it."""
        self._configured = configured_channel
        self._clock = clock
        self.sleep = sleep
        self.asleep = asleep
        self.uses_local = False
        """Whether this process has ever posted a local event; local events are not in the channel."""
        self._local: deque[Event] = deque()
        self._polling = threading.Lock()
        self._beginning = threading.Lock()

    @property
    def configured(self) -> bool:
        return self.channel is not None

    @property
    def interval(self) -> float:
        """Seconds between background polls; 0: none."""
        return self.options.interval if self.options is not None else 0.0

    # --- the start ---

    def begin(self, channel: Channel, options: Options, position: Any = UNKNOWN) -> None:
        """Receive all events from now on (or from `position`), and post `started`.

        Does nothing if the service has started, or if another thread or task is starting it.
        """
        run(self._begin(channel, options, position))

    async def abegin(self, channel: Channel, options: Options, position: Any = UNKNOWN) -> None:
        """As `begin`."""
        await arun(self._begin(channel, options, position))

    def _begin(self, channel: Channel, options: Options, position: Any) -> Steps[None]:
        if not self._beginning.acquire(blocking=False):
            return
        try:
            if self.channel is not None:
                return
            if position is UNKNOWN:
                position = yield Step(channel.last, channel.alast)
            record = encode(Event(events.source, events.started, pid=self.pid))
            yield Step(channel.append, channel.aappend, (record, options.retries))
            self.position = self.handled = position
            self.options = options
            self.channel = channel
        except SharedDictError as error:
            raise Unavailable(f"The events cannot be started: {error}") from error
        finally:
            self._beginning.release()

    def end(self) -> None:
        """Stop polling. Handlers stay registered."""
        self.channel = None

    # --- posting ---

    def post(self, source: str, event: str, data: Any = None, unique: object = None) -> None:
        run(self._post(source, event, data, unique))

    async def apost(self, source: str, event: str, data: Any = None, unique: object = None) -> None:
        await arun(self._post(source, event, data, unique))

    def _post(self, source: str, event: str, data: Any, unique: object) -> Steps[None]:
        check(source, event)
        record = encode(Event(source, event, data, None if unique is None else str(unique), self.pid))
        if self.channel is not None and self.options is not None:
            channel, options = self.channel, self.options
        else:
            channel, options = self._configured()
        try:
            yield Step(channel.append, channel.aappend, (record, options.retries))
        except NoMemory as error:
            log.warning("An event of %d bytes could not be posted: %s", len(record), error)
            raise NoRoom(failed(event, source, f"no memory for its {len(record)} bytes: {error}")) from error
        except SharedDictError as error:
            raise Unavailable(failed(event, source, error)) from error

    def post_local(self, source: str, event: str, data: Any = None) -> None:
        check(source, event)
        self.uses_local = True
        self._local.append(Event(source, event, data))

    # --- polling ---

    def has_news(self) -> bool:
        """Return whether a poll is likely to find events, with one read of a shared value. For channels in memory."""
        channel = self.channel
        return (channel is not None and channel.last() != self.position) or len(self._local) > 0

    def poll(self) -> Outcome:
        channel, options = self._ready()
        if not self._polling.acquire(blocking=False):
            return "recursive"
        try:
            run(self._drain(channel, options))
        except SharedDictError as error:
            raise Unavailable(f"The events cannot be read: {error}") from error
        finally:
            self._polling.release()
        return "done"

    async def apoll(self) -> Outcome:
        channel, options = self._ready()
        if not self._polling.acquire(blocking=False):
            return "recursive"
        try:
            await arun(self._drain(channel, options))
        except SharedDictError as error:
            raise Unavailable(f"The events cannot be read: {error}") from error
        finally:
            self._polling.release()
        return "done"

    def _ready(self) -> tuple[Channel, Options]:
        if self.channel is None or self.options is None:
            raise NotConfigured("Events have not started in this process. Call start() or configure() before poll().")
        return self.channel, self.options

    def _drain(self, channel: Channel, options: Options) -> Steps[None]:
        while True:
            while self._local:
                for _ in range(len(self._local)):
                    yield from self._dispatch(self._local.popleft())
            batch: Batch | None = yield Step(channel.read, channel.aread, (self.position,))
            if batch is None:
                return
            yield from self._handle(channel, options, batch)
            self.position = self.handled = batch.last

    def _handle(self, channel: Channel, options: Options, batch: Batch) -> Steps[None]:
        deadline = self._clock() + options.wait_max
        dropped = 0
        for number, record in batch.records:
            while record is None and self._clock() < deadline:
                yield Step(self.sleep, self.asleep, (options.wait_interval,))
                record = yield Step(channel.fetch, channel.afetch, (number,))
            self.position = number  # from here on, this event is never handled again
            if record is None:
                dropped += 1
            else:
                yield from self._handle_one(channel, options, record)
            self.handled = number
        if dropped:
            log.error(
                "dropping %d events up to %s: waiting for event data timed out. Raise the SIZE of the shared "
                "dictionary %r if it cannot hold the events of one interval.",
                dropped,
                batch.last,
                channel.dictionary.name,
            )

    def _handle_one(self, channel: Channel, options: Options, record: bytes) -> Steps[None]:
        try:
            event = decode(record)
        except ValueError as error:
            log.error("dropping an event of %d bytes that cannot be read: %s", len(record), error)
            return
        if event.unique is not None:
            try:
                if not (yield Step(channel.claim, channel.aclaim, (event.unique, self.pid, options.timeout))):
                    return
            except SharedDictError as error:
                log.error("dropping event %r of %r: its unique value: %s", event.event, event.source, error)
                return
        yield from self._dispatch(event)

    def _dispatch(self, event: Event) -> Steps[None]:
        for callback in self.registry.matching(event.source, event.event):
            yield Step(self.dispatcher.call, self.dispatcher.acall, (callback, event))
