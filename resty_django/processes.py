"""Helpers for commands that have child processes."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Final

log = logging.getLogger("resty_django.processes")

_PR_SET_PDEATHSIG: Final = 1

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
"""Seconds before a child that died is started again: the first time, and at most; also how long a child has to live for
the pause to be the first again."""


def end_with_parent() -> Callable[[], None]:
    """What a child of this process calls first after the fork, to be sent SIGTERM when this process ends in any way.

    Linux alone can do that; elsewhere the call does nothing. The library is loaded here, so that between fork and
    exec there is one call of C and nothing to lock.
    """
    if not sys.platform.startswith("linux"):
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


@contextlib.contextmanager
def noted_signals(*numbers: signal.Signals, note: Callable[[int], None]) -> Iterator[int]:
    """Call `note` with the number of each of these signals, in the main thread.

    Yields a file descriptor that becomes readable at each, so that a wait for it ends at once.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)

    def handler(number: int, frame: FrameType | None) -> None:
        note(number)

    before = {number: signal.signal(number, handler) for number in numbers}
    fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, old in before.items():
            signal.signal(number, old)
        os.close(reader)
        os.close(writer)


@dataclass(slots=True)
class Child:
    """A process of `Children`. `index` stays the same when it is started again."""

    index: int
    pid: int
    started: float
    commands: int
    reports: int
    unread: bytes = b""


class Children:
    """Forked processes with a pipe to each and one back, which are started again when they die.

    `work(index, commands, reports)` runs in the child: it reads bytes from the file descriptor `commands`, whose end
    tells that the parent is gone, writes lines to `reports`, and returns the exit code. `heard(child, line)` gets each
    line, `ended(child, code)` each end, with the exit code or minus the number of the signal; it returns the seconds
    until the child is started again, None for the usual pause, which grows.

    The process must have no other threads, and nothing open that must not be shared.
    """

    def __init__(
        self,
        title: str,
        count: int,
        work: Callable[[int, int, int], int],
        *,
        heard: Callable[[Child, bytes], None],
        ended: Callable[[Child, int], float | None],
    ) -> None:
        self.title = title
        self.living: dict[int, Child] = {}
        self.stopping = False
        """None is started again; to be set by whoever ends them."""
        self._work = work
        self._heard = heard
        self._ended = ended
        self._start_at = dict.fromkeys(range(count), 0.0)
        self._pauses: dict[int, float] = {}
        self._selector = selectors.DefaultSelector()

    def tend(self, seconds: float, wake: int | None = None) -> None:
        """Start who is to be started, hear reports, note who has ended; waits so long, or until `wake` is readable."""
        now = time.monotonic()
        for index, at in list(self._start_at.items()):
            if self.stopping or now >= at:
                del self._start_at[index]
                if not self.stopping:
                    self._start(index)
        if wake is not None:
            with contextlib.suppress(KeyError):  # it is registered already
                self._selector.register(wake, selectors.EVENT_READ)
        for key, _ in self._selector.select(seconds):
            if key.fd == wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, 4096)
            else:
                self._hear(key.data)
        self._reap()

    def tell(self, command: bytes) -> None:
        """Write to all of them."""
        for child in self.living.values():
            with contextlib.suppress(OSError):  # it has just died
                os.write(child.commands, command)

    def signal(self, number: signal.Signals) -> None:
        for pid in self.living:
            os.kill(pid, number)

    def _start(self, index: int) -> None:
        commands, telling = os.pipe()
        reports, reporting = os.pipe()
        end_with_me = end_with_parent()
        started = time.monotonic()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                end_with_me()
                signal.set_wakeup_fd(-1)
                for other in (telling, reports, *(fd for c in self.living.values() for fd in (c.commands, c.reports))):
                    os.close(other)
                code = self._work(index, commands, reporting)
            except BaseException:
                log.exception("a %s process failed", self.title)
            finally:
                logging.shutdown()
                with contextlib.suppress(OSError, ValueError):
                    sys.stdout.flush()
                os._exit(code)
        os.close(commands)
        os.close(reporting)
        os.set_blocking(reports, False)
        os.set_blocking(telling, False)
        child = self.living[pid] = Child(index, pid, started, telling, reports)
        self._selector.register(reports, selectors.EVENT_READ, child)

    def _hear(self, child: Child) -> None:
        try:
            while data := os.read(child.reports, 65536):
                child.unread += data
        except BlockingIOError:
            pass
        *lines, child.unread = child.unread.split(b"\n")
        for line in lines:
            self._heard(child, line)

    def _reap(self) -> None:
        for pid, child in list(self.living.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if not found:
                continue
            self._hear(child)
            self._selector.unregister(child.reports)
            os.close(child.reports)
            os.close(child.commands)
            del self.living[pid]
            pause = self._ended(child, os.waitstatus_to_exitcode(status))
            if self.stopping:
                continue
            if pause is None:
                pause = self._pause(child)
                log.error("%s process %d died; it is started again in %.1f s", self.title, pid, pause)
            self._start_at[child.index] = time.monotonic() + pause

    def _pause(self, child: Child) -> float:
        lived = time.monotonic() - child.started
        pause = FIRST_PAUSE if lived > LONGEST_PAUSE else self._pauses.get(child.index, FIRST_PAUSE / 2) * 2
        self._pauses[child.index] = min(pause, LONGEST_PAUSE)
        return self._pauses[child.index]


__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "Child", "Children", "end_with_parent", "noted_signals"]
