"""Workers with their state, jobs and control."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.template.backends.utils import csrf_input
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.bulk import MAX_NAMED, FactList
from resty_django.admin.lists import FigureTile
from resty_django.admin.operations import Operation
from resty_django.admin.tables import order_of, sheet_of, sort, table

from ...clients.client import Client
from ...clients.replies import WorkerCounts
from ...models import Worker
from .. import formatting
from ..base import TEMPLATES, JobsAdmin
from ..forms import NameForm
from ..job_lists.export import jobs_of, jobs_sheet
from ..job_lists.filters import JobFilter
from ..job_lists.lists import JobList
from ..redis_reads import fetch_jobs, sorted_set
from .operations import OPERATIONS_ON_WORKERS
from .rows import CONTROL_COLUMN, LIST_COLUMNS, WorkerInfo, facts, jobs_table, list_row, stopped_text
from .stacks import stacks_section

MAX_LISTED_JOBS: Final = 200
"""Maximum number of jobs on a worker's page."""


class WorkerAdmin(JobsAdmin[Worker]):
    operations = OPERATIONS_ON_WORKERS

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        client = self.client()
        now = client.clock()
        counts = client.workers.counts()
        names = set(self.filter_names(request, (worker.name for worker in counts)))
        workers = self._infos(client, [worker for worker in counts if worker.name in names])
        controls = self.may(request, "control_worker")
        stuck = [formatting.link("worker", worker.name) for worker in workers if worker.stuck_reason]
        empty = (
            _("No matching workers. Remove the filter.")
            if counts
            else _("No workers. A worker appears here once it polls for a job.")
        )
        rows = [list_row(worker, now, _controls(request, worker) if controls else "") for worker in workers]
        rows = sort(rows, order_of(request, LIST_COLUMNS))
        workers_table = table(
            request,
            (*LIST_COLUMNS, CONTROL_COLUMN) if controls else LIST_COLUMNS,
            rows,
            caption=_("Workers"),
            empty=empty,
            check_boxes=True,
            export=sheet_of("workers", LIST_COLUMNS, lambda: rows),
        )
        note = ngettext("%(count)s worker is stuck", "%(count)s workers are stuck", len(stuck))
        note %= {"count": formatting.number(len(stuck))}
        named = format_html_join(", ", "{}", ((link,) for link in stuck[:MAX_NAMED]))
        return self.list_page(
            request,
            workers_table,
            form=NameForm(request.GET),
            notes=[format_html("{}: {}{}", note, named, ", …" if stuck[MAX_NAMED:] else "")] if stuck else [],
            **self.bulk_context(request, len(workers)),
        )

    @object_page
    def change_view(self, request: HttpRequest, row: Worker) -> HttpResponse:
        client = self.client()
        now = client.clock()
        held = client.workers[row.name]
        jids = list(dict.fromkeys((*held.stalled, *held.jobs)))
        jobs, _gone = fetch_jobs(client, jids[:MAX_LISTED_JOBS])
        counts = WorkerCounts(name=row.name, jobs=len(held.jobs), stalled=len(held.stalled))
        (worker,) = self._infos(client, [counts])
        sheet = jobs_sheet(client, lambda: jobs_of(JobList(client, JobFilter(worker=row.name))))
        context = {
            "title": formatting.name(row.name),
            "object": row,
            "on_object": True,
            "stuck": worker.stuck_reason,
            "tiles": [
                FigureTile(_("Running"), formatting.number(counts.jobs)),
                FigureTile(_("Stalled"), formatting.number(counts.stalled), alarm=counts.stalled > 0),
            ],
            "facts": list(facts(worker, now)),
            "controllable": worker.report is not None,
            "table": jobs_table(request, jobs, worker.report, now, sheet),
            "more": _("Only the first %(count)s jobs are shown.") % {"count": formatting.number(MAX_LISTED_JOBS)}
            if len(jids) > MAX_LISTED_JOBS
            else "",
            "stacks": stacks_section(client, row.name, worker.report, now),
        }
        return self.page(request, f"{TEMPLATES}/worker.html", context)

    # --- operations ---

    def load(self, names: Sequence[str]) -> dict[str, WorkerInfo]:
        client = self.client()
        counts = [worker for worker in client.workers.counts() if worker.name in names]
        return {worker.name: worker for worker in self._infos(client, counts)}

    def named_facts(self, operation: Operation[Any], targets: Mapping[str, WorkerInfo]) -> FactList:
        """Name also the processes and the running jobs that a stop concerns."""
        facts, client = super().named_facts(operation, targets), self.client()
        if operation.name == "stop":
            facts += [
                (formatting.name(worker.name), stopped_text(client, worker))
                for worker in [*targets.values()][:MAX_NAMED]
            ]
        return facts

    def listed_names(self, request: HttpRequest) -> list[str]:
        return self.filter_names(request, (worker.name for worker in self.client().workers.counts()))

    def count_text(self, count: int) -> str:
        return ngettext("%(count)s worker", "%(count)s workers", count) % {"count": formatting.number(count)}

    @staticmethod
    def _infos(client: Client, counts: list[WorkerCounts]) -> list[WorkerInfo]:
        """Return the facts about workers, sorted by name, in a few calls for all of them."""
        seen = sorted_set(client, "ZREVRANGE", "workers", 0, -1)
        lives = {life.name: life for life in client.workers.alive()}
        names = [worker.name for worker in counts if worker.name in lives]
        reports = {report.name: report for report in client.workers.reports(*names)} if names else {}
        return [
            WorkerInfo(worker, seen.get(worker.name), lives.get(worker.name), reports.get(worker.name))
            for worker in sorted(counts, key=_by_name)
        ]


def _by_name(worker: WorkerCounts) -> tuple[str, str]:
    """Return the sort key of a worker; by default its name consists of host and PID. "web-9" comes before "web-10"."""
    return re.sub("[0-9]+", lambda digits: digits[0].zfill(12), worker.name), worker.name


def _controls(request: HttpRequest, worker: WorkerInfo) -> SafeString | str:
    """Return a row's form, and a link to the page that stops the worker.

    The button that scales is the first one, because Enter in the field for the slots presses the first button.
    """
    report = worker.report
    if report is None or report.state == "stopping":
        return ""
    slots = next((request.slots for request in report.requests if request.slots is not None), report.slots)
    quiet = ("resume", _("Resume")) if report.state == "quiet" else ("quiet", _("Quiet"))
    name = formatting.name(worker.name)
    buttons = [
        (formatting.url_from_list("worker", worker.name, operation), f"{label}: {name}", label)
        for operation, label in (("scale", _("Scale")), quiet)
    ]
    return format_html(
        '<form method="post" class="resty-controls">{}'
        '<input type="number" name="slots" value="{}" min="1" max="{}" aria-label="{}"> {} '
        '<a href="{}" aria-label="{}" class="button resty-danger-button">{}</a></form>',
        csrf_input(request),
        slots,
        report.max_slots,
        f"{_('Slots')}: {name}",
        format_html_join(
            " ", '<button type="submit" formaction="{}" aria-label="{}" class="button">{}</button>', buttons
        ),
        formatting.url_from_list("worker", worker.name, "stop"),
        f"{_('Stop')}: {name}",
        _("Stop"),
    )
