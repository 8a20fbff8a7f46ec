"""The jobs that this worker holds: what is to be told to the server about them, and what its answers mean."""

from __future__ import annotations

import heapq
import itertools
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from resty_django.redis import StoreError

from ..errors import CannotComplete, CannotFail, CannotRetry, LostLock, NoSuchJob, QlessError
from . import perform
from .leases import DOUBT, Leases
from .outcomes import JobTimeout
from .pool import Pool
from .running import LOST, RETURNED, Command, Running

log = logging.getLogger("resty_django.qless.worker")

MOST: Final = 100
"""Ends of jobs that one pipeline tells."""
TOLD_BEFORE: Final = (CannotComplete, CannotFail, CannotRetry, NoSuchJob)
"""What the server says of a job whose end it knows already."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one pipeline tells and asks: ends of jobs, heartbeats, and, now and then, the length of locks."""

    ended: Sequence[Running]
    beats: Sequence[Running]
    requests: list[Command]


class Holdings:
    """For the thread of the desk alone. `freed(queue)` is called for each job that has ended for good."""

    def __init__(
        self, name: str, queues: Sequence[str], pool: Pool, interrupt: bool, freed: Callable[[str], None]
    ) -> None:
        self.running: dict[str, Running] = {}
        """Also those that have ended, until the server knows."""
        self.counts: Counter[str] = Counter()
        self.ended: list[Running] = []
        self.leases = Leases(queues)
        self._name = name
        self._pool = pool
        self._interrupt = interrupt
        self._freed = freed
        self._beats: list[Running] = []
        self._strangers: set[str] = set()
        """What the server listed as ours at the last look and is not, since `timeout` leaves jobs listed."""
        self._timeouts: list[tuple[float, int, Running, float, float | None]] = []
        self._number = itertools.count()

    def next(self) -> float:
        """When there is something to do, if nothing happens before: a time of the monotonic clock."""
        if self.ended or self._beats:
            return 0.0
        look = self.leases.next_look
        return min(look, self._timeouts[0][0]) if self._timeouts else look

    # --- jobs come and go ---

    def add(self, running: Running, now: float) -> None:
        old = self.running.get(running.jid)
        if old is not None:  # its lock was lost, and came back to this worker
            self._lose(old, LostLock(f"the lock of {old.jid} was lost, and the job was handed out again"))
        self.leases.hold(running, now)
        self.running[running.jid] = running

    def came_back(self, running: Running) -> None:
        """The pool has run it."""
        if running.abandoned:
            return
        self._pool.ended(running)
        if running.command is not None:
            self.ended.append(running)
        elif running.end != RETURNED:
            self.forget(running)

    def forget(self, running: Running) -> None:
        """It has ended, and the server knows, or need not."""
        if self.running.get(running.jid) is running:
            del self.running[running.jid]
        self.counts[running.end] += 1
        self._freed(running.queue)

    def drop_late(self, now: float) -> None:
        """Tell no more of jobs whose lock has expired: the worker ends, and the server cannot be told."""
        for running in [each for each in self.ended if each.lease_end < now]:
            log.error("job %s has ended, but the server could not be told while its lock lasted", running.jid)
            self.ended.remove(running)
            running.end = LOST
            self.forget(running)

    # --- a round ---

    def round(self, now: float) -> Round:
        beats = self._beats = [each for each in self._beats if not each.judged]
        questions: list[Command] = []
        if now >= self.leases.next_look:
            beats = [*beats, *(each for each in self.leases.due(self.running.values(), now) if each not in beats)]
            questions = [*self.leases.questions(), ("workers", self._name)]
        ended = self.ended[:MOST]
        telling = [_telling(each) for each in ended]
        return Round(ended, beats, [*telling, *(("heartbeat", each.jid, self._name) for each in beats), *questions])

    def failed(self, round: Round) -> None:
        """The server did not answer; what it was told may have come to it."""
        for running in round.ended:
            running.unsure = True

    def took(self, round: Round, replies: Sequence[Any], now: float) -> list[str]:
        """The answers; returns the jids of jobs that are this worker's for the server alone."""
        self.ended = self.ended[len(round.ended) :]
        self._beats = []
        taken = iter(replies)
        for running in round.ended:
            self.told(running, next(taken))
        for running in round.beats:
            self._beaten(running, next(taken), now)
        answers = list(taken)
        if not answers:
            return []
        self.leases.answered(answers[:-1], now)
        try:
            listed = json.loads(answers[-1])
            found = {str(jid) for jid in (*(listed["jobs"] or ()), *(listed["stalled"] or ()))} - self.running.keys()
        except (TypeError, ValueError, KeyError):
            return []
        orphans, self._strangers = sorted(found - self._strangers), found
        return orphans

    def told(self, running: Running, reply: Any) -> None:
        """The answer to how it ended."""
        command = running.command or ()
        if isinstance(reply, StoreError):
            self.ended.append(running)
            return
        if not isinstance(reply, QlessError):
            if command[0] == "requeue" and not running.checked:
                running.checked = True
                self.ended.append(running)
                return
        elif running.unsure and isinstance(reply, TOLD_BEFORE):
            log.info("job %s (%s): the server was told before the connection broke", running.jid, running.end)
        else:
            log.warning("job %s has ended (%s), which counts no longer: %s", running.jid, running.end, reply)
            running.end = LOST
        self.forget(running)

    def telling(self) -> list[Command]:
        """How all that have ended did."""
        return [_telling(each) for each in self.ended]

    # --- locks ---

    def beat(self, some: Iterable[Running]) -> None:
        """Send a heartbeat for them in the next round."""
        self._beats += [each for each in some if not each.judged and each not in self._beats]

    def suspect(self, jid: str) -> None:
        """The server said that a lock is lost: a heartbeat tells whether it is, since there is a time of grace."""
        running = self.running.get(jid)
        if running is not None:
            self.beat([running])

    def _beaten(self, running: Running, reply: Any, now: float) -> None:
        if isinstance(reply, StoreError):
            return
        if not isinstance(reply, QlessError):
            running.doubted = False
            self.leases.hold(running, now)
        elif running.judged or running.job.state_changed:
            running.beat_at = float("inf")
        elif isinstance(reply, LostLock | NoSuchJob) and (running.doubted or "another worker" in str(reply)):
            self._lose(running, LostLock(str(reply)))
        else:
            running.doubted = True
            running.beat_at = now + DOUBT
            self.leases.next_look = min(self.leases.next_look, now + DOUBT)

    def _lose(self, running: Running, error: LostLock) -> None:
        """It is no more this worker's job: tell it."""
        if running.cause is None:
            log.warning("job %s has lost its lock: %s", running.jid, error)
        running.job.lost = True
        running.beat_at = float("inf")
        self._pool.interrupt(running, error, in_thread=self._interrupt)

    # --- timeouts ---

    def limit(self, job: Any, seconds: float, kill_after: float | None) -> None:
        """Interrupt the job in `seconds` after its start; give it up if it has not ended `kill_after` seconds later."""
        running = self.running.get(job.jid)
        if running is not None and running.job is job:
            at = running.since + seconds
            heapq.heappush(self._timeouts, (at, next(self._number), running, seconds, kill_after))

    def time_out(self, now: float) -> bool:
        """Interrupt those whose time is over. True: one does not heed that, and its thread is stuck."""
        stuck = False
        while self._timeouts and self._timeouts[0][0] <= now:
            _, _, running, seconds, kill_after = heapq.heappop(self._timeouts)
            if running.judged or running.abandoned or self.running.get(running.jid) is not running:
                continue
            if running.cause is None:
                self._pool.interrupt(running, JobTimeout(seconds), in_thread=True)
                if kill_after is not None:
                    heapq.heappush(self._timeouts, (now + kill_after, next(self._number), running, seconds, None))
            elif isinstance(running.cause, JobTimeout):
                log.error("job %s does not heed its timeout; this process ends", running.jid)
                self._give_up(running, running.cause)
                stuck = True
        return stuck

    def _give_up(self, running: Running, error: Exception) -> None:
        running.abandoned = True
        stand_in = Running(
            running.job, running.jid, running.queue, running.entry, running.since, 0.0, running.lease_end
        )
        self.running[running.jid] = stand_in
        perform.judge(stand_in, error)
        self.ended.append(stand_in)


def _telling(running: Running) -> Command:
    """The command that tells how it ended. A `requeue`, which takes a job from anybody, comes after a heartbeat."""
    command = running.command or ()
    if command[0] == "requeue" and not running.checked:
        return "heartbeat", running.jid, running.job.worker_name
    return command


__all__ = ["Holdings", "Round"]
