"""Bells: they wake processes that wait for entries of a journal.

A bell is a FIFO next to the file of a dictionary, made by the first process that waits. Waiting processes watch it for
new bytes and leave them there, so that one byte wakes all of them. A shared number says whether a process waits; if
none does, an entry costs only a look at the number. A process that is killed while it rings may leave others asleep, so
nobody waits long without looking.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import select
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any


def _fifo(path: Path) -> FileIO:
    return FileIO(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), "r+")


class Bell:
    """The bell of an open dictionary. `waiting`: the shared number, not 0 if a process waits."""

    def __init__(self, path: Path, waiting: memoryview) -> None:
        self.path = path
        self.waiting = waiting

    def ring(self) -> None:
        """Wake all processes that wait. Never blocks or fails."""
        self.waiting[0] = 0
        with contextlib.suppress(OSError), _fifo(self.path) as fifo:
            fifo.read(64)  # some kernels announce only the first byte of a FIFO
            fifo.write(b"\0")


class Watch:
    """Waits for several bells."""

    def __init__(self) -> None:
        self._bells: Sequence[Bell] = ()
        self._files = contextlib.ExitStack()
        self._epoll: Any = None
        self._armed = False

    def arm(self, bells: Sequence[Bell]) -> float:
        """Have the next ring of one of the bells end `wait`, also if it comes before `wait`.

        Return for how many seconds entries may still come without a ring: infinity if the bells cannot be watched.
        """
        if bells != self._bells or not all(bell.path.exists() for bell in bells):
            self.close()
            with contextlib.suppress(OSError, AttributeError):  # no descriptor left; no FIFOs here, or no epoll
                self._open(bells)
        for bell in self._bells:
            bell.waiting[0] = 1
        was_armed, self._armed = self._armed, bool(self._bells)
        if not self._armed:
            return math.inf
        return 0.0 if was_armed else 0.1  # a transaction that began before this call may commit without ringing

    def _open(self, bells: Sequence[Bell]) -> None:
        self._epoll = self._files.enter_context(select.epoll())
        for bell in bells:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(bell.path, 0o600)
            self._epoll.register(self._files.enter_context(_fifo(bell.path)), select.EPOLLIN | select.EPOLLET)
        self._epoll.poll(0)  # old bytes do not count
        self._bells = bells

    def wait(self, seconds: float) -> bool:
        """Wait for a ring. Return whether there was one."""
        rung = bool(self._epoll.poll(seconds))
        self._armed = self._armed and not rung
        return rung

    async def await_ring(self, seconds: float) -> bool:
        """Do the same as `wait`."""
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._epoll, rung.set)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), seconds)
        finally:
            loop.remove_reader(self._epoll)
        return self.wait(0)

    def close(self) -> None:
        """Forget the bells. In a forked child, this does not affect the parent."""
        self._bells, self._armed = (), False
        self._files.close()
