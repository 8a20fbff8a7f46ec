"""Buffers of messages: those that wait, and those that may have to be sent again. Pure."""

from __future__ import annotations

import enum
import threading
from collections import deque
from dataclasses import dataclass


class AddResult(enum.Enum):
    """What `Buffer.add` did with a message."""

    KEPT = "kept"
    FLUSH = "kept; it is time for a flush"
    DROPPED = "dropped; it is time for a flush"


@dataclass(slots=True)
class Chunk:
    """Whole messages that are sent in one go. `times`: how often they were sent, the last time at `sent_at`."""

    data: bytes
    count: int
    times: int = 0
    sent_at: float = 0.0


class Buffer:
    """Messages that wait, on two levels under one bound: each attempt to send moves them to the second.

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
        """Return the number of messages that wait."""
        return len(self._arrived) + len(self._outgoing)

    def add(self, message: bytes) -> AddResult:
        """Keep a message, or drop it if it does not fit below the drop limit: the newest, not the oldest."""
        with self._lock:
            size = self.size + len(message)
            if size > self._drop_limit:
                self.dropped += 1
                return AddResult.DROPPED
            self.size = size
            self._arrived.append(message)
        return AddResult.KEPT if size < self._flush_limit else AddResult.FLUSH

    def advance(self) -> None:
        """Move what has arrived behind what is on its way."""
        with self._lock:
            arrived, self._arrived = self._arrived, deque()
        self._outgoing.extend(arrived)

    def chunk(self, limit: int) -> Chunk | None:
        """Return the next messages of the second level, together `limit` bytes at most; a longer one goes alone."""
        messages: list[bytes] = []
        size = 0
        for message in self._outgoing:
            size += len(message)
            if messages and size > limit:
                break
            messages.append(message)
        return Chunk(b"".join(messages), len(messages)) if messages else None

    def release(self, chunk: Chunk) -> None:
        """Forget the first messages of the second level: the chunk that they made was sent."""
        for _ in range(chunk.count):
            self._outgoing.popleft()
        with self._lock:
            self.size -= len(chunk.data)

    def refuse(self, chunk: Chunk) -> None:
        """As `release`, but the chunk could not be sent and never can be."""
        self.release(chunk)
        with self._lock:
            self.dropped += chunk.count


class ResendBuffer:
    """Chunks that were sent and may not have been read, in order: they are sent again when the connection breaks.

    A stream takes bytes that its reader never reads: they were in the memory of one of the two machines when the reader
    died, and no error reports it. So a chunk is kept until the connection is seen alive some time after it was sent.

    `seconds`: how much later the connection has to be alive (0: nothing is kept). `limit`: the bytes that are kept at
    most, the oldest leave first. `times`: how often a chunk is sent at most.
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
        """When it is worth while to look whether the connection is alive; None where nothing is kept."""
        return self._kept[0].sent_at + self._seconds if self._kept else None

    @property
    def next(self) -> Chunk | None:
        """The chunk to be sent again before anything else."""
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
        """Note that the connection is alive: what was sent long enough before has been read."""
        while self._kept and self._kept[0].sent_at + self._seconds <= now:
            self._forget()

    def recall(self) -> None:
        """Note that the connection is broken: chunks have to be sent again, unless they were sent often enough."""
        self._again.extendleft(chunk for chunk in reversed(self._kept) if chunk.times < self._times)
        self._kept.clear()
        self._size = 0

    def _forget(self) -> None:
        self._size -= len(self._kept.popleft().data)
