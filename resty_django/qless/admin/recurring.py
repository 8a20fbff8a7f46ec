"""Recurring jobs and cron tasks: schedule, runs, pauses, and operations on the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from django import forms
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from resty_django.admin.formatting import NONE
from resty_django.text import printable

from ..clients.recurring import RecurringJob
from ..clients.serialization import encode
from ..errors import InvalidArgument, NoSuchJob
from ..models import Job as JobRow
from ..models import RecurringJob as RecurringRow
from ..models import token
from ..tasks import calls
from ..tasks.abandoned import of_tasks
from ..tasks.schedule import is_cron_paused, latest_jids, next_times, pause_cron, resume_cron
from . import formatting
from .arguments import arguments_help, checked_arguments, display_json, editable_json
from .base import TEMPLATES, JobsAdmin
from .bulk import enqueued_message
from .forms import OperationForm, RecurringForm, queues_of
from .glossary import OPERATION_HELP
from .job_lists import fetch_jobs, queue_counts
from .operations import OPERATIONS
from .recurring_list import (
    CronTask,
    cron_tasks,
    declared_by_text,
    jobs_of,
    recurring_table,
    results,
    spawned_jids,
)

TIMES: Final = 5
"""Number of next times shown."""
LATEST: Final = 20
"""Number of latest jobs whose state is shown."""
ACTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "run_now": ("run_recurring", "retry_job"),
    "pause": ("pause_recurring", "edit_job"),
    "resume": ("resume_recurring", "edit_job"),
}
"""Pages that a row of the list links to, with their names in `OPERATION_HELP` and their permissions."""


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


class RecurringJobAdmin(JobsAdmin[RecurringRow]):
    def extra_urls(self) -> list[URLPattern]:
        return [
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
        queues = [entry.name for entry in queue_counts(client) if entry.recurring]
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
            (name, OPERATION_HELP[help_name][0])
            for name, (help_name, permission) in ACTIONS.items()
            if self.may(request, permission)
        ]
        recurring = recurring_table(request, client, queues, declared, cron=[*cron_tasks().values()], actions=actions)
        return self.list_page(request, recurring, hints=abandoned)

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

    def recurring(self, row: Any) -> RecurringJob:
        """Return the row's recurring job. Raise `NoSuchJob` if it does not exist, `InvalidArgument` for a cron task."""
        target = self.target(row)
        if isinstance(target, CronTask):
            raise InvalidArgument(_("The code of the task sets its schedule and options. Change them there."))
        return target

    # --- operations ---------------------------------------------------------------------------------------------------

    def run_now_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Enqueue a job in addition to the schedule."""

        def perform(request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            client, target = self.client(), self.target(row)
            jid = calls.put(
                client,
                target.klass,
                target.data,
                target.queue_name,
                priority=target.priority,
                retries=target.retries,
                tags=target.tags,
            )
            self.add_history(request, f"Created from {row.name}.", JobRow.from_name(jid))
            return enqueued_message(self, request, jid), f"Ran now as {jid}."

        return self._schedule_operation(request, object_id, "run_now", perform)

    def pause_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            target, canceled = self.target(row), 0
            if isinstance(target, CronTask):
                canceled = pause_cron(self.client(), target.klass)
            else:
                target.pause()
            text = _("Paused: no more jobs are created.")
            if canceled:
                text += " " + _("Scheduled jobs that were canceled: %(count)s.") % {"count": canceled}
            undo = format_html(
                '{} <a href="{}">{}</a>', text, formatting.url("recurringjob", row.name, "resume"), _("Undo")
            )
            return undo, "Paused."

        return self._schedule_operation(request, object_id, "pause", perform)

    def resume_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            target = self.target(row)
            if isinstance(target, CronTask):
                resume_cron(self.client(), target.klass)
            else:
                target.resume()
            return _("Resumed: jobs are created again."), "Resumed."

        return self._schedule_operation(request, object_id, "resume", perform)

    def target(self, row: Any) -> RecurringJob | CronTask:
        """Return the row's recurring job or cron task. Raise `NoSuchJob` if it does not exist."""
        jobs = jobs_of(self.client(), [row.name])
        task = None if jobs else cron_tasks().get(row.name)
        if not jobs and task is None:
            raise NoSuchJob(_("This recurring job no longer exists."))
        return task or jobs[0]

    def _schedule_operation(self, request: HttpRequest, object_id: str, name: str, perform: Any) -> HttpResponse:
        help_name, permission = ACTIONS[name]
        title, effect = OPERATION_HELP[help_name]

        def form(data: Any, row: Any) -> forms.Form:
            self.target(row)  # refuses if it does not exist
            return forms.Form(data)

        return self.operation_view(
            request,
            object_id,
            permission=permission,
            title=title,
            button=title,
            form=form,
            perform=perform,
            explain=effect,
        )

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def form(data: Any, row: Any) -> forms.Form:
            job = self.recurring(row)
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
            job = self.recurring(row)
            if "arguments" in cleaned_data:
                edited = cleaned_data.pop("arguments")
                cleaned_data["data"] = checked_arguments(edited, job.data, job.klass, job.client.clock())
            old_values = {key: getattr(job, "queue_name" if key == "queue" else key) for key in cleaned_data}
            changes = {key: value for key, value in cleaned_data.items() if value != old_values[key]}
            if not changes:
                return _("No changes."), "Changed nothing."
            job.update(**changes)
            changes_text = ", ".join(
                key if key == "data" else f"{key} from {old_values[key]} to {value}" for key, value in changes.items()
            )
            return _("Saved. The changes apply to future jobs."), f"Changed {printable(changes_text, 500)}."

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
            self.recurring(row).cancel()
            row.gone = True
            return _("The recurring job was canceled."), "Canceled."

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

        def perform(request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            job = self.recurring(row)
            (job.tag if name == "tag" else job.untag)(cleaned_data["tag"])
            return _("Changed the tags of future jobs."), f"{operation.label} {printable(cleaned_data['tag'], 200)}."

        return self.operation_view(
            request,
            object_id,
            permission="edit_job",
            title=operation.label,
            button=operation.label,
            form=lambda data, row: OperationForm(data, operation, []),
            perform=perform,
        )
