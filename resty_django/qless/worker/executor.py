"""Execution of jobs: sync jobs in threads, async jobs on an event loop in its own thread.

A job is passed to `start`, and returns through the worker loop's inbox when it has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Sequence
from queue import SimpleQueue

from resty_django.text import logger

from ..clients.worker_reports import Frame
from ..middleware.always import JobThreads
from ..outcomes.interruption import checkpoint, raise_in_thread
from . import execution
from .reports import stacks
from .running_job import Inbox, RunningJob

log = logger("resty_django.qless.worker")


class Pool:
    """Runs jobs in threads and on an event loop, both created on demand. Threads are reused and never end."""

    min_free_share = 0.0
    """The share of slots that must be free before more jobs are reserved."""
    kill_after = 5.0
    """Seconds that a job has to end after its timeout, unless its middleware says otherwise."""
    can_kill = False
    """Whether `kill` can end a job that ignores its interruption."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self._tasks: SimpleQueue[RunningJob | None] = SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._raising = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None

    def start(self, running: RunningJob) -> None:
        """Run a job, in the next free thread or on the event loop."""
        if running.handler.is_async:
            loop = self._loop or self._open_loop()
            loop.call_soon_threadsafe(self._begin, running)
            return
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"qless-job-{self._threads}", daemon=True).start()
        self._tasks.put(running)

    def ended(self, running: RunningJob) -> None:
        """Free the slot of a job that has returned."""
        if not running.handler.is_async:
            self._busy -= 1

    def interrupt(self, running: RunningJob, cause: Exception, *, in_thread: bool) -> None:
        """Raise `cause` in the job: an async job is cancelled; a sync job gets it at its next line if `in_thread`.

        Either way it becomes `running.cause`. Only the first cause counts.
        """
        if running.cause is not None:
            return
        if running.handler.is_async:
            running.cause = cause
            if self._loop is not None:
                self._loop.call_soon_threadsafe(cancel, running)
            return
        with self._raising:
            running.cause = cause
            if in_thread and running.thread:
                raise_in_thread(running.thread, type(cause))

    def kill(self, running: RunningJob) -> None:
        """End a job by force; it returns through the inbox. Only for pools that `can_kill`."""
        raise NotImplementedError

    def state_changed(self, running: RunningJob) -> bool:
        """Return whether the job has ended its lease itself, for example by `job.complete()`."""
        return bool(running.job.state_changed)

    def resize(self, slots: int) -> None:
        """Prepare for running up to `slots` jobs at once. Here, threads are started when they are needed."""

    def stacks(self, jobs: Sequence[RunningJob]) -> dict[RunningJob, list[Frame]]:
        """Return the stacks of running jobs, without jobs that have not begun. Callable from any thread."""
        loop_thread = 0 if self._loop_thread is None else self._loop_thread.ident or 0
        return {
            running: stacks.of_task(running.task, loop_thread)
            if running.handler.is_async
            else stacks.of_thread(running.thread)
            for running in jobs
        }

    def close(self) -> None:
        """Close the event loop after its jobs. Threads end with the process."""
        for _ in range(self._threads):
            self._tasks.put(None)
        if self._loop is not None and self._loop_thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join(timeout=5.0)

    # --- in a thread of a sync job ---

    def _work(self) -> None:
        thread = threading.get_ident()
        while (running := self._tasks.get()) is not None:
            running.thread = thread
            try:
                try:
                    contextvars.copy_context().run(execution.run, running)
                finally:
                    with self._raising:
                        running.thread = 0
            except BaseException as error:  # raised by `interrupt` after the job had ended
                if not running.end:
                    execution.finish(running, error)
            if running.cause is not None:
                try:
                    checkpoint()
                except type(running.cause):  # set after the job had ended
                    pass
            self.inbox.put(running)
            running = None

    # --- in the thread of the loop ---

    def _open_loop(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(JobThreads())
        self._loop_thread = threading.Thread(target=self._serve, args=(self._loop,), name="qless-loop", daemon=True)
        self._loop_thread.start()
        return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            close_loop(loop, 2.5)

    def _begin(self, running: RunningJob) -> None:
        running.task = asyncio.get_running_loop().create_task(self._run(running))
        if running.cause is not None:  # it arrived before the task was created
            running.task.cancel()

    async def _run(self, running: RunningJob) -> None:
        try:
            await execution.arun(running)
        except BaseException as error:
            if not running.end:
                execution.finish(running, error)
        self.inbox.put(running)


def cancel(running: RunningJob) -> None:
    """Cancel the task of an async job. Called in the event loop."""
    if running.task is not None and not running.task.done():
        running.task.cancel()


def close_loop(loop: asyncio.AbstractEventLoop, timeout: float) -> None:
    """Cancel what jobs have left on the event loop, wait up to `timeout` seconds for it, and close the loop."""
    try:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=timeout))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
