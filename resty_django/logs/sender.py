"""Background shipping: one thread per handler and process."""

from __future__ import annotations

import enum
import queue
import threading
import time
from collections.abc import Iterator

from resty_django.text import logger

from .buffer import AddResult
from .connection import Connection
from .options import LogOptions
from .shipper import Shipper, ShippingCounts

log = logger("resty_django.logs")


class Wakeup(enum.Enum):
    """A reason for the thread to wake up."""

    FULL = "the buffer has reached the flush limit"
    TIMER = "a periodic flush or a check may be due"
    STOP = "the handler is closed"


Request = Wakeup | threading.Event
"""A request to the thread; for an event, it flushes and sets the event."""


class FlushTimer:
    """The schedule of periodic flushes.

    `interval`: seconds between periodic flushes, the first one `interval` after `now`; None or 0: no periodic flushes.
    """

    RETRY_SECONDS = 2.0
    """Time after a failed flush until the next one, unless a message triggers it earlier."""

    def __init__(self, interval: float | None, now: float) -> None:
        self._interval = interval or 0.0
        self._tick = now + self._interval if interval else None
        self._retry: float | None = None
        self._by_size = False

    @property
    def next(self) -> float | None:
        """The time of the next `must_flush` call; None: never."""
        times = [at for at in (self._tick, self._retry) if at is not None]
        return min(times) if times else None

    def flushed(self, ok: bool, by_size: bool, now: float) -> None:
        """Note a flush."""
        self._retry = None if ok else now + self.RETRY_SECONDS
        self._by_size = self._by_size or by_size

    def must_flush(self, now: float) -> bool:
        """Return whether a periodic flush is due. After a flush by size, one periodic flush is skipped."""
        must = self._retry is not None and self._retry <= now
        if self._tick is not None and self._tick <= now:
            self._tick = now + self._interval
            must = must or not self._by_size
            self._by_size = False
        return must


class OutageLog:
    """Log messages about outages: when one begins, when the first message is dropped, and when it ends."""

    REPORT_SECONDS = 10.0
    """Time between reports of messages that were dropped although the server accepts messages."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._down = False
        self._dropping = False
        self._reported = 0
        self._quiet_until = float("-inf")

    def after(self, error: str | None, dropped: int, now: float) -> Iterator[str]:
        """Yield the messages after a flush. `error`: the reason of a failure; `dropped`: messages dropped so far."""
        if error is not None:
            if not self._down:
                self._down = True
                yield f"{self._address} does not accept log messages; they are buffered: {error}"
            if not self._dropping and dropped > self._reported:
                self._dropping = True
                yield f"log messages for {self._address} are dropped, because the buffer has reached drop_limit"
            return
        if self._down:
            self._down = self._dropping = False
            self._quiet_until = now
            yield f"{self._address} accepts log messages again"
        if dropped > self._reported and now >= self._quiet_until:
            yield f"{dropped - self._reported} log messages for {self._address} were dropped"
            self._reported = dropped
            self._quiet_until = now + self.REPORT_SECONDS

    def at_the_end(self, waiting: int, dropped: int) -> Iterator[str]:
        """Yield the messages when no flush follows and `waiting` messages remain."""
        lost = waiting + dropped - self._reported
        if lost:
            self._reported = dropped
            yield f"{lost} log messages for {self._address} are lost"


class Sender:
    """Accepts messages and ships them in a thread that starts with the first message. Raises `BadOption`."""

    def __init__(self, options: LogOptions) -> None:
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
        """Buffer a message without waiting for the network. After `close`, ship it immediately."""
        added = self._buffer.add(message)
        if self._thread is None:
            self._start()
        if added is not AddResult.KEPT:
            self._ask()
        if self._ending.is_set():
            self._ship_here()

    def flush(self, seconds: float) -> None:
        """Ship the waiting messages, and wait up to `seconds` for that."""
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
        """Flush, waiting at most `seconds`, and end the thread. The number of lost messages is logged."""
        if self._ending.is_set():
            return
        self._ending.set()
        if self._thread is None:
            self._ship_here()
        else:
            done = threading.Event()
            self._requests.put(done)
            self._requests.put(Wakeup.STOP)
            if done.wait(seconds):
                self._thread.join(2.0)  # until the connection has ended
            else:
                self._gave_up = True
        for text in self._outages.at_the_end(len(self._buffer), self._buffer.dropped):
            log.warning("%s", text)

    def pause(self, seconds: float) -> bool:
        """Ship nothing until `resume`. Return False if a running flush took longer than `seconds`."""
        return self._shipping.acquire(timeout=seconds)

    def resume(self) -> None:
        """End a `pause` that returned True."""
        self._shipping.release()

    def abandon(self) -> None:
        """Drop resources that belong to this process's parent."""
        self._connection.close()

    def stats(self) -> ShippingCounts:
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
            pass  # the interpreter is shutting down and cannot start threads: `close` will ship
        finally:
            self._starting.release()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._requests.put(Wakeup.FULL)

    def _run(self) -> None:
        while (request := self._next()) is not Wakeup.STOP:
            if request is Wakeup.TIMER and not self._must_flush(time.monotonic()):
                continue
            error = self._flush(request is Wakeup.FULL)
            if isinstance(request, threading.Event):
                request.set()  # before anything is logged: the waiting thread may hold a lock that logging needs
            self._report(error)
        with self._shipping:
            self._connection.finish()

    def _next(self) -> Request:
        times = [at for at in (self._timer.next, self._shipper.due) if at is not None]
        try:
            return self._requests.get(timeout=max(0.0, min(times) - time.monotonic()) if times else None)
        except queue.Empty:
            return Wakeup.TIMER

    def _must_flush(self, now: float) -> bool:
        if self._shipper.due is not None and self._shipper.due <= now:
            with self._shipping:
                self._shipper.look()
        return self._timer.must_flush(now) or self._shipper.sent_chunks.next is not None

    def _flush(self, by_size: bool) -> str | None:
        with self._shipping:
            try:
                error = self._shipper.flush()
            except Exception as failure:  # the thread must survive
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
        """Ship in this thread, after a running flush of up to 5 seconds. After `close`, stop at the first failure."""
        if self._gave_up or not self._shipping.acquire(timeout=5.0):
            return
        try:
            error = self._shipper.flush()
            self._connection.finish()
        finally:
            self._shipping.release()
        self._gave_up = error is not None and self._ending.is_set()
