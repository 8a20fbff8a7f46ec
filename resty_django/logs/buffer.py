"""The messages that wait: two levels under one bound. No I/O, no clock."""

from __future__ import annotations

import enum
import threading
from collections import deque
from dataclasses import dataclass


class Verdict(enum.Enum):
    """What became of a message."""

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
    """Messages that arrive go to the first level, each attempt to send moves them to the second.

    `size` is the bytes on both levels, and falls only when a chunk is released. `add` may be called by any thread, and
    from code that interrupts `add`; the other calls are for whoever sends, one at a time.
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
        """How many messages wait."""
        return len(self._arrived) + len(self._outgoing)

    def add(self, message: bytes) -> Verdict:
        """Keep a message. One that does not fit below the drop limit is dropped: the newest, not the oldest."""
        with self._lock:
            size = self.size + len(message)
            if size > self._drop_limit:
                self.dropped += 1
                return Verdict.DROPPED
            self.size = size
            self._arrived.append(message)
        return Verdict.KEPT if size < self._flush_limit else Verdict.FLUSH

    def advance(self) -> None:
        """Move what has arrived behind what is on its way."""
        with self._lock:
            arrived, self._arrived = self._arrived, deque()
        self._outgoing.extend(arrived)

    def chunk(self, limit: int) -> Chunk | None:
        """The next messages of the second level, together at most `limit` bytes; one that is longer goes alone."""
        taken: list[bytes] = []
        size = 0
        for message in self._outgoing:
            size += len(message)
            if taken and size > limit:
                break
            taken.append(message)
        return Chunk(b"".join(taken), len(taken)) if taken else None

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


__all__ = ["Buffer", "Chunk", "Verdict"]
