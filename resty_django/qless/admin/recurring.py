"""Recurring jobs and cron tasks: schedule, runs, pauses, and operations on the template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict

from django import forms
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_safe

from resty_django.admin.formatting import NONE

from ..clients.recurring import RecurringJob
from ..clients.serialization import encode
from ..errors import NoSuchJob
from ..models import RecurringJob as RecurringRow
from ..models import name_of, token
from ..tasks.abandoned import of_tasks
from ..tasks.schedule import is_cron_paused, latest_jids, next_times
from . import formatting
from .arguments import arguments_help, checked_arguments, display_json, editable_json
from .base import TEMPLATES
from .forms import NameForm, OperationForm, RecurringForm, queues_of
from .glossary import OPERATION_HELP
from .job_lists import fetch_jobs
from .operations import OPERATIONS
from .recurring_list import (
    CronTask,
    cron_tasks,
    declared_by_text,
    jobs_of,
    queue_jids,
    recurring_table,
    results,
    spawned_jids,
)
from .recurring_operations import OPERATIONS_ON_RECURRING, Target, targets_of
from .row_operations import RowOperations

TIMES: Final = 5
"""Number of next times shown."""
LATEST: Final = 20
"""Number of latest jobs whose state is shown."""
ROW_LINKS: Final = ("run_now", "pause", "resume")
"""Operations that a row of the list links to."""


class RecurringContext(TypedDict):
    """The context of `recurring.html` for a recurring job or a cron task that exists.

    `cron`: whether it is a cron task, which is changed in the code. `results`: the states of its latest jobs.
    """

    exists: bool
    cron: bool
    paused: bool
    facts: Sequence[tuple[Any, Any]]
    times: Sequence[str]
    results: str
    data: str
    complete: bool
    tags: Sequence[tuple[str, str, str]]


def _recurring_context(client: Any, job: RecurringJob) -> RecurringContext:
    now, due, paused, last = client.clock(), job.next(), job.paused(), job.last_spawned_jid
    data, complete = display_json(encode(job.data).decode(), job.klass)
    declared = next((entry for entry in of_tasks(client) if entry.job.jid == job.jid), None)
    return {
        "exists": True,
        "cron": False,
        "paused": paused,
        "facts": [
            (_("Class"), formatting.name(job.klass)),
            (_("Queue"), formatting.link("queue", job.queue_name)),
            (_("Every"), formatting.duration(job.interval)),
            (_("Priority"), formatting.number(job.priority)),
            (_("Retries"), formatting.number(job.retries)),
            (_("Backlog"), formatting.number(job.backlog) if job.backlog else _("all overdue jobs are created")),
            (_("Made"), formatting.number(job.count)),
            (_("Last job"), formatting.job_link(last) if last else NONE),
            (_("Declared by"), declared_by_text(declared)),
        ],
        "times": [] if due is None else [formatting.relative_time(due + n * job.interval, now) for n in range(TIMES)],
        "results": _results(client, spawned_jids(job, LATEST), now),
        "data": data,
        "complete": complete,
        "tags": [(formatting.name(str(tag)), token(str(tag)), "") for tag in job.tags],
    }


def _cron_context(client: Any, task: CronTask) -> RecurringContext:
    now, paused = client.clock(), is_cron_paused(client, task.klass)
    times = [] if paused else next_times(task.klass, now, TIMES)
    return {
        "exists": True,
        "cron": True,
        "paused": paused,
        "facts": [
            (_("Task"), formatting.name(task.klass)),
            (_("Queue"), formatting.link("queue", task.queue_name)),
            (_("Cron"), format_html("<code>{}</code>", task.cron)),
            (_("Time zone"), timezone.get_default_timezone_name()),
            (_("Priority"), formatting.number(task.priority)),
            (_("Declared by"), _("a task")),
        ],
        "times": [formatting.relative_time(time, now) for time in times],
        "results": _results(client, latest_jids(task.klass, now, LATEST), now),
        "data": display_json(encode(task.data).decode(), task.klass)[0],
        "complete": True,
        "tags": [(formatting.name(tag), token(tag), "") for tag in task.tags],
    }


def _results(client: Any, jids: Sequence[str], now: float) -> str:
    return results({job.jid: job for job in fetch_jobs(client, jids)[0]}, jids, now)


class RecurringJobAdmin(RowOperations[RecurringRow]):
    row_operations = OPERATIONS_ON_RECURRING

    def extra_urls(self) -> list[URLPattern]:
        return [
            *self.row_urls(),
            self.page_url("run_now", self.run_now_view),
            self.page_url("pause", self.pause_view),
            self.page_url("resume", self.resume_view),
            self.page_url("edit", self.edit_view),
            self.page_url("cancel", self.cancel_view),
            self.page_url("tag", lambda request, object_id: self._tag_view(request, object_id, "tag")),
            self.page_url("untag", lambda request, object_id: self._tag_view(request, object_id, "untag")),
        ]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.check_view_permission(request)
        client = self.client()
        queues = [entry.name for entry in client.queues.counts() if entry.recurring]
        declared = of_tasks(client)
        abandoned = [
            (
                formatting.url("recurringjob", entry.job.jid),
                _("The task of %s no longer exists") % formatting.name(entry.job.jid),
            )
            for entry in declared
            if entry.abandoned
        ]
        actions = [
            (name, self.row_operations[name].label)
            for name in ROW_LINKS
            if self.may(request, self.row_operations[name].permission)
        ]
        recurring = recurring_table(request, client, queues, declared, cron=[*cron_tasks().values()], actions=actions)
        picks = self.picks_context(request, None if request.GET.get("name") else recurring.pager.total)
        return self.list_page(request, recurring, hints=abandoned, form=NameForm(request.GET), **picks)

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.check_view_permission(request)
        client, row = self.client(), self.model(key=unquote(object_id))
        context = {"title": formatting.name(row.name), "object": row, "on_object": True}
        jobs = jobs_of(client, [row.name])
        if jobs:
            return self.page(request, f"{TEMPLATES}/recurring.html", {**context, **_recurring_context(client, jobs[0])})
        task = cron_tasks().get(row.name)
        if task is not None:
            return self.page(request, f"{TEMPLATES}/recurring.html", {**context, **_cron_context(client, task)})
        return self.page(request, f"{TEMPLATES}/recurring.html", context, status=404)

    # --- operations ---------------------------------------------------------------------------------------------------

    def load(self, names: Sequence[str]) -> dict[str, Target]:
        return targets_of(self.client(), names)

    def listed_names(self, request: HttpRequest) -> list[str]:
        """Return the recurring jobs of the queue in the URL, or all with the cron tasks; none of a filtered list."""
        if request.GET.get("name"):
            return []
        client, queue = self.client(), name_of(request.GET.get("queue", ""))
        if queue:
            return queue_jids(client, queue)
        queues = [entry.name for entry in client.queues.counts() if entry.recurring]
        return [*(jid for name in queues for jid in queue_jids(client, name)), *cron_tasks()]

    def count_text(self, count: int) -> str:
        text = ngettext("%(count)s recurring job", "%(count)s recurring jobs", count)
        return text % {"count": formatting.number(count)}

    def list_address(self, request: HttpRequest) -> str:
        """Return to the tab of the queue from which the operation came."""
        queue = name_of(request.GET.get("queue", ""))
        return formatting.url("queue", queue, tab="recurring") if queue else super().list_address(request)

    def target(self, row: Any) -> Target:
        """Return the row's recurring job or cron task. Raise `NoSuchJob` if it does not exist."""
        target = self.load([row.name]).get(row.name)
        if target is None:
            raise NoSuchJob(_("This recurring job no longer exists."))
        return target

    def run_now_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Enqueue a job in addition to the schedule."""
        return self._schedule_operation(request, object_id, "run_now")

    def pause_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._schedule_operation(request, object_id, "pause")

    def resume_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._schedule_operation(request, object_id, "resume")

    def _schedule_operation(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        operation = self.row_operations[name]

        def form(data: Any, row: Any) -> forms.Form:
            self.target(row)  # refuses if it does not exist
            return forms.Form(data)

        return self.operation_view(
            request,
            object_id,
            permission=operation.permission,
            title=operation.label,
            button=operation.label,
            form=form,
            perform=lambda request, row, cleaned_data: self.change_one(request, row, name),
            explain=operation.effect,
        )

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def form(data: Any, row: Any) -> forms.Form:
            job = self.target(row).recurring()
            initial = {
                "queue": job.queue_name,
                "interval": f"{job.interval:g}",
                "priority": f"{job.priority:g}",
                "retries": job.retries,
                "backlog": job.backlog,
                "arguments": editable_json(job.data, job.klass),
            }
            help_text = arguments_help(job.klass) if self.may(request, "start_job") else None
            return RecurringForm(data, queues_of(job.client), initial, help_text)

        def perform(request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            job = self.target(row).recurring()
            if "arguments" in cleaned_data:
                edited = cleaned_data.pop("arguments")
                cleaned_data["data"] = checked_arguments(edited, job.data, job.klass, job.client.clock())
            changes = {
                key: value
                for key, value in cleaned_data.items()
                if value != getattr(job, "queue_name" if key == "queue" else key)
            }
            if not changes:
                return _("No changes."), "Changed nothing."
            return self.change_one(request, row, "edit", changes)

        return self.operation_view(
            request,
            object_id,
            permission="edit_job",
            title=_("Edit"),
            button=_("Save for future jobs"),
            form=form,
            perform=perform,
            explain=OPERATION_HELP["edit"][1],
        )

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            outcome = self.change_one(request, row, "cancel")
            row.gone = True
            return outcome

        return self.operation_view(
            request,
            object_id,
            permission="cancel_job",
            title=_("Cancel"),
            button=_("Cancel the recurring job"),
            perform=perform,
            explain=OPERATION_HELP["cancel"][1],
            danger=True,
        )

    def _tag_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        operation = OPERATIONS[name]

        return self.operation_view(
            request,
            object_id,
            permission="edit_job",
            title=operation.label,
            button=operation.label,
            form=lambda data, row: OperationForm(data, operation, []),
            perform=lambda request, row, cleaned_data: self.change_one(request, row, name, cleaned_data["tag"]),
        )
