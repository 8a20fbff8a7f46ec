"""The writer of the archive: one pass copies finished jobs from Redis to the database, and deletes old rows.

A pass may run any number of times: a job has one row, of its latest end. Only one process writes at a time; if the lock
of a slow one expires, two of them write the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from django.db import DataError, IntegrityError, connections, router, transaction
from django.db.models import QuerySet

from resty_django.conf import conf
from resty_django.database.times import from_db, to_db
from resty_django.health import described
from resty_django.text import logger

from ..clients.client import Client
from ..clients.job import Job, job_list
from ..clients.replies import JobRecord
from ..clients.serialization import read, scores
from ..clients.transport import batches, checked
from ..errors import QlessError
from ..models import ArchivedJob, token
from . import marks
from .marks import CANCELED, COMPLETED, command, members
from .rows import row_of

log = logger("resty_django.qless.archive")

OVERLAP_SECONDS: Final = 60.0
"""Time before the mark that a pass reads again, for clients whose clocks are slow."""
SWEEP_SECONDS: Final = 3600.0
"""Interval of the passes over all complete jobs, for clients whose clocks are slower, and after a restore."""
MAX_ROWS_PER_DELETE: Final = 1000
JOBS_PER_READ: Final = 100
TIME_TOLERANCE: Final = 0.001
"""Seconds by which the times of the same end may differ in Redis and the database."""


class CanceledRecord(msgspec.Struct):
    """A canceled job that the core saved."""

    at: float
    job: JobRecord


class EndedJob(NamedTuple):
    """A finished job. `finished`: when it ended, in epoch seconds."""

    job: Job
    state: ArchivedJob.State
    finished: float


@dataclass(slots=True)
class Pass:
    """The result of a pass: numbers of rows by outcome."""

    counts: Counter[str] = field(default_factory=Counter)
    locked: bool = False
    """Whether another process was writing, so that nothing was done."""
    new_complete: int = 0


@dataclass(slots=True)
class ArchiveWriter:
    """Writes the archive of a job queue.

    `paced` is called after each batch, so that a thread of a worker can give way to its jobs; it returns False to stop.
    """

    client: Client
    paced: Callable[[], bool] = lambda: True

    def run(self, *, again: bool = False) -> Pass:
        """Write all jobs that have ended since the last pass. `again`: all of those that Redis still has.

        Raises `django.db.DatabaseError`, `StoreError`, `QlessError`.
        """
        outcome = Pass()
        with marks.exclusive_lock(self.client, "archive-lock") as held:
            outcome.locked = not held
            if held:
                self._pass(outcome, again)
        return outcome

    def write_ended(self, state: ArchivedJob.State, ends: dict[str, float]) -> None:
        """Write failed or complete jobs before Redis deletes them. `ends`: when they ended, by jid."""
        jobs = [job for job in self._fetch(self._missing(ends)) if job.state == state]
        if state == ArchivedJob.State.FAILED:
            jobs = [job for job in jobs if _failed_at(job) == ends[job.jid]]
        self._store(Pass(), [EndedJob(job, state, ends[job.jid]) for job in jobs])

    def _pass(self, outcome: Pass, again: bool) -> None:
        now, known = self.client.clock(), marks.read_marks(self.client)
        marks.begin_pass(self.client, now)
        if not self._canceled(outcome):
            return
        sweeps = again or now - known.get("swept", 0.0) > SWEEP_SECONDS
        if not self._complete(outcome, known.get("until", 0.0), sweeps):
            return
        if sweeps:
            marks.set_marks(self.client, swept=now)
        if not self._failed(outcome, 0.0 if sweeps else known.get("failed", 0.0)):
            return
        marks.set_marks(self.client, failed=now)
        if now - known.get("pruned", 0.0) > 600 and self._prune(outcome, now):
            marks.set_marks(self.client, pruned=now)

    def _next(self) -> bool:
        """Keep the lock, and return whether to continue."""
        marks.extend_lock(self.client, "archive-lock")
        return self.paced()

    # --- sources ---

    def _canceled(self, outcome: Pass) -> bool:
        batch = conf.qless.archive.batch
        while lines := command(self.client, "LRANGE", CANCELED, 0, batch - 1):
            rows = []
            for line in lines:
                try:
                    record = read(line, CanceledRecord)
                    rows.append(EndedJob(Job(self.client, record.job), ArchivedJob.State.CANCELED, record.at))
                except QlessError as error:
                    outcome.counts["skipped"] += 1
                    log.warning("A canceled job cannot be read: %s", error)
            self._store(outcome, rows)
            command(self.client, "LTRIM", CANCELED, len(lines), -1)
            if not self._next():
                return False
        return True

    def _complete(self, outcome: Pass, until: float, sweeps: bool) -> bool:
        score, ties = (0.0, 0) if sweeps else (max(0.0, until - OVERLAP_SECONDS), 0)
        batch = conf.qless.archive.batch
        while page := self._page(score, ties, batch):
            ends = [*page.values()]
            complete = [job for job in self._fetch(self._missing(page)) if job.state == "complete"]
            self._store(outcome, [EndedJob(job, ArchivedJob.State.COMPLETE, page[job.jid]) for job in complete])
            outcome.new_complete += sum(end > until for end in ends)
            at_last = sum(end == ends[-1] for end in ends)
            ties = at_last + (ties if ends[-1] == score else 0)
            score = ends[-1]
            if score > until:
                until = score
                marks.set_marks(self.client, until=until)
            if len(page) < batch:
                return True
            if not self._next():
                return False
        return True

    def _page(self, score: float, skipped: int, count: int) -> dict[str, float]:
        """Return the next jids of complete jobs with their times: from `score` on, without the first `skipped`."""
        reply = command(
            self.client, "ZRANGEBYSCORE", COMPLETED, repr(score), "+inf", "WITHSCORES", "LIMIT", skipped, count
        )
        return scores(reply)

    def _failed(self, outcome: Pass, until: float) -> bool:
        """Write failed jobs: each group's newest ones, until all of a page failed before the last pass."""
        for group in members(self.client, "SMEMBERS", "failures"):
            start, size = 0, 10  # most groups have few new jobs
            while jids := members(self.client, "LRANGE", f"f:{group}", start, start + size - 1):
                failed = [
                    EndedJob(job, ArchivedJob.State.FAILED, when)
                    for job in self._fetch(jids)
                    if (when := _failed_at(job)) is not None
                ]
                ends = {ended.job.jid: ended.finished for ended in failed}
                missing = set(self._missing(ends))
                self._store(outcome, [ended for ended in failed if ended.job.jid in missing])
                start, size = start + size, JOBS_PER_READ
                if not self._next():
                    return False
                if ends and max(ends.values()) < until - OVERLAP_SECONDS:
                    break
        return True

    def _fetch(self, jids: Sequence[str]) -> list[Job]:
        chunks = [("multiget", *batch) for batch in batches(jids, JOBS_PER_READ)]
        jobs: list[Job] = []
        for reply in self.client.call_many(chunks) if chunks else ():
            jobs += job_list(self.client, checked(reply))
        return jobs

    # --- database ---

    def _missing(self, ends: dict[str, float]) -> list[str]:
        """Return the jids that have no row with this end, or a later one."""
        stored = _stored_ends(token(jid) for jid in ends)
        return [jid for jid, end in ends.items() if stored.get(token(jid), 0.0) < end - TIME_TOLERANCE]

    def _store(self, outcome: Pass, jobs: Sequence[EndedJob]) -> None:
        rows: dict[str, ArchivedJob] = {}
        skipped = 0
        for job in jobs:
            row = row_of(*job)
            if row is None:
                skipped += 1
            elif row.key not in rows or rows[row.key].finished_at <= row.finished_at:
                rows[row.key] = row
        written, rejected = store(list(rows.values()))
        marks.add(self.client, written=written, skipped=skipped + rejected)
        outcome.counts.update(written=written, skipped=skipped + rejected)

    def _prune(self, outcome: Pass, now: float) -> bool:
        retention = conf.qless.archive.retention
        for deleted in prune(now - retention) if retention is not None else ():
            outcome.counts["pruned"] += deleted
            if not self._next():
                return False
        return True


def _failed_at(job: Job) -> float | None:
    """Return when a job failed; None if it no longer counts as failed."""
    when = job.failure.get("when") if job.state == "failed" else None
    return float(when) if isinstance(when, int | float) else None


def _stored_ends(keys: Iterable[str]) -> dict[str, float]:
    return {key: from_db(end) for key, end in _rows(list(keys)).values_list("key", "finished_at")}


def _rows(keys: Sequence[str]) -> QuerySet[ArchivedJob]:
    return ArchivedJob.objects.using(router.db_for_write(ArchivedJob)).filter(key__in=keys)


def store(rows: Sequence[ArchivedJob]) -> tuple[int, int]:
    """Insert rows, or replace rows of earlier ends, in one transaction. Return how many were written and rejected.

    If the database rejects a value, the rows are written one by one.
    """
    if not rows:
        return 0, 0
    try:
        return upsert(rows), 0
    except (DataError, IntegrityError, ValueError) as error:
        if len(rows) == 1:
            log.warning("Job %s cannot be archived: %s", rows[0], described(error))
            return 0, 1
    outcomes = [store([row]) for row in rows]
    return sum(written for written, _rejected in outcomes), sum(rejected for _written, rejected in outcomes)


def upsert(rows: Sequence[ArchivedJob]) -> int:
    """Insert rows, or replace the rows of earlier ends of the same jobs; return how many."""
    database = router.db_for_write(ArchivedJob)
    has_target = connections[database].features.supports_update_conflicts_with_target
    with transaction.atomic(using=database):
        stored = _stored_ends(row.key for row in rows)
        newer = [row for row in rows if stored.get(row.key, 0.0) < from_db(row.finished_at) - TIME_TOLERANCE]
        ArchivedJob.objects.using(database).bulk_create(
            newer,
            update_conflicts=True,
            unique_fields=["key"] if has_target else None,
            update_fields=[
                field.name for field in ArchivedJob._meta.concrete_fields if field.name not in ("id", "key")
            ],
        )
    return len(newer)


def prune(before: float) -> Iterator[int]:
    """Delete rows of jobs that ended before a time, in batches; yield the number of each batch."""
    rows = ArchivedJob.objects.using(router.db_for_write(ArchivedJob))
    while True:
        ids = list(
            rows.filter(finished_at__lt=to_db(max(0.0, before)))
            .order_by("finished_at")
            .values_list("pk", flat=True)[:MAX_ROWS_PER_DELETE]
        )
        if not ids:
            return
        yield rows.filter(pk__in=ids).delete()[1].get(ArchivedJob._meta.label, 0)
