"""Polling in the background: a thread, or a task of an event loop. Both take the same steps."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from django.db import close_old_connections

from resty_django.sansio import Step, Steps, arun, run
from resty_django.text import logger

from .names import events
from .service import EventService

log = logger("resty_django.events")

SLICE: Final = 0.5
"""Seconds: the longest pause without a look at whether to stop, and whether the interval has changed."""
SHORT: Final = 0.05
"""Seconds: a pause that the end of the process can wait for."""
FULL: Final = 1.0
"""Seconds between two polls that look at more than whether the counter has moved."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds without a try after the store failed: the first time, and at most (the pause doubles in between)."""
SHUTDOWN_SECONDS: Final = 1.0
"""Seconds for the last event and the last poll of a task that is cancelled."""


class Starter(NamedTuple):
    """How to start the service where it has not started."""

    call: Callable[[], None]
    acall: Callable[[], Awaitable[None]]


class Listener(Protocol):
    """What `start` has started."""

    started: threading.Event

    @property
    def running(self) -> bool: ...

    def stop(self, timeout: float) -> None:
        """Post `stopping`, poll once more, end; wait at most `timeout` seconds for that."""


class PollLoop:
    """The steps of a listener: start, poll, pause; after a failure the same again, with a growing pause."""

    def __init__(self, service: EventService, starter: Starter) -> None:
        self.service = service
        self.started = threading.Event()
        self.stopping = threading.Event()
        self._starter = starter
        self._pause = 0.0

    def steps(self) -> Steps[None]:
        service = self.service
        while not self.stopping.is_set():
            try:
                if not service.configured:
                    yield Step(self._starter.call, self._starter.acall)
                self.started.set()
                outcome = yield Step(self._poll, service.apoll)
                self._recovered()
                if outcome == "recursive":  # somebody else polls, perhaps for long
                    yield self._pause_for(min(0.01, service.interval or SLICE))
                else:
                    yield self._wait()
            except Exception as error:
                yield self._pause_for(self._failed(error))

    def shutdown(self) -> Steps[None]:
        """Post `stopping`, and poll once more for what was posted until now."""
        service = self.service
        if not service.configured:
            return
        try:
            yield Step(service.post, service.apost, (events.source, events.stopping))
            yield Step(self._poll, service.apoll)
        except Exception as error:
            log.debug("the end of this process could not be told: %s", error)

    def _poll(self) -> str:
        before = self.service.dispatcher.calls
        outcome = self.service.poll()
        if self.service.dispatcher.calls != before:
            close_old_connections()
        return outcome

    def _wait(self) -> Step:
        """Wait until there is something to poll for."""
        service = self.service
        channel = service.channel
        if channel is None or not channel.wakes or not service.interval:
            return Step(self._doze, self._adoze)
        seconds = min(service.interval, SLICE) if service.uses_local else SLICE
        return Step(channel.wait, channel.await_news, (service.position, seconds))

    def _doze(self) -> None:
        started = time.monotonic()
        while not self.stopping.is_set():
            interval = self.service.interval
            if 0 < interval <= SHORT:
                self._nap(interval)
                return
            self.stopping.wait(min(interval or SLICE, SLICE))
            if self._must_poll(time.monotonic() - started):
                return

    def _nap(self, interval: float) -> None:
        """Look at one number after each short sleep: that is what idle processes do all day, so it is to cost little.

        To sleep costs less than to wait for `stopping`.
        """
        has_news, is_stopping, sleep = self.service.has_news, self.stopping.is_set, time.sleep
        for _ in range(math.ceil(FULL / interval)):
            sleep(interval)
            if has_news() or is_stopping():
                return

    async def _adoze(self) -> None:
        started = time.monotonic()
        while not self.stopping.is_set():
            await asyncio.sleep(min(self.service.interval or SLICE, SLICE))
            if self._must_poll(time.monotonic() - started):
                return

    def _must_poll(self, waited: float) -> bool:
        """With an interval of 0 that is never, but it may be changed."""
        interval = self.service.interval
        if 0 < interval <= SLICE:
            return waited >= FULL or self.service.has_news()
        return 0 < interval <= waited

    def _pause_for(self, seconds: float) -> Step:
        return Step(self.stopping.wait, asyncio.sleep, (seconds,))

    def _failed(self, error: Exception) -> float:
        """Log the failure if it is the first, and return the seconds until the next try."""
        if not self._pause:
            log.error("events are not heard until the store is back: %s: %s", type(error).__name__, error)
        self._pause = min(LONGEST_PAUSE, self._pause * 2 or FIRST_PAUSE)
        return self._pause

    def _recovered(self) -> None:
        if self._pause:
            log.warning("events are heard again")
            self._pause = 0.0


class ThreadListener:
    """A daemon thread. `delay`: seconds before it does anything, so that a child that ends at once is left alone."""

    def __init__(self, service: EventService, starter: Starter, delay: float = 0.0) -> None:
        self._poll_loop = PollLoop(service, starter)
        self._delay = delay
        self.started = self._poll_loop.started
        self._thread = threading.Thread(target=self._run, name="resty-events", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self, timeout: float) -> None:
        self._poll_loop.stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        self._poll_loop.stopping.wait(self._delay)
        run(self._poll_loop.steps())
        run(self._poll_loop.shutdown())


class TaskListener:
    """A task of the running loop. It ends with the loop."""

    def __init__(self, service: EventService, starter: Starter) -> None:
        self._poll_loop = PollLoop(service, starter)
        self.started = self._poll_loop.started
        self._loop = asyncio.get_running_loop()
        # Its own context: the first request's ends with the request.
        self._task = self._loop.create_task(self._run(), name="resty-events", context=contextvars.Context())
        self._ended = threading.Event()
        self._task.add_done_callback(lambda task: self._ended.set())

    @property
    def running(self) -> bool:
        return not self._task.done() and not self._loop.is_closed()

    def stop(self, timeout: float) -> None:
        self._poll_loop.stopping.set()
        if self.running:
            with suppress(RuntimeError):  # the loop was closed just now
                self._loop.call_soon_threadsafe(self._task.cancel)
                if self._loop.is_running() and not _runs_here(self._loop):
                    self._ended.wait(timeout)

    async def astop(self, timeout: float) -> None:
        """As `stop`, within the loop of the task."""
        self._task.cancel()
        await asyncio.wait([self._task], timeout=timeout)

    async def _run(self) -> None:
        try:
            await arun(self._poll_loop.steps())
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(arun(self._poll_loop.shutdown()), SHUTDOWN_SECONDS)


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
