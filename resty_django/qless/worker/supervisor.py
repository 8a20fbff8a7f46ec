"""The parent of the worker processes: starts them, starts again what dies, hands on signals."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from django.core.cache import caches
from django.db import connections

from resty_django.processes import Child, Children, noted_signals

from .codes import DIED, GAVE_BACK, OK, OUT_OF_MEMORY, RENEWED, TIMED_OUT
from .desk import ABORTING
from .options import Options
from .process import NOW, PAUSE, QUIT, RESUME, STOP, serve

log = logging.getLogger("resty_django.qless.worker")

TICK: Final = 0.5
KILL_AFTER: Final = ABORTING + 5.0
"""Seconds that a process has to end, after the grace time, before it is killed."""


class Supervisor:
    """`display`, if any, is called twice a second with this object, for `--live`."""

    def __init__(self, options: Options, display: Callable[[Supervisor], None] | None = None) -> None:
        self.options = options
        self.paused = False
        self.stopping = False
        self.snapshots: dict[int, dict[str, Any]] = {}
        """The latest of each living process, by its pid."""
        self.gone: Counter[str] = Counter()
        """What processes that have ended had counted."""
        self._display = display
        self._code = OK
        self._kill_at: dict[int, float] = {}
        """When to kill a process, by its pid."""
        self._signals: list[int] = []
        self._children = Children("worker", options.processes, self._work, heard=self._heard, ended=self._ended)

    def run(self) -> int:
        """Until SIGTERM, SIGINT or SIGQUIT. Returns the exit code."""
        connections.close_all()
        caches.close_all()
        watched = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT]
        with noted_signals(*watched, signal.SIGCHLD, note=self._signals.append) as wake:
            while self._children.living or not self.stopping:
                self._children.tend(TICK, wake)
                for number in self._signals[:]:
                    self._signals.remove(number)
                    self._obey(number)
                for pid, at in self._kill_at.items():
                    if time.monotonic() >= at and pid in self._children.living:
                        os.kill(pid, signal.SIGKILL)
                if self._display is not None:
                    self._display(self)
        return self._code

    def _obey(self, number: int) -> None:
        tell = self._children.tell
        if number in (signal.SIGTERM, signal.SIGINT):
            grace = 0.0 if self.stopping else self.options.grace
            tell(NOW if self.stopping else STOP)
            self._stop(grace)
        elif number == signal.SIGQUIT:
            tell(QUIT)
            self._stop(None)
        elif number == signal.SIGUSR1:
            tell(NOW)
            self._kill_in(KILL_AFTER)
        elif number in (signal.SIGUSR2, signal.SIGCONT):
            self.paused = number == signal.SIGUSR2
            tell(PAUSE if self.paused else RESUME)

    def _stop(self, grace: float | None) -> None:
        self.stopping = self._children.stopping = True
        if grace is not None:
            self._kill_in(grace + KILL_AFTER)

    def _kill_in(self, seconds: float) -> None:
        """Those that live now, if they have not ended by then."""
        at = time.monotonic() + seconds
        for pid in self._children.living:
            self._kill_at[pid] = min(at, self._kill_at.get(pid, at))

    def _work(self, index: int, commands: int, reports: int) -> int:
        return serve(self.options, commands, reports if self._display is not None else None, paused=self.paused)

    def _heard(self, child: Child, line: bytes) -> None:
        with contextlib.suppress(ValueError):
            self.snapshots[child.pid] = json.loads(line)

    def _ended(self, child: Child, code: int) -> float | None:
        last = self.snapshots.pop(child.pid, None)
        if last is not None:
            self.gone.update(last["counts"])
        self._kill_at.pop(child.pid, None)
        if self.stopping:
            if code in (OK, GAVE_BACK):
                self._code = max(self._code, code)
            elif code not in (OUT_OF_MEMORY, TIMED_OUT):
                log.error("worker process %d ended with %d", child.pid, code)
                self._code = self._code or DIED
            return None
        if code in RENEWED:
            log.info("worker process %d has ended with %d, another one starts", child.pid, code)
            return 0.0
        return None


__all__ = ["Supervisor"]
