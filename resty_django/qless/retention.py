"""Deletes failed and complete jobs that exceed the age or number that the setting `RETENTION` allows.

A thread of each worker makes passes, one worker at a time, in steps of at most 100 jobs. Each pass reads the times of
the jobs again and stores nothing between steps, so a worker that is killed leaves the rest to the next pass. The hash
`retention` next to the jobs describes the last pass:

    at, next   when it ended, and when the next one may begin
    kept-back  the number of failed jobs that it left because others wait for them, or because they are being retried
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple
from zlib import crc32

from resty_django.conf import conf
from resty_django.conf.sections.qless import QueueRetention, RetentionSettings
from resty_django.redis.errors import StoreFull

from .archive.marks import COMPLETED, command, exclusive_lock, extend_lock, read_marks
from .archive.writer import ArchiveWriter
from .clients.client import Client
from .clients.serialization import as_bytes, texts
from .clients.transport import batches
from .models import ArchivedJob
from .passes import MaintenanceThread

State = ArchivedJob.State
LOCK: Final = "retention-lock"
MIN_INTERVAL, MAX_INTERVAL = 60.0, 3600.0
"""Minimum and maximum time between two passes. A pass takes at most a hundredth of the time, if it can."""
JOBS_PER_READ, JOBS_PER_STEP = 100, 50
"""Maximum number of jobs in a call that reads times, and in one that deletes."""
CLOCK_TOLERANCE: Final = 60.0
"""Seconds by which jobs of a failure group may be out of order, because clocks differ."""


class Ended(NamedTuple):
    """A job that failed or is complete. `at`: when, in epoch seconds, as the core writes it; "" if that is unknown."""

    jid: str
    queue: str
    at: str

    @property
    def sort_key(self) -> float:
        """The time, with a fraction from the jid so that jobs of the same second rarely tie; infinite if unknown."""
        at = float(self.at or "inf")
        return at + crc32(as_bytes(self.jid)) / 2**32 if math.isfinite(at) else math.inf


class Limits(NamedTuple):
    """The settings of the site, or of a queue, for one state: seconds and number; None: no limit."""

    age: float | None
    maximum: int | None

    @classmethod
    def of(cls, section: QueueRetention, state: State) -> Limits:
        if state == State.FAILED:
            return cls(section.failed, section.failed_count)
        return cls(section.completed, section.completed_count)

    def first_kept(self, ordered: Sequence[float]) -> float:
        """Return the time of the oldest job to keep; older ones exceed the maximum."""
        surplus = 0 if self.maximum is None else len(ordered) - self.maximum
        return -math.inf if surplus <= 0 else ordered[surplus] if surplus < len(ordered) else math.inf


class _Stopped(Exception):
    pass


@dataclass(slots=True)
class RetentionPass:
    """One pass.

    - `paced`: called before each step, so that a worker can give way to its jobs; it returns False to stop.
    - `deleted`, `kept_back`: the number of jobs by state that the pass has deleted, and that it has left although their
      time was over.
    """

    client: Client
    paced: Callable[[], bool] = lambda: True
    deleted: Counter[State] = field(default_factory=Counter)
    kept_back: Counter[State] = field(default_factory=Counter)

    def run(self, *, only_if_due: bool = False) -> None:
        """Delete all jobs whose time is over, unless another process is doing so.

        `only_if_due`: unless a pass has ended recently. Raises `django.db.DatabaseError` if the site has an archive,
        `StoreError`, `QlessError`.
        """
        with exclusive_lock(self.client, LOCK) as held:
            start, marks = self.client.clock(), read_marks(self.client, "retention")
            if not held or (only_if_due and marks.get("at", 0.0) <= start < marks.get("next", 0.0)):
                return
            try:
                self._apply(State.FAILED, self.client.jobs.failed())
                self._apply(State.COMPLETE, {"": command(self.client, "ZCARD", COMPLETED)})
            except _Stopped:
                return
            now = self.client.clock()
            pause = min(MAX_INTERVAL, max(MIN_INTERVAL, 100 * (now - start)))
            values = {"at": now, "next": now + pause, "kept-back": self.kept_back[State.FAILED]}
            with suppress(StoreFull):  # deletions work
                command(self.client, "HSET", "retention", *chain.from_iterable(values.items()))

    def _apply(self, state: State, groups: Mapping[str, int]) -> None:
        """Delete the jobs of a state. `groups`: the number of jobs by failure group."""
        default, cutoffs = self._cutoffs(state, groups)
        latest_cutoff = max(default, *cutoffs.values(), -math.inf)
        for group in groups if latest_cutoff > -math.inf else ():
            skip, size = 0, 10  # most groups have no jobs to delete
            while page := self._page(state, group, skip, size):
                due = [job for job in page if job.sort_key < cutoffs.get(job.queue, default)]
                deleted = self._delete(state, due) if due else 0
                self.deleted[state] += deleted
                self.kept_back[state] += len(due) - deleted
                skip, size = skip + len(page) - deleted, JOBS_PER_STEP
                times = [job.sort_key for job in page if job.sort_key < math.inf]
                if times and min(times) > latest_cutoff + CLOCK_TOLERANCE:
                    break

    def _cutoffs(self, state: State, groups: Mapping[str, int]) -> tuple[float, dict[str, float]]:
        """Return the times before which jobs are deleted: by default, and by queue."""
        now, settings = self.client.clock(), conf.qless.retention
        site = Limits.of(settings, state)
        queues = {name: Limits.of(section, state) for name, section in settings.queues.items()}

        def by_age(limits: Limits) -> float:
            age = site.age if limits.age is None else limits.age
            return -math.inf if age is None else now - age

        cutoffs = {name: by_age(limits) for name, limits in queues.items()}
        total = sum(groups.values())
        maxima = [site.maximum, *(limits.maximum for limits in queues.values())]
        if not any(maximum is not None and total > maximum for maximum in maxima):
            return by_age(site), cutoffs
        times_by_queue: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        for group in groups:
            skip = 0
            while page := self._page(state, group, skip, JOBS_PER_READ):
                skip += len(page)
                for job in page:
                    if job.sort_key < math.inf:
                        times_by_queue[job.queue].append(job.sort_key)
        kept: list[float] = []
        for queue, times in times_by_queue.items():
            ordered = sorted(times)
            limits = queues.get(queue, Limits(None, None))
            cutoffs[queue] = max(by_age(limits), limits.first_kept(ordered))
            kept += ordered[bisect_left(ordered, cutoffs[queue]) :]
        first_kept = site.first_kept(sorted(kept))
        return by_age(site), {queue: max(cutoff, first_kept) for queue, cutoff in cutoffs.items()}

    def _page(self, state: State, group: str, skip: int, count: int) -> list[Ended]:
        """Return jobs of a group, oldest first, without the first `skip`."""
        if not self.paced():
            raise _Stopped
        extend_lock(self.client, LOCK)
        return [Ended(*job) for job in batches(texts(self.client.call("oldest", state, group, skip, count)), 3)]

    def _delete(self, state: State, jobs: Sequence[Ended]) -> int:
        """Delete those jobs that have not been retried since, and for which no job waits; archive them first."""
        if conf.qless.archive.enabled:
            ArchiveWriter(self.client).write_ended(state, {job.jid: float(job.at) for job in jobs})
        return int(self.client.call("expire", state, *(value for job in jobs for value in (job.jid, job.at))))


class RetentionThread(MaintenanceThread):
    """Makes the passes of a worker."""

    name = "qless-retention"
    failure = "Old jobs could not be deleted"
    log_name = "resty_django.qless.retention"
    pause_ratio = 4.0

    @staticmethod
    def is_wanted() -> bool:
        return conf.qless.retention != RetentionSettings(failed=None, failed_count=None)

    def run_pass(self) -> float:
        RetentionPass(self._client, self.pause).run(only_if_due=True)
        return MIN_INTERVAL


@dataclass(frozen=True, slots=True)
class RetentionStatus:
    """Whether failed jobs are deleted as the settings say.

    - `surplus`: the number of failed jobs beyond the maximum, without those that the last pass kept back.
    - `silent`: the seconds since the last pass ended; 0 if no jobs have failed, or no pass has ended yet.
    """

    surplus: int
    silent: float

    @property
    def too_many(self) -> bool:
        """Whether the number of failed jobs exceeds the maximum by more than a tenth of it."""
        return self.surplus > 0.1 * (conf.qless.retention.failed_count or 0)

    @property
    def stopped(self) -> bool:
        """Whether the next pass is more than an hour late, even if it had to come after the longest interval."""
        return self.silent > MAX_INTERVAL + 3600


def status(client: Client, failed: Mapping[str, int]) -> RetentionStatus:
    """Return the state of the retention. `failed`: the number of failed jobs by group.

    Raises `QlessError`, `StoreError`.
    """
    marks, total, maximum = read_marks(client, "retention"), sum(failed.values()), conf.qless.retention.failed_count
    surplus = 0 if maximum is None else total - int(marks.get("kept-back", 0)) - maximum
    now = client.clock()
    silent = now - marks.get("at", now) if total and RetentionThread.is_wanted() else 0.0
    return RetentionStatus(max(0, surplus), max(0.0, silent))
