"""The queue pages: an overview of all queues, and a page for each queue.

How a page is made:

1. `viewer_page` or `object_page` checks the method and the permission to view (`resty_django/admin/base.py`).
2. The view reads the data with the client of the job queue. If Redis is down, `JobsAdmin` shows an error page instead.
3. The data become a table, tiles and charts; `list_page` or `page` renders them, in `listing.html` or `queue.html`.

Nothing changes by GET: pausing, resuming and forgetting a queue are operations (`operations.py`), each with its own
page and permission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypedDict

from django.http import HttpRequest, HttpResponse
from django.template.backends.utils import csrf_input
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.charts import Chart, Series, sparkline
from resty_django.admin.lists import BulkContext, FigureTile, Tab
from resty_django.admin.tables import Column, Row, Table, table

from ...clients.client import Client
from ...clients.figures import TimeSpan, completed_by_queue
from ...clients.replies import QueueCounts
from ...coverage import Coverage, coverage
from ...facts import JobQueueFacts, QueueFacts, facts, pauses_of
from ...models import Queue, token
from ...overview import notes_of, pause_text
from .. import charts, formatting
from ..base import TEMPLATES, TO_LIST, JobsAdmin
from ..forms import NameForm, queues_of
from ..job_lists.filters import JobFilter
from ..job_lists.lists import JobList
from ..job_lists.table import job_list_table
from ..jobs.operations import OPERATIONS
from ..jobs.stuck import stuck_notice, stuck_url
from ..recurring.operations import OPERATIONS_ON_RECURRING
from ..recurring.table import recurring_table
from ..redis_reads import queue_counts, redis_command
from .operations import OPERATIONS_ON_QUEUES

COLUMNS: Final = (
    Column("name", gettext_lazy("Queue")),
    *(Column(state, formatting.state_title(state), number=True) for state in formatting.TAB_STATES),
    Column("recurring", formatting.state_title("recurring"), number=True),
    Column("failed", gettext_lazy("Failed in 24 h"), number=True),
    Column("latency", gettext_lazy("Latency"), number=True),
    Column("hour", gettext_lazy("Completed in 1 h"), number=True),
    Column("pause", gettext_lazy("Status"), sorts=False),
)
MAX_CHARTS: Final = 100
"""Maximum number of queues whose latency and last hour the overview shows."""


class QueueAdmin(JobsAdmin[Queue]):
    """The overview of queues and their pages. Reading them takes the permission `resty_qless.view_job`."""

    operations = OPERATIONS_ON_QUEUES

    # --- pages --------------------------------------------------------------------------------------------------------

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """Show all queues. URL parameters: `name`, a text in the name; `period`, of the charts; `o` and `p`."""
        client = self.client()
        state = facts(client, detailed=MAX_CHARTS)
        unserved = coverage(client, state.counts, state.life)
        last_day, period = charts.spans_of(client, "day"), charts.period_of(request, "day")
        spans = last_day if period == "day" else charts.spans_of(client, period)

        names = set(self.filter_names(request, (queue.name for queue in state.queues)))
        shown_queues = [queue for queue in state.queues if queue.name in names]
        rows = self._rows(request, shown_queues, state, unserved, last_day)
        empty = _("No matching queues. Remove the filter.")
        if not state.queues:
            empty = _(
                'No queues yet. A queue is created when its first job is enqueued: client.queues["mail"].put(...).'
            )
        return self.list_page(
            request,
            table(request, COLUMNS, rows, caption=_("Queues"), empty=empty, check_boxes=True, export="queues"),
            form=NameForm(request.GET),
            tiles=_overview_tiles(client, state),
            notes=notes_of(unserved),
            shortcuts=[(stuck_url(), _("Stuck jobs"))] if state.total("depends") else [],
            periods=charts.period_tabs(period),
            charts=charts.figures_charts(spans, period),
            **self.bulk_context(request, len(rows)),
        )

    def _rows(
        self,
        request: HttpRequest,
        queues: Sequence[QueueFacts],
        state: JobQueueFacts,
        unserved: Coverage,
        last_day: Sequence[TimeSpan],
    ) -> list[Row]:
        completed = completed_by_queue(state.spans, [queue.name for queue in queues[:MAX_CHARTS]])
        failed = Counter[str]()
        for span in last_day:
            for (name, _class), totals in span.by_name.items():
                failed[name] += totals.failed
        may_pause = self.may(request, "pause_queue")
        return [
            _row(
                queue,
                completed.get(queue.name, ()),
                failed[queue.name],
                _status_cell(request, queue, may_pause=may_pause, has_worker=queue.name not in unserved.queues),
            )
            for queue in queues
        ]

    @object_page
    def change_view(self, request: HttpRequest, row: Queue) -> HttpResponse:
        """Show a queue. URL parameters: `tab` ("stats", a state of jobs, or "recurring"), and `period` for "stats"."""
        client, name = self.client(), row.name
        tabs = ("stats", *formatting.TAB_STATES, "recurring")
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
        return {
            "table": jobs,
            "operations": self.offered(request, [*OPERATIONS.values()]),
            "select_all": job_list.countable and jobs.pager.total,
            "bulk": f"{formatting.list_url('job')}bulk/" + formatting.query_of({"queue": token(name), "state": state}),
        }

    def _recurring_tab(self, request: HttpRequest, client: Client, name: str) -> JobsTab:
        jobs = recurring_table(request, client, [name])
        bulk = f"{reverse('admin:resty_qless_recurringjob_bulk')}{formatting.query_of({'queue': token(name)})}"
        return {"table": jobs, **self.bulk_context(request, jobs.pager.total, OPERATIONS_ON_RECURRING, bulk)}

    # --- operations ---------------------------------------------------------------------------------------------------

    def load(self, names: Sequence[str]) -> dict[str, QueueCounts]:
        return {counts.name: counts for counts in queue_counts(self.client(), names)}

    def listed_names(self, request: HttpRequest) -> list[str]:
        return self.filter_names(request, queues_of(self.client()))

    def count_text(self, count: int) -> str:
        return ngettext("%(count)s queue", "%(count)s queues", count) % {"count": formatting.number(count)}


# --- overview of all queues -------------------------------------------------------------------------------------------


def _overview_tiles(client: Client, state: JobQueueFacts) -> list[FigureTile]:
    """Return the jobs of all queues by state, failures, tracked jobs, the workers that report, and the latency."""
    failed, stalled = sum(state.failed.values()), state.total("stalled")
    tracked = redis_command(client, "ZCARD", "tracked")
    return [
        *(
            FigureTile(
                formatting.state_title(name),
                formatting.number(state.total(name)),
                alarm=name == "stalled" and stalled > 0,
                url=formatting.list_url("job", state=name),
            )
            for name in formatting.TAB_STATES
        ),
        FigureTile(_("Failed"), formatting.number(failed), failed > 0, formatting.list_url("failuregroup")),
        FigureTile(_("Tracked"), formatting.number(tracked), url=formatting.list_url("job", tracked="1")),
        FigureTile(
            _("Workers"),
            formatting.number(state.alive),
            alarm=not state.alive and state.total("waiting") > 0,
            url=formatting.list_url("worker"),
        ),
        FigureTile(_("Latency"), formatting.age(state.latency)),
    ]


def _row(queue: QueueFacts, completed: Sequence[int], failed: int, status: SafeString) -> Row:
    """Return a queue as a row. `completed`: jobs in each minute of the last hour; `failed`: jobs in the last day."""
    name, counts = queue.name, {state: getattr(queue.counts, state) for state in (*formatting.TAB_STATES, "recurring")}
    count_cells = {
        state: formatting.count_link(count, formatting.url("queue", name, tab=state)) for state, count in counts.items()
    }
    latency: str = formatting.age(queue.latency)
    if queue.pause:
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
        "pause": status,
    }
    sort_keys = {**counts, "name": name, "failed": failed, "latency": queue.latency or 0, "hour": sum(completed)}
    return Row(cells, sort_keys, pick=token(name), title=formatting.name(name))


def _status_cell(request: HttpRequest, queue: QueueFacts, *, may_pause: bool, has_worker: bool) -> SafeString:
    """Return whether the queue is active, with a link to pause it or a button that resumes it.

    `has_worker`: False if no worker polls the queue while jobs wait.
    """
    if queue.counts.paused:
        button = format_html(
            '<form method="post" action="{}">{}<button type="submit" class="button" aria-label="{}">{}</button></form>',
            formatting.url("queue", queue.name, "unpause", **{TO_LIST: 1}),
            csrf_input(request),
            f"{_('Resume')}: {formatting.name(queue.name)}",
            _("Resume"),
        )
        reason = formatting.name(queue.pause.reason, 60) if queue.pause and queue.pause.reason else ""
        return format_html("{} {} {}", formatting.state("paused"), reason, button if may_pause else "")
    status = _("active") if has_worker else format_html('<span class="resty-alarm">{}</span>', _("no worker"))
    link = format_html('<a href="{}">{}</a>', formatting.url("queue", queue.name, "pause"), _("pause"))
    return format_html("{} {}", status, link if may_pause else "")


# --- page of a queue --------------------------------------------------------------------------------------------------


class QueueContext(TypedDict):
    """The context of `queue.html` on each tab."""

    title: str
    object: Queue
    on_object: bool
    current_tab: str
    tabs: Sequence[Tab]
    paused: str
    """The text of the pause; empty if the queue is not paused."""
    reason: str
    exists: bool
    stuck: tuple[str, str] | None
    """URL and text of a notice about stuck jobs."""


class StatisticsTab(TypedDict):
    """Figures and charts for a period."""

    periods: Sequence[Tab]
    tiles: Sequence[FigureTile]
    charts: Sequence[Chart]


class JobsTab(BulkContext):
    """The queue's recurring jobs, or its jobs in one state."""

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
        "exists": redis_command(client, "ZSCORE", "queues", name) is not None
        or any(getattr(counts, state) for state in formatting.TAB_STATES),
    }


def _statistics_tab(request: HttpRequest, client: Client, name: str) -> StatisticsTab:
    period, queue = charts.period_of(request), client.queues[name]
    today, latency, options = queue.stats(), queue.latency(), client.config.all()
    lease = options.get(f"{name}-heartbeat", options.get("heartbeat", 60))
    max_running = options.get(f"{name}-max-concurrency", options.get("max-concurrency", 0))
    return {
        "periods": charts.period_tabs(period, "tab=stats&"),
        "tiles": [
            FigureTile(
                _("Failures today"), formatting.number(today.failures), today.failures > 0, url=_failures_url(name)
            ),
            FigureTile(_("Still failed"), formatting.number(today.failed)),
            FigureTile(_("Retries today"), formatting.number(today.retries)),
            FigureTile(_("Latency"), formatting.state("paused") if queue.paused() else formatting.age(latency)),
            FigureTile(_("Lease"), formatting.seconds(lease)),
            FigureTile(_("Max. running jobs"), formatting.name(str(max_running)) if max_running else _("unlimited")),
        ],
        "charts": charts.figures_charts(charts.spans_of(client, period, queue=name), period),
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
