"""Run several processes as one: start them, start again what dies, end them all together.

For the demo. A child gets a process group of its own, so that Ctrl-C in the terminal reaches the supervisor alone,
which then ends the children in order. On Linux the kernel ends them when the supervisor itself is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from resty_django.processes import end_with_parent

GRACE: Final = 10.0
"""Seconds between SIGTERM and SIGKILL."""
LONGEST_WAIT: Final = 30.0
"""Most seconds between two starts of a child that keeps dying."""
STABLE: Final = 10.0
"""A child that lived this many seconds is started again at once when it dies."""
TICK: Final = 0.2


@dataclass(frozen=True, slots=True)
class Child:
    """A process to run. Those marked `store` are ended last, after all that may still write to them."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    store: bool = False


@dataclass(slots=True)
class _Running:
    child: Child
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0
    deaths: int = 0


class Supervisor:
    """Keep `children` running until SIGINT or SIGTERM. Only for the main thread of a process without other threads.

    `ready` is asked several times a second; once it is true, `announce` is called, once.
    """

    def __init__(
        self,
        children: Sequence[Child],
        *,
        log: Callable[[str], None],
        ready: Callable[[], bool] = lambda: True,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        self._all = [_Running(child) for child in children]
        self._log = log
        self._ready = ready
        self._announce = announce
        self._stopping = False
        self._end_with_parent = end_with_parent()

    def run(self) -> None:
        """Return after all children have ended. A signal during the end makes it no faster and does no harm."""
        with self._signals() as wake:
            announced = False
            try:
                while not self._stopping:
                    self._tend()
                    if not announced and self._ready():
                        announced = True
                        self._announce()
                    _wait(wake, TICK)
            finally:
                self._end([one for one in self._all if not one.child.store])
                self._end([one for one in self._all if one.child.store])

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Note signals, and write a byte to the yielded file descriptor at each, which ends a wait for it."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        before = {number: signal.signal(number, self._note) for number in watched}
        fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(fd_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)

    def _note(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._stopping = True

    def _tend(self) -> None:
        now = time.monotonic()
        for one in self._all:
            if one.process is not None and one.process.poll() is not None:
                self._mourn(one, now)
            if one.process is None and now >= one.start_at:
                self._start(one, now)

    def _start(self, one: _Running, now: float) -> None:
        one.process = subprocess.Popen(  # noqa: S603 (the arguments come from the program, and no shell reads them)
            one.child.argv,
            env={**os.environ, **one.child.env},
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=self._end_with_parent,
        )
        one.started = now

    def _mourn(self, one: _Running, now: float) -> None:
        assert one.process is not None  # noqa: S101 (for the type checker)
        code = one.process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        one.deaths = 0 if now - one.started >= STABLE else one.deaths + 1
        pause = min(LONGEST_WAIT, 0.5 * 2 ** (one.deaths - 1)) if one.deaths else 0.0
        one.process, one.start_at = None, now + pause
        self._log(f"{one.child.name} {how}; it starts again in {pause:.1f} s.")

    def _end(self, some: list[_Running]) -> None:
        living = [(one.child.name, one.process) for one in some if one.process is not None]
        for _, process in living:
            process.terminate()
        deadline = time.monotonic() + GRACE
        for name, process in living:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._log(f"{name} did not end within {GRACE:.0f} s; it is killed.")
                process.kill()
                process.wait()


def _wait(wake: int, seconds: float) -> None:
    if select.select([wake], [], [], seconds)[0]:
        os.read(wake, 4096)
