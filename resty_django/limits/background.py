"""One thread a process for what the way of a decision leaves out: handing in figures, looking for changed policies.

It starts with the first use and ends with the process; a child of a fork starts its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger("resty_django.limits")

LONGEST_NAP: Final = 60.0
FAREWELL: Final = 2.0
"""Seconds that the end of the process waits for what is under way."""


class Task:
    """`work` is done on the thread again and again; it returns the seconds until the next time."""

    def __init__(self, work: Callable[[], float]) -> None:
        self.work = work
        self.due: float | None = None
        """Monotonic seconds; None: not until `run_soon`."""


class Background:
    """See the module. `running` tells whether the thread has been started in this process."""

    def __init__(self) -> None:
        self.running = False
        self._ended = False
        self._tasks: list[Task] = []
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: Callable[[], float]) -> Task:
        """A task that waits for its first `run_soon`."""
        task = Task(work)
        self._tasks.append(task)
        return task

    def run_soon(self, task: Task, seconds: float = 0.0) -> None:
        """Do the work of a task in so many seconds at the latest; starts the thread."""
        due = time.monotonic() + seconds
        if task.due is None or due < task.due:
            task.due = due
            self._wake.set()
        self.start()

    def start(self) -> None:
        if self.running or self._ended:
            return
        with self._lock:
            if not self.running:
                self.running = True
                self._thread = threading.Thread(target=self._run, name="resty-limits", daemon=True)
                self._thread.start()

    def stop(self, *, ended: bool = False) -> None:
        """End the thread; it starts again with the next use unless the process has `ended`."""
        with self._lock:
            thread, self._thread, self._ended = self._thread, None, ended
            self.running = False
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(FAREWELL)

    def _run(self) -> None:
        mine = threading.current_thread()
        while self._thread is mine:
            self._wake.wait(self._nap())
            self._wake.clear()
            for task in self._tasks:
                if self._thread is mine and task.due is not None and task.due <= time.monotonic():
                    task.due = None
                    self._do(task)

    def _nap(self) -> float:
        due = [task.due for task in self._tasks if task.due is not None]
        return max(0.0, min(LONGEST_NAP, min(due) - time.monotonic())) if due else LONGEST_NAP

    def _do(self, task: Task) -> None:
        try:
            pause = task.work()
        except Exception:
            log.exception("%s failed and is tried again", getattr(task.work, "__qualname__", task.work))
            pause = 5.0
        due = time.monotonic() + pause
        if task.due is None or due < task.due:
            task.due = due

    def _in_child(self) -> None:
        self.running = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread = None


background: Final = Background()

os.register_at_fork(after_in_child=background._in_child)
atexit.register(background.stop, ended=True)

__all__ = ["Task", "background"]
