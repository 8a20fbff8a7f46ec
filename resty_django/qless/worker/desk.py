"""The loop of a worker process: the one thread that talks to the server about jobs.

It hears what has happened (a job has ended, one was put, a signal came) from its inbox, and makes of all that waits one
pipeline: the ends of jobs, heartbeats, and a pop for the slots that are free by then. What ended counts as ended when
the server has said so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from resty_django.redis import StoreError

from ..errors import LostLock, QlessError, UnreadableReply
from . import perform
from .codes import GAVE_BACK, OK, TIMED_OUT
from .entries import REFUSED, entry_of
from .holdings import Holdings
from .job import WorkerJob, jobs_of
from .options import Options
from .outcomes import Stopping
from .pool import Pool
from .reservers import Reserver
from .running import RETURNED, Command, Running
from .waits import Waits

if TYPE_CHECKING:
    from ..clients import Client

log = logging.getLogger("resty_django.qless.worker")

MOST: Final = 100
"""Jobs of one pop: more would hold the server for too long."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds before a server that did not answer is asked again."""
ABORTING: Final = 2.0
"""Seconds that interrupted jobs have to end."""
FAULTS: Final = (QlessError, StoreError)


class Desk:
    """Reserves jobs for `name`, lets the pool run them, and tells the server how they ended."""

    def __init__(
        self,
        client: Client,
        name: str,
        options: Options,
        reserver: Reserver,
        make_pool: Callable[[SimpleQueue[Any]], Pool] = Pool,
    ) -> None:
        self.name = name
        self.inbox: SimpleQueue[Running | Callable[[], object]] = SimpleQueue()
        """Jobs that have ended, and functions to be called by the loop; from any thread and signal handler."""
        self.paused = False
        self.again: Callable[[str], None] = lambda queue: None
        """Called before a queue is asked, for the listener."""
        self._client = client
        self._options = options
        self._reserver = reserver
        self._waits = Waits(options.queues, options.interval)
        self.pool = make_pool(self.inbox)
        self._least = min(MOST, max(1, int(options.concurrency * self.pool.share)))
        self.held = Holdings(name, options.queues, self.pool, options.interrupt, self._waits.finished)
        self._unsure: set[str] = set()
        self._stopping = False
        self._deadline = float("inf")
        self._down_since: float | None = None
        self._pause = 0.0
        self._retry_at = 0.0
        self._code = OK

    # --- what others put into the inbox ---

    def stop(self, grace: float | None, code: int = OK) -> None:
        """Reserve no more; end after the jobs that run, or in `grace` seconds, when they are given back."""
        if not self._stopping:
            log.info("worker %s stops; %d jobs are running", self.name, len(self.held.running))
        self._stopping = True
        self._code = max(self._code, code)
        if grace is not None:
            self._deadline = min(self._deadline, time.monotonic() + grace)

    def pause(self, paused: bool) -> None:
        """Whether to reserve no more for now."""
        if paused != self.paused:
            log.info("worker %s %s", self.name, "pauses" if paused else "goes on")
        self.paused = paused

    def woken(self, queue: str) -> None:
        """A job may be there."""
        self._waits.woken(queue)

    def missed(self) -> None:
        """Messages may have been missed: look at everything."""
        self._waits.all_open()
        self.held.beat(self.held.running.values())

    def snapshot(self) -> dict[str, Any]:
        """What it does, for the display; may be called from another thread."""
        now = time.monotonic()
        return {
            "counts": dict(self.held.counts),
            "down": self._down_since is not None,
            "running": [
                {"jid": each.jid, "klass": each.job.klass, "queue": each.queue, "seconds": round(now - each.since, 1)}
                for each in list(self.held.running.values())
            ],
        }

    # --- the loop ---

    def run(self) -> int:
        """Until it was stopped. Returns the exit code."""
        while not (self._stopping and not self.held.running):
            self._hear(self._patience())
            now = time.monotonic()
            if self.held.time_out(now):
                self.stop(self._options.grace, TIMED_OUT)
            if now >= self._deadline:
                self._abort()
                break
            if now >= self._retry_at:
                try:
                    self._tend(now)
                except StoreError as error:
                    self._down(error)
        self.pool.close()
        try:
            self._client.deregister_workers([self.name])
        except FAULTS as error:
            log.warning("worker %s could not be deregistered: %s", self.name, error)
        return self._code

    def _hear(self, seconds: float) -> None:
        """Take what is in the inbox; where there is nothing, wait for it."""
        inbox = self.inbox
        try:
            item = inbox.get(timeout=seconds) if seconds > 0 else inbox.get_nowait()
            while True:
                if isinstance(item, Running):
                    self.held.came_back(item)
                else:
                    item()
                item = inbox.get_nowait()
        except Empty:
            pass

    def _patience(self) -> float:
        """Seconds until there is something to do, if nothing comes in."""
        at = self.held.next()
        if self._free():
            at = min(at, self._waits.next())
        return min(max(at, self._retry_at), self._deadline) - time.monotonic()

    def _free(self, ending: int = 0) -> int:
        """How many jobs to ask for at most, when so many more have ended."""
        if self._stopping or self.paused:
            return 0
        free = min(self._options.concurrency - len(self.held.running) + ending, MOST)
        return free if free >= self._least else 0

    def _tend(self, now: float) -> None:
        """One pipeline of all that is to be told and asked; then further pops, as long as there are jobs and slots."""
        round = self.held.round(now)
        queue, count = self._next_pop(now, len(round.ended))
        pops: list[Command] = [] if queue is None else [("pop", queue, self.name, count)]
        if round.requests or pops:
            try:
                replies = self._call([*round.requests, *pops])
            except StoreError:
                self.held.failed(round)
                raise
            orphans = self.held.took(round, replies[: len(round.requests)], now)
            if queue is not None:
                self._popped(queue, count, replies[-1], now)
                orphans = [jid for jid in orphans if jid not in self.held.running]
            for reply in replies:
                if isinstance(reply, StoreError):
                    raise reply
            if orphans:  # the answer to a pop was lost
                self._give_back(orphans)
        while queue is not None and self.inbox.empty():
            queue, count = self._next_pop(now, 0)
            if queue is not None:
                (reply,) = self._call([("pop", queue, self.name, count)])
                self._popped(queue, count, reply, now)
        if self._unsure and self.inbox.empty():
            self._ask_when(now)

    def _call(self, requests: list[Command]) -> list[Any]:
        """The replies, errors among them. Raises `StoreDown`: the requests may have been carried out."""
        replies: list[Any] = self._client.call_many(requests)
        if self._down_since is not None:
            log.warning("the server of the jobs answers again, after %.1f s", time.monotonic() - self._down_since)
            self._down_since, self._pause = None, 0.0
            self._waits.all_open()
            self.held.leases.next_look = 0.0
        return replies

    def _down(self, error: StoreError) -> None:
        now = time.monotonic()
        if self._down_since is None:
            self._down_since = now
            log.error("the server of the jobs cannot be used; jobs go on, calls are tried again: %s", error)
        self._pause = min(self._pause * 2 or FIRST_PAUSE, LONGEST_PAUSE)
        self._retry_at = now + self._pause
        if self._stopping:
            self.held.drop_late(now)

    # --- reserving ---

    def _next_pop(self, now: float, ending: int) -> tuple[str | None, int]:
        """The queue to ask, and for how many jobs."""
        free = self._free(ending)
        if free:
            for queue in self._reserver.order():
                if self._waits.open(queue, now):
                    self._reserver.asked(queue)
                    self.again(queue)
                    return queue, free
        return None, 0

    def _popped(self, queue: str, count: int, reply: Any, now: float) -> None:
        try:
            if isinstance(reply, FAULTS):
                raise reply
            jobs, unreadable = jobs_of(self._client, self, reply)
        except FAULTS as error:
            log.error("the queue %s gave no jobs: %s", queue, error)
            self._waits.emptied(queue, now)
            return
        if len(jobs) + len(unreadable) < count:
            self._waits.emptied(queue, now)
            self._unsure.add(queue)
        else:
            self._waits.gave(queue)
        for job in jobs:
            self._begin(job, queue, now)
        if unreadable:
            log.error("jobs of the queue %s cannot be read, and fail: %s", queue, ", ".join(unreadable))
            group = f"{queue}-{UnreadableReply.__name__}"
            self._call([("fail", jid, self.name, group, str(error)) for jid, error in unreadable.items()])

    def _begin(self, job: WorkerJob, queue: str, now: float) -> None:
        try:
            entry, refusal = entry_of(job.klass, queue), None
        except Exception as error:
            entry, refusal = REFUSED, error
        running = Running(job, job.jid, queue, entry, now, 0.0, 0.0)
        self.held.add(running, now)
        if refusal is None:
            self.pool.start(running)
        else:
            perform.judge(running, refusal)
            self.held.ended.append(running)

    def _ask_when(self, now: float) -> None:
        """When the queues that gave less than asked may give more."""
        queues, self._unsure = sorted(self._unsure), set()
        for queue in queues:
            self.again(queue)  # what is put from here on is told by the answer, or by a wake
        here = time.time()
        for queue, reply in zip(queues, self._call([("due", queue) for queue in queues]), strict=True):
            if not isinstance(reply, FAULTS):
                self._waits.due(queue, None if reply is None else float(reply) - here, now)

    # --- the end ---

    def _give_back(self, jids: list[str]) -> None:
        """Into their queues at once, before all other jobs, without taking a retry. Only those whose lock is ours."""
        replies = self._call([("heartbeat", jid, self.name) for jid in jids])
        ours = [jid for jid, reply in zip(jids, replies, strict=True) if not isinstance(reply, FAULTS)]
        if ours:
            self._call([("timeout", jid) for jid in ours])
            log.info("given back: %s", ", ".join(ours))

    def _abort(self) -> None:
        """The grace time is over: interrupt what runs, tell what has ended, give back the rest."""
        held = self.held
        for running in held.running.values():
            self.pool.interrupt(running, Stopping(), in_thread=self._options.interrupt)
        until = time.monotonic() + ABORTING
        while any(map(self._may_end, held.running.values())) and time.monotonic() < until:
            self._hear(0.05)
        try:
            for running, reply in zip(held.ended[:], self._call(held.telling()) if held.ended else (), strict=True):
                held.ended.remove(running)
                held.told(running, reply)
            left = [jid for jid, each in held.running.items() if not isinstance(each.cause, LostLock)]
            if left:
                self._code = max(self._code, GAVE_BACK)
                held.counts[RETURNED] += len(left)
                self._give_back(left)
        except StoreError as error:
            self._code = max(self._code, GAVE_BACK)
            log.error("%d jobs wait until their locks expire: %s", len(held.running), error)

    def _may_end(self, running: Running) -> bool:
        """Whether it is worth waiting for: a thread that is not interrupted may go on for ever."""
        return not running.judged and (running.entry.is_async or self._options.interrupt)


__all__ = ["ABORTING", "Desk"]
