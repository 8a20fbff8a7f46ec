"""The worker loop: reserves jobs, has them run, and reports how they ended.

    other threads ──► inbox ──► WorkerLoop ──► server
                        ▲           │
                        └── Pool ◄──┘ start(job)

The loop is the only thread that talks to the server about jobs. Other threads and signal handlers put into its inbox
what has happened: a job that has ended, or a function to call, such as `stop`. One round handles all of that, and then
sends one pipeline with the following; more pops come after it while slots are free:

- the ends of jobs; an end counts once the server has confirmed it
- heartbeats, which renew leases: when the lease of a job expires, another worker may get the job (messages to users
  call a lease the lock of the job)
- a pop, which reserves as many jobs as slots are free

| name | module | part |
|---|---|---|
| `ReservedJob` | `job` | a job that was popped, as middleware and functions get it |
| `JobHandler` | `handlers` | the function and the middleware of a job; or a `refusal`, if there is no such function |
| `RunningJob` | `running_job` | both of them, and once the job has ended, the command that reports it |
| `run`, `finish` | `execution` | call the job's function, and record how the job ended |
| `InFlightJobs` | `in_flight` | all running jobs: leases, timeouts, and ends that the server has not confirmed |
| `Pool` | `executor` | runs jobs in threads and on an event loop; its subclass in `processes` uses processes |
| `Reserver`, `PollSchedule` | `reservers` | in which order queues are polled, and when |
| `CommandBatch` | `commands` | the requests of one pipeline, each with the function that handles its reply |
| `ServerOutage` | `outage` | whether the server fails to answer, and when to call it again |
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ..clients.serialization import encode
from ..clients.transport import Request, checked
from ..errors import InvalidArgument, LostLock, QlessError, UnreadableReply
from ..outcomes import Stopping
from ..outcomes.error_text import message_of
from . import execution
from .commands import CommandBatch, FailJob
from .executor import Pool
from .handlers import handler_of
from .in_flight import InFlightJobs
from .job import ReservedJob, read_jobs
from .options import WorkerOptions
from .outage import ServerOutage, is_outage, raise_outage
from .reservers import PollSchedule, Reserver
from .running_job import MAX_REFUSALS, Inbox, RunningJob

if TYPE_CHECKING:
    from ..clients.client import Client

log = logger("resty_django.qless.worker")

MAX_JOBS_PER_POP: Final = 50
"""More jobs in one reply would block the server for too long."""
ABORT_SECONDS: Final = 2.0
"""Time that jobs have to end after an interruption, when the worker stops; and once more after they are killed."""


class ExitCode(IntEnum):
    """Exit codes of worker processes and of `manage.py runqless`.

    If a worker stops for several reasons, the highest code counts.
    """

    OK = 0
    """All jobs have ended."""
    DIED = 1
    """A process died, or ended with another code."""
    GAVE_BACK = 3
    """The grace period ended, and jobs were returned to their queues."""
    OUT_OF_MEMORY = 72
    """One process: it reached its memory limit. Another process replaces it."""
    TIMED_OUT = 73
    """One process: a job ignored its timeout. Another process replaces it."""
    STOPPED = 74
    """One process: an operator has stopped it. No other process replaces it."""
    DRAINED = 75
    """One process: no job is ready, and it runs with `burst`. No other process replaces it."""
    CONFIG = 78
    """One process: the code of the site must be changed first, so that all processes stop."""


class WorkerLoop:
    """Runs the jobs of some queues for the worker `name`.

        loop = WorkerLoop(client, "worker-1", options, options.make_reserver())
        signal.signal(signal.SIGTERM, lambda *_: loop.inbox.put(partial(loop.stop, grace=30.0)))
        sys.exit(loop.run())

    `run` blocks until the worker is stopped. Any thread may call `snapshot` and read `state`. To call another method,
    put it into the inbox, also in a signal handler: `SimpleQueue.put` is reentrant.

    - `client`: sends the commands. Its `worker_name` is `name`.
    - `reserver`: the order in which the queues are polled.
    - `make_pool`: makes the pool that runs the jobs. Jobs that have ended return through the inbox.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        options: WorkerOptions,
        reserver: Reserver,
        make_pool: Callable[[Inbox], Pool] = Pool,
    ) -> None:
        self.name = name
        self.inbox: Inbox = SimpleQueue()
        self.pool = make_pool(self.inbox)
        self.slots = options.concurrency
        """Number of jobs that run at once."""
        self.paused = False
        self.before_poll: Callable[[str], None] = lambda queue: None
        """Called with each queue before it is polled. `worker_process.build` assigns `JobListener.rearm`: the listener
        reports the jobs that are put from then on."""
        self.short_queues: set[str] = set()
        """Queues that returned fewer jobs than requested. `_fetch_due_times` asks when the next job will be due."""
        self._client = client
        self._options = options
        self._reserver = reserver
        self._schedule = PollSchedule(options.queues, options.interval)
        self.in_flight = InFlightJobs(
            name, options.queues, self.pool, options.interrupt, self._schedule.on_job_finished
        )
        self._outage = ServerOutage()
        self._next_round_at = 0.0
        """When the next round may begin, after one that failed."""
        self._faults = 0
        """Number of consecutive rounds that failed, except because of an outage of the server."""
        self._jobs_left = options.max_jobs or sys.maxsize
        """Number of jobs to start until another process takes the place of this one."""
        self._is_stopping = False
        self._deadline = float("inf")
        """When running jobs are interrupted, because the worker stops."""
        self._exit_code = ExitCode.OK

    # --- control ---

    def run(self) -> int:
        """Run until stopped. Return the exit code."""
        while self.in_flight.running or not self._is_stopping:
            self._drain_inbox(self._seconds_until_due())
            now = time.monotonic()
            self.in_flight.show_alive(now)
            is_stuck = self.in_flight.enforce_timeouts(now)
            if is_stuck:  # only the end of the process ends the thread of such a job
                self.stop(self._options.grace, ExitCode.TIMED_OUT)
            if now >= self._deadline:
                self._abort()
                break
            if now >= self._next_round_at:
                self._try_round(now)
        self.pool.close()
        try:
            self._client.deregister_workers([self.name])
        except (QlessError, StoreError) as error:
            log.warning("worker %s could not be deregistered: %s", self.name, error)
        return self._exit_code

    def stop(self, grace: float | None, code: ExitCode = ExitCode.OK) -> None:
        """Reserve no more jobs, and end after the running ones.

        `grace`: seconds after which jobs that still run are interrupted and return to their queues; None: never.
        """
        if not self._is_stopping:
            log.info("worker %s is stopping; %d jobs are running", self.name, len(self.in_flight.running))
        self._is_stopping = True
        self._exit_code = max(self._exit_code, code)
        if grace is not None:
            self._deadline = min(self._deadline, time.monotonic() + grace)

    def retire(self) -> None:
        """Let another process take the place of this one, which uses too much memory."""
        self.stop(None, ExitCode.OUT_OF_MEMORY)

    def pause(self, paused: bool) -> None:
        """Stop or resume the reservation of jobs."""
        if paused != self.paused:
            log.info("worker %s %s", self.name, "is paused" if paused else "resumes")
        self.paused = paused

    def resize(self, slots: int) -> None:
        """Run up to `slots` jobs at once from now on. Jobs that run already continue."""
        if slots != self.slots:
            log.info("worker %s runs %d jobs at once from now on, before: %d", self.name, slots, self.slots)
        self.slots = slots
        self.pool.resize(slots)

    def on_job_available(self, queue: str) -> None:
        """Poll the queue: it may have a job."""
        self._schedule.on_job_available(queue)

    def on_reconnect(self) -> None:
        """Poll all queues and verify all leases: notifications may have been missed."""
        self._schedule.poll_all()
        self.in_flight.queue_heartbeat(self.in_flight.running.values())

    @property
    def state(self) -> str:
        """Either `running`, `quiet` or `stopping`."""
        return "stopping" if self._is_stopping else "quiet" if self.paused else "running"

    def snapshot(self) -> dict[str, object]:
        """Return counts and running jobs for the display. Callable from any thread."""
        now = time.monotonic()
        jobs = [
            {
                "jid": running.jid,
                "klass": running.job.klass,
                "queue": running.queue,
                "seconds": round(now - running.started_at, 1),
            }
            for running in list(self.in_flight.running.values())
        ]
        return {"counts": dict(self.in_flight.counts), "down": self._outage.is_ongoing, "running": jobs}

    # --- one round ---

    def _seconds_until_due(self) -> float:
        """Return the seconds until there is work to do, if nothing arrives before."""
        at = self.in_flight.next_due()
        if self._free_slots():
            at = min(at, self._schedule.next_poll())
        # what a failed round could not send is due at once, so without a pause the loop would spin; but during the
        # pause, up to 5 seconds, timeouts of jobs are late
        at = max(at, self._next_round_at)
        return min(at, self._deadline) - time.monotonic()

    def _drain_inbox(self, timeout: float) -> None:
        """Process everything in the inbox; if it is empty, wait up to `timeout` seconds."""
        try:
            message = self.inbox.get(timeout=timeout) if timeout > 0 else self.inbox.get_nowait()
            while True:
                if isinstance(message, RunningJob):
                    self.in_flight.on_finished(message)
                else:
                    message()
                message = self.inbox.get_nowait()
        except Empty:
            pass

    def _try_round(self, now: float) -> None:
        """Run one round. An error, which may be due to a single job, must not end the others."""
        try:
            self._round(now)
            self._faults = 0
        except StoreError as error:
            self._next_round_at = self._outage.on_error(error)
            if self._is_stopping:
                self.in_flight.drop_expired(time.monotonic())  # a call may have taken seconds
        except Exception:
            self._faults += 1
            if self._faults >= 50:  # for at least 5 seconds; the process ends and is replaced
                raise
            log.exception("unexpected error in worker %s; continuing", self.name)
            self._next_round_at = now + 0.1

    def _round(self, now: float) -> None:
        """Send everything pending in one batch; then poll further while there are jobs and free slots."""
        if self._outage.is_ongoing:  # notifications may have been missed, and leases not renewed
            self._schedule.poll_all()
            self.in_flight.leases.check_now()
        batch = self.in_flight.build_batch(now)
        has_polled = self._add_pop(batch, now)
        if batch.requests:
            self._send_batch(batch)
        if has_polled:
            self._reserve_more(now)
        if self.short_queues and self.inbox.empty():
            self._fetch_due_times(now)
        self._tidy()
        if self._options.burst and not self._is_stopping and self._is_drained():
            self.stop(None, ExitCode.DRAINED)
        self._outage.on_success()  # at the end of the round, since a server may accept some calls and refuse others

    def _send_batch(self, batch: CommandBatch) -> None:
        """Send the batch, and process the replies."""
        try:
            replies = self._call_safely(batch.requests)
        except StoreError:
            self.in_flight.on_reply_missing(batch)
            raise
        self.in_flight.apply_replies(batch, replies)
        raise_outage(replies)
        orphans = self.in_flight.take_orphans()
        if orphans:  # the server has popped these jobs for this worker, but the reply was lost
            self._give_back(orphans)

    def _call_safely(self, requests: list[Request]) -> list[object]:
        """Return the replies; the reply to a request that failed is its error.

        If the batch cannot be sent because of one request, each is sent alone. Raises `StoreError` if the server does
        not answer; it may have executed the requests then.
        """
        try:
            return self._client.call_many(requests)
        except StoreError:
            raise
        except Exception as error:
            log.error("sending calls one by one, because the batch cannot be sent: %s", type(error).__name__)
        replies: list[object] = []
        for request in requests:
            try:
                replies += self._client.call_many([request])
            except StoreError:
                raise
            except Exception as error:
                replies.append(InvalidArgument(f"{request[0]} cannot be sent: {message_of(error)}"))
        return replies

    def _tidy(self) -> None:
        """Have the server do work that it left for later, such as releasing the many dependents of a complete job.

        Ends when nothing is left, something is in the inbox, or after 20 calls, so that heartbeats are sent in time.
        """
        for _ in range(20):
            if not self.in_flight.tidy_needed or not self.inbox.empty():
                break
            (reply,) = self._client.call_many([("tidy", self.name)])
            self.in_flight.tidy_needed = reply == 1  # 1: there is more to do

    # --- reserving jobs ---

    def _free_slots(self, ending: int = 0) -> int:
        """Return the number of jobs to request. `ending`: jobs whose ends are reported in the same batch.

        It is 0 until the pool's `min_free_share` of the slots is free, so that jobs arrive in larger batches.
        """
        if self._is_stopping or self.paused:
            return 0
        free = self.slots - len(self.in_flight.running) + ending
        if free < 1 or free < min(int(self.slots * self.pool.min_free_share), MAX_JOBS_PER_POP):
            return 0
        return min(free, MAX_JOBS_PER_POP, self._jobs_left)

    def _add_pop(self, batch: CommandBatch, now: float) -> bool:
        """Add the pop of the next queue to the batch. Return whether there was one to add."""
        free = self._free_slots(batch.ends)
        if free:
            for queue in self._reserver.order():
                if self._schedule.poll_at[queue] <= now:
                    self._reserver.on_poll(queue)
                    self.before_poll(queue)
                    batch.add(("pop", queue, self.name, free), on_reply=partial(self._apply_pop, queue, free, now))
                    return True
        return False

    def _reserve_more(self, now: float) -> None:
        """Poll until all slots are taken, all queues are empty, or something else has happened."""
        while self.inbox.empty() and self._add_pop(batch := CommandBatch(), now):
            replies = self._client.call_many(batch.requests)
            batch.apply(replies)
            raise_outage(replies)

    def _apply_pop(self, queue: str, count: int, now: float, reply: bytes | Exception) -> None:
        """Start the jobs in the reply to a pop that requested `count` jobs."""
        try:
            jobs, unreadable = read_jobs(checked(reply), partial(ReservedJob, self._client, self))
        except (QlessError, StoreError) as error:
            if not is_outage(error):  # an outage is raised once all replies are processed
                log.error("popping jobs from the queue %s failed: %s", queue, error)
            self._schedule.on_short_reply(queue, now)
            return
        if len(jobs) + len(unreadable) < count:
            self._schedule.on_short_reply(queue, now)
            self.short_queues.add(queue)
        else:
            self._schedule.on_full_reply(queue)
        for job in jobs:
            self._start(job, queue, now)
        if unreadable:
            self._fail_unreadable(queue, unreadable)

    def _start(self, job: ReservedJob, queue: str, now: float) -> None:
        """Have the pool run the job; if its class cannot be run, fail it."""
        running = RunningJob(job=job, queue=queue, handler=handler_of(job.klass, queue), started_at=now)
        self.in_flight.add(running, now)
        if running.handler.refusal is None:
            self.pool.start(running)
        else:
            execution.finish(running, running.handler.refusal)
            self.in_flight.settle(running)
        self._jobs_left -= 1
        if not self._jobs_left:
            self.stop(None)

    def _fail_unreadable(self, queue: str, errors: dict[str, UnreadableReply]) -> None:
        """Fail jobs that cannot be read. `errors`: by jid. This calls the server at once, since it is rare."""
        log.error("failing unreadable jobs of the queue %s: %s", queue, ", ".join(errors))
        group = f"{queue}-{UnreadableReply.__name__}"
        failures = [
            FailJob(jid=jid, worker=self.name, group=group, message=message_of(error)) for jid, error in errors.items()
        ]
        self._client.call_many([failure.request for failure in failures])

    def _fetch_due_times(self, now: float) -> None:
        """Ask the server when the queues that returned fewer jobs than requested may have more."""
        queues, self.short_queues = sorted(self.short_queues), set()
        for queue in queues:
            self.before_poll(queue)  # jobs put from here on are in the reply or trigger a notification
        wall_clock = time.time()
        for queue, reply in zip(queues, self._client.call_many([("due", queue) for queue in queues]), strict=True):
            if not isinstance(reply, Exception):
                self._schedule.set_due(queue, None if reply is None else float(reply) - wall_clock, now)

    def _is_drained(self) -> bool:
        """Return whether no job runs here and the server has no job that is ready, in any of the queues."""
        if self.in_flight.running or self.in_flight.tidy_needed:
            return False
        replies = self._client.call_many([("due", queue) for queue in self._options.queues])
        raise_outage(replies)
        due = [0.0 if isinstance(reply, Exception) else float(reply) for reply in replies if reply is not None]
        return min(due, default=math.inf) > time.time()

    # --- stopping ---

    def _abort(self) -> None:
        """Interrupt the running jobs, report those that have ended, and return the others to their queues."""
        self._interrupt_jobs()
        try:
            self._report_and_return()
        except StoreError as error:
            self._exit_code = max(self._exit_code, ExitCode.GAVE_BACK)
            count = len(self.in_flight.running)
            log.error("%d jobs could not be returned and wait until their locks expire: %s", count, error)

    def _interrupt_jobs(self) -> None:
        """Interrupt the running jobs, and wait until they end. If the pool can, kill those that do not."""
        held = self.in_flight.running
        for running in held.values():
            self.pool.interrupt(running, Stopping(), in_thread=self._options.interrupt)
        self._drain_while(lambda: any(map(self._may_end, held.values())))
        if self.pool.can_kill:  # before the jobs return to their queues, where other workers take them
            killed = [running for running in held.values() if not running.end]
            for running in killed:
                self.pool.kill(running)
            self._drain_while(lambda: not all(running.end for running in killed))

    def _report_and_return(self) -> None:
        """Report the ends of jobs, and return the jobs that have not ended to their queues."""
        for _ in range(MAX_REFUSALS):  # an end that the server refuses is replaced by a simpler one, sent next time
            batch = self.in_flight.pending_commands()
            self.in_flight.apply_replies(batch, self._call_safely(batch.requests) if batch.requests else ())
        held = self.in_flight.running
        jids = [jid for jid, running in held.items() if not isinstance(running.cause, LostLock)]
        if jids:
            self._exit_code = max(self._exit_code, ExitCode.GAVE_BACK)
            self.in_flight.counts["returned"] += len(jids)
            self._give_back(jids, "worker stopped")

    def _may_end(self, running: RunningJob) -> bool:
        """Return whether to wait for the job: a thread that cannot be interrupted may run forever."""
        return not running.end and (running.handler.is_async or self._options.interrupt)

    def _drain_while(self, condition: Callable[[], bool]) -> None:
        """Process the inbox while the condition holds, for up to `ABORT_SECONDS`."""
        until = time.monotonic() + ABORT_SECONDS
        while condition() and time.monotonic() < until:
            self._drain_inbox(0.05)

    def _give_back(self, jids: list[str], why: str = "") -> None:
        """Return jobs to their queues, ahead of all others and with all their retries, unless their lease is lost.

        `why`: an entry for their histories.
        """
        # the command `timeout` returns a job to its queue, even if another worker holds its lease; a heartbeat shows
        # whether this worker holds it
        replies = self._client.call_many([("heartbeat", jid, self.name) for jid in jids])
        raise_outage(replies)
        leased = [jid for jid, reply in zip(jids, replies, strict=True) if not isinstance(reply, Exception)]
        if leased:
            logs = [("log", jid, why, encode({"worker": self.name})) for jid in leased] if why else []
            raise_outage(self._client.call_many([*logs, *(("timeout", jid) for jid in leased)]))
            log.info("returned to their queues: %s", ", ".join(leased))
