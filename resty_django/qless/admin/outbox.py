"""The outbox: entries that wait or were refused, the page of an entry, and operations on entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Final

from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.lists import FigureTile
from resty_django.admin.operations import BulkOperationResult, Operation, OperationResult, Refused
from resty_django.admin.tables import Column, Listing, Row, filter_form, listed_table, listing, table
from resty_django.conf import conf
from resty_django.database.times import from_db
from resty_django.health import described
from resty_django.text import one_line, printable

from ..clients.default import default_client
from ..clients.job import Job
from ..models import OutboxEntry, name_of
from ..outbox import lookup
from ..outbox.delivery import Deliverer
from ..outbox.entries import DELIVERED, DISCARDED, REFUSED, WAITING, names_in
from ..outbox.status import status
from . import formatting
from .arguments import display_json
from .base import JobsAdmin

OPEN: Final = (REFUSED, WAITING)
MAX_LISTED: Final = 500
"""Maximum number of entries on the page of the list."""
MAX_JOBS: Final = 100
"""Maximum number of jobs on the page of an entry."""
COLUMNS: Final = (
    Column("jid", gettext_lazy("Job"), of=lambda entry: name_of(entry.jid)),
    Column("class", gettext_lazy("Class"), of=lambda entry: name_of(entry.klass)),
    Column("queue", gettext_lazy("Queue"), of=lambda entry: name_of(entry.queue)),
    Column("jobs", gettext_lazy("Jobs"), number=True),
    Column("state", gettext_lazy("State")),
    Column("enqueued", gettext_lazy("Enqueued"), time=True, of=lambda entry: from_db(entry.waiting_since)),
    Column("attempts", gettext_lazy("Attempts"), number=True),
    Column("error", gettext_lazy("Last error")),
    Column("database", gettext_lazy("Database"), of="_state.db"),
)
JOB_COLUMNS: Final = (
    Column("job", gettext_lazy("Job"), sorts=False),
    Column("class", gettext_lazy("Class"), sorts=False),
    Column("queue", gettext_lazy("Queue"), sorts=False),
    Column("arguments", gettext_lazy("Arguments"), sorts=False),
)


def _deliver_many(entries: Mapping[str, OutboxEntry], data: dict[str, Any]) -> BulkOperationResult:
    client, result = default_client(), BulkOperationResult()
    for alias in {entry._state.db or "" for entry in entries.values()}:
        named = {name: entry for name, entry in entries.items() if entry._state.db == alias}
        deliverer = Deliverer(client, alias)
        deliveries = deliverer.send(sorted(named.values(), key=lambda entry: entry.pk))
        fault = ""
        try:
            deliverer.settle(deliveries)
        except DatabaseError as error:  # a worker sends it again, which does no harm
            fault = described(error)
        sent = {delivery.entry.pk: delivery for delivery in deliveries}
        for name, entry in named.items():
            delivery = sent.get(entry.pk)
            if delivery is None:
                text = _("%(job)s has to follow others in the outbox. Deliver these first.")
                result.errors.append(text % {"job": one_line(entry, 60)})
            elif delivery.error is not None:
                result.errors.append(described(delivery.error))
            else:
                result.changes[name] = OperationResult.of(partial(_delivered_text, delivery.is_new, fault))
    return result


def _delivered_text(is_new: bool, fault: str) -> str:
    text = _("Delivered.") if is_new else _("Redis has its jobs already; marked as delivered.")
    return text + " " + _("Its row could not be changed: %(error)s") % {"error": fault} if fault else text


def _deliver(entry: OutboxEntry, data: dict[str, Any]) -> OperationResult:
    if entry.state not in OPEN:
        raise Refused(_("It is not in the outbox any more: %(state)s.") % {"state": entry.get_state_display()})
    result = _deliver_many({"": entry}, data)
    if result.errors:
        raise Refused(result.errors[0])
    return result.changes[""]


def _discard(entry: OutboxEntry, data: dict[str, Any]) -> OperationResult:
    client = default_client()
    if not lookup.discard(client, [entry]):
        raise Refused(_("It was delivered or discarded in the meantime."))
    if lookup.forget(client, [entry]):
        return OperationResult("Discarded.", _("Discarded."))
    return OperationResult.of(lambda: _("Discarded. Redis does not answer: if it has the jobs already, they run."))


class OutboxEntryAdmin(JobsAdmin[Any]):
    """Entries of all databases of the outbox. An object's primary key is `<database>:<primary key of the entry>`."""

    refusals = (DatabaseError, *JobsAdmin.refusals)
    missing = gettext_lazy("This entry does not exist: it was delivered and deleted.")
    operations = (
        Operation(
            "deliver",
            gettext_lazy("Deliver now"),
            "retry_job",
            _deliver,
            gettext_lazy(
                "The jobs are enqueued now, even if the entry is older than KEEP. Redis skips what it has enqueued "
                "before, but forgets this for entries older than KEEP: if one of them had been delivered, its jobs run "
                "twice."
            ),
            done=gettext_lazy("Delivered"),
            applies=lambda entry: entry.state in OPEN,
            run_many=_deliver_many,
        ),
        Operation(
            "discard",
            gettext_lazy("Discard"),
            "cancel_job",
            _discard,
            gettext_lazy(
                "The jobs are not enqueued. If Redis has them already, they are canceled, also if another call of a "
                "unique task has enqueued them. This cannot be undone."
            ),
            done=gettext_lazy("Discarded"),
            applies=lambda entry: entry.state in OPEN,
            danger=True,
        ),
    )

    # --- pages --------------------------------------------------------------------------------------------------------

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """Show entries. URL parameters: `state`, by default those that are not delivered; `find`, a text; `o`."""
        client = self.client()
        entries, now = _listing(request), client.clock()
        counts = status(client)
        if not conf.qless.outbox.is_used:
            empty = _('No entries. With "OUTBOX": True in QLESS, jobs are rows of the database before Redis has them.')
        else:
            empty = _("No entries match. Change your search.") if entries.find else _("No entries.")
        return self.list_page(
            request,
            listed_table(
                entries,
                lambda entry: self._table_row(entry, now),
                caption=_("Outbox"),
                export="outbox",
                empty=empty,
                check_boxes=any(entry.state in OPEN for entry in entries),
                note=_("This list ends after %(most)s entries.") % {"most": formatting.number(MAX_LISTED)}
                if entries.total == MAX_LISTED
                else "",
            ),
            tiles=[
                FigureTile(_("Waiting"), formatting.number(counts.waiting)),
                FigureTile(_("Oldest"), formatting.age(counts.age or None), alarm=counts.is_late),
                FigureTile(_("Refused"), formatting.number(counts.refused), alarm=counts.refused > 0),
            ],
            shortcuts=[
                ("?", _("Not delivered")),
                *((f"?state={state}", capfirst(state.label)) for state in (DELIVERED, DISCARDED)),
            ],
            filter=filter_form(request),
            filter_label=_("Job, class, queue or error"),
            **self.bulk_context(request, len(entries)),
        )

    def _table_row(self, entry: OutboxEntry, now: float) -> Row:
        name = _key(entry)
        jid = format_html('<span class="resty-id">{}</span>', formatting.short(name_of(entry.jid)))
        cells = {
            "jid": self.link(name, jid),
            "class": formatting.breakable(name_of(entry.klass)),
            "queue": formatting.breakable(name_of(entry.queue)),
            "jobs": formatting.number(entry.jobs),
            "state": entry.get_state_display(),
            "enqueued": formatting.relative_time(from_db(entry.waiting_since), now),
            "attempts": formatting.number(entry.attempts),
            "error": formatting.breakable(printable(entry.error, 300)),
            "database": entry._state.db,
        }
        return Row(cells, pick=name if entry.state in OPEN else "", title=formatting.short(name_of(entry.jid)))

    @object_page
    def change_view(self, request: HttpRequest, entry: OutboxEntry) -> HttpResponse:
        """Show an entry and its jobs."""
        client, pk = self.client(), str(entry.pk)
        rows, empty = list[Row](), _("No jobs: the entry opens a group.")
        try:
            jobs = lookup.jobs_of(client, entry)[:MAX_JOBS]
            rows = [_job_row(job, entry.state == DELIVERED) for job in jobs]
        except (TypeError, ValueError) as error:
            empty = _("Its commands cannot be read: %(error)s") % {"error": described(error)}
        jobs_table = table(
            request,
            JOB_COLUMNS,
            rows,
            caption=_("Jobs"),
            empty=empty,
            export="jobs",
        )
        return self.list_page(
            request,
            jobs_table,
            title=formatting.name(name_of(entry.jid)),
            object=entry,
            on_object=True,
            facts=_facts(entry, client.clock()),
            actions=[
                *(
                    (formatting.url("outboxentry", pk, operation.name), operation.label, operation.danger)
                    for operation in self.operations
                    if operation.applies(entry) and self.may(request, operation.permission)
                ),
                (formatting.url("outboxentry", pk, "history"), _("History"), False),
            ],
        )

    # --- objects ------------------------------------------------------------------------------------------------------

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> OutboxEntry | None:
        entry = self.load([object_id]).get(object_id)
        return None if entry is None else self.row(object_id, entry)

    def load(self, names: Sequence[str]) -> dict[str, OutboxEntry]:
        """Return entries, the newest first: one that others wait for is discarded after these."""
        found: dict[str, OutboxEntry] = {}
        for alias in conf.qless.outbox.database:
            pairs = (name.rpartition(":") for name in names)
            ids = [int(pk) for database, _colon, pk in pairs if database == alias and pk.isdecimal() and len(pk) < 19]
            entries = OutboxEntry.objects.using(alias).filter(pk__in=ids).order_by("-pk") if ids else ()
            found |= {_key(entry): entry for entry in entries}
        return found

    def row(self, name: str, target: Any) -> OutboxEntry:
        row = OutboxEntry() if target is None else copy(target)
        row.pk = name
        return row

    def listed_names(self, request: HttpRequest) -> list[str]:
        return [_key(entry) for entry in _listing(request)]

    def count_text(self, count: int) -> str:
        return ngettext("%(count)s entry", "%(count)s entries", count) % {"count": formatting.number(count)}


def url_of(jid: str) -> str:
    """Return the URL of the entry that waits with a job or group; empty if there is none."""
    entries = lookup.entries_of(jid) if jid and conf.qless.outbox.is_used else ()
    return formatting.url("outboxentry", _key(entries[-1])) if entries else ""


def _key(entry: OutboxEntry) -> str:
    return f"{entry._state.db}:{entry.pk}"


def _listing(request: HttpRequest) -> Listing[OutboxEntry]:
    """Return entries with the state in the URL; those that wait are in the order of their next step."""
    state = request.GET.get("state", "")
    is_ended = state in (DELIVERED, DISCARDED)
    entries: list[OutboxEntry] = []
    for alias in conf.qless.outbox.database:
        for wanted in (state,) if state in OutboxEntry.State.values else OPEN:
            rows = OutboxEntry.objects.using(alias).filter(state=wanted).defer("commands", "ids")
            entries += rows.order_by("-due_at" if is_ended else "due_at")[:MAX_LISTED]
    columns = COLUMNS if len(conf.qless.outbox.database) > 1 else COLUMNS[:-1]
    return listing(request, columns, entries[:MAX_LISTED])


def _job_row(job: Job, is_delivered: bool) -> Row:
    arguments = display_json(job.raw_data, job.klass)[0]
    return Row(
        {
            "job": formatting.job_link(job.jid) if is_delivered else formatting.breakable(job.jid),
            "class": formatting.breakable(job.klass),
            "queue": formatting.breakable(job.queue_name),
            "arguments": format_html('<pre class="resty-value" tabindex="0">{}</pre>', arguments),
        }
    )


def _facts(entry: OutboxEntry, now: float) -> list[tuple[str, object]]:
    due = _("Due") if entry.state == WAITING else _("Deleted") if entry.state not in OPEN else ""
    facts: list[tuple[str, object]] = [
        (_("State"), entry.get_state_display()),
        (_("Jobs"), formatting.number(entry.jobs)),
        (_("Enqueued"), formatting.relative_time(from_db(entry.waiting_since), now)),
        (_("Attempts"), formatting.number(entry.attempts)),
        (_("Last error"), formatting.breakable(printable(entry.error, 1000))),
        (_("Waits for"), ", ".join(map(formatting.name, names_in(entry.depends)[:MAX_JOBS]))),
        (_("Delivered"), entry.delivered_at and formatting.relative_time(from_db(entry.delivered_at), now)),
        (due, formatting.relative_time(from_db(entry.due_at), now)),
        (_("Database"), entry._state.db if len(conf.qless.outbox.database) > 1 else ""),
    ]
    return [(label, value) for label, value in facts if label and value]
