"""Bulk operations: a confirmation page with counts, and bounded steps with progress.

The jobs are those selected by check boxes, or all of a countable list. Each step is one POST of the same page; its
state travels in hidden form fields, so that the server keeps none between steps.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from resty_django.admin.tables import PAGE_SIZE
from resty_django.redis.errors import StoreError
from resty_django.text import printable

from ..clients.job import Job
from ..models import FailureGroup, Named, Queue, Tag, name_of, token
from ..models import Job as JobRow
from ..search.query import QueryError
from . import formatting, operations
from .base import TEMPLATES, ActionContext, JobsAdmin
from .forms import OperationForm, queues_of
from .job_lists import JobFilter, JobList, fetch_jobs
from .rows import state_of

STEP: Final = 500
"""Maximum number of jobs in one step."""
SECONDS: Final = 1.0
"""Time limit of one step in seconds."""
MAX_SELECTED: Final = 250
"""Maximum number of jobs selected by check boxes."""
MAX_ERRORS: Final = 3
"""Maximum number of errors in a message."""


@dataclass(slots=True)
class Progress:
    """Progress over all steps. `skipped`: jobs that stay in the list; `spread`: jobs scheduled so far."""

    done: int = 0
    skipped: int = 0
    total: int = 0
    spread: int = 0

    @classmethod
    def from_post(cls, post: Any) -> Progress:
        """Return the progress in the hidden fields of a form."""
        return cls(**{key: parse_count(post.get(f"run-{key}")) for key in cls.__slots__})

    @property
    def seen(self) -> int:
        return self.done + self.skipped

    def fields(self) -> list[tuple[str, int]]:
        """Return the hidden fields of the next step's form."""
        return [(f"run-{key}", getattr(self, key)) for key in self.__slots__]


@dataclass(frozen=True, slots=True)
class BulkOperation:
    """An operation on many jobs. `rate`: jobs per second, scheduled one after the other; None: all at once."""

    client: Any
    operation: operations.Operation
    job_list: JobList
    argument: Any = ""
    rate: float | None = None

    def apply(self, jobs: Sequence[Job], spread: int = 0) -> operations.Outcome:
        """Apply the operation to all `jobs` whose state allows it. `spread`: jobs scheduled in earlier steps."""
        now = self.client.clock()
        applicable_jobs = [job for job in jobs if self.operation.applies(job, now)]
        argument: Any = self.argument
        if rate := self.rate:

            def argument(index: int) -> float:
                return (spread + index) / rate

        return operations.apply(self.client, self.operation, applicable_jobs, argument)

    def run_step(self, progress: Progress) -> list[str]:
        """Apply the operation to the next jobs of the list, update `progress`, and return the errors.

        Jobs of a failure group are processed oldest first, from the end of the list.
        """
        end, errors, seen_before = time.monotonic() + SECONDS, [], progress.seen
        oldest_first = bool(self.job_list.job_filter.group)
        while progress.seen < min(progress.total, seen_before + STEP) and time.monotonic() < end:
            start = self.list_index(progress)
            count = min(PAGE_SIZE, progress.total - progress.seen)
            try:
                if oldest_first:
                    remaining = self.job_list.total() - start
                    start, count = max(0, remaining - count), min(count, remaining)
                jids = self.job_list.jids(start, count) if count > 0 else []
                if not jids:
                    break
                jobs, gone = fetch_jobs(self.client, jids[::-1] if oldest_first else jids)
            except StoreError as error:  # log the jobs that are already done
                errors.append(str(error))
                break
            outcome = self.apply(jobs, progress.spread)
            progress.done += len(outcome.done)
            progress.spread += len(outcome.done)
            progress.skipped += len(jobs) - len(outcome.done) + len(gone)
            errors += outcome.errors
        return list(dict.fromkeys(errors))

    def list_index(self, progress: Progress) -> int:
        """Return the list index of the next job."""
        return progress.skipped if self._removes_from_list() else progress.seen

    def _removes_from_list(self) -> bool:
        """Return whether the operation removes jobs from the list, or moves them to its end."""
        name, tag = self.operation.name, self.job_list.job_filter.tag
        if name in ("cancel", "move", "retry"):
            return True
        return (name in ("timeout", "run_now") and not tag) or (name == "untag" and self.argument == tag)


class BulkAdmin(JobsAdmin[JobRow]):
    """Pages of bulk operations."""

    def bulk_urls(self) -> list[URLPattern]:
        return [self.page_url("bulk", self.bulk_view, "bulk/")]

    def bulk_list_address(self, request: HttpRequest) -> str:
        """Return the URL of the list from which a bulk operation came."""
        return formatting.list_url("job") + (f"?{request.GET.urlencode()}" if request.GET else "")

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """Run an operation on the list in the URL.

        Form fields: `verb` (the operation), `pick` or `all`, the operation's argument, and `confirmed`.
        """
        self.check_view_permission(request)
        list_address = self.bulk_list_address(request)
        operation = operations.OPERATIONS.get(request.POST.get("verb", ""))
        selected_jids = [name_of(key) for key in request.POST.getlist("pick")][:MAX_SELECTED]
        all_selected = "all" in request.POST
        if request.method != "POST" or operation is None or not (selected_jids or all_selected):
            if request.method == "POST":
                self.message_user(request, _("Nothing selected. Select jobs and an operation."), messages.WARNING)
            return HttpResponseRedirect(list_address)
        if not self.may(request, operation.permission):
            raise PermissionDenied
        client = self.client()
        try:
            job_list = JobList(client, JobFilter.from_query(request.GET))
        except QueryError as error:
            self.message_user(request, str(error), messages.WARNING)
            return HttpResponseRedirect(list_address)
        if all_selected and not job_list.countable:
            self.message_user(
                request, _("This list is too broad for a bulk action. Select jobs or add a filter."), messages.WARNING
            )
            return HttpResponseRedirect(list_address)
        confirmed = "confirmed" in request.POST
        queues = queues_of(client) if operation.field == "queue" else []
        form = OperationForm(
            request.POST if confirmed else None, operation, queues, offers_rate=operation.name == "retry"
        )
        if not confirmed or not form.is_valid():
            counts = _count_all(job_list) if all_selected else _count_selected(client, operation, selected_jids)
            context = _confirmation_context(client, operation, form, counts, list_address)
            return self.page(request, f"{TEMPLATES}/action.html", context)
        bulk_operation = BulkOperation(
            client,
            operation,
            job_list,
            form.cleaned_data.get(operation.field, "") if operation.field else "",
            form.cleaned_data.get("rate"),
        )
        if all_selected:
            return self._apply_to_list(request, bulk_operation, list_address)
        return self._apply_to_selected(request, bulk_operation, selected_jids, list_address)

    def _apply_to_list(self, request: HttpRequest, bulk_operation: BulkOperation, list_address: str) -> HttpResponse:
        """Run the next step, and show the progress unless it was the last one."""
        operation, job_list = bulk_operation.operation, bulk_operation.job_list
        progress = Progress.from_post(request.POST)
        progress.total = progress.total or job_list.total()
        errors = bulk_operation.run_step(progress)
        counts = _("%(count)s of %(total)s") % {
            "count": formatting.number(progress.done),
            "total": formatting.job_count(progress.total),
        }
        text = f"{operation.done_label} {counts}."
        self.add_history(request, text, _list_row(job_list.job_filter))
        if progress.seen < progress.total and job_list.total() > bulk_operation.list_index(progress):
            context = _progress_context(request, operation, progress, errors, list_address)
            return self.page(request, f"{TEMPLATES}/action.html", context)
        message = f"{operation.done_label} {formatting.job_count(progress.done)}."
        self.report_outcome(request, message, progress.skipped, errors)
        return HttpResponseRedirect(list_address)

    def _apply_to_selected(
        self, request: HttpRequest, bulk_operation: BulkOperation, jids: Sequence[str], list_address: str
    ) -> HttpResponse:
        operation = bulk_operation.operation
        jobs, _gone = fetch_jobs(bulk_operation.client, jids)
        outcome = bulk_operation.apply(jobs)
        text = f"{operation.label} {bulk_operation.argument}".strip() + "."
        self.add_history(request, text, *(JobRow.from_name(job.jid) for job in outcome.done))
        self.report_outcome(
            request,
            f"{operation.done_label} {formatting.job_count(len(outcome.done))}.",
            len(jids) - len(outcome.done),
            outcome.errors,
        )
        return HttpResponseRedirect(list_address)

    def report_outcome(self, request: HttpRequest, message: str, skipped: int, errors: Sequence[str]) -> None:
        """Show a message with the number of skipped jobs and the first errors."""
        sentences = [message]
        if skipped:
            sentences.append(_("Unchanged: %(count)s.") % {"count": formatting.number(skipped)})
        sentences += [printable(error, 300) for error in errors[:MAX_ERRORS]]
        level = messages.WARNING if errors else messages.SUCCESS
        self.message_user(request, " ".join(sentences), level)


# --- contexts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """The jobs of a bulk operation before it runs. `jobs`: the selected ones, or the first page of a list."""

    count: int
    jobs: Sequence[Job]
    selection: str
    jobs_label: str
    fields: Sequence[tuple[str, str]]
    """The hidden form fields that name the jobs."""


def _count_all(job_list: JobList) -> Counts:
    count = job_list.total()
    selection = _("%(jobs)s: the entire list.") % {"jobs": formatting.job_count(count)}
    return Counts(count, job_list.page(0).jobs, selection, _("States of the first"), [("all", "yes")])


def _count_selected(client: Any, operation: operations.Operation, jids: Sequence[str]) -> Counts:
    jobs, gone = fetch_jobs(client, jids)
    now = client.clock()
    count = sum(operation.applies(job, now) for job in jobs)
    selection = _("%(count)s of %(chosen)s selected.") % {"count": count, "chosen": formatting.job_count(len(jids))}
    if gone:
        selection += " " + _("Gone: %(gone)s.") % {"gone": len(gone)}
    return Counts(count, jobs, selection, _("States"), [("pick", token(jid)) for jid in jids])


def _confirmation_context(
    client: Any, operation: operations.Operation, form: OperationForm, counts: Counts, list_address: str
) -> ActionContext:
    """Return the confirmation form: the number of jobs to which the operation would apply."""
    now = client.clock()
    states = Counter(state_of(job, now) for job in counts.jobs)
    unfit_count = sum(not operation.applies(job, now) for job in counts.jobs)
    facts = [
        (_("Selection"), counts.selection),
        (counts.jobs_label, formatting.states_text(states)),
    ]
    if unfit_count:
        facts.append((_("Unchanged"), _("%(count)s of these, because of their state") % {"count": unfit_count}))
    return {
        "title": operation.label,
        "button": operation.label if counts.count else "",
        "form": form,
        "danger": operation.danger,
        "explain": operation.effect if counts.count else _("There is nothing to do."),
        "facts": facts,
        "hidden": [("verb", operation.name), ("confirmed", "yes"), *counts.fields],
        "back": list_address,
        "live": False,
    }


def _progress_context(
    request: HttpRequest,
    operation: operations.Operation,
    progress: Progress,
    errors: Sequence[str],
    list_address: str,
) -> ActionContext:
    """Return the progress; the next POST of this page runs the next step."""
    options = [(key, request.POST[key]) for key in (operation.field, "rate") if request.POST.get(key)]
    text = _("%(seen)s of %(jobs)s") % {
        "seen": formatting.number(progress.seen),
        "jobs": formatting.job_count(progress.total),
    }
    return {
        "title": operation.label,
        "button": _("Continue"),
        "danger": operation.danger,
        "explain": " ".join(errors[:MAX_ERRORS]),
        "progress": {"text": text, "max": progress.total, "value": progress.seen},
        "hidden": [("verb", operation.name), ("confirmed", "yes"), ("all", "yes"), *options, *progress.fields()],
        "auto_continue": True,
        "back": list_address,
        "live": False,
    }


def _list_row(job_filter: JobFilter) -> Named:
    """Return the object whose history records operations on a list: its group, tag, queue, or all jobs."""
    targets: tuple[tuple[type[Named], str], ...] = (
        (FailureGroup, job_filter.group),
        (Tag, job_filter.tag),
        (Queue, job_filter.queue),
    )
    for model, name in targets:
        if name:
            return model.from_name(name)
    return JobRow.from_name(f"all {job_filter.state} jobs")


def parse_count(digits: str | None) -> int:
    return int(digits) if digits and digits.isascii() and digits.isdigit() and len(digits) < 12 else 0
