"""When the clock asks for a flush. Pure."""

from __future__ import annotations

from typing import Final

RETRY: Final = 2.0
"""Seconds from a flush that failed to the next one, where no message causes one before."""


class Schedule:
    """`interval`: seconds between two flushes by the clock, the first one so long after `now`; None or 0: none."""

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
        """There was a flush."""
        self._retry = None if ok else now + RETRY
        self._by_size = self._by_size or by_size

    def must_flush(self, now: float) -> bool:
        """Whether it is time. A flush by size since the last tick makes the clock skip one."""
        must = self._retry is not None and self._retry <= now
        if self._tick is not None and self._tick <= now:
            self._tick = now + self._interval
            must = must or not self._by_size
            self._by_size = False
        return must


__all__ = ["Schedule"]
