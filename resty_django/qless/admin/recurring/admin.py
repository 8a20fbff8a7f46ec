"""Recurring jobs and cron tasks: schedule, runs, pauses, and operations on the template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypedDict

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.formatting import NONE

from ...clients.client import Client
from ...clients.recurring import RecurringJob
from ...clients.serialization import encode
from ...models import RecurringJob as RecurringRow
from ...models import name_of, token
from ...tasks.abandoned import of_tasks
from ...tasks.schedule import is_cron_paused, latest_jids, next_times
from .. import formatting
from ..arguments import display_json
from ..base import TEMPLATES, JobsAdmin
from ..forms import NameForm
from ..redis_reads import fetch_jobs
from .operations import EDIT, OPERATIONS_ON_RECURRING, RecurringTarget, edit_form, targets_of
from .table import CronTask, cron_tasks, declared_by_text, jobs_of, queue_jids, recurring_table, results, spawned_jids

NEXT_TIMES: Final = 5
"""Number of coming times that the page of a recurring job lists."""
LATEST_JOBS: Final = 20
"""Maximum number of its latest jobs whose state the page shows."""


class RecurringContext(TypedDict):
    """The context of `recurring.html` for a recurring job or a cron task that exists.

    `cron`: whether it is a cron task, which is changed in the code. `results`: the states of its latest jobs.
    """

    exists: bool
    cron: bool
    paused: bool
    facts: Sequence[tuple[str, object]]
    times: Sequence[str]
    results: str
    data: str
    complete: bool
    tags: Sequence[tuple[str, str, str]]


def _recurring_context(client: Client, job: RecurringJob) -> RecurringContext:
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
        "times": []
        if due is None
        else [formatting.relative_time(due + n * job.interval, now) for n in range(NEXT_TIMES)],
        "results": _results(client, spawned_jids(job, LATEST_JOBS), now),
        "data": data,
        "complete": complete,
        "tags": [(formatting.name(str(tag)), token(str(tag)), "") for tag in job.tags],
    }


def _cron_context(client: Client, task: CronTask) -> RecurringContext:
    now, paused = client.clock(), is_cron_paused(client, task.klass)
    times = [] if paused else next_times(task.klass, now, NEXT_TIMES)
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
        "results": _results(client, latest_jids(task.klass, now, LATEST_JOBS), now),
        "data": display_json(encode(task.data).decode(), task.klass)[0],
        "complete": True,
        "tags": [(formatting.name(tag), token(tag), "") for tag in task.tags],
    }


def _results(client: Client, jids: Sequence[str], now: float) -> str:
    return results({job.jid: job for job in fetch_jobs(client, jids)[0]}, jids, now)


class RecurringJobAdmin(JobsAdmin[RecurringRow]):
    operations = OPERATIONS_ON_RECURRING
    missing = gettext_lazy("This recurring job no longer exists.")

    def extra_urls(self) -> list[URLPattern]:
        return [*super().extra_urls(), self.page_url("edit", self.edit_view)]

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
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
        offered = self.offered(request)
        actions = [
            (operation.name, operation.label)
            for operation in offered
            if operation.name in ("run_now", "pause", "resume")
        ]
        recurring = recurring_table(request, client, queues, declared, cron=[*cron_tasks().values()], actions=actions)
        bulk = self.bulk_context(request, None if request.GET.get("name") else recurring.pager.total)
        return self.list_page(request, recurring, hints=abandoned, form=NameForm(request.GET), **bulk)

    @object_page
    def change_view(self, request: HttpRequest, row: RecurringRow) -> HttpResponse:
        client = self.client()
        context: dict[str, object] = {"title": formatting.name(row.name), "object": row, "on_object": True}
        if jobs := jobs_of(client, [row.name]):
            context |= _recurring_context(client, jobs[0])
        elif task := cron_tasks().get(row.name):
            context |= _cron_context(client, task)
        status = 200 if "exists" in context else 404
        return self.page(request, f"{TEMPLATES}/recurring.html", context, status)

    # --- operations ---------------------------------------------------------------------------------------------------

    def load(self, names: Sequence[str]) -> dict[str, RecurringTarget]:
        return targets_of(self.client(), names)

    def listed_names(self, request: HttpRequest) -> list[str]:
        """Return the recurring jobs of the queue in the URL, or all with the cron tasks. A filtered list has none."""
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

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Edit the template. Its arguments require the permission to start jobs with any arguments."""
        with_arguments = self.may(request, "start_job")
        operation = replace(EDIT, form=partial(edit_form, with_arguments=with_arguments))
        return self.operation_view(request, object_id, operation)
