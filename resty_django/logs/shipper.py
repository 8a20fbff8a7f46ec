"""Flushes: sends the messages that wait to the server, with retries. Uses no thread."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from .buffer import Buffer, Chunk, ResendBuffer
from .options import Options

TIMES: Final = 4
"""How often a message is sent at most, where connections break each time. There are servers that end each of them."""
LOOKS: Final = 0.2
"""Seconds between two looks at a connection whose last chunks are still on their way."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The counts of one handler in one process, since the handler was created or since the fork.

    `waiting` messages of `size` bytes were not sent yet. `sent` messages were, without those sent once more, which are
    `resent`. `dropped`: those for which there was no room, or which were too long for a datagram. `failures`: flushes
    that failed; `error`: why the last one did, None when it did not.
    """

    waiting: int
    size: int
    sent: int
    resent: int
    dropped: int
    failures: int
    error: str | None


class Transport(Protocol):
    """The part of `Connection` that a shipper uses."""

    chunk: int

    @property
    def is_open(self) -> bool: ...
    def open(self) -> None: ...
    def alive(self) -> bool: ...
    def settled(self) -> bool: ...
    def send(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class Shipper:
    """`clock` gives seconds; `pause` waits for seconds, or not, where the process is about to end."""

    def __init__(
        self, options: Options, transport: Transport, clock: Callable[[], float], pause: Callable[[float], object]
    ) -> None:
        self.buffer = Buffer(options.flush_limit, options.drop_limit)
        self.sent_chunks = ResendBuffer(0 if options.is_udp else options.resend / 1000, options.drop_limit, TIMES)
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
        """When to `look`, by the clock; None: there is no need."""
        due = self.sent_chunks.due
        return None if due is None else max(due, self._looked + LOOKS)

    def flush(self) -> str | None:
        """Send everything. None, or what went wrong at last; then all that was not sent is still there."""
        self._error = error = self._flush()
        if error is not None:
            self._failures += 1
        return error

    def look(self) -> None:
        """See whether the connection is still alive; where it is not, close it, and have its last chunks sent again."""
        transport = self._transport
        if not transport.is_open:
            return
        self._looked = self._clock()
        if not transport.alive():
            self._break_off()
        elif transport.settled():
            self.sent_chunks.confirm(self._looked)

    def stats(self) -> Stats:
        buffer = self.buffer
        return Stats(
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
