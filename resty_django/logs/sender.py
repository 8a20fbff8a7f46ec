"""Ships in the background: one thread for each handler and process."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Final

from resty_django.text import logger

from .buffer import AddResult
from .connection import Connection
from .options import Options
from .shipper import Shipper, Stats

log = logger("resty_django.logs")

KEPT: Final = AddResult.KEPT
BY_SIZE: Final = "by size"
STOP: Final = "stop"
CLOCK: Final = "clock"

Request = str | threading.Event
"""What the thread is asked for: a flush by size, the end, a look at the clock, or a flush and then to set an event."""

GOODBYE: Final = 2.0
"""Seconds that `close` waits at most, after all was sent, for the connection to end."""
RETRY: Final = 2.0
"""Seconds from a flush that failed to the next one, where no message causes one before."""
BETWEEN: Final = 10.0
"""Seconds between two reports of messages that were dropped although the server takes messages."""
LATE: Final = 5.0
"""Seconds that a message waits at most for another one, when both come after `close`."""


class FlushTimer:
    """Decides when the clock asks for a flush.

    `interval`: seconds between two flushes by the clock, the first one that long after `now`; None or 0: none.
    """

    def __init__(self, interval: float | None, now: float) -> None:
        self._interval = interval or 0.0
        self._tick = now + self._interval if interval else None
        self._retry: float | None = None
        self._by_size = False

    @property
    def next(self) -> float | None:
        """When to ask `must_flush` again; None: never."""
        times = [at for at in (self._tick, self._retry) if at is not None]
        return min(times) if times else None

    def flushed(self, ok: bool, by_size: bool, now: float) -> None:
        """Note that there was a flush."""
        self._retry = None if ok else now + RETRY
        self._by_size = self._by_size or by_size

    def must_flush(self, now: float) -> bool:
        """Return whether it is time. A flush by size since the last tick makes the clock skip one."""
        must = self._retry is not None and self._retry <= now
        if self._tick is not None and self._tick <= now:
            self._tick = now + self._interval
            must = must or not self._by_size
            self._by_size = False
        return must


class OutageLog:
    """Messages about outages: when one begins, when it causes the first message to be dropped, and when it is over."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._down = False
        self._dropping = False
        self._reported = 0
        self._quiet_until = float("-inf")

    def after(self, error: str | None, dropped: int, now: float) -> Iterator[str]:
        """Yield the messages after a flush. `error`: why it failed; `dropped`: count of messages dropped so far."""
        if error is not None:
            if not self._down:
                self._down = True
                yield f"{self._address} takes no log messages, they wait: {error}"
            if not self._dropping and dropped > self._reported:
                self._dropping = True
                yield f"log messages for {self._address} are dropped, since those that wait have reached drop_limit"
            return
        if self._down:
            self._down = self._dropping = False
            self._quiet_until = now
            yield f"{self._address} takes log messages again"
        if dropped > self._reported and now >= self._quiet_until:
            yield f"{dropped - self._reported} log messages for {self._address} were dropped"
            self._reported = dropped
            self._quiet_until = now + BETWEEN

    def at_the_end(self, waiting: int, dropped: int) -> Iterator[str]:
        """Yield the messages when no flush follows and `waiting` messages remain."""
        lost = waiting + dropped - self._reported
        if lost:
            self._reported = dropped
            yield f"{lost} log messages for {self._address} are lost"


class Sender:
    """Takes messages and ships them. The thread begins with the first message. Raises `BadOption`."""

    def __init__(self, options: Options) -> None:
        self._flush_limit = options.flush_limit
        self._ending = threading.Event()
        self._connection = Connection(options)
        self._shipper = Shipper(options, self._connection, time.monotonic, self._ending.wait)
        self._buffer = self._shipper.buffer
        self._outages = OutageLog(options.address)
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()  # the one queue that code run by signals and
        self._asked = False  # by the garbage collector may use
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._shipping = threading.Lock()
        self._gave_up = False
        self._timer = FlushTimer(options.periodic_flush, time.monotonic())

    def log(self, message: bytes) -> None:
        """Take a message. Does not wait for the network, unless it comes after `close`: then it is shipped at once."""
        added = self._buffer.add(message)
        if self._thread is None:
            self._start()
        if added is not KEPT:
            self._ask()
        if self._ending.is_set():
            self._ship_here()

    def flush(self, seconds: float) -> None:
        """Ship what waits, and wait for that, at most so long."""
        if self._thread is threading.current_thread() or not (len(self._buffer) or self._shipper.sent_chunks.next):
            return
        self._start()
        if self._thread is None or self._ending.is_set():
            self._ship_here()
        else:
            done = threading.Event()
            self._requests.put(done)
            done.wait(seconds)

    def close(self, seconds: float) -> None:
        """Flush, waiting at most so long, and end the thread. Messages that are lost by that are counted in the log."""
        if self._ending.is_set():
            return
        self._ending.set()
        if self._thread is None:
            self._ship_here()
        else:
            done = threading.Event()
            self._requests.put(done)
            self._requests.put(STOP)
            if done.wait(seconds):
                self._thread.join(GOODBYE)
            else:
                self._gave_up = True
        for text in self._outages.at_the_end(len(self._buffer), self._buffer.dropped):
            log.warning("%s", text)

    def pause(self, seconds: float) -> bool:
        """Ship nothing until `resume`. False where a flush that is running took longer than so many seconds."""
        return self._shipping.acquire(timeout=seconds)

    def resume(self) -> None:
        """End a `pause` that returned True."""
        self._shipping.release()

    def abandon(self) -> None:
        """Let go of what belongs to the parent of this process."""
        self._connection.close()

    def stats(self) -> Stats:
        return self._shipper.stats()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._ending.is_set() or not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="resty-logs", daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError:
            pass  # the interpreter is about to end, and starts no threads any more: `close` will ship
        finally:
            self._starting.release()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._requests.put(BY_SIZE)

    def _run(self) -> None:
        while (request := self._next()) != STOP:
            if request == CLOCK and not self._must_flush(time.monotonic()):
                continue
            error = self._flush(request == BY_SIZE)
            if isinstance(request, threading.Event):
                request.set()  # before anything is logged: who waits may hold a lock that logging needs
            self._report(error)
        with self._shipping:
            self._connection.finish()

    def _next(self) -> Request:
        times = [at for at in (self._timer.next, self._shipper.due) if at is not None]
        try:
            return self._requests.get(timeout=max(0.0, min(times) - time.monotonic()) if times else None)
        except queue.Empty:
            return CLOCK

    def _must_flush(self, now: float) -> bool:
        if self._shipper.due is not None and self._shipper.due <= now:
            with self._shipping:
                self._shipper.look()
        return self._timer.must_flush(now) or self._shipper.sent_chunks.next is not None

    def _flush(self, by_size: bool) -> str | None:
        with self._shipping:
            try:
                error = self._shipper.flush()
            except Exception as failure:  # the thread has to live on
                error = f"{type(failure).__name__}: {failure}"
        self._timer.flushed(error is None, by_size, time.monotonic())
        self._gave_up = error is not None and self._ending.is_set()
        self._asked = False
        if error is None and self._buffer.size >= self._flush_limit:
            self._ask()
        return error

    def _report(self, error: str | None) -> None:
        if not self._ending.is_set():
            for text in self._outages.after(error, self._buffer.dropped, time.monotonic()):
                log.warning("%s", text)

    # --- at the end --------------------------------------------------------------------------------------------------

    def _ship_here(self) -> None:
        """Ship in this thread. After `close` that is tried until it fails once."""
        if self._gave_up or not self._shipping.acquire(timeout=LATE):
            return
        try:
            error = self._shipper.flush()
            self._connection.finish()
        finally:
            self._shipping.release()
        self._gave_up = error is not None and self._ending.is_set()
