"""Refreshes in the background: a thread or a task asks the source while callers get the stale value."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable

from django.db import close_old_connections

from resty_django.sansio import Step, Steps, arun, run

Work = Callable[[], Steps[None]]


class Refresher:
    """Work in the background: a daemon thread for sync code, a task of the loop for asyncio; one for each key.

    The work handles its own errors.
    """

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the work of the parent, whose threads do not exist in the child."""
        self.keys: set[str] = set()
        """The keys whose work is under way."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, key: str, work: Work) -> Step:
        """Return the step that starts work, unless some is under way for this key. It does not wait for the end."""
        return Step(self._start, self._astart, (key, work))

    def _start(self, key: str, work: Work) -> None:
        if self._reserve(key):
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run, args=(self._run, key, work), name="resty-cache-refresh", daemon=True
            ).start()

    async def _astart(self, key: str, work: Work) -> None:
        if self._reserve(key):
            task = asyncio.get_running_loop().create_task(self._arun(key, work), name="resty-cache-refresh")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _reserve(self, key: str) -> bool:
        if key in self.keys or len(self.keys) >= 16:  # later calls refresh the keys beyond that
            return False
        self.keys.add(key)
        return True

    def _run(self, key: str, work: Work) -> None:
        try:
            run(work())
        finally:
            self.keys.discard(key)
            close_old_connections()

    async def _arun(self, key: str, work: Work) -> None:
        try:
            await arun(work())
        finally:
            self.keys.discard(key)
