"""The loop of a worker process: the one thread that talks to the server about jobs.

It takes events from its inbox (a job has ended, a job was put, a signal arrived) and sends one pipeline for all of
them: the ends of jobs, heartbeats, and a pop for the free slots. An end counts once the server has confirmed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ..clients.serialization import encode
from ..clients.transport import Request, is_refusal
from ..errors import InvalidArgument, LostLock, QlessError, UnreadableReply
from ..outcomes import Stopping
from ..outcomes.error_text import message_of
from . import execution
from .commands import CommandBatch, FailJob
from .executor import Pool
from .exit_codes import GAVE_BACK, OK, TIMED_OUT
from .handlers import REFUSED, resolve_handler
from .in_flight import InFlightJobs
from .job import WorkerJob, jobs_of
from .options import Options
from .reservers import PollSchedule, Reserver
from .running_job import RETURNED, RunningJob

if TYPE_CHECKING:
    from ..clients.client import Client

log = logger("resty_django.qless.worker")

MAX_JOBS_PER_POP: Final = 50
"""Maximum number of jobs in one pop; more would block the server for too long."""
MAX_TIDY_CALLS: Final = 20
"""Maximum number of consecutive `tidy` calls before the worker attends to its own jobs again."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds before a server that did not answer is called again: at first, and at most."""
ABORT_TIMEOUT: Final = 2.0
"""Seconds that interrupted jobs have to end."""
MAX_FAULTS: Final = 50
"""Consecutive rounds of the loop that may fail before the process ends and is replaced."""
SERVER_ERRORS: Final = (QlessError, StoreError)


class WorkerLoop:
    """Reserves jobs for the worker `name`, has the pool run them, and reports how they ended."""

    def __init__(
        self,
        client: Client,
        name: str,
        options: Options,
        reserver: Reserver,
        make_pool: Callable[[SimpleQueue[Any]], Pool] = Pool,
    ) -> None:
        self.name = name
        self.inbox: SimpleQueue[RunningJob | Callable[[], object]] = SimpleQueue()
        """Ended jobs, and functions for the loop to call; filled by any thread and signal handler."""
        self.paused = False
        self.slots = options.concurrency
        """Number of jobs that run at once."""
        self.before_poll: Callable[[str], None] = lambda queue: None
        """Called with each queue before it is polled."""
        self._client = client
        self._options = options
        self._reserver = reserver
        self._schedule = PollSchedule(options.queues, options.interval)
        self.pool = make_pool(self.inbox)
        self.in_flight = InFlightJobs(
            name, options.queues, self.pool, options.interrupt, self._schedule.on_job_finished
        )
        self.short_queues: set[str] = set()
        """Queues that returned fewer jobs than requested; the server is yet to be asked when they have more."""
        self._stopping = False
        self._deadline = float("inf")
        self._down_since: float | None = None
        self._pause = 0.0
        self._retry_at = 0.0
        self._faults = 0
        self._code = OK

    # --- events from the inbox ---

    def stop(self, grace: float | None, code: int = OK) -> None:
        """Stop reserving jobs. End after the running jobs, or after `grace` seconds, when they return to their
        queues."""
        if not self._stopping:
            log.info("worker %s is stopping; %d jobs are running", self.name, len(self.in_flight.running))
        self._stopping = True
        self._code = max(self._code, code)
        if grace is not None:
            self._deadline = min(self._deadline, time.monotonic() + grace)

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

    @property
    def state(self) -> str:
        """Either `running`, `quiet` or `stopping`."""
        return "stopping" if self._stopping else "quiet" if self.paused else "running"

    def on_job_available(self, queue: str) -> None:
        """Poll the queue: it may have a job."""
        self._schedule.on_job_available(queue)

    def on_reconnect(self) -> None:
        """Poll all queues and verify all leases: notifications may have been missed."""
        self._schedule.poll_all()
        self.in_flight.queue_heartbeat(self.in_flight.running.values())

    def snapshot(self) -> dict[str, Any]:
        """Return counts and running jobs for the display. Callable from another thread."""
        now = time.monotonic()
        return {
            "counts": dict(self.in_flight.counts),
            "down": self._down_since is not None,
            "running": [
                {
                    **{"jid": running.jid, "klass": running.job.klass, "queue": running.queue},
                    "seconds": round(now - running.started_at, 1),
                }
                for running in list(self.in_flight.running.values())
            ],
        }

    # --- the loop ---

    def run(self) -> int:
        """Run until stopped. Return the exit code."""
        while not (self._stopping and not self.in_flight.running):
            self._drain_inbox(self._timeout())
            now = time.monotonic()
            if self.in_flight.shared is not None:
                self.in_flight.shared.record_check(now, self.in_flight.leases.shortest)
            if self.in_flight.time_out(now):
                self.stop(self._options.grace, TIMED_OUT)
            if now >= self._deadline:
                self._abort()
                break
            if now >= self._retry_at:
                try:
                    self._run_once(now)
                    self._faults = 0
                except StoreError as error:
                    self._on_server_down(error)
                except Exception:  # an error caused by one job must not end the others
                    self._faults += 1
                    if self._faults >= MAX_FAULTS:
                        raise
                    log.exception("unexpected error in worker %s; continuing", self.name)
                    self._retry_at = now + FIRST_PAUSE
        self.pool.close()
        try:
            self._client.deregister_workers([self.name])
        except SERVER_ERRORS as error:
            log.warning("worker %s could not be deregistered: %s", self.name, error)
        return self._code

    def _drain_inbox(self, timeout: float) -> None:
        """Process everything in the inbox; if it is empty, wait up to `timeout` seconds."""
        inbox = self.inbox
        try:
            message = inbox.get(timeout=timeout) if timeout > 0 else inbox.get_nowait()
            while True:
                if isinstance(message, RunningJob):
                    self.in_flight.on_finished(message)
                else:
                    message()
                message = inbox.get_nowait()
        except Empty:
            pass

    def _timeout(self) -> float:
        """Return the seconds until there is work to do, if nothing arrives before."""
        at = self.in_flight.next()
        if self._free_slots():
            at = min(at, self._schedule.next())
        return min(max(at, self._retry_at), self._deadline) - time.monotonic()

    def _free_slots(self, ending: int = 0) -> int:
        """Return the number of jobs to request at most, if `ending` more have ended."""
        if self._stopping or self.paused:
            return 0
        free = min(self.slots - len(self.in_flight.running) + ending, MAX_JOBS_PER_POP)
        return free if free >= min(MAX_JOBS_PER_POP, max(1, int(self.slots * self.pool.share))) else 0

    def _run_once(self, now: float) -> None:
        """Send everything pending in one batch; then poll further while there are jobs and free slots.

        An outage ends with a round in which everything succeeds, since a server may refuse only some calls.
        """
        if self._down_since is not None:
            self._schedule.poll_all()
            self.in_flight.leases.next_check = 0.0
        batch = self.in_flight.build_batch(now)
        polls = self._add_pop(batch, now)
        if batch.requests:
            self._send_batch(batch)
        if polls and len(self.in_flight.running) < self.slots:
            self._reserve_more(now)
        if self.short_queues and self.inbox.empty():
            self._fetch_due_times(now)
        if self.in_flight.tidy_needed:
            self._tidy()
        if self._down_since is not None:
            log.warning("the job queue's server can be used again after %.1f s", time.monotonic() - self._down_since)
            self._down_since, self._pause = None, 0.0

    def _add_pop(self, batch: CommandBatch, now: float) -> bool:
        """Add the pop of the next queue to the batch. Return whether there was one to add."""
        free = self._free_slots(batch.ends)
        if free:
            for queue in self._reserver.order():
                if self._schedule.poll_at[queue] <= now:
                    self._reserver.asked(queue)
                    self.before_poll(queue)
                    batch.add(partial(self._apply_pop, queue, free, now), ("pop", queue, self.name, free))
                    return True
        return False

    def _send_batch(self, batch: CommandBatch) -> None:
        """Send the batch, and process the replies."""
        try:
            replies = self._call_safely(batch.requests)
        except StoreError:
            self.in_flight.on_reply_missing(batch)
            raise
        self.in_flight.apply_replies(batch, replies)
        _raise_fault(replies)
        if self.in_flight.orphans and (orphans := self.in_flight.take_orphans()):  # the reply to a pop was lost
            self._give_back(orphans)

    def _reserve_more(self, now: float) -> None:
        while self.inbox.empty():
            batch = CommandBatch()
            if not self._add_pop(batch, now):
                return
            replies = self._client.call_many(batch.requests)
            batch.apply(replies)
            _raise_fault(replies)

    def _tidy(self) -> None:
        """Finish work that other calls have deferred."""
        for _ in range(MAX_TIDY_CALLS):
            if not self.in_flight.tidy_needed or not self.inbox.empty():
                break
            self.in_flight.tidy_needed = self._client.call_many([("tidy", self.name)]) == [1]

    def _call_safely(self, requests: list[Request]) -> list[Any]:
        """Return the replies, including errors. If a request cannot be sent, send each alone; its error is its reply.

        Raises `StoreDown`; the requests may have been executed then.
        """
        try:
            return self._client.call_many(requests)
        except StoreError:
            raise
        except Exception as error:
            log.error("sending calls one by one, because the batch cannot be sent: %s", type(error).__name__)
        replies: list[Any] = []
        for request in requests:
            try:
                replies += self._client.call_many([request])
            except StoreError:
                raise
            except Exception as error:
                replies.append(InvalidArgument(f"{request[0]} cannot be sent: {message_of(error)}"))
        return replies

    def _on_server_down(self, error: StoreError) -> None:
        now = time.monotonic()
        if self._down_since is None:
            self._down_since = now
            log.error("the job queue's server cannot be used; running jobs continue, calls are retried: %s", error)
        self._pause = min(self._pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
        self._retry_at = now + self._pause
        if self._stopping:
            self.in_flight.drop_expired(now)

    # --- reserving ---

    def _apply_pop(self, queue: str, count: int, now: float, reply: Any) -> None:
        try:
            if isinstance(reply, SERVER_ERRORS):
                raise reply
            jobs, unreadable = jobs_of(self._client, self, reply)
        except SERVER_ERRORS as error:
            if not isinstance(error, StoreError) or is_refusal(error):  # others are raised after the batch
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
            log.error("failing unreadable jobs of the queue %s: %s", queue, ", ".join(unreadable))
            group = f"{queue}-{UnreadableReply.__name__}"
            failures = [FailJob(jid, self.name, group, message_of(error)) for jid, error in unreadable.items()]
            self._client.call_many([failure.request for failure in failures])

    def _start(self, job: WorkerJob, queue: str, now: float) -> None:
        try:
            handler, refusal = resolve_handler(job._record.klass, queue), None
        except BaseException as error:  # importing a module may even raise SystemExit
            handler, refusal = REFUSED, error
        running = RunningJob(job, job._record.jid, queue, handler, now, 0.0, 0.0)
        self.in_flight.add(running, now)
        if refusal is None:
            self.pool.start(running)
        else:
            execution.finish(running, refusal)
            self.in_flight.settle(running)

    def _fetch_due_times(self, now: float) -> None:
        """Ask the server when the queues that returned fewer jobs than requested may have more."""
        queues, self.short_queues = sorted(self.short_queues), set()
        for queue in queues:
            self.before_poll(queue)  # jobs put from here on are in the reply or trigger a notification
        wall_clock = time.time()
        for queue, reply in zip(queues, self._client.call_many([("due", queue) for queue in queues]), strict=True):
            if not isinstance(reply, SERVER_ERRORS):
                self._schedule.set_due(queue, None if reply is None else float(reply) - wall_clock, now)

    # --- stopping ---

    def _give_back(self, jids: list[str], why: str = "") -> None:
        """Return jobs that are still locked to their queues, ahead of all others and with all their retries.

        `why`: an entry for their histories.
        """
        replies = self._client.call_many([("heartbeat", jid, self.name) for jid in jids])
        _raise_fault(replies)
        locked = [jid for jid, reply in zip(jids, replies, strict=True) if not isinstance(reply, SERVER_ERRORS)]
        if locked:
            logs = [("log", jid, why, encode({"worker": self.name})) for jid in locked] if why else []
            _raise_fault(self._client.call_many([*logs, *(("timeout", jid) for jid in locked)]))
            log.info("returned to their queues: %s", ", ".join(locked))

    def _abort(self) -> None:
        """Interrupt the running jobs, report those that have ended, and return the others to their queues."""
        in_flight = self.in_flight
        for running in in_flight.running.values():
            self.pool.interrupt(running, Stopping(), in_thread=self._options.interrupt)
        until = time.monotonic() + ABORT_TIMEOUT
        while any(map(self._may_end, in_flight.running.values())) and time.monotonic() < until:
            self._drain_inbox(0.05)
        self._kill_running()
        try:
            for _ in range(execution.MAX_REFUSALS):
                batch = in_flight.pending_commands()
                in_flight.apply_replies(batch, self._call_safely(batch.requests) if batch.requests else ())
            jids = [jid for jid, running in in_flight.running.items() if not isinstance(running.cause, LostLock)]
            if jids:
                self._code = max(self._code, GAVE_BACK)
                in_flight.counts[RETURNED] += len(jids)
                self._give_back(jids, "worker stopped")
        except StoreError as error:
            self._code = max(self._code, GAVE_BACK)
            log.error(
                "%d jobs could not be returned and wait until their locks expire: %s", len(in_flight.running), error
            )

    def _kill_running(self) -> None:
        """End jobs by force before others may take them, if the pool can do that."""
        running = [running for running in self.in_flight.running.values() if not running.end]
        if not self.pool.kills or not running:
            return
        for job in running:
            self.pool.kill(job)
        until = time.monotonic() + ABORT_TIMEOUT
        while not all(job.end for job in running) and time.monotonic() < until:
            self._drain_inbox(0.05)

    def _may_end(self, running: RunningJob) -> bool:
        """Return whether to wait for the job: a thread that cannot be interrupted may run forever."""
        return not running.end and (running.handler.is_async or self._options.interrupt)


def _raise_fault(replies: list[Any]) -> None:
    """Raise the first reply that is an error of the server, and not a refusal of one call."""
    for reply in replies:
        if isinstance(reply, StoreError) and not is_refusal(reply):
            raise reply
