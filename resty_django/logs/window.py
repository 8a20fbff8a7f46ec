"""What was sent and may not have been read: it is sent again when the connection breaks. Pure.

A stream takes bytes that its reader never reads: they were in the memory of one of the two machines when the reader
died. Nobody tells. So a chunk is kept until the connection is seen alive some time after it was sent.
"""

from __future__ import annotations

from collections import deque

from .buffer import Chunk


class Window:
    """Chunks in the order in which they were sent.

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
        """The chunk was sent; if it was `next`, it no longer is."""
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
        """The connection is alive: what was sent long enough before has been read."""
        while self._kept and self._kept[0].sent_at + self._seconds <= now:
            self._forget()

    def recall(self) -> None:
        """The connection is broken: what is kept has to be sent again, but for what was sent often enough."""
        self._again.extendleft(chunk for chunk in reversed(self._kept) if chunk.times < self._times)
        self._kept.clear()
        self._size = 0

    def _forget(self) -> None:
        self._size -= len(self._kept.popleft().data)


__all__ = ["Window"]
