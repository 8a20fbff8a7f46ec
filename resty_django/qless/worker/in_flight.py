"""Jobs in flight: their leases, the requests that a worker sends about them, and the handling of the replies.

All times of leases come from the monotonic clock, and the duration of a lease comes from the configuration rather than
from the expiry that the server reports. So a wrong clock does no harm.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import EllipsisType
from typing import Final

from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ..clients.serialization import readable
from ..clients.transport import Request, is_refusal
from ..errors import CannotComplete, CannotFail, CannotRetry, LostLock, NoSuchJob, QlessError, error_of
from ..middleware.job import WorkerJob
from ..outcomes import JobTimeout
from ..outcomes.error_text import MAX_MESSAGE_CHARS
from . import execution
from .commands import CommandBatch, CompleteJob
from .executor import Pool
from .heartbeat import SharedJobs
from .reports.run_times import RunTimes
from .running_job import DEFAULT_LEASE_SECONDS, RENEWALS_PER_LEASE, JobState, RunningJob

log = logger("resty_django.qless.worker")

MAX_CHECK_SECONDS: Final = 5.0
"""Maximum interval between two checks for leases to renew."""
DOUBT_SECONDS: Final = 0.2
"""Interval until a refused heartbeat is repeated if the job itself may have just ended the lease."""
_NEVER: Final = float("inf")


class Leases:
    """The durations of leases by queue, and the times of checks."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)
        self.lengths = dict.fromkeys(self._queues, DEFAULT_LEASE_SECONDS)
        """Seconds of a lease by queue."""
        self._check_interval = MAX_CHECK_SECONDS
        self.next_check = 0.0
        """When to check for leases to renew."""

    @property
    def shortest(self) -> float:
        """Seconds of the shortest lease."""
        return min(self.lengths.values(), default=DEFAULT_LEASE_SECONDS)

    def check_now(self) -> None:
        """Check in the next round which leases to renew."""
        self.next_check = 0.0

    def renew(self, running: RunningJob, now: float) -> None:
        """Record that a call sent at `now` renewed the lease."""
        length = self.lengths.get(running.queue, DEFAULT_LEASE_SECONDS)
        running.renew_at = now + length / RENEWALS_PER_LEASE
        running.lease_end = now + length

    def due(self, all_running: Iterable[RunningJob], now: float) -> list[RunningJob]:
        """Return the jobs whose lease must be renewed, if it is time for a check."""
        if now < self.next_check:
            return []
        self.next_check = now + self._check_interval
        return [running for running in all_running if not running.end and running.renew_at <= self.next_check]

    def length_requests(self) -> list[Request]:
        """Return the calls that request the durations."""
        return [("config.get", "heartbeat"), *(("config.get", f"{queue}-heartbeat") for queue in self._queues)]

    def apply_lengths(self, replies: Sequence[object], now: float) -> None:
        """Process the replies to `length_requests`."""
        common = _seconds(replies[0]) or DEFAULT_LEASE_SECONDS
        self.lengths = {
            queue: _seconds(reply) or common for queue, reply in zip(self._queues, replies[1:], strict=True)
        }
        self._check_interval = min(MAX_CHECK_SECONDS, max(0.05, self.shortest / 12))
        self.next_check = min(self.next_check, now + self._check_interval)


@dataclass(slots=True, order=True)
class _Timer:
    """When to kill a job, by the monotonic clock."""

    at: float
    running: RunningJob = field(compare=False)


@dataclass(slots=True, order=True)
class _Timeout(_Timer):
    """When to interrupt a job with `error`. `kill_after`: seconds from then until it is killed; None: never."""

    error: JobTimeout = field(compare=False)
    kill_after: float | None = field(compare=False)


class InFlightJobs:
    """Jobs from their pop until the server knows their end. Used only by the thread of the worker loop.

    `on_freed(queue)` is called for each job that leaves this worker.
    """

    def __init__(
        self, name: str, queues: Sequence[str], pool: Pool, interrupt: bool, on_freed: Callable[[str], None]
    ) -> None:
        self.running: dict[str, RunningJob] = {}
        """Jobs by jid, including ended jobs until the server knows their end."""
        self.counts: Counter[str] = Counter()
        """Jobs by how they ended."""
        self.run_times = RunTimes()
        self.finished: list[RunningJob] = []
        """Jobs whose end is to be reported to the server."""
        self.leases = Leases(queues)
        self._name = name
        self._pool = pool
        self._interrupt = interrupt
        self._on_freed = on_freed
        self.tidy_needed = False
        """Whether a call has deferred work to later calls."""
        self.shared: SharedJobs | None = None
        """The jobs that the heartbeat process sees."""
        self._heartbeats: list[RunningJob] = []
        self._unknown_jids: set[str] = set()
        """Jids that the server listed at the last check but that this worker does not hold. Not reported again, since
        `timeout` leaves jobs listed."""
        self.orphans: list[str] = []
        """The jids that the last check found: jobs that only the server attributes to this worker."""
        self._timeouts: list[_Timeout] = []
        """When to interrupt jobs: a heap."""
        self._kills: list[_Timer] = []
        """When to kill jobs that have not ended after an interruption: a heap."""

    def next_due(self) -> float:
        """Return the next time (monotonic clock) at which there is work to do, if nothing happens before."""
        if self.finished or self._heartbeats or self.tidy_needed:
            return 0.0
        timers = [*self._timeouts[:1], *self._kills[:1]]
        return min([self.leases.next_check, *(timer.at for timer in timers)])

    def show_alive(self, now: float) -> None:
        """Show the heartbeat process that the loop is alive, so that it does not renew the leases in its place."""
        if self.shared is not None:
            self.shared.record_check(now, self.leases.shortest)

    # --- adding and removing jobs ---

    def add(self, running: RunningJob, now: float) -> None:
        """Hold a job that was popped by a call sent at `now`."""
        old = self.running.get(running.jid)
        if old is not None:  # its lock was lost, and this worker popped it again
            self._lose(old, LostLock(f"The lock of job {old.jid} was lost, and the job was handed out again."))
        self.leases.renew(running, now)
        self.running[running.jid] = running
        if self.shared is not None:
            self.shared.add(running.jid)

    def on_finished(self, running: RunningJob) -> None:
        """Accept a job that the pool has finished running."""
        if running.state is JobState.ABANDONED:
            return
        self._pool.ended(running)
        self.run_times.record(running.job.klass, time.monotonic() - running.started_at)
        self.settle(running)

    def settle(self, running: RunningJob) -> None:
        """Send the end of a job in the next batch, or forget the job if there is nothing to send."""
        if running.command is not None:
            self.finished.append(running)
        elif running.end != "returned":
            self.forget(running)

    def forget(self, running: RunningJob) -> None:
        """Drop an ended job whose end the server knows or does not need to know."""
        if self.running.get(running.jid) is running:
            del self.running[running.jid]
            if self.shared is not None:
                self.shared.remove(running.jid)
        self.counts[running.end or ""] += 1
        self._on_freed(running.queue)

    def drop_expired(self, now: float) -> None:
        """Drop ended jobs whose lock has expired: the worker is stopping, and the server does not answer."""
        for running in [running for running in self.finished if running.lease_end < now]:
            log.error("job %s ended, but its end could not be reported before its lock expired", running.jid)
            self.finished.remove(running)
            running.end = "lost"
            self.forget(running)

    # --- batches and replies ---

    def build_batch(self, now: float) -> CommandBatch:
        """Return a batch of job ends and heartbeats and, at each check, the queries about leases and jobs."""
        if self._heartbeats:
            self._heartbeats = [running for running in self._heartbeats if not running.end]
        heartbeats = self._heartbeats
        is_check = now >= self.leases.next_check
        if is_check:
            due = self.leases.due(self.running.values(), now)
            heartbeats = [*heartbeats, *(running for running in due if running not in heartbeats)]
        batch = self.pending_commands(limit=100)
        for running in heartbeats:
            batch.add(("heartbeat", running.jid, self._name), on_reply=partial(self._apply_heartbeat, running, now))
        if is_check:
            batch.add(*self.leases.length_requests(), on_reply=partial(self._apply_lengths, now))
            batch.add(("workers", self._name), on_reply=self._apply_listing)
            batch.add(("tidy", self._name), on_reply=self._apply_tidy)
        return batch

    def pending_commands(self, limit: int | None = None) -> CommandBatch:
        """Return a batch of the ends of the first `limit` jobs (None: of all)."""
        batch = CommandBatch()
        small: defaultdict[str, list[RunningJob]] = defaultdict(list)
        for running in self.finished[:limit]:
            command = running.command
            if command is None:
                raise RuntimeError(f"Job {running.jid} has no command that reports its end ({running.end}).")
            batch.ends += 1
            if isinstance(command, CompleteJob) and command.is_small and not running.is_unconfirmed:
                small[running.queue].append(running)
            elif command.needs_lease_check and not running.is_verified:
                heartbeat = ("heartbeat", running.jid, running.job.worker_name)
                batch.add(heartbeat, on_reply=partial(self._apply_lease_check, running))
            else:
                batch.add(command.request, on_reply=partial(self.acknowledge, running))
        for queue, completed in small.items():
            for first in range(0, len(completed), 25):  # more in one call would block the server for too long
                self._add_completions(batch, queue, completed[first : first + 25])
        return batch

    def _add_completions(self, batch: CommandBatch, queue: str, completed: list[RunningJob]) -> None:
        """Complete several jobs of a queue in one call, which costs the server less than a call for each."""
        commands = [running.command for running in completed if isinstance(running.command, CompleteJob)]
        if len(commands) == 1:
            batch.add(commands[0].request, on_reply=partial(self.acknowledge, completed[0]))
        else:
            arguments = [argument for command in commands for argument in command.arguments_of_many]
            request = ("complete.many", self._name, queue, *arguments)
            batch.add(request, on_reply=partial(self._acknowledge_all, completed))

    def on_reply_missing(self, batch: CommandBatch) -> None:
        """Record that the connection broke: the ends in the batch may have reached the server."""
        for running in self.finished[: batch.ends]:
            running.reply_missing()

    def apply_replies(self, batch: CommandBatch, replies: Sequence[object]) -> None:
        """Process the replies to a batch from `build_batch` or `pending_commands`."""
        self.finished = self.finished[batch.ends :]
        self._heartbeats = []
        batch.apply(replies)

    def take_orphans(self) -> list[str]:
        """Return and forget the orphans, without those that this worker has popped since."""
        orphans, self.orphans = self.orphans, []
        return [jid for jid in orphans if jid not in self.running]

    def acknowledge(self, running: RunningJob, reply: object) -> None:
        """Process the reply to the end of a job. Jobs with something left to send are put into `finished`."""
        if not isinstance(reply, Exception):
            self.tidy_needed = self.tidy_needed or reply == b"pending"
        elif is_refusal(reply):
            log.error("the server refused the end of job %s (%s): %s", running.jid, running.end, _shown(reply))
            if execution.refuse(running, reply):
                self.finished.append(running)
                return
            running.end = "lost"
        elif isinstance(reply, StoreError):
            self.finished.append(running)
            return
        elif running.is_unconfirmed and isinstance(reply, CannotComplete | CannotFail | CannotRetry | NoSuchJob):
            log.info("job %s (%s): its end reached the server before the connection broke", running.jid, running.end)
        else:
            log.warning("job %s ended (%s), but too late to count: %s", running.jid, running.end, _shown(reply))
            running.end = "lost"
        self.forget(running)

    def _acknowledge_all(self, jobs: list[RunningJob], replies: list[bytes] | Exception) -> None:
        """Process the reply to the ends of several jobs.

        After an error of the whole call, the server may know the ends of some; each is sent alone then.
        """
        if isinstance(replies, Exception):
            for running in jobs:
                running.reply_missing()
            self.finished += jobs
            return
        for running, reply in zip(jobs, replies, strict=True):
            is_complete = reply in (b"complete", b"pending")  # other replies are the text of an error
            self.acknowledge(running, reply if is_complete else error_of(reply.decode(errors="replace")))

    def _apply_lease_check(self, running: RunningJob, reply: object) -> None:
        """Process the reply to the heartbeat before a requeue."""
        if isinstance(reply, QlessError | StoreError):
            self.acknowledge(running, reply)
        else:
            running.lease_verified()
            self.finished.append(running)

    def _apply_lengths(self, now: float, *replies: object) -> None:
        self.leases.apply_lengths(replies, now)
        self.show_alive(now)  # before the jobs of this batch start

    def _apply_listing(self, reply: object) -> None:
        """Find jobs that the server lists as this worker's since the last check, but that it does not hold."""
        try:
            listing = json.loads(reply if isinstance(reply, str | bytes) else b"")
            jids = {str(jid) for jid in (*(listing["jobs"] or ()), *(listing["stalled"] or ()))} - self.running.keys()
        except (TypeError, ValueError, KeyError):
            return
        self.orphans = sorted(jids - self._unknown_jids)
        self._unknown_jids = jids

    def _apply_tidy(self, reply: object) -> None:
        self.tidy_needed = self.tidy_needed or reply == 1

    # --- locks ---

    def queue_heartbeat(self, jobs: Iterable[RunningJob]) -> None:
        """Send a heartbeat for these jobs in the next batch."""
        self._heartbeats += [running for running in jobs if not running.end and running not in self._heartbeats]

    def verify_lease(self, jid: str) -> None:
        """Check by a heartbeat whether a lock that the server reported lost is really lost: there is a grace period."""
        running = self.running.get(jid)
        if running is not None:
            self.queue_heartbeat([running])

    def _apply_heartbeat(self, running: RunningJob, now: float, reply: object) -> None:
        if isinstance(reply, StoreError):
            return
        if not isinstance(reply, QlessError):
            if running.state is JobState.DOUBTED:
                running.state = JobState.RUNNING
            self.leases.renew(running, now)
        elif running.end or self._pool.state_changed(running):
            running.renew_at = _NEVER
        elif isinstance(reply, LostLock | NoSuchJob) and (
            running.state is JobState.DOUBTED or "another worker" in str(reply)
        ):
            self._lose(running, LostLock(str(reply)))
        else:
            if running.state is JobState.RUNNING:
                running.state = JobState.DOUBTED
            running.renew_at = now + DOUBT_SECONDS
            self.leases.next_check = min(self.leases.next_check, now + DOUBT_SECONDS)

    def _lose(self, running: RunningJob, error: LostLock) -> None:
        """Interrupt a job that this worker has lost."""
        if running.cause is None:
            log.warning("job %s lost its lock: %s", running.jid, error)
        running.job.lost = True
        running.renew_at = _NEVER
        self._pool.interrupt(running, error, in_thread=self._interrupt)
        if self._pool.can_kill and not running.end:
            heapq.heappush(self._kills, _Timer(time.monotonic() + self._pool.kill_after, running))

    # --- timeouts ---

    def limit(self, job: WorkerJob, seconds: float, kill_after: float | EllipsisType | None) -> None:
        """Interrupt the job `seconds` after its start; end it by force if it has not ended `kill_after` seconds later.

        A pool that cannot kill abandons the job instead. `kill_after`: `...` for the pool's own, None for never.
        """
        running = self.running.get(job.jid)
        if running is not None and running.job is job:
            kill_after = self._pool.kill_after if isinstance(kill_after, EllipsisType) else kill_after
            timeout = _Timeout(running.started_at + seconds, running, JobTimeout(seconds), kill_after)
            heapq.heappush(self._timeouts, timeout)

    def enforce_timeouts(self, now: float) -> bool:
        """Interrupt jobs that exceed their timeout, and kill jobs that have not ended after an interruption.

        Return whether a job has ignored its timeout and its thread is stuck.
        """
        while self._timeouts and self._timeouts[0].at <= now:
            timeout = heapq.heappop(self._timeouts)
            running = timeout.running
            if running.end or running.cause is not None or self.running.get(running.jid) is not running:
                continue
            self._pool.interrupt(running, timeout.error, in_thread=True)
            if timeout.kill_after is not None:
                heapq.heappush(self._kills, _Timer(now + timeout.kill_after, running))
        is_stuck = False
        while self._kills and self._kills[0].at <= now:
            running = heapq.heappop(self._kills).running
            if not running.end:
                is_stuck = self._kill(running) or is_stuck
        return is_stuck

    def _kill(self, running: RunningJob) -> bool:
        """Kill a job that has not ended after an interruption, or abandon it if the pool cannot kill.

        Return whether its thread is stuck.
        """
        timed_out = isinstance(running.cause, JobTimeout)
        if self._pool.can_kill:
            if timed_out or not self._pool.state_changed(running):
                reason = "ignored its timeout" if timed_out else "was lost and did not end"
                log.warning("job %s %s; killing its process", running.jid, reason)
                self._pool.kill(running)
        elif self.running.get(running.jid) is running:
            log.error("job %s ignored its timeout; stopping this worker process", running.jid)
            self._abandon(running, running.cause or JobTimeout())
            return True
        return False

    def _abandon(self, running: RunningJob, error: Exception) -> None:
        """Fail a job whose thread is stuck, using a copy that has ended."""
        running.state = JobState.ABANDONED
        copy = RunningJob(job=running.job, queue=running.queue, handler=running.handler, started_at=running.started_at)
        copy.lease_end = running.lease_end
        self.running[running.jid] = copy
        execution.finish(copy, error)
        self.settle(copy)


def _shown(reply: object) -> str:
    """Return the reply, bounded in length: the server's messages repeat the refused arguments."""
    return readable(str(reply), MAX_MESSAGE_CHARS)


def _seconds(reply: object) -> float | None:
    """Return the duration in a reply, or None if it is not one: clients can set the option to anything."""
    try:
        length = float(reply if isinstance(reply, int | float | str | bytes) else 0)
    except ValueError:
        return None
    return length if length > 0 else None
