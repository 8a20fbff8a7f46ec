"""Bulk operations on failure groups: a confirmation with counts, then bounded steps, group by group.

As for jobs, the state between two steps travels in hidden form fields.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_http_methods

from resty_django.text import printable

from ..models import FailureGroup, name_of, token
from . import bulk, formatting
from .base import TEMPLATES, ActionContext, JobsAdmin
from .bulk import MAX_ERRORS, BulkOperation, Progress
from .forms import OperationForm, queues_of
from .job_lists import JobFilter, JobList
from .operations import OPERATIONS, Operation

VERBS: Final = ("retry", "move", "cancel")
MAX_GROUPS: Final = 250
"""Maximum number of groups selected by check boxes."""


class FailureGroupBulk(JobsAdmin[FailureGroup]):
    """The page that retries, moves or cancels the jobs of the selected failure groups."""

    def extra_urls(self) -> list[URLPattern]:
        return [self.page_url("bulk", self.bulk_view, "bulk/")]

    def group_operations(self, request: HttpRequest) -> list[Operation]:
        """Return the operations on failure groups that the user may do."""
        return [OPERATIONS[verb] for verb in VERBS if self.may(request, OPERATIONS[verb].permission)]

    @method_decorator(require_http_methods(["GET", "HEAD", "POST"]))
    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """Run an operation on the jobs of failure groups.

        Form fields: `verb` (the operation), `pick` (the groups), the operation's argument, and `confirmed`.
        """
        self.check_view_permission(request)
        verb = request.POST.get("verb", "")
        groups = list(dict.fromkeys(name_of(key) for key in request.POST.getlist("pick")))[:MAX_GROUPS]
        if request.method != "POST" or verb not in VERBS or not groups:
            if request.method == "POST":
                self.message_user(
                    request, _("Nothing selected. Select failure groups and an operation."), messages.WARNING
                )
            return HttpResponseRedirect(formatting.list_url("failuregroup"))
        operation = OPERATIONS[verb]
        if not self.may(request, operation.permission):
            raise PermissionDenied
        client = self.client()
        confirmed = "confirmed" in request.POST
        queues = queues_of(client) if operation.field == "queue" else []
        form = OperationForm(request.POST if confirmed else None, operation, queues, offers_rate=verb == "retry")
        if confirmed and form.is_valid():
            return self._run_step(request, client, operation, groups, form)
        return self.page(request, f"{TEMPLATES}/action.html", _confirmation(client, operation, groups, form))

    def _run_step(
        self, request: HttpRequest, client: Any, operation: Operation, groups: Sequence[str], form: OperationForm
    ) -> HttpResponse:
        """Run the next step, and show the progress unless it was the last one.

        `progress` counts the jobs of the first of the remaining `groups`, `overall` the jobs of all groups.
        """
        overall = Progress.from_post(request.POST)
        overall.total = overall.total or sum(_counts(client, groups))
        progress, remaining = Progress(spread=overall.spread), list(groups)
        progress.skipped = bulk.parse_count(request.POST.get("group-skipped"))
        end, seen_before, errors = time.monotonic() + bulk.SECONDS, overall.seen, list[str]()
        while remaining and overall.seen < seen_before + bulk.STEP and time.monotonic() < end:
            job_list = JobList(client, JobFilter(group=remaining[0]))
            argument = form.cleaned_data.get(operation.field, "") if operation.field else ""
            step = BulkOperation(client, operation, job_list, argument, form.cleaned_data.get("rate"))
            done_before, skipped_before = progress.done, progress.skipped
            progress.total = progress.done + job_list.total()
            new_errors = step.run_step(progress)
            overall.done += progress.done - done_before
            overall.skipped += progress.skipped - skipped_before
            overall.spread = progress.spread
            errors += new_errors
            count = formatting.job_count(progress.done - done_before)
            self.add_history(request, f"{operation.done_label} {count}.", FailureGroup.from_name(remaining[0]))
            is_stuck = (progress.done, progress.skipped) == (done_before, skipped_before)
            if is_stuck or job_list.total() <= progress.skipped:
                remaining.pop(0)
                progress = Progress(spread=overall.spread)
        errors = list(dict.fromkeys(errors))
        if remaining:
            context = _progress_context(request, operation, remaining, overall, progress, errors)
            return self.page(request, f"{TEMPLATES}/action.html", context)
        sentences = [f"{operation.done_label} {formatting.job_count(overall.done)}."]
        if overall.skipped:
            sentences.append(_("Unchanged: %(count)s.") % {"count": formatting.number(overall.skipped)})
        sentences += [printable(error, 300) for error in errors[:MAX_ERRORS]]
        self.message_user(request, " ".join(sentences), messages.WARNING if errors else messages.SUCCESS)
        return HttpResponseRedirect(formatting.list_url("failuregroup"))


def _counts(client: Any, groups: Sequence[str]) -> list[int]:
    counts: dict[str, int] = client.jobs.failed()
    return [counts.get(group, 0) for group in groups]


def _confirmation(client: Any, operation: Operation, groups: Sequence[str], form: OperationForm) -> ActionContext:
    """Return the confirmation form, with the number of jobs of each group."""
    counts = _counts(client, groups)
    total = sum(counts)
    group_count = ngettext("%(count)s failure group", "%(count)s failure groups", len(groups)) % {
        "count": formatting.number(len(groups))
    }
    selection = _("%(jobs)s in %(groups)s") % {"jobs": formatting.job_count(total), "groups": group_count}
    return {
        "title": operation.label,
        "button": operation.label if total else "",
        "form": form,
        "danger": operation.danger,
        "explain": operation.effect if total else _("There is nothing to do."),
        "facts": [
            (_("Selection"), selection),
            *(
                (formatting.link("failuregroup", group), formatting.job_count(count))
                for group, count in zip(groups, counts, strict=True)
            ),
        ],
        "hidden": [("verb", operation.name), ("confirmed", "yes"), *(("pick", token(group)) for group in groups)],
        "back": formatting.list_url("failuregroup"),
        "live": False,
    }


def _progress_context(
    request: HttpRequest,
    operation: Operation,
    remaining: Sequence[str],
    overall: Progress,
    progress: Progress,
    errors: Sequence[str],
) -> ActionContext:
    """Return the progress; the next POST of this page runs the next step."""
    options = [(key, request.POST[key]) for key in (operation.field, "rate") if request.POST.get(key)]
    text = _("%(seen)s of %(jobs)s") % {
        "seen": formatting.number(overall.seen),
        "jobs": formatting.job_count(overall.total),
    }
    return {
        "title": operation.label,
        "button": _("Continue"),
        "danger": operation.danger,
        "explain": " ".join(errors[:MAX_ERRORS]),
        "progress": {"text": text, "max": overall.total, "value": overall.seen},
        "hidden": [
            ("verb", operation.name),
            ("confirmed", "yes"),
            *(("pick", token(group)) for group in remaining),
            ("group-skipped", progress.skipped),
            *options,
            *overall.fields(),
        ],
        "auto_continue": True,
        "back": formatting.list_url("failuregroup"),
        "live": False,
    }
