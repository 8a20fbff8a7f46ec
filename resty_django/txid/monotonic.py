"""Txids that always increase within a process, even if the clock jumps back."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from time import time_ns
from typing import Final

from resty_django.processes.forks import after_fork

from .codec import MAX_RANDOM, from_number

_all: Final[weakref.WeakSet[MonotonicTxid]] = weakref.WeakSet()


class MonotonicTxid:
    """A generator of strictly increasing txids, shared by all threads of a process.

    Each new millisecond starts with new random bits. Within a millisecond, and while the clock is behind, the previous
    ID is increased by one, so clients that know an ID can guess the next. If the random bits overflow, the time in the
    IDs runs ahead of the clock. A forked child continues one millisecond after its parent's last ID, with its own
    random bits. In 2109 the times wrap around, and so does the order. `clock` returns nanoseconds since 1970.

        next_txid = MonotonicTxid()
        next_txid()
    """

    def __init__(self, clock: Callable[[], int] = time_ns) -> None:
        self._clock = clock
        self._last = -1
        self._forked = False
        self._lock = threading.Lock()
        _all.add(self)

    def __call__(self) -> str:
        with self._lock:
            ms = self._clock() // 1_000_000
            if ms > self._last >> 54:
                self._last = _draw(ms)
            elif self._forked:
                self._last = _draw((self._last >> 54) + 1)
            else:
                self._last += 1
            self._forked = False
            return from_number(self._last)


def _draw(ms: int) -> int:
    return ms << 54 | int.from_bytes(os.urandom(7)) & MAX_RANDOM


def _after_fork() -> None:
    for generator in _all:
        generator._lock = threading.Lock()
        generator._forked = True


after_fork(_after_fork)
