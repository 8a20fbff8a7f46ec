"""Bulk operations on entire lists of jobs, in bounded steps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resty_django.admin.bulk import BulkPreview, BulkProgress, FactList, StepResult
from resty_django.admin.operations import Operation, OperationResult, Refused
from resty_django.admin.tables import PAGE_SIZE
from resty_django.redis.errors import StoreError

from ...clients.client import Client
from ...clients.job import Job
from ...errors import QlessError
from ...models import FailureGroup, Named, Queue, Tag, token
from ...models import Job as JobRow
from .. import formatting
from ..job_lists.filters import JobFilter
from ..job_lists.lists import JobList
from ..job_lists.rows import state_of
from ..redis_reads import fetch_jobs

JOBS_PER_STEP: Final = 500
STEP_SECONDS: Final = 1.0
"""Time limit of one step."""


@dataclass(slots=True)
class JobLists:
    """Lists of jobs that are changed one after the other: failure groups, or the list in the URL (`is_all`)."""

    client: Client
    lists: list[JobList]
    is_all: bool

    def fields(self) -> Sequence[tuple[str, str]]:
        return [("all", "yes")] if self.is_all else [("pick", token(entry.job_filter.group)) for entry in self.lists]

    def preview(self, operation: Operation[Job]) -> BulkPreview:
        return self._list_preview(operation) if self.is_all else self._groups_preview()

    def _list_preview(self, operation: Operation[Job]) -> BulkPreview:
        count, jobs = self.lists[0].total(), self.lists[0].page(0).jobs
        facts: FactList = [
            (_("Selection"), _("%(jobs)s: the entire list.") % {"jobs": formatting.job_count(count)}),
            (_("States of the first"), states_text(jobs, self.client.clock())),
        ]
        if unfit := sum(not operation.applies(job) for job in jobs):
            facts.append(
                (_("Unchanged"), _("%(count)s of these, because of their state") % {"count": formatting.number(unfit)})
            )
        return BulkPreview(count, facts)

    def _groups_preview(self) -> BulkPreview:
        failed = self.client.jobs.failed()
        counts = {entry.job_filter.group: failed.get(entry.job_filter.group, 0) for entry in self.lists}
        total = sum(counts.values())
        groups = ngettext("%(count)s failure group", "%(count)s failure groups", len(counts))
        texts = {"jobs": formatting.job_count(total), "groups": groups % {"count": formatting.number(len(counts))}}
        links = [
            (formatting.link("failuregroup", group), formatting.job_count(count)) for group, count in counts.items()
        ]
        return BulkPreview(total, [(_("Selection"), _("%(jobs)s in %(groups)s") % texts), *links])

    def step(self, operation: Operation[Job], data: dict[str, Any], progress: BulkProgress) -> StepResult:
        progress.total = progress.total or sum(entry.total() for entry in self.lists)
        if operation.name == "pace":  # takes groups, and the server drives it
            return self._pace(operation, data, progress)
        end, last = time.monotonic() + STEP_SECONDS, progress.seen + JOBS_PER_STEP

        def goes_on() -> bool:
            return progress.seen < last and time.monotonic() < end

        changes: list[tuple[models.Model, OperationResult]] = []
        errors: list[str] = []
        while self.lists and goes_on():
            job_list, done_before = self.lists[0], progress.done
            try:
                progress.left = progress.left or job_list.total()
                while progress.left and goes_on():
                    errors += self._change_next(job_list, operation, data, progress)
            except StoreError as error:  # log the jobs that are already done
                errors.append(str(error))
                end = 0.0
            text = partial(self._done_text, operation, progress, progress.done - done_before)
            changes.append((_row_of(job_list.job_filter), OperationResult.of(text)))
            if progress.left or not end:
                break
            self.lists.pop(0)
            progress.index = 0
        return StepResult(changes, errors)

    def _done_text(self, operation: Operation[Any], progress: BulkProgress, done: int) -> str:
        count = formatting.job_count(done)
        if self.is_all:
            counts = {"count": formatting.number(progress.done), "total": formatting.job_count(progress.total)}
            count = _("%(count)s of %(total)s") % counts
        return _("%(done)s %(objects)s.") % {"done": operation.done, "objects": count}

    def _pace(self, operation: Operation[Any], data: dict[str, Any], progress: BulkProgress) -> StepResult:
        groups = {entry.job_filter.group: entry.job_filter.group for entry in self.lists}
        paced = operation.change(groups, data, Refused, QlessError)
        progress.done = sum(entry.total() for entry in self.lists if entry.job_filter.group in paced.changes)
        self.lists.clear()
        return StepResult(
            [(FailureGroup.from_name(group), change) for group, change in paced.changes.items()], paced.errors
        )

    def _change_next(
        self, job_list: JobList, operation: Operation[Job], data: dict[str, Any], progress: BulkProgress
    ) -> list[str]:
        """Change the next jobs of a list, update `progress`, and return the errors.

        Jobs of a failure group are processed oldest first, from the end of the list.
        """
        start, count = progress.index, min(PAGE_SIZE, progress.left)
        oldest_first = bool(job_list.job_filter.group)
        if oldest_first:
            remaining = job_list.total() - start
            start, count = max(0, remaining - count), min(count, remaining)
        jids = job_list.jids(start, count) if count > 0 else []
        if not jids:
            progress.left = 0
            return []
        jobs, gone = fetch_jobs(self.client, jids[::-1] if oldest_first else jids)
        applicable = {job.jid: job for job in jobs if operation.applies(job)}
        outcome = operation.change(applicable, data)
        done = len(outcome.changes)
        skipped = len(jobs) - done + len(gone)
        progress.done += done
        progress.skipped += skipped
        progress.left -= done + skipped
        progress.index += skipped if _leave_list(operation.name, data, job_list.job_filter.tag) else done + skipped
        return outcome.errors

    def is_finished(self) -> bool:
        return not self.lists


def _leave_list(operation: str, data: dict[str, Any], tag: str) -> bool:
    """Return whether an operation removes jobs from a list, or moves them to its end. `tag`: of the list's filter."""
    if operation in ("cancel", "move", "retry"):
        return True
    return (operation in ("timeout", "run_now") and not tag) or (operation == "untag" and data["tag"] == tag)


def _row_of(job_filter: JobFilter) -> Named:
    """Return the object whose history records operations on a list: its group, tag, queue, or all jobs."""
    if job_filter.group:
        return FailureGroup.from_name(job_filter.group)
    if job_filter.tag:
        return Tag.from_name(job_filter.tag)
    if job_filter.queue:
        return Queue.from_name(job_filter.queue)
    return JobRow.from_name(f"all {job_filter.state} jobs")


def states_text(jobs: Sequence[Job], now: float) -> str:
    return formatting.states_text(Counter(state_of(job, now) for job in jobs))
