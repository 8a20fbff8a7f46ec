"""A process that runs jobs, one at a time, in its main thread."""

from __future__ import annotations

import asyncio
import contextvars
import faulthandler
import mmap
import os
import signal
import socket
import threading
import time
from types import EllipsisType, FrameType
from typing import TYPE_CHECKING, Final

import msgspec
from django.core.cache import caches
from django.db import connections

from resty_django import events
from resty_django.text import logger

from ...clients.default import default_client
from ...clients.replies import JobRecord
from ...middleware.always import JobThreads
from ...middleware.job import WorkerJob
from .. import execution
from ..executor import cancel, close_loop
from ..forks import HANDLED, terminate_forks_at_end
from ..handlers import handler_of
from ..reports import stacks
from ..running_job import RunningJob
from .fork_server import DUMP_STACK, INTERRUPT
from .pipe import JobPipe, LimitRun, RunEnded, StartRun
from .slot_memory import SlotMemory

if TYPE_CHECKING:
    from ...clients.client import Client

log = logger("resty_django.qless.worker")

CLOSE_SECONDS: Final = 0.5
"""Time that the thread that receives events has to end, and that tasks on the event loop have."""


class JobProcess:
    """Runs the jobs that arrive on `connection`, for the worker of this name, until the worker closes it.

    On request, it writes the stack of the job to the file descriptor `dump`.
    """

    def __init__(self, worker: str, memory: mmap.mmap, slot: int, connection: socket.socket, dump: int) -> None:
        self.pipe = JobPipe(connection)
        self.memory = SlotMemory(memory, slot)
        self.run_number = 0
        self.retiring = False
        """Whether another process takes the place of this one after the job."""
        self._worker = worker
        self._dump = dump
        self._running: RunningJob | None = None
        """The job that an interruption raises in."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve(self) -> None:
        """Run until the worker closes the connection, or a job has asked for a new process."""
        self._handle_signals()
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)  # a read of the terminal would stop this process, which is in the background
        client = default_client()
        client.worker_name = self._worker
        terminate_forks_at_end()
        listens = start_events()
        try:
            while not self.retiring and isinstance(message := self.pipe.receive(), StartRun):
                self.run_number = message.run
                self.memory.record_start(message.run)
                self._run(client, message.queue, msgspec.convert(message.record, JobRecord))
        finally:
            if listens:
                events.stop(CLOSE_SECONDS)
            if self._loop is not None:
                close_loop(self._loop, CLOSE_SECONDS)
            connections.close_all()
            caches.close_all()

    def _run(self, client: Client, queue: str, record: JobRecord) -> None:
        """Run one job and report its end."""
        job = ProcessJob(client, record, self)
        handler = handler_of(job.klass, queue)
        running = RunningJob(job=job, queue=queue, handler=handler, started_at=time.monotonic())
        self._execute(running)
        command = None if running.command is None else running.command.pack()
        self.pipe.send(RunEnded(running.end, command, self.retiring))

    def _execute(self, running: RunningJob) -> None:
        try:
            try:
                self._running = running
                self._apply_interruption()  # one that arrived before the job
                if running.handler.is_async:
                    self._run_coroutine(running)
                else:
                    contextvars.copy_context().run(execution.run, running)
            finally:
                self._running = None
        except BaseException as error:  # raised by an interruption before the job or after it
            self._running = None
            if not running.end:
                execution.finish(running, error)

    def _run_coroutine(self, running: RunningJob) -> None:
        """Run an async job. While it waits, the stack of the thread does not show where."""
        self._dump_stacks(of_tasks=True)
        try:
            self._run_task(running)
        finally:
            self._dump_stacks(of_tasks=False)

    def _run_task(self, running: RunningJob) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_default_executor(JobThreads())
            asyncio.set_event_loop(self._loop)
        running.task = self._loop.create_task(execution.arun(running))
        if running.cause is not None:  # it arrived before the task was created
            running.task.cancel()
        self._loop.run_until_complete(running.task)

    # --- interruptions ---

    def _handle_signals(self) -> None:
        for number in (*HANDLED, signal.SIGHUP):  # sent to all processes; this one ends with the worker
            # not SIG_IGN, which programs started by a job would inherit
            signal.signal(number, _ignore)
            signal.siginterrupt(number, False)
        signal.signal(INTERRUPT, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (INTERRUPT,))
        signal.signal(DUMP_STACK, self._on_dump)
        self._dump_stacks(of_tasks=False)

    def _dump_stacks(self, *, of_tasks: bool) -> None:
        """Let `faulthandler` write the stack of the main thread on request, also while C code runs.

        `of_tasks`: call `_on_dump` after that. It is not called otherwise, so that system calls are not interrupted.
        """
        faulthandler.register(DUMP_STACK, self._dump, all_threads=False, chain=of_tasks)

    def _on_dump(self, number: int, frame: FrameType | None) -> None:
        running = self._running
        if running is not None and running.task is not None and asyncio.current_task(self._loop) is None:
            os.write(self._dump, stacks.dump_of(stacks.of_task(running.task, threading.get_ident())))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._apply_interruption()

    def _apply_interruption(self) -> None:
        """Raise the interruption of this run, or cancel the task, once."""
        running = self._running
        if running is None or running.cause is not None:
            return
        interruption = self.memory.interruption(self.run_number, running.jid)
        if interruption is None or not interruption.raises:
            return
        running.cause = interruption.cause
        if not running.handler.is_async:
            raise running.cause
        if self._loop is not None and running.task is not None:
            self._loop.call_soon_threadsafe(cancel, running)


class ProcessJob(WorkerJob):
    """A job in the process that runs it. What needs the worker's loop is replaced here."""

    __slots__ = ("_process", "_run", "_state_changed")

    def __init__(self, client: Client, record: JobRecord, process: JobProcess) -> None:
        self._process = process
        self._run = process.run_number
        super().__init__(client, record)

    @property
    def lost(self) -> bool:
        """Whether the worker has lost the job."""
        return self._process.memory.is_lost(self._run)

    @lost.setter
    def lost(self, value: bool) -> None:
        raise AttributeError("Only the worker changes this.")

    @property
    def state_changed(self) -> bool:
        """Whether this object has completed, failed, canceled, requeued or retried the job."""
        return self._state_changed

    @state_changed.setter
    def state_changed(self, value: bool) -> None:
        self._state_changed = value
        if value:
            self._process.memory.record_change(self._run)

    def limit(self, seconds: float, kill_after: float | EllipsisType | None = ...) -> None:
        """Interrupt this run with `JobTimeout`, `seconds` after its start. `kill_after`: see `Timeout`."""
        self._process.pipe.send(LimitRun(float(seconds), kill_after))

    def retire_worker(self) -> None:
        """End this process after the job; another one takes its place."""
        self._process.retiring = True


def start_events() -> bool:
    """Start receiving the site's events, such as cache invalidations. Return whether it has started."""
    try:
        events.start(wait=0)
    except Exception as error:  # jobs can run without events
        log.warning("events from other processes are not received: %s", error)
        return False
    return True


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing."""
