"""The parent of the worker processes: starts them, replaces dead ones, and forwards signals."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from django.core.cache import caches
from django.db import connections

from resty_django.processes.supervisor import Child, ProcessPool
from resty_django.text import logger

from ..worker.heartbeat import StandIn
from ..worker.loop import ABORT_SECONDS, MAX_JOBS_PER_POP, ExitCode
from ..worker.options import WorkerOptions
from .worker_process import ParentCommand, serve

log = logger("resty_django.qless.worker")

KILL_AFTER_SECONDS: Final = ABORT_SECONDS + 5.0
"""Time after the grace period until a process is killed."""
NOT_REPLACED: Final = (ExitCode.STOPPED, ExitCode.DRAINED)


class Supervisor:
    """Runs the worker processes. `display`, if any, is called twice a second with this object, for `--live`."""

    def __init__(self, options: WorkerOptions, display: Callable[[Supervisor], None] | None = None) -> None:
        self.options = options
        self.paused = False
        self.stopping = False
        self.snapshots: dict[int, dict[str, Any]] = {}
        """The latest snapshot of each living process, by pid."""
        self.ended_counts: Counter[str] = Counter()
        """The counts of ended processes."""
        self._display = display
        self._code: int = ExitCode.OK
        self._kill_at: dict[int, float] = {}
        """When to kill each process, by pid."""
        self._dead: deque[int] = deque(maxlen=100)
        """Processes that have died, for the next ones to deregister."""
        self._kept: dict[int, dict[str, Any]] = {}
        """By index: the state that an operator gave a process. The process that replaces it starts in it."""
        self._ended: set[int] = set()
        """Indices of processes that no other process replaces."""
        count = options.processes if options.pool == "threads" else 0
        self._stand_ins = {index: StandIn(options.max_slots + MAX_JOBS_PER_POP) for index in range(count)}
        """By index: what sends the heartbeats of a process whose interpreter is blocked."""
        self._children = ProcessPool(
            "worker", options.processes, self._work, on_report=self._on_report, on_exit=self._on_exit
        )

    def run(self) -> int:
        """Run until SIGTERM, SIGINT or SIGQUIT. Return the exit code."""
        connections.close_all()
        caches.close_all()
        watched = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
        self._children.run(*watched, on_signal=self._handle_signal, on_tick=self._on_tick, tick=0.5)
        return self._code

    def _on_tick(self) -> None:
        for pid, at in self._kill_at.items():
            if time.monotonic() >= at and pid in self._children.processes:
                os.kill(pid, signal.SIGKILL)
        for pid, child in self._children.processes.items():
            if child.index in self._stand_ins:
                self._stand_ins[child.index].check(f"{self.options.name}-{pid}", pid, time.monotonic())
        if self._display is not None:
            self._display(self)

    def _handle_signal(self, number: int) -> None:
        send = self._children.send
        if number in (signal.SIGTERM, signal.SIGINT):
            grace = 0.0 if self.stopping else self.options.grace
            send(ParentCommand.NOW if self.stopping else ParentCommand.STOP)
            self._stop(grace)
        elif number == signal.SIGQUIT:
            send(ParentCommand.QUIT)
            self._stop(None)
        elif number == signal.SIGUSR1:
            send(ParentCommand.NOW)
            self._kill_in(KILL_AFTER_SECONDS)
        elif number in (signal.SIGUSR2, signal.SIGCONT):
            self.paused = number == signal.SIGUSR2
            for kept in self._kept.values():
                kept["paused"] = self.paused
            send(ParentCommand.PAUSE if self.paused else ParentCommand.RESUME)

    def _stop(self, grace: float | None) -> None:
        self.stopping = self._children.stopping = True
        if grace is not None:
            self._kill_in(grace + KILL_AFTER_SECONDS)

    def _kill_in(self, seconds: float) -> None:
        """Kill the current processes if they have not ended in `seconds`."""
        at = time.monotonic() + seconds
        for pid in self._children.processes:
            self._kill_at[pid] = min(at, self._kill_at.get(pid, at))

    def _work(self, index: int, commands: int, reports: int) -> int:
        living = {*self._children.processes, os.getpid()}
        dead = [f"{self.options.name}-{pid}" for pid in self._dead if pid not in living]
        kept = {"paused": self.paused, "slots": self.options.concurrency, **self._kept.get(index, {})}
        shown = self._display is not None
        stand_in = self._stand_ins.get(index)
        return serve(self.options, commands, reports, stand_in=stand_in, shown=shown, dead=dead, **kept)

    def _on_report(self, child: Child, line: bytes) -> None:
        with contextlib.suppress(ValueError):
            report = json.loads(line)
            if "kept" in report:
                self._kept[child.index] = report["kept"]
            else:
                self.snapshots[child.pid] = report

    def _on_exit(self, child: Child, code: int) -> float | None:
        last = self.snapshots.pop(child.pid, None)
        if last is not None:
            self.ended_counts.update(last["counts"])
        self._kill_at.pop(child.pid, None)
        if child.index in self._stand_ins:
            self._stand_ins[child.index].worker_ended()
        if code != ExitCode.OK:
            self._dead.append(child.pid)
        if code == ExitCode.CONFIG:  # another process would stop for the same reason
            self._code = ExitCode.CONFIG
            if not self.stopping:
                self._children.send(ParentCommand.STOP)
                self._stop(self.options.grace)
            return None
        if self.stopping:
            if code in (ExitCode.OK, ExitCode.GAVE_BACK):
                self._code = max(self._code, code)
            elif code not in (ExitCode.OUT_OF_MEMORY, ExitCode.TIMED_OUT, *NOT_REPLACED):
                log.error("worker process %d ended with exit code %d", child.pid, code)
                self._code = self._code or ExitCode.DIED
            return None
        if code in NOT_REPLACED:
            if code == ExitCode.STOPPED:
                log.warning("worker process %d was stopped by an operator and is not replaced", child.pid)
            self._ended.add(child.index)
            if len(self._ended) == self.options.processes:
                self._stop(None)
            return math.inf
        if code in (ExitCode.OK, ExitCode.GAVE_BACK, ExitCode.OUT_OF_MEMORY, ExitCode.TIMED_OUT):
            log.info("worker process %d ended with exit code %d; starting another one", child.pid, code)
            return 0.0
        return None
