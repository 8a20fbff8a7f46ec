"""Sends waiting messages to the server, with retries. Uses no thread."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .buffer import Buffer, Chunk, ResendBuffer
from .options import LogOptions


@dataclass(frozen=True, slots=True)
class ShippingCounts:
    """The counts of one handler in this process, since it was created or since the fork.

    `waiting`: messages not sent yet, of `size` bytes. `sent`: messages sent, not counting repeats, which are `resent`.
    `dropped`: messages dropped because the buffer was full or because they were too long for a datagram. `failures`:
    failed flushes; `error`: the reason of the last failure, None if the last flush succeeded.
    """

    waiting: int
    size: int
    sent: int
    resent: int
    dropped: int
    failures: int
    error: str | None


class Transport(Protocol):
    """The interface of `Connection` that a shipper needs."""

    chunk: int

    @property
    def is_open(self) -> bool: ...
    def open(self) -> None: ...
    def alive(self) -> bool: ...
    def settled(self) -> bool: ...
    def send(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class Shipper:
    """Sends the buffer's messages. `clock` returns seconds; `pause` waits, unless the process is ending."""

    def __init__(
        self, options: LogOptions, transport: Transport, clock: Callable[[], float], pause: Callable[[float], object]
    ) -> None:
        self.buffer = Buffer(options.flush_limit, options.drop_limit)
        # Each message is sent at most four times, because some servers close every connection.
        self.sent_chunks = ResendBuffer(0 if options.is_udp else options.resend / 1000, options.drop_limit, times=4)
        self._is_udp = options.is_udp
        self._attempts = 1 + options.max_retry_times
        self._interval = options.retry_interval / 1000
        self._transport = transport
        self._clock = clock
        self._pause = pause
        self._sent = self._resent = self._failures = 0
        self._error: str | None = None
        self._looked = float("-inf")

    @property
    def due(self) -> float | None:
        """The time of the next `look`; None: not needed."""
        due = self.sent_chunks.due
        return None if due is None else max(due, self._looked + 0.2)  # seconds between two checks

    def flush(self) -> str | None:
        """Send everything. Return None or the last error; unsent messages are kept."""
        self._error = error = self._flush()
        if error is not None:
            self._failures += 1
        return error

    def look(self) -> None:
        """Check whether the connection is alive. If not, close it and schedule its last chunks to be sent again."""
        transport = self._transport
        if not transport.is_open:
            return
        self._looked = self._clock()
        if not transport.alive():
            self._break_off()
        elif transport.settled():
            self.sent_chunks.confirm(self._looked)

    def stats(self) -> ShippingCounts:
        buffer = self.buffer
        return ShippingCounts(
            waiting=len(buffer),
            size=buffer.size,
            sent=self._sent,
            resent=self._resent,
            dropped=buffer.dropped,
            failures=self._failures,
            error=self._error,
        )

    def _flush(self) -> str | None:
        error = ""
        for attempt in range(self._attempts):
            if attempt:
                self._pause(self._interval)
            self.look()
            self.buffer.advance()
            chunk = self._next()
            if chunk is None:
                return None
            try:
                self._connect()
            except OSError as failure:
                return f"connecting failed: {_describe(failure)}"
            try:
                while chunk is not None:
                    self._send(chunk)
                    chunk = self._next()
            except OSError as failure:
                error = f"sending failed: {_describe(failure)}"
                self._break_off()
            else:
                return None
        return error

    def _connect(self) -> None:
        for attempt in range(self._attempts):
            if self._transport.is_open:
                return
            if attempt:
                self._pause(self._interval)
            try:
                self._transport.open()
            except OSError:
                if attempt + 1 == self._attempts:
                    raise

    def _next(self) -> Chunk | None:
        return self.sent_chunks.next or self.buffer.chunk(self._transport.chunk)

    def _send(self, chunk: Chunk) -> None:
        try:
            self._transport.send(chunk.data)
        except OSError as failure:
            if self._is_udp and failure.errno == errno.EMSGSIZE:
                self.buffer.refuse(chunk)
                return
            raise
        if self.sent_chunks.next is chunk:
            self._resent += chunk.count
        else:
            self.buffer.release(chunk)
            self._sent += chunk.count
        self.sent_chunks.add(chunk, self._clock())

    def _break_off(self) -> None:
        self._transport.close()
        self.sent_chunks.recall()


def _describe(error: OSError) -> str:
    return f"{type(error).__name__}: {error}"
