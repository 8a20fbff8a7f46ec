"""Recurring jobs: when the next ones come, and changing the template that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from resty_django.admin.shown import printable

from ..declared import Declared, of_tasks
from ..errors import NoSuchJob
from ..models import RecurringJob as RecurringRow
from ..models import token
from ..recurring import RecurringJob, of_reply
from ..texts import encode
from . import shown
from .arguments import editable, restored, shown_data
from .base import TEMPLATES, JobsAdmin, named
from .forms import RecurringForm, VerbForm, queues_of
from .sources import SORTED, plain, queue_counts, scored
from .tables import PAGE, Column, Row, Table, order_of, pager, sort, table
from .verbs import VERBS
from .words import DEEDS

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
"""Times to come that are shown."""


def recurring_table(
    request: HttpRequest, client: Any, queues: Sequence[str], declared: Sequence[Declared] | None = None
) -> Table:
    """The recurring jobs of queues, those that are due first come first in each. `declared`: those of tasks."""
    totals = [plain(client, "ZCARD", f"q:{queue}-recur") for queue in queues]
    count = sum(totals)
    key, down = order_of(request, COLUMNS)
    whole = bool(key) and count <= SORTED
    at = pager(request, count)
    start, wanted = (0, SORTED) if whole else (max(0, at.first - 1), PAGE)
    due: dict[str, float] = {}
    for queue, total in zip(queues, totals, strict=True):
        if start < total and wanted > 0:
            found = scored(client, "ZRANGE", f"q:{queue}-recur", start, start + wanted - 1)
            due |= found
            wanted -= len(found)
        start = max(0, start - total)
    now = client.clock()
    known = {each.job.jid: each for each in (of_tasks(client) if declared is None else declared)}
    rows = [_row(job, due[job.jid], now, known.get(job.jid)) for job in _jobs(client, list(due))]
    if whole:
        rows = sort(rows, key, down)[max(0, at.first - 1) : at.last]
    return table(
        request,
        COLUMNS,
        rows,
        caption=_("Recurring jobs"),
        empty=_('No job recurs. Declare one: client.queues["mail"].recur("shop.jobs.SendDigest", {}, 3600).'),
        at=at,
        sortable=count <= SORTED,
    )


def _jobs(client: Any, jids: Sequence[str]) -> list[RecurringJob]:
    replies = client.call_many([("recur.get", jid) for jid in jids]) if jids else []
    found = [of_reply(client, reply) for reply in replies if not isinstance(reply, Exception)]
    return [job for job in found if job is not None]


def _row(job: RecurringJob, due: float, now: float, declared: Declared | None) -> Row:
    by = _by(declared)
    return Row(
        {
            "jid": shown.link("recurringjob", job.jid, shown.short(job.jid)),
            "klass": shown.name(job.klass),
            "queue": shown.link("queue", job.queue_name),
            "interval": shown.seconds(job.interval),
            "next": shown.moment(due, now),
            "count": shown.number(job.count),
            "by": by,
            "tags": shown.tags(job.tags),
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


def _by(declared: Declared | None) -> str:
    if declared is None:
        return _("people")
    return _("a task that is gone") if declared.abandoned else _("a task")


def _about(declared: Declared | None) -> str:
    """The same with what is known of the task."""
    if declared is None or not (declared.fault or declared.unknown):
        return _by(declared)
    if declared.unknown:
        return f"{_by(declared)}: {printable(declared.unknown, 300)}"
    ago = shown.seconds(max(0.0, declared.ago))
    told = _("%(by)s: %(fault)s. A worker declared it %(ago)s ago.")
    found = str(told % {"by": _by(declared), "fault": declared.fault, "ago": ago})
    return f"{found} {_('Cancel it, or it goes on making such jobs.')}" if declared.abandoned else found


class RecurringJobAdmin(JobsAdmin[RecurringRow]):
    def more_urls(self) -> list[URLPattern]:
        return [
            self.page_url("edit", self.edit_view),
            self.page_url("cancel", self.cancel_view),
            self.page_url("tag", lambda request, object_id: self._tag_view(request, object_id, "tag")),
            self.page_url("untag", lambda request, object_id: self._tag_view(request, object_id, "untag")),
        ]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        self.look(request)
        client = self.client()
        queues = [each.name for each in queue_counts(client) if each.recurring]
        declared = of_tasks(client)
        left = [
            (shown.url("recurringjob", each.job.jid), _("The task of %s is gone") % shown.name(each.job.jid))
            for each in declared
            if each.abandoned
        ]
        return self.listed(request, recurring_table(request, client, queues, declared), hints=left)

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        self.look(request)
        client, row = self.client(), self.model(key=named(object_id))
        context: dict[str, Any] = {"title": shown.name(row.name), "object": row, "on_object": True}
        found = _jobs(client, [row.name])
        if not found:
            return self.page(request, f"{TEMPLATES}/recurring.html", context, status=404)  # type: ignore[no-any-return]
        job, now = found[0], client.clock()
        due = job.next()
        data, whole = shown_data(encode(job.data).decode(), job.klass)
        last = job.last_spawned_jid
        declared = next((each for each in of_tasks(client) if each.job.jid == job.jid), None)
        context |= {
            "job": job,
            "facts": [
                (_("Class"), shown.name(job.klass)),
                (_("Queue"), shown.link("queue", job.queue_name)),
                (_("Every"), shown.seconds(job.interval)),
                (_("Priority"), shown.number(job.priority)),
                (_("Retries"), shown.number(job.retries)),
                (_("Backlog"), shown.number(job.backlog) if job.backlog else _("all late ones are made")),
                (_("Made"), shown.number(job.count)),
                (_("The last one"), shown.job_link(last) if last else shown.NONE),
                (_("Declared by"), _about(declared)),
            ],
            "times": [shown.moment(due + n * job.interval, now) for n in range(TIMES)] if due is not None else [],
            "data": data,
            "whole": whole,
            "tags": [(shown.name(str(tag)), token(str(tag)), "") for tag in job.tags],
        }
        return self.page(request, f"{TEMPLATES}/recurring.html", context)  # type: ignore[no-any-return]

    def recurring(self, row: Any) -> RecurringJob:
        """Raises `NoSuchJob`."""
        found = _jobs(self.client(), [row.name])
        if not found:
            raise NoSuchJob(_("There is no such recurring job any more."))
        return found[0]

    # --- doing ------------------------------------------------------------------------------------------------------

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def form(data: Any, row: Any) -> forms.Form:
            job = self.recurring(row)
            initial = {
                "queue": job.queue_name,
                "interval": f"{job.interval:g}",
                "priority": f"{job.priority:g}",
                "retries": job.retries,
                "backlog": job.backlog,
                "arguments": editable(job.data, job.klass),
            }
            return RecurringForm(data, queues_of(job.client), initial)

        def perform(request: HttpRequest, row: Any, given: dict[str, Any]) -> tuple[str, str]:
            job = self.recurring(row)
            given["data"] = restored(given.pop("arguments"), job.data)
            before = {key: getattr(job, "queue_name" if key == "queue" else key) for key in given}
            changes = {key: value for key, value in given.items() if value != before[key]}
            if not changes:
                return _("Nothing was changed."), "Changed nothing."
            job.update(**changes)
            told = ", ".join(
                key if key == "data" else f"{key} from {before[key]} to {value}" for key, value in changes.items()
            )
            return _("Changed for the jobs to come."), f"Changed {printable(told, 500)}."

        return self.change(
            request,
            object_id,
            permission="edit_job",
            title=_("Edit"),
            button=_("Change the jobs to come"),
            form=form,
            perform=perform,
            explain=DEEDS["edit"][1],
        )

    def cancel_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        def perform(request: HttpRequest, row: Any, given: dict[str, Any]) -> tuple[str, str]:
            self.recurring(row).cancel()
            row.gone = True
            return _("No more of these jobs are made."), "Canceled."

        return self.change(
            request,
            object_id,
            permission="cancel_job",
            title=_("Cancel"),
            button=_("Make no more of these jobs"),
            perform=perform,
            explain=DEEDS["cancel"][1],
            danger=True,
        )

    def _tag_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        verb = VERBS[name]

        def perform(request: HttpRequest, row: Any, given: dict[str, Any]) -> tuple[str, str]:
            job = self.recurring(row)
            (job.tag if name == "tag" else job.untag)(given["tag"])
            return _("Changed the tags of the jobs to come."), f"{verb.label} {printable(given['tag'], 200)}."

        return self.change(
            request,
            object_id,
            permission="edit_job",
            title=verb.label,
            button=verb.label,
            form=lambda data, row: VerbForm(data, verb, []),
            perform=perform,
        )


__all__ = ["RecurringJobAdmin", "recurring_table"]
