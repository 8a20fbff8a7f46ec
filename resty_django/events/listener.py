"""Background polling in a thread or in a task of an event loop, with the same steps."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict.bell import Watch
from resty_django.text import logger

from .names import events
from .service import FULL_POLL_SECONDS, EventService

log = logger("resty_django.events")

MAX_NAP_SECONDS: Final = 0.5
"""Maximum pause between checks for a stop or a changed interval."""


class Starter(NamedTuple):
    """Functions that start the service if it has not started."""

    call: Callable[[], None]
    acall: Callable[[], Awaitable[None]]


class EventListener(Protocol):
    """A running listener, created by `start`."""

    started: threading.Event
    watch: Watch

    @property
    def running(self) -> bool: ...

    def stop(self, timeout: float) -> None:
        """Post `stopping`, poll once more and end. Wait at most `timeout` seconds."""


class PollLoop:
    """The steps of a listener: start, poll, pause. After a failure they are repeated with a growing pause."""

    def __init__(self, service: EventService, starter: Starter) -> None:
        self.service = service
        self.started = threading.Event()
        self.stopping = threading.Event()
        self.watch = Watch()
        self._starter = starter
        self._pause = 0.0

    def steps(self) -> Steps[None]:
        service = self.service
        while not self.stopping.is_set():
            try:
                if not service.configured:
                    yield Step(self._starter.call, self._starter.acall)
                self.started.set()
                outcome = yield Step(self._poll, self._apoll)
                self._recovered()
                if outcome == "recursive":  # another thread polls, perhaps for a long time
                    yield self._pause_for(min(0.01, service.interval or MAX_NAP_SECONDS))
                else:
                    yield from self._wait()
            except Exception as error:
                yield self._pause_for(self._failed(error))

    def shutdown(self) -> Steps[None]:
        """Post `stopping`, and poll once more for events posted so far."""
        service = self.service
        self.watch.close()
        if not service.configured:
            return
        try:
            yield Step(service.post, service.apost, (events.source, events.stopping))
            yield Step(self._poll, self._apoll)
        except Exception as error:
            log.debug("The event `stopping` of this process could not be posted: %s", error)

    def _poll(self) -> str:
        before = self.service.dispatcher.calls
        outcome = self.service.poll()
        if self.service.dispatcher.calls != before:
            close_old_connections()
        return outcome

    async def _apoll(self) -> str:
        """Do the same for asyncio, in the thread in which the handlers' `sync_to_async` runs."""
        before = self.service.dispatcher.calls
        outcome = await self.service.apoll()
        if self.service.dispatcher.calls != before:
            await sync_to_async(close_old_connections)()
        return outcome

    def _wait(self) -> Steps[None]:
        """Wait until a poll is due."""
        service = self.service
        channel = service.channel
        if channel is None or not channel.wakes or not service.interval:
            yield from self._doze()
        else:
            seconds = min(service.interval, MAX_NAP_SECONDS) if service.uses_local else MAX_NAP_SECONDS
            yield Step(channel.wait, channel.await_news, (service.position, seconds))

    def _doze(self) -> Steps[None]:
        started = time.monotonic()
        while not self.stopping.is_set():
            interval = self.service.interval
            if 0 < interval <= 0.05:  # short enough to delay the end of the process
                yield from self._nap(interval)
                if self.service.interval:
                    return
            else:
                yield self._pause_for(min(interval or MAX_NAP_SECONDS, MAX_NAP_SECONDS))
                if 0 < self.service.interval <= time.monotonic() - started:  # 0 may be changed later
                    return

    def _nap(self, interval: float) -> Steps[None]:
        """Check one number after each short sleep. After some time without news, wait for a bell instead.

        Sleeping is cheaper than waiting for `stopping`.
        """
        watch, service = self.watch, self.service
        alert = watch.arm(service.bells())
        for _ in range(math.ceil(min(alert, FULL_POLL_SECONDS) / interval)):
            yield Step(time.sleep, asyncio.sleep, (interval,))
            if service.has_news() or self.stopping.is_set():
                return
        if alert < FULL_POLL_SECONDS and (yield Step(watch.wait, watch.await_ring, (FULL_POLL_SECONDS,))):
            yield Step(time.sleep, asyncio.sleep, (0.001,))  # by then the transaction that rang has usually committed

    def _pause_for(self, seconds: float) -> Step:
        return Step(self.stopping.wait, asyncio.sleep, (seconds,))

    def _failed(self, error: Exception) -> float:
        """Log the first failure, and return the seconds until the next attempt."""
        self.service.interrupted = self.service.configured
        if not self._pause:
            log.error("Events are not received until the store is back: %s: %s", type(error).__name__, error)
        self._pause = min(5.0, self._pause * 2 or 0.1)
        return self._pause

    def _recovered(self) -> None:
        if self._pause:
            log.warning("Events are received again")
            self._pause = 0.0


class ThreadListener:
    """A listener thread (daemon). `delay`: seconds before it starts, so that short-lived children are not affected."""

    def __init__(self, service: EventService, starter: Starter, delay: float = 0.0) -> None:
        self._poll_loop = PollLoop(service, starter)
        self._delay = delay
        self.started, self.watch = self._poll_loop.started, self._poll_loop.watch
        self._thread = threading.Thread(target=self._run, name="resty-events", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self, timeout: float) -> None:
        self._poll_loop.stopping.set()
        self._poll_loop.service.ring()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _run(self) -> None:
        self._poll_loop.stopping.wait(self._delay)
        run(self._poll_loop.steps())
        run(self._poll_loop.shutdown())


class TaskListener:
    """A listener task in the running loop. It ends with the loop."""

    def __init__(self, service: EventService, starter: Starter) -> None:
        self._poll_loop = PollLoop(service, starter)
        self.started, self.watch = self._poll_loop.started, self._poll_loop.watch
        self._loop = asyncio.get_running_loop()
        # A separate context, because the first request's context ends with the request.
        self._task = self._loop.create_task(self._run(), name="resty-events", context=contextvars.Context())
        self._ended = threading.Event()
        self._task.add_done_callback(lambda task: self._ended.set())

    @property
    def running(self) -> bool:
        return not self._task.done() and not self._loop.is_closed()

    def stop(self, timeout: float) -> None:
        if self.running:
            with suppress(RuntimeError):  # the loop was closed just now
                self._loop.call_soon_threadsafe(self._cancel)
                if self._loop.is_running() and not _runs_here(self._loop):
                    self._ended.wait(timeout)

    async def astop(self, timeout: float) -> None:
        """Do the same as `stop`, within the task's loop."""
        self._task.cancel()
        await asyncio.wait([self._task], timeout=timeout)

    def _cancel(self) -> None:
        """Cancel the task in its loop. If it saw `stopping` earlier, the cancellation would interrupt `shutdown`."""
        self._poll_loop.stopping.set()
        self._task.cancel()

    async def _run(self) -> None:
        try:
            await arun(self._poll_loop.steps())
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(arun(self._poll_loop.shutdown()), timeout=1.0)


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
