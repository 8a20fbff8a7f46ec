"""Buffers for waiting messages and for messages that may have to be sent again. Pure."""

from __future__ import annotations

import enum
import threading
from collections import deque
from dataclasses import dataclass


class AddResult(enum.Enum):
    """The result of `Buffer.add`."""

    KEPT = "kept"
    FLUSH = "kept; a flush is due"
    DROPPED = "dropped; a flush is due"


@dataclass(slots=True)
class Chunk:
    """Whole messages that are sent together. `times`: number of times they were sent, the last time at `sent_at`."""

    data: bytes
    count: int
    times: int = 0
    sent_at: float = 0.0


class Buffer:
    """Waiting messages, in two levels under one size limit; each attempt to send moves them to the second level.

    `size` is the bytes on both levels, and falls only when a chunk is released. `add` may be called by any thread, and
    from code that interrupts `add`; the other calls are for the sender, one at a time.
    """

    def __init__(self, flush_limit: int, drop_limit: int) -> None:
        self.size = 0
        self.dropped = 0
        self._flush_limit = flush_limit
        self._drop_limit = drop_limit
        self._arrived: deque[bytes] = deque()
        self._outgoing: deque[bytes] = deque()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """Return the number of waiting messages."""
        return len(self._arrived) + len(self._outgoing)

    def add(self, message: bytes) -> AddResult:
        """Keep a message, or drop it if the buffer has reached the drop limit."""
        with self._lock:
            size = self.size + len(message)
            if size > self._drop_limit:
                self.dropped += 1
                return AddResult.DROPPED
            self.size = size
            self._arrived.append(message)
        return AddResult.KEPT if size < self._flush_limit else AddResult.FLUSH

    def advance(self) -> None:
        """Move new messages behind those being sent."""
        with self._lock:
            arrived, self._arrived = self._arrived, deque()
        self._outgoing.extend(arrived)

    def chunk(self, limit: int) -> Chunk | None:
        """Return the next messages of the second level, at most `limit` bytes; a longer message is sent alone."""
        messages: list[bytes] = []
        size = 0
        for message in self._outgoing:
            size += len(message)
            if messages and size > limit:
                break
            messages.append(message)
        return Chunk(b"".join(messages), len(messages)) if messages else None

    def release(self, chunk: Chunk) -> None:
        """Remove the chunk's messages from the second level after it was sent."""
        for _ in range(chunk.count):
            self._outgoing.popleft()
        with self._lock:
            self.size -= len(chunk.data)

    def refuse(self, chunk: Chunk) -> None:
        """Remove the chunk's messages because they can never be sent."""
        self.release(chunk)
        with self._lock:
            self.dropped += chunk.count


class ResendBuffer:
    """Chunks that were sent but perhaps not read, in order; they are sent again if the connection breaks.

    If the reader of a stream dies, bytes that were still in the memory of either machine are lost without an error. So
    a chunk is kept until the connection is seen alive some time after the chunk was sent.

    `seconds`: the delay after which a live connection confirms a chunk (0: nothing is kept). `limit`: maximum number of
    bytes kept, oldest dropped first. `times`: maximum number of times that a chunk is sent.
    """

    def __init__(self, seconds: float, limit: int, times: int) -> None:
        self._seconds = seconds
        self._limit = limit
        self._times = times
        self._kept: deque[Chunk] = deque()
        self._again: deque[Chunk] = deque()
        self._size = 0

    @property
    def due(self) -> float | None:
        """The time of the next useful connection check; None if nothing is kept."""
        return self._kept[0].sent_at + self._seconds if self._kept else None

    @property
    def next(self) -> Chunk | None:
        """The chunk to send again before anything else."""
        return self._again[0] if self._again else None

    def add(self, chunk: Chunk, now: float) -> None:
        """Note that a chunk was sent; if it was `next`, it no longer is."""
        if self._again and self._again[0] is chunk:
            self._again.popleft()
        if not self._seconds:
            return
        chunk.times += 1
        chunk.sent_at = now
        self._kept.append(chunk)
        self._size += len(chunk.data)
        while self._size > self._limit:
            self._forget()

    def confirm(self, now: float) -> None:
        """Note that the connection is alive, which confirms chunks that were sent long enough before."""
        while self._kept and self._kept[0].sent_at + self._seconds <= now:
            self._forget()

    def recall(self) -> None:
        """Note that the connection is broken: chunks must be sent again, up to `times`."""
        self._again.extendleft(chunk for chunk in reversed(self._kept) if chunk.times < self._times)
        self._kept.clear()
        self._size = 0

    def _forget(self) -> None:
        self._size -= len(self._kept.popleft().data)
