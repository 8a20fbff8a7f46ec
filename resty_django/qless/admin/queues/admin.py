"""The queue pages: an overview of all queues, and a page for each queue.

A view reads from the job queue, makes a table, tiles and charts of the data, and renders them with `page`, a list with
`list_page`. The decorators `viewer_page` and `object_page` check the method and the permission first. If Redis is down,
`JobsAdmin` shows an error page. The pages of `operations.py`, on one queue or on selected rows, come from the base
classes, which call the hooks at the end of `QueueAdmin`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypedDict

from django.http import HttpRequest, HttpResponse
from django.template.backends.utils import csrf_input
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.charts import Chart, Series, sparkline
from resty_django.admin.lists import BulkContext, FigureTile, Tab
from resty_django.admin.tables import Column, Row, Table, table

from ...clients.client import Client
from ...clients.figures import completed_by_queue
from ...clients.replies import QueueCounts
from ...coverage import unserved_work
from ...facts import JobQueueFacts, QueueFacts, job_queue_facts, pauses_of
from ...models import Queue, token
from ...overview import notes_of, pause_text
from .. import formatting, job_charts
from ..base import TEMPLATES, JobsAdmin
from ..forms import NameForm
from ..job_lists.filters import JobFilter
from ..job_lists.lists import JobList
from ..job_lists.table import job_list_table
from ..jobs.operations import OPERATIONS
from ..jobs.stuck import stuck_notice, stuck_url
from ..recurring.operations import OPERATIONS_ON_RECURRING
from ..recurring.table import recurring_table
from ..redis_reads import is_listed, queue_counts, queue_names, tracked_count
from .operations import OPERATIONS_ON_QUEUES

COUNTED_STATES: Final = (*formatting.TAB_STATES, "recurring")
"""The fields of `QueueCounts` with a column and a tab, in this order."""
COLUMNS: Final = (
    Column("name", gettext_lazy("Queue")),
    *(Column(state, formatting.state_title(state), number=True) for state in COUNTED_STATES),
    Column("failed", gettext_lazy("Failed in 24 h"), number=True),
    Column("latency", gettext_lazy("Latency"), number=True),
    Column("hour", gettext_lazy("Completed in 1 h"), number=True),
    Column("status", gettext_lazy("Status"), sorts=False),
)
MAX_CHARTS: Final = 100
"""Maximum number of queues whose latency and last hour the overview shows."""


class QueueAdmin(JobsAdmin[Queue]):
    """The overview of queues and their pages. Users need the permission `resty_qless.view_job`."""

    operations = OPERATIONS_ON_QUEUES

    # --- pages --------------------------------------------------------------------------------------------------------

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """Show all queues. URL parameters: `name`, a text in the name; `period`, of the charts; `o` and `p`."""
        client = self.client()
        facts = job_queue_facts(client, detailed=MAX_CHARTS)  # queues, failures, workers, the last hour by minute
        unserved = unserved_work(client, facts.counts, facts.worker_lives)  # queues with jobs but without a worker

        names = set(self.filter_names(request, (queue.name for queue in facts.queues)))
        queues = [queue for queue in facts.queues if queue.name in names]
        completed = completed_by_queue(facts.spans, [queue.name for queue in queues[:MAX_CHARTS]])
        last_day = job_charts.spans_of(client, "day")
        period = job_charts.period_of(request, "day")
        chart_spans = last_day if period == "day" else job_charts.spans_of(client, period)
        failed = Counter[str]()
        for span in last_day:
            for (name, _class), totals in span.by_name.items():
                failed[name] += totals.failed

        may_pause = self.may(request, "pause_queue")
        rows = []
        for queue in queues:
            status = _status_cell(request, queue, is_unserved=queue.name in unserved.queues, may_pause=may_pause)
            rows.append(_row(queue, completed.get(queue.name, ()), failed[queue.name], status))
        empty = _("No matching queues. Remove the filter.")
        if not facts.queues:
            empty = _(
                'No queues yet. A queue is created when its first job is enqueued: client.queues["mail"].put(...).'
            )
        return self.list_page(
            request,
            table(request, COLUMNS, rows, caption=_("Queues"), empty=empty, check_boxes=True, export="queues"),
            form=NameForm(request.GET),
            tiles=_overview_tiles(client, facts),
            notes=notes_of(unserved),
            shortcuts=[(stuck_url(), _("Stuck jobs"))] if facts.total("depends") else [],
            periods=job_charts.period_tabs(period),
            charts=job_charts.figures_charts(chart_spans, period),
            **self.bulk_context(request, len(rows)),
        )

    @object_page
    def change_view(self, request: HttpRequest, row: Queue) -> HttpResponse:
        """Show a queue. URL parameters: `tab` ("stats", a state of jobs, or "recurring"), and `period` for "stats"."""
        client, name = self.client(), row.name
        tabs = ("stats", *COUNTED_STATES)
        tab = request.GET.get("tab")
        tab = tab if tab in tabs else "stats"
        tab_context: StatisticsTab | JobsTab
        if tab == "stats":
            tab_context = _statistics_tab(request, client, name)
        elif tab == "recurring":
            tab_context = self._recurring_tab(request, client, name)
        else:
            tab_context = self._jobs_tab(request, client, name, tab)
        context = {**_queue_context(client, row, tabs, tab), **tab_context}
        return self.page(request, f"{TEMPLATES}/queue.html", context)

    def _jobs_tab(self, request: HttpRequest, client: Client, name: str, state: str) -> JobsTab:
        job_list = JobList(client, JobFilter(queue=name, state=state))
        jobs = job_list_table(
            request, job_list, caption=str(formatting.state_title(state)), empty=_empty_text(state, name)
        )
        bulk = formatting.list_url("job", "bulk", queue=token(name), state=state)
        total = jobs.pager.total if job_list.countable else None
        return {"table": jobs, **self.bulk_context(request, total, [*OPERATIONS.values()], bulk)}

    def _recurring_tab(self, request: HttpRequest, client: Client, name: str) -> JobsTab:
        jobs = recurring_table(request, client, [name])
        bulk = formatting.list_url("recurringjob", "bulk", queue=token(name))
        return {"table": jobs, **self.bulk_context(request, jobs.pager.total, OPERATIONS_ON_RECURRING, bulk)}

    # --- hooks that the base classes call for operations --------------------------------------------------------------

    def load(self, names: Sequence[str]) -> dict[str, QueueCounts]:
        """Return the targets of an operation, on one or many queues, by name: the counts decide whether it applies."""
        return {counts.name: counts for counts in queue_counts(self.client(), names)}

    def listed_names(self, request: HttpRequest) -> list[str]:
        """Return the names of all rows of the overview, for an operation on all of them."""
        return self.filter_names(request, queue_names(self.client()))

    def count_text(self, count: int) -> str:
        """Return a text such as "5 queues", for messages about an operation."""
        return ngettext("%(count)s queue", "%(count)s queues", count) % {"count": formatting.number(count)}


# --- overview of all queues -------------------------------------------------------------------------------------------


def _overview_tiles(client: Client, facts: JobQueueFacts) -> list[FigureTile]:
    """Return the jobs of all queues by state, failures, tracked jobs, the workers that report, and the latency."""
    failed = sum(facts.failed.values())
    return [
        *(
            FigureTile(
                formatting.state_title(state),
                formatting.number(facts.total(state)),
                alarm=state == "stalled" and facts.total(state) > 0,
                url=formatting.list_url("job", state=state),
            )
            for state in formatting.TAB_STATES
        ),
        FigureTile(_("Failed"), formatting.number(failed), alarm=failed > 0, url=formatting.list_url("failuregroup")),
        FigureTile(_("Tracked"), formatting.number(tracked_count(client)), url=formatting.list_url("job", tracked="1")),
        FigureTile(
            _("Workers"),
            formatting.number(facts.alive),
            alarm=not facts.alive and facts.total("waiting") > 0,
            url=formatting.list_url("worker"),
        ),
        FigureTile(_("Latency"), formatting.age(facts.latency)),
    ]


def _row(queue: QueueFacts, completed: Sequence[int], failed: int, status: SafeString) -> Row:
    """Return a queue as a row. `completed`: jobs in each minute of the last hour; `failed`: jobs in the last day."""
    name, counts = queue.name, {state: getattr(queue.counts, state) for state in COUNTED_STATES}
    count_cells = {
        state: formatting.count_link(count, formatting.url("queue", name, tab=state)) for state, count in counts.items()
    }
    latency: str = formatting.age(queue.latency)
    if queue.pause:  # the latency grows until the queue is resumed, so the cell explains the pause instead
        text = pause_text(queue.pause, queue.counts.waiting, queue.latency)
        latency = format_html('<span class="resty-wrap">{}</span>', text)
    bars = [Series("completed", "", completed)]
    chart = sparkline(bars, _("Completed per minute"), width=80, height=20) if completed else ""
    cells = {
        **count_cells,
        "name": formatting.link("queue", name),
        "failed": formatting.count_link(failed, _failures_url(name)),
        "latency": latency,
        "hour": format_html("{} {}", formatting.number(sum(completed)), chart),
        "status": status,
    }
    sort_keys = {**counts, "name": name, "failed": failed, "latency": queue.latency or 0, "hour": sum(completed)}
    return Row(cells, sort_keys, pick=token(name), title=formatting.name(name))  # `pick`: the value of the check box


def _status_cell(request: HttpRequest, queue: QueueFacts, *, is_unserved: bool, may_pause: bool) -> SafeString:
    """Return whether the queue is active, with a link to pause it or a button that resumes it.

    `is_unserved`: whether jobs wait, but no worker polls the queue.
    """
    if queue.counts.paused:
        button = format_html(
            '<form method="post" action="{}">{}<button type="submit" class="button" aria-label="{}">{}</button></form>',
            formatting.url_from_list("queue", queue.name, "unpause"),
            csrf_input(request),
            f"{_('Resume')}: {formatting.name(queue.name)}",
            _("Resume"),
        )
        reason = formatting.name(queue.pause.reason, 60) if queue.pause and queue.pause.reason else ""
        return format_html("{} {} {}", formatting.state("paused"), reason, button if may_pause else "")
    status = (
        format_html('<span class="resty-alarm">{}</span>', _("no worker"))
        if is_unserved
        else pgettext("queue", "active")
    )
    link = format_html('<a href="{}">{}</a>', formatting.url("queue", queue.name, "pause"), _("pause"))
    return format_html("{} {}", status, link if may_pause else "")


# --- page of a queue --------------------------------------------------------------------------------------------------


class QueueContext(TypedDict):
    """The context of `queue.html` on each tab."""

    title: str
    object: Queue
    on_object: bool
    """Whether this is the page of `object`: the breadcrumbs do not link to it."""
    current_tab: str
    tabs: Sequence[Tab]
    paused: str
    """The text of the pause; empty if the queue is not paused."""
    reason: str
    exists: bool
    """Whether the queue is listed or has jobs; the page of any other name says that it does not exist yet."""
    stuck: tuple[str, str] | None
    """URL and text of a notice about stuck jobs."""


class StatisticsTab(TypedDict):
    """Figures and charts for a period."""

    periods: Sequence[Tab]
    tiles: Sequence[FigureTile]
    charts: Sequence[Chart]


class JobsTab(BulkContext):
    """The queue's recurring jobs, or its jobs in one state; `BulkContext` has the operations on selected ones."""

    table: Table


def _queue_context(client: Client, row: Queue, tabs: Sequence[str], current_tab: str) -> QueueContext:
    name, url = row.name, formatting.url("queue", row.name)
    queue = client.queues[name]
    counts = queue.counts()
    pause = pauses_of(client, [name])[name] if counts.paused else None
    return {
        "title": formatting.name(name),
        "object": row,
        "on_object": True,
        "current_tab": current_tab,
        "tabs": [
            Tab(
                f"{url}?tab={tab}",
                _("Stats") if tab == "stats" else formatting.state_title(tab),
                is_current=tab == current_tab,
                count="" if tab == "stats" else formatting.number(getattr(counts, tab)),
            )
            for tab in tabs
        ],
        "paused": capfirst(pause_text(pause, counts.waiting, queue.latency())) if pause else "",
        "reason": formatting.name(pause.reason) if pause and pause.reason else "",
        "stuck": stuck_notice(client, name) if counts.depends else None,
        "exists": is_listed(client, name) or any(getattr(counts, state) for state in formatting.TAB_STATES),
    }


def _statistics_tab(request: HttpRequest, client: Client, name: str) -> StatisticsTab:
    period, queue = job_charts.period_of(request), client.queues[name]
    today, latency, options = queue.stats(), queue.latency(), client.config.all()
    # A job's lease is the option `heartbeat`, of the queue or of all queues; the server's default is 60 seconds.
    lease = options.get(f"{name}-heartbeat", options.get("heartbeat", 60))
    max_running = options.get(f"{name}-max-concurrency")
    return {
        "periods": job_charts.period_tabs(period, "tab=stats&"),
        "tiles": [
            FigureTile(
                _("Failures today"),
                formatting.number(today.failures),
                alarm=today.failures > 0,
                url=_failures_url(name),
            ),
            FigureTile(_("Still failed"), formatting.number(today.failed)),
            FigureTile(_("Retries today"), formatting.number(today.retries)),
            FigureTile(_("Latency"), formatting.state("paused") if queue.paused() else formatting.age(latency)),
            FigureTile(_("Lease"), formatting.seconds(lease)),
            FigureTile(_("Max. running jobs"), formatting.name(str(max_running)) if max_running else _("unlimited")),
        ],
        "charts": job_charts.figures_charts(job_charts.spans_of(client, period, queue=name), period),
    }


def _failures_url(name: str) -> str:
    return formatting.list_url("job", state="failed", queue=token(name))


def _empty_text(state: str, name: str) -> str:
    return {
        "waiting": _('No waiting jobs. Enqueue one: client.queues["%(queue)s"].put(...).')
        % {"queue": formatting.name(name)},
        "running": _("No running jobs. If jobs are waiting, start a worker for this queue."),
        "stalled": _("No stalled jobs."),
        "scheduled": _("No scheduled jobs. Jobs enqueued with a delay appear here."),
        "depends": _("No jobs wait for other jobs."),
    }[state]
