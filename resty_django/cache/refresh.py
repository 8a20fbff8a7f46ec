"""Work in the background: a daemon thread for sync code, a task of the loop for async code; one for each key."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Final

from django.db import close_old_connections

from resty_django.events.steps import Step, Steps, arun, run

MOST: Final = 16
"""Refreshes that one cache has under way in a process. What is asked for beyond that waits for a later call."""

Course = Callable[[], Steps[None]]


class Refresher:
    """Starts courses of steps that handle their own errors, and returns at once."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start_anew(self) -> None:
        """In the child of a fork, which has none of its parent's threads."""
        self._busy = set()
        self._tasks = set()

    def start(self, key: str, course: Course) -> Step:
        """The step that starts a course, where none is under way for this key."""
        return Step(self._start, self._astart, (key, course))

    def _start(self, key: str, course: Course) -> None:
        if self._take(key):
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run, args=(self._run, key, course), name="resty-cache-refresh", daemon=True
            ).start()

    async def _astart(self, key: str, course: Course) -> None:
        if self._take(key):
            task = asyncio.get_running_loop().create_task(self._arun(key, course), name="resty-cache-refresh")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _take(self, key: str) -> bool:
        if key in self._busy or len(self._busy) >= MOST:
            return False
        self._busy.add(key)
        return True

    def _run(self, key: str, course: Course) -> None:
        try:
            run(course())
        finally:
            self._busy.discard(key)
            close_old_connections()

    async def _arun(self, key: str, course: Course) -> None:
        try:
            await arun(course())
        finally:
            self._busy.discard(key)


__all__ = ["Refresher"]
