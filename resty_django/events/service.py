"""The event service of a process: posting, polling, and calling handlers."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol
from weakref import ReferenceType

from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import NoMemory, SharedDict, SharedDictError
from resty_django.shdict.bell import Bell
from resty_django.text import logger

from .channels import Batch, Channel
from .channels.base import Position
from .errors import EventError, NoRoom, NotConfigured, Unavailable
from .handlers import HandlerRunner
from .names import events
from .options import EventOptions
from .registry import Registry
from .wire import Event, check, decode, encode, failed

log = logger("resty_django.events")

PollResult = Literal["done", "recursive"]
FULL_POLL_SECONDS: Final = 1.0
"""Seconds between full polls, which check more than the counter."""


class Follower(Protocol):
    """A reader of something in memory that is polled together with the events."""

    @property
    def dictionary(self) -> SharedDict:
        """The dictionary whose bell rings before there is news."""

    def has_news(self) -> bool:
        """Return whether `read` is likely to find something, with one read of a shared value."""

    def read(self) -> None:
        """Handle everything up to now, without waiting. Must not raise."""


class EventService:
    """The event service of a process. Tests may create several.

    `configured_channel` returns the channel and the options to use until `begin` sets others; it is called for each
    event that is posted before that. `followers`: are read before the events.
    """

    def __init__(
        self,
        configured_channel: Callable[[], tuple[Channel, EventOptions]],
        *,
        followers: Sequence[ReferenceType[Follower]] = (),
        pid: int | None = None,
    ) -> None:
        self.registry = Registry()
        self.dispatcher = HandlerRunner()
        self.pid = os.getpid() if pid is None else pid
        self.channel: Channel | None = None
        self.options: EventOptions | None = None
        self.position: Position | None = None
        self.handled: Position | None = None
        """The ID of the last event whose handlers have finished; a forked child continues after it."""
        self._configured = configured_channel
        self._followers = followers
        self.uses_local = False
        """Whether this process has ever posted a local event; local events are not in the channel."""
        self.interrupted = False
        """Whether events may have been lost since the last poll, because the store could not be read."""
        self._polled_at = 0.0
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

    def begin(self, channel: Channel, options: EventOptions, position: Position | None = None) -> None:
        """Receive all events from now on (or from `position`), and post `started`.

        Does nothing if the service has started, or if another thread or task is starting it.
        """
        run(self._begin(channel, options, position))

    async def abegin(self, channel: Channel, options: EventOptions, position: Position | None = None) -> None:
        """Do the same as `begin`, for asyncio."""
        await arun(self._begin(channel, options, position))

    def _begin(self, channel: Channel, options: EventOptions, position: Position | None) -> Steps[None]:
        if not self._beginning.acquire(blocking=False):
            return
        try:
            if self.channel is not None:
                return
            if position is None:
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

    def post(self, source: str, event: str, data: object = None, unique: object = None) -> None:
        record = self._record(source, event, data, unique)
        channel, options = self._target()
        try:
            channel.append(record, options.retries)
        except SharedDictError as error:
            raise _refusal(source, event, record, error) from error

    async def apost(self, source: str, event: str, data: object = None, unique: object = None) -> None:
        record = self._record(source, event, data, unique)
        channel, options = self._target()
        try:
            await channel.aappend(record, options.retries)
        except SharedDictError as error:
            raise _refusal(source, event, record, error) from error

    def _record(self, source: str, event: str, data: object, unique: object) -> bytes:
        check(source, event)
        return encode(Event(source, event, data, None if unique is None else str(unique), self.pid))

    def _target(self) -> tuple[Channel, EventOptions]:
        if self.channel is not None and self.options is not None:
            return self.channel, self.options
        return self._configured()

    def post_local(self, source: str, event: str, data: object = None) -> None:
        check(source, event)
        self._local.append(Event(source, event, data))
        if not self.uses_local:
            self.uses_local = True
            self.ring()  # later ones are found by polling

    # --- polling ---

    def has_news(self) -> bool:
        """Return whether a poll is likely to find something. Only for channels in memory.

        Reads one shared value for the events, and one for each follower.
        """
        channel = self.channel
        if (channel is not None and channel.last() != self.position) or self._local:
            return True
        return any(follower.has_news() for follower in self._existing_followers())

    def bells(self) -> tuple[Bell, ...]:
        """Return the bells that ring before `has_news` becomes true; empty if it may also do so without a ring."""
        if self.channel is None or self.uses_local:
            return ()
        dictionaries = [self.channel.dictionary, *(follower.dictionary for follower in self._existing_followers())]
        bells = tuple(dictionary.bell for dictionary in dictionaries if dictionary.bell is not None)
        return bells if len(bells) == len(dictionaries) else ()

    def ring(self) -> None:
        """End the wait of this process's listener, and of others."""
        if self.channel is not None and (bell := self.channel.dictionary.bell) is not None:
            bell.ring()

    def is_current(self) -> bool:
        """Return whether a poll is not likely to find anything: for channels in memory, for a second after a poll.

        Raise `Unavailable`.
        """
        channel = self.channel
        if (
            channel is None
            or channel.wakes
            or self.interrupted
            or time.monotonic() > self._polled_at + FULL_POLL_SECONDS
        ):
            return False
        try:
            return not self.has_news()
        except SharedDictError as error:
            raise self._unreadable(error) from error

    def poll(self) -> PollResult:
        return run(self._poll())

    async def apoll(self) -> PollResult:
        return await arun(self._poll())

    def _poll(self) -> Steps[PollResult]:
        channel, options = self._ready()
        if not self._polling.acquire(blocking=False):
            return "recursive"
        try:
            for follower in self._existing_followers():
                follower.read()
            yield from self._drain(channel, options)
            self._polled_at = time.monotonic()
        except SharedDictError as error:
            raise self._unreadable(error) from error
        finally:
            self._polling.release()
        return "done"

    def _unreadable(self, error: SharedDictError) -> Unavailable:
        self.interrupted = True
        return Unavailable(f"The events cannot be read: {error}")

    def _existing_followers(self) -> list[Follower]:
        """Return a copy of the list of followers.

        Followers remove themselves from the list when they are garbage-collected, so a loop over it would skip others.
        """
        return [follower for reference in tuple(self._followers) if (follower := reference()) is not None]

    def _ready(self) -> tuple[Channel, EventOptions]:
        if self.channel is None or self.options is None:
            raise NotConfigured("Events have not started in this process. Call start() or configure() before poll().")
        return self.channel, self.options

    def _drain(self, channel: Channel, options: EventOptions) -> Steps[None]:
        while True:
            while self._local:
                for _ in range(len(self._local)):
                    yield from self._dispatch(self._local.popleft())
            batch: Batch | None = yield Step(channel.read, channel.aread, (self.position,))
            if self.interrupted or (batch is not None and (batch.lost or not batch.records)):
                self.interrupted = False
                yield from self._dispatch(Event(events.source, events.missed, pid=self.pid))
            if batch is None:
                return
            yield from self._handle(channel, options, batch)
            self.position = self.handled = batch.last

    def _handle(self, channel: Channel, options: EventOptions, batch: Batch) -> Steps[None]:
        dropped = batch.lost
        for number, record in batch.records:
            self.position = number  # from here on, this event is never handled again
            if record is None:
                dropped += 1
            else:
                yield from self._handle_one(channel, options, record)
            self.handled = number
        if dropped:
            log.error(
                "dropping %d events up to %s: they were evicted before this process polled. Raise the SIZE of the "
                "shared dictionary %r if it cannot hold the events of one interval.",
                dropped,
                batch.last,
                channel.dictionary.name,
            )

    def _handle_one(self, channel: Channel, options: EventOptions, record: bytes) -> Steps[None]:
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


def _refusal(source: str, event: str, record: bytes, error: SharedDictError) -> EventError:
    """Return the error for an event that could not be posted."""
    if isinstance(error, NoMemory):
        log.warning("An event of %d bytes could not be posted: %s", len(record), error)
        return NoRoom(failed(event, source, f"no memory for its {len(record)} bytes: {error}"))
    return Unavailable(failed(event, source, error))
