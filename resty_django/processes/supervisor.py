"""Child processes of management commands: a pool that restarts them when they die."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Final

from resty_django.text import logger

from .forks import fork

log = logger("resty_django.supervisor")

ENDING: Final = (signal.SIGTERM, signal.SIGINT)
"""Signals that end a child at once until it installs its own handlers."""
MAX_RESTART_SECONDS: Final = 10.0
"""Maximum pause before a child that died is restarted. A child that lived longer starts over with the first pause."""


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """Return a function for children to call first after the fork, so that they get the signal when this process ends.

    The library is loaded here, so that between fork and exec there is only one C call and no lock to wait for.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(1, int(number), 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)

    return in_child


@contextlib.contextmanager
def noted_signals(*numbers: signal.Signals, note: Callable[[int], None]) -> Iterator[int]:
    """Call `note` with the number of each of these signals, in the main thread, while the block runs.

    Yields a file descriptor that becomes readable at each signal, so that waiting on it ends at once.
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
    """A process of `ProcessPool`. `index` stays the same when it is restarted."""

    index: int
    pid: int
    started: float
    commands: int
    reports: int
    unread: bytes = b""


class ProcessPool:
    """Forked processes with a pipe in each direction, which are restarted when they die.

    `work(index, commands, reports)` runs in the child; SIGTERM and SIGINT end the child until it handles them. It reads
    bytes from the file descriptor `commands`, which reaches end of file when the parent exits, writes lines to
    `reports`, and returns the exit code. `on_report(child, line)` is called for each line. `on_exit(child, code)` is
    called for each exit, with the exit code or the negative signal number; it returns the seconds until the restart
    (infinity: none), or None for the usual, growing pause.

    The process must have no other threads and no open resources that children must not share.
    """

    def __init__(
        self,
        title: str,
        count: int,
        work: Callable[[int, int, int], int],
        *,
        on_report: Callable[[Child, bytes], None],
        on_exit: Callable[[Child, int], float | None],
    ) -> None:
        self.title = title
        self.processes: dict[int, Child] = {}
        self.stopping = False
        """Prevents restarts; set it before you end the children."""
        self._work = work
        self._on_report = on_report
        self._on_exit = on_exit
        self._start_at = dict.fromkeys(range(count), 0.0)
        self._pauses: dict[int, float] = {}
        self._selector = selectors.DefaultSelector()

    def run(
        self,
        *signals: signal.Signals,
        on_signal: Callable[[int], None],
        on_tick: Callable[[], None],
        tick: float,
    ) -> None:
        """Keep the children running until `stopping` is set and all of them have ended.

        `on_signal` is called with the number of each signal of `signals` that this process receives, `on_tick` after
        each `tick` seconds and each signal or report.
        """
        received: deque[int] = deque()
        with noted_signals(*signals, signal.SIGCHLD, note=received.append) as wake:
            self._selector.register(wake, selectors.EVENT_READ)
            while self.processes or not self.stopping:
                self._poll(tick, wake)
                while received:
                    if (number := received.popleft()) != signal.SIGCHLD:
                        on_signal(number)
                on_tick()

    def _poll(self, seconds: float, wake: int) -> None:
        """Start children that are due, read reports and reap exits. Wait `seconds`, or until `wake` is readable."""
        now = time.monotonic()
        for index, at in list(self._start_at.items()):
            if self.stopping or now >= at:
                del self._start_at[index]
                if not self.stopping:
                    self._start(index)
        for key, _ in self._selector.select(seconds):
            if key.fd == wake:
                os.read(wake, 4096)
            else:
                self._read_reports(key.data)
        self._reap()

    def send(self, command: bytes) -> None:
        """Write bytes to all children."""
        for child in self.processes.values():
            with contextlib.suppress(OSError):  # it has just died
                os.write(child.commands, command)

    def signal(self, number: signal.Signals) -> None:
        for pid in self.processes:
            os.kill(pid, number)

    def _start(self, index: int) -> None:
        command_reader, command_writer = os.pipe()
        report_reader, report_writer = os.pipe()
        end_with_me = end_with_parent()
        gc.collect()
        gc.freeze()  # so that a full collection in a child does not copy the pages of all objects
        started = time.monotonic()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)

        def run() -> int:
            # The parent's handlers would only record the signal, and the child would never end.
            for number in ENDING:
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            end_with_me()
            siblings = (fd for child in self.processes.values() for fd in (child.commands, child.reports))
            for fd in (command_writer, report_reader, *siblings):
                os.close(fd)
            return self._work(index, command_reader, report_writer)

        pid = fork(run, partial(log.exception, "A %s process failed", self.title))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(command_reader)
        os.close(report_writer)
        os.set_blocking(report_reader, False)
        os.set_blocking(command_writer, False)
        child = self.processes[pid] = Child(index, pid, started, command_writer, report_reader)
        self._selector.register(report_reader, selectors.EVENT_READ, child)

    def _read_reports(self, child: Child) -> None:
        try:
            while data := os.read(child.reports, 65536):
                child.unread += data
        except BlockingIOError:
            pass
        *lines, child.unread = child.unread.split(b"\n")
        for line in lines:
            self._on_report(child, line)

    def _reap(self) -> None:
        for pid, child in list(self.processes.items()):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if not reaped:
                continue
            self._read_reports(child)
            self._selector.unregister(child.reports)
            os.close(child.reports)
            os.close(child.commands)
            del self.processes[pid]
            pause = self._on_exit(child, os.waitstatus_to_exitcode(status))
            if self.stopping:
                continue
            if pause is None:
                pause = self._pause(child)
                log.error("%s process %d died; restarting it in %.1f s", self.title, pid, pause)
            self._start_at[child.index] = time.monotonic() + pause

    def _pause(self, child: Child) -> float:
        """Return the seconds until the restart: 0.1, doubled each time."""
        lived = time.monotonic() - child.started
        last = 0.0 if lived > MAX_RESTART_SECONDS else self._pauses.get(child.index, 0.0)
        self._pauses[child.index] = min(2 * last or 0.1, MAX_RESTART_SECONDS)
        return self._pauses[child.index]
