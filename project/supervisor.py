"""Run several processes as one: start them, restart those that die, and end them together.

For the demo. Each child has its own process group, so that Ctrl-C in the terminal reaches only the supervisor, which
then ends the children in order. The kernel ends them if the supervisor itself is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from resty_django.processes.supervisor import end_with_parent, noted_signals

GRACE: Final = 10.0
"""Seconds between SIGTERM and SIGKILL."""
LONGEST_WAIT: Final = 30.0
"""Maximum seconds between restarts of a child that keeps dying."""
STABLE: Final = 10.0
"""A child that lived for this number of seconds is restarted immediately when it dies."""
TICK: Final = 0.2


@dataclass(frozen=True, slots=True)
class Child:
    """A process to run."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    store: bool = False
    """Whether it is ended last, after all children that may still write to it."""
    late: bool = False
    """Whether it is started after the others are ready."""
    log: Path | None = None
    """The file for its output, which is emptied when the supervisor starts. None: the supervisor's own output."""


@dataclass(slots=True)
class _Running:
    child: Child
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0
    deaths: int = 0


class Supervisor:
    """Keep `children` running until SIGINT or SIGTERM. Only for the main thread of a process without other threads.

    `ready` is called several times per second; when it returns True, `announce` is called once.
    """

    def __init__(
        self,
        children: Sequence[Child],
        *,
        log: Callable[[str], None],
        ready: Callable[[], bool] = lambda: True,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        self._services = [_Running(child) for child in children]
        self._log = log
        self._ready = ready
        self._announce = announce
        self._announced = False
        self._stopping = False
        self._end_with_parent = end_with_parent()

    def run(self, *preparations: Callable[[], object]) -> None:
        """Call the preparations, then run the children. Return after all children have ended.

        A signal during a preparation skips the rest; a signal during shutdown has no effect. An exception of a
        preparation is raised before any child is started.
        """
        watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        with noted_signals(*watched, note=self._note) as wake:
            for prepare in preparations:
                if not self._stopping:
                    prepare()
            for service in self._services:
                if service.child.log is not None:
                    service.child.log.write_bytes(b"")
            try:
                while not self._stopping:
                    self._tend()
                    if not self._announced and self._ready():
                        self._announced = True
                        self._announce()
                    _wait(wake, TICK)
            finally:
                self._end([service for service in self._services if not service.child.store])
                self._end([service for service in self._services if service.child.store])

    def _note(self, number: int) -> None:
        if number != signal.SIGCHLD:
            self._stopping = True

    def _tend(self) -> None:
        now = time.monotonic()
        for service in self._services:
            if service.process is not None and service.process.poll() is not None:
                self._mourn(service, now)
            if service.process is None and now >= service.start_at and (self._announced or not service.child.late):
                self._start(service, now)

    def _start(self, service: _Running, now: float) -> None:
        child = service.child
        with child.log.open("ab") if child.log is not None else contextlib.nullcontext() as output:
            service.process = subprocess.Popen(  # noqa: S603 (the program names the arguments, and no shell reads them)
                child.argv,
                env={**os.environ, **child.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                process_group=0,
                preexec_fn=self._end_with_parent,
            )
        service.started = now

    def _mourn(self, service: _Running, now: float) -> None:
        assert service.process is not None  # noqa: S101 (for the type checker)
        code = service.process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        service.deaths = 0 if now - service.started >= STABLE else service.deaths + 1
        pause = min(LONGEST_WAIT, 0.5 * 2 ** (service.deaths - 1)) if service.deaths else 0.0
        service.process, service.start_at = None, now + pause
        see = "" if service.child.log is None else f" See {service.child.log}."
        self._log(f"{service.child.name} {how}; restarting it in {pause:.1f} s.{see}")

    def _end(self, services: list[_Running]) -> None:
        living = [(service.child.name, service.process) for service in services if service.process is not None]
        for _, process in living:
            process.terminate()
        deadline = time.monotonic() + GRACE
        for name, process in living:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._log(f"{name} did not end within {GRACE:.0f} s; killing it.")
                process.kill()
                process.wait()


def _wait(wake: int, seconds: float) -> None:
    if select.select([wake], [], [], seconds)[0]:
        os.read(wake, 4096)
