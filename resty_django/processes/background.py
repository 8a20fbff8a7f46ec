"""One background thread per process: it flushes the statistics of IDs and limits, and checks for changed policies.

It starts on first use and ends with the process; a forked child starts a new one.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Final

from resty_django.text import logger

from .forks import after_fork

log = logger("resty_django.background")


class BackgroundTask:
    """`work` is called repeatedly on the thread; it returns the seconds until the next call."""

    def __init__(self, work: Callable[[], float]) -> None:
        self.work = work
        self.due: float | None = None
        """The next run in monotonic seconds; None: not scheduled."""
        self.last: threading.Event | None = None
        """Set after the last run, once that is asked for."""


class Background:
    """The thread and its tasks. `running`: whether the thread was started in this process, for any of them."""

    def __init__(self) -> None:
        self.running = False
        self._ended = False
        self._tasks: list[BackgroundTask] = []
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: Callable[[], float]) -> BackgroundTask:
        """Return a new task, which runs after its first `run_soon`."""
        task = BackgroundTask(work)
        self._tasks.append(task)
        return task

    def run_soon(self, task: BackgroundTask, seconds: float = 0.0) -> None:
        """Run a task within `seconds`. Start the thread if necessary."""
        due = time.monotonic() + seconds
        if task.due is None or due < task.due:
            task.due = due
            self._wake.set()
        self.start()

    def finish(self, task: BackgroundTask, timeout: float) -> None:
        """Run a task now, for the last time. Wait at most `timeout` seconds for its end."""
        task.last = threading.Event()
        self.run_soon(task)
        if not self._ended:
            task.last.wait(timeout)

    def start(self) -> None:
        if self.running or self._ended:
            return
        with self._lock:
            if not self.running:
                self.running = True
                self._thread = threading.Thread(target=self._run, name="resty-background", daemon=True)
                self._thread.start()

    def stop(self, *, ended: bool = False) -> None:
        """End the thread, after waiting at most 2 seconds for a running task.

        The next use starts it again unless the process has `ended`.
        """
        with self._lock:
            thread, self._thread, self._ended = self._thread, None, ended
            self.running = False
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=2.0)

    def _run(self) -> None:
        this_thread = threading.current_thread()
        while self._thread is this_thread:
            self._wake.wait(self._nap())
            self._wake.clear()
            for task in self._tasks.copy():
                if self._thread is this_thread and task.due is not None and task.due <= time.monotonic():
                    task.due = None
                    self._do(task)

    def _nap(self) -> float:
        """Return the seconds until the next task is due, at most 60."""
        due = [task.due - time.monotonic() for task in self._tasks if task.due is not None]
        return max(0.0, min([60.0, *due]))

    def _do(self, task: BackgroundTask) -> None:
        last = task.last
        try:
            pause = task.work()
        except Exception:
            log.exception("%s failed and will be retried", getattr(task.work, "__qualname__", task.work))
            pause = 5.0
        due = time.monotonic() + pause
        if last is not None:
            self._tasks.remove(task)
            last.set()
        elif task.due is None or due < task.due:
            task.due = due

    def after_fork(self) -> None:
        """Forget the thread, and unschedule all tasks: the parent runs them."""
        self.running = False
        for task in self._tasks:
            task.due = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread = None


background: Final = Background()

after_fork(background.after_fork)
atexit.register(background.stop, ended=True)
