"""Recurring jobs: schedule, and operations on their template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict

from django import forms
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from resty_django.admin.formatting import NONE
from resty_django.text import printable

from ..clients.recurring import RecurringJob, of_reply
from ..clients.serialization import encode
from ..errors import NoSuchJob
from ..models import RecurringJob as RecurringRow
from ..models import token
from ..tasks.abandoned import Declared, of_tasks
from . import formatting
from .arguments import display_json, editable_json, edited_arguments
from .base import TEMPLATES, JobsAdmin
from .forms import OperationForm, RecurringForm, queues_of
from .glossary import OPERATION_HELP
from .job_lists import MAX_SORTED, queue_counts, redis_command, sorted_set
from .operations import OPERATIONS
from .tables import PAGE_SIZE, Column, Row, Table, order_of, pager, sort, table

COLUMNS: Final = (
    Column("jid", gettext_lazy("Recurring job")),
    Column("klass", gettext_lazy("Class")),
    Column("queue", gettext_lazy("Queue")),
    Column("interval", gettext_lazy("Every"), number=True),
    Column("next", gettext_lazy("Next")),
    Column("count", gettext_lazy("Made"), number=True),
    Column("by", gettext_lazy("Declared by")),
    Column("tags", gettext_lazy("Tags"), sorts=False),
)
TIMES: Final = 5
"""Number of next times shown."""


def recurring_table(
    request: HttpRequest, client: Any, queues: Sequence[str], declared: Sequence[Declared] | None = None
) -> Table:
    """Return a table of the queues' recurring jobs, sorted by queue and next time.

    `declared`: the recurring jobs of tasks (None: read them).
    """
    totals = [redis_command(client, "ZCARD", f"q:{queue}-recur") for queue in queues]
    count = sum(totals)
    key, descending = order_of(request, COLUMNS)
    sorts_all = bool(key) and count <= MAX_SORTED
    page = pager(request, count)
    start, count_left = (0, MAX_SORTED) if sorts_all else (max(0, page.first - 1), PAGE_SIZE)
    due: dict[str, float] = {}
    for queue, total in zip(queues, totals, strict=True):
        if start < total and count_left > 0:
            due_of_queue = sorted_set(client, "ZRANGE", f"q:{queue}-recur", start, start + count_left - 1)
            due |= due_of_queue
            count_left -= len(due_of_queue)
        start = max(0, start - total)
    now = client.clock()
    declared_by_jid = {entry.job.jid: entry for entry in (of_tasks(client) if declared is None else declared)}
    rows = [_row(job, due[job.jid], now, declared_by_jid.get(job.jid)) for job in _jobs(client, list(due))]
    if sorts_all:
        rows = sort(rows, key, descending)[max(0, page.first - 1) : page.last]
    return table(
        request,
        COLUMNS,
        rows,
        caption=_("Recurring jobs"),
        empty=_('No recurring jobs. Declare one: client.queues["mail"].recur("shop.jobs.SendDigest", {}, 3600).'),
        position=page,
        sortable=count <= MAX_SORTED,
    )


def _jobs(client: Any, jids: Sequence[str]) -> list[RecurringJob]:
    replies = client.call_many([("recur.get", jid) for jid in jids]) if jids else []
    jobs = [of_reply(client, reply) for reply in replies if not isinstance(reply, Exception)]
    return [job for job in jobs if job is not None]


def _row(job: RecurringJob, due: float, now: float, declared: Declared | None) -> Row:
    by = _declared_by(declared)
    return Row(
        {
            "jid": formatting.link("recurringjob", job.jid, formatting.short(job.jid)),
            "klass": formatting.name(job.klass),
            "queue": formatting.link("queue", job.queue_name),
            "interval": formatting.duration(job.interval),
            "next": formatting.relative_time(due, now),
            "count": formatting.number(job.count),
            "by": by,
            "tags": formatting.tag_links(job.tags),
        },
        {
            "jid": job.jid,
            "klass": job.klass,
            "queue": job.queue_name,
            "interval": job.interval,
            "next": due,
            "count": job.count,
            "by": str(by),
        },
    )


def _declared_by(declared: Declared | None) -> str:
    if declared is None:
        return _("people")
    return _("a removed task") if declared.abandoned else _("a task")


def _declared_by_text(declared: Declared | None) -> str:
    """Return the origin of a recurring job, with what is known about its task."""
    if declared is None or not (declared.fault or declared.unknown):
        return _declared_by(declared)
    if declared.unknown:
        return f"{_declared_by(declared)}: {printable(declared.unknown, 300)}"
    ago = formatting.duration(max(0.0, declared.ago))
    template = _("%(by)s: %(fault)s. A worker declared it %(ago)s ago.")
    text = str(template % {"by": _declared_by(declared), "fault": declared.fault, "ago": ago})
    return f"{text} {_('Cancel it to stop creating such jobs.')}" if declared.abandoned else text


class RecurringContext(TypedDict):
    """The context of `recurring.html` for an existing recurring job."""

    job: RecurringJob
    facts: Sequence[tuple[Any, Any]]
    times: Sequence[str]
    data: str
    complete: bool
    tags: Sequence[tuple[str, str, str]]


def _recurring_context(client: Any, job: RecurringJob) -> RecurringContext:
    now, due, last = client.clock(), job.next(), job.last_spawned_jid
    data, complete = display_json(encode(job.data).decode(), job.klass)
    declared = next((entry for entry in of_tasks(client) if entry.job.jid == job.jid), None)
    return {
        "job": job,
        "facts": [
            (_("Class"), formatting.name(job.klass)),
            (_("Queue"), formatting.link("queue", job.queue_name)),
            (_("Every"), formatting.duration(job.interval)),
            (_("Priority"), formatting.number(job.priority)),
            (_("Retries"), formatting.number(job.retries)),
            (_("Backlog"), formatting.number(job.backlog) if job.backlog else _("all overdue jobs are created")),
            (_("Made"), formatting.number(job.count)),
            (_("Last job"), formatting.job_link(last) if last else NONE),
            (_("Declared by"), _declared_by_text(declared)),
        ],
        "times": [] if due is None else [formatting.relative_time(due + n * job.interval, now) for n in range(TIMES)],
        "data": data,
        "complete": complete,
        "tags": [(formatting.name(str(tag)), token(str(tag)), "") for tag in job.tags],
    }


class RecurringJobAdmin(JobsAdmin[RecurringRow]):
    def extra_urls(self) -> list[URLPattern]:
        return [
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
        return self.list_page(request, recurring_table(request, client, queues, declared), hints=abandoned)

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.check_view_permission(request)
        client, row = self.client(), self.model(key=unquote(object_id))
        context = {"title": formatting.name(row.name), "object": row, "on_object": True}
        jobs = _jobs(client, [row.name])
        if not jobs:
            return self.page(request, f"{TEMPLATES}/recurring.html", context, status=404)
        return self.page(request, f"{TEMPLATES}/recurring.html", {**context, **_recurring_context(client, jobs[0])})

    def recurring(self, row: Any) -> RecurringJob:
        """Return the row's recurring job. Raise `NoSuchJob` if it does not exist."""
        jobs = _jobs(self.client(), [row.name])
        if not jobs:
            raise NoSuchJob(_("This recurring job no longer exists."))
        return jobs[0]

    # --- operations ---------------------------------------------------------------------------------------------------

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
            return RecurringForm(data, queues_of(job.client), initial, with_arguments=self.may(request, "start_job"))

        def perform(request: HttpRequest, row: Any, cleaned_data: dict[str, Any]) -> tuple[str, str]:
            job = self.recurring(row)
            if "arguments" in cleaned_data:
                cleaned_data["data"] = edited_arguments(cleaned_data.pop("arguments"), job.data, job.klass)
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
