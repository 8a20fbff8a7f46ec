"""Overview of all queues, and the page of a queue: figures, jobs by state, pausing and forgetting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.charts import Chart, Series, sparkline
from resty_django.admin.lists import PicksContext
from resty_django.admin.tables import Column, Row, Table, table

from ...clients.client import Client
from ...clients.figures import completed_by_queue
from ...clients.replies import QueueCounts
from ...coverage import coverage
from ...facts import QueueFacts, facts, pauses_of
from ...models import Queue, token
from ...overview import notes_of, pause_text
from .. import charts, formatting
from ..base import TEMPLATES, JobsAdmin
from ..forms import NameForm, queues_of
from ..job_lists.export import with_export
from ..job_lists.filters import JobFilter
from ..job_lists.rows import jobs_table
from ..jobs.operations import OPERATIONS
from ..jobs.stuck import stuck_notice, stuck_url
from ..recurring.operations import OPERATIONS_ON_RECURRING
from ..recurring.table import recurring_table
from ..redis_reads import queue_counts, redis_command
from . import overview
from .operations import OPERATIONS_ON_QUEUES

COLUMNS: Final = (
    Column("name", gettext_lazy("Queue")),
    *(Column(state, formatting.state_title(state), number=True) for state in formatting.QUEUE_STATES),
    Column("recurring", formatting.state_title("recurring"), number=True),
    Column("failed", gettext_lazy("Failed in 24 h"), number=True),
    Column("latency", gettext_lazy("Latency"), number=True),
    Column("hour", gettext_lazy("Completed in 1 h"), number=True),
    Column("pause", gettext_lazy("Status"), sorts=False),
)
TABS: Final = ("stats", *formatting.QUEUE_STATES, "recurring")
MAX_CHARTS: Final = 100
"""Maximum number of queues whose last hour and latency are shown in the overview."""


class QueueContext(TypedDict):
    """The context of `queue.html` on each tab."""

    title: str
    object: Queue
    on_object: bool
    tab: str
    tabs: Sequence[tuple[str, str, str, bool]]
    """URL, label, job count, and whether this is the current tab."""
    paused: str
    """The text of the pause; empty if the queue is not paused."""
    reason: str
    exists: bool
    stuck: tuple[str, str] | None
    """URL and text of a notice about stuck jobs."""


class StatisticsTab(TypedDict):
    """Figures and charts for a period."""

    periods: Sequence[tuple[str, str, bool]]
    tiles: Sequence[Mapping[str, Any]]
    charts: Sequence[Chart]


class JobsTab(PicksContext):
    """The queue's recurring jobs, or its jobs in one state."""

    table: Table


class QueueAdmin(JobsAdmin[Queue]):
    operations = OPERATIONS_ON_QUEUES

    # --- pages --------------------------------------------------------------------------------------------------------

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        client = self.client()
        now = facts(client, detailed=MAX_CHARTS)
        unserved = coverage(client, now.counts, now.life)
        names = set(self.filter_names(request, (queue.name for queue in now.queues)))
        matching = [queue for queue in now.queues if queue.name in names]
        hours = completed_by_queue(now.spans, [queue.name for queue in matching[:MAX_CHARTS]])
        day, failed = charts.spans_of(client, "day"), Counter[str]()
        for span in day:
            for (name, _class), totals in span.by_name.items():
                failed[name] += totals.failed
        rows = [
            self._row(request, queue, hours.get(queue.name, ()), failed[queue.name], queue.name not in unserved.queues)
            for queue in matching
        ]
        queues_table = table(
            request,
            COLUMNS,
            rows,
            caption=_("Queues"),
            empty=_('No queues yet. A queue is created when its first job is enqueued: client.queues["mail"].put(...).')
            if not now.queues
            else _("No matching queues. Remove the filter."),
            picks=True,
            export="queues",
        )
        period = charts.period_of(request, "day")
        return self.list_page(
            request,
            queues_table,
            periods=charts.period_links(period),
            charts=charts.figures_charts(day if period == "day" else charts.spans_of(client, period), period),
            form=NameForm(request.GET),
            tiles=overview.tiles(client, now),
            notes=notes_of(unserved),
            shortcuts=[(stuck_url(), _("Stuck jobs"))] if now.total("depends") else [],
            **self.picks_context(request, len(matching)),
        )

    def _row(self, request: HttpRequest, queue: QueueFacts, hour: Sequence[int], failed: int, has_worker: bool) -> Row:
        name, counts = queue.name, queue.counts
        values = {state: getattr(counts, state) for state in (*formatting.QUEUE_STATES, "recurring")}
        cells: dict[str, Any] = {
            state: formatting.count_link(count, formatting.url("queue", name, tab=state))
            for state, count in values.items()
        }
        cells["name"] = formatting.link("queue", name)
        cells["failed"] = formatting.count_link(failed, _failures_url(name))
        cells["latency"] = formatting.age(queue.latency)
        if queue.pause:
            text = pause_text(queue.pause, counts.waiting, queue.latency)
            cells["latency"] = format_html('<span class="resty-wrap">{}</span>', text)
        cells["hour"] = format_html(
            "{} {}",
            formatting.number(sum(hour)),
            sparkline([Series("completed", "", hour)], _("Completed per minute"), width=80, height=20) if hour else "",
        )
        cells["pause"] = overview.delivery_cell(request, queue, self.may(request, "pause_queue"), has_worker)
        values |= {"name": name, "failed": failed, "latency": queue.latency or 0, "hour": sum(hour)}
        return Row(cells, values, pick=token(name), title=formatting.name(name))

    @object_page
    def change_view(self, request: HttpRequest, row: Queue) -> HttpResponse:
        """Show a queue. URL parameters: `tab`, and `period` for the statistics."""
        client = self.client()
        tab = request.GET.get("tab", "stats")
        tab = tab if tab in TABS else "stats"
        tab_context: StatisticsTab | JobsTab
        if tab == "stats":
            tab_context = _statistics_tab(request, client, row.name)
        elif tab == "recurring":
            tab_context = self._recurring_tab(request, client, row.name)
        else:
            tab_context = self._jobs_tab(request, client, row.name, tab)
        return self.page(request, f"{TEMPLATES}/queue.html", {**_queue_context(client, row, tab), **tab_context})

    def _jobs_tab(self, request: HttpRequest, client: Client, name: str, state: str) -> JobsTab:
        jobs, job_list = jobs_table(
            request,
            client,
            JobFilter(queue=name, state=state),
            caption=formatting.state_title(state),
            empty=_empty_text(state, name),
        )
        return {
            "table": with_export(jobs, job_list),
            "operations": self.offered(request, [*OPERATIONS.values()]),
            "select_all": job_list.countable and jobs.pager.total,
            "bulk": f"{formatting.list_url('job')}bulk/" + formatting.query_of({"queue": token(name), "state": state}),
        }

    def _recurring_tab(self, request: HttpRequest, client: Client, name: str) -> JobsTab:
        jobs = recurring_table(request, client, [name])
        bulk = f"{reverse('admin:resty_qless_recurringjob_bulk')}{formatting.query_of({'queue': token(name)})}"
        return {"table": jobs, **self.picks_context(request, jobs.pager.total, OPERATIONS_ON_RECURRING, bulk)}

    # --- operations ---------------------------------------------------------------------------------------------------

    def load(self, names: Sequence[str]) -> dict[str, QueueCounts]:
        return {counts.name: counts for counts in queue_counts(self.client(), names)}

    def listed_names(self, request: HttpRequest) -> list[str]:
        return self.filter_names(request, queues_of(self.client()))

    def count_text(self, count: int) -> str:
        return ngettext("%(count)s queue", "%(count)s queues", count) % {"count": formatting.number(count)}


def _queue_context(client: Client, row: Queue, tab: str) -> QueueContext:
    counts = client.queues[row.name].counts()
    pause = pauses_of(client, [row.name])[row.name] if counts.paused else None
    url = formatting.url("queue", row.name)
    return {
        "title": formatting.name(row.name),
        "object": row,
        "on_object": True,
        "tab": tab,
        "tabs": [
            (
                f"{url}?tab={key}",
                _("Stats") if key == "stats" else formatting.state_title(key),
                formatting.number(getattr(counts, key, None)),
                key == tab,
            )
            for key in TABS
        ],
        "paused": capfirst(pause_text(pause, counts.waiting, client.queues[row.name].latency())) if pause else "",
        "reason": formatting.name(pause.reason) if pause and pause.reason else "",
        "stuck": stuck_notice(client, row.name) if counts.depends else None,
        "exists": redis_command(client, "ZSCORE", "queues", row.name) is not None
        or any(getattr(counts, state) for state in formatting.QUEUE_STATES),
    }


def _statistics_tab(request: HttpRequest, client: Client, name: str) -> StatisticsTab:
    period, queue = charts.period_of(request), client.queues[name]
    today, latency, config = queue.stats(), queue.latency(), client.config.all()
    return {
        "periods": charts.period_links(period, "tab=stats&"),
        "tiles": [
            {
                "label": _("Failures today"),
                "value": formatting.number(today.failures),
                "alarm": today.failures,
                "url": _failures_url(name),
            },
            {"label": _("Still failed"), "value": formatting.number(today.failed)},
            {"label": _("Retries today"), "value": formatting.number(today.retries)},
            {"label": _("Latency"), "value": formatting.state("paused") if queue.paused() else formatting.age(latency)},
            {"label": _("Lease"), "value": _limit_text(config, name, "heartbeat", 60)},
            {"label": _("Max. running jobs"), "value": _limit_text(config, name, "max-concurrency", 0)},
        ],
        "charts": charts.figures_charts(charts.spans_of(client, period, queue=name), period),
    }


def _failures_url(name: str) -> str:
    return formatting.list_url("job", state="failed", queue=token(name))


def _limit_text(config: dict[str, Any], queue: str, option: str, default: int) -> str:
    value = config.get(f"{queue}-{option}", config.get(option, default))
    if option == "heartbeat":
        return formatting.seconds(value)
    return formatting.name(str(value)) if value else _("unlimited")


def _empty_text(tab: str, name: str) -> str:
    return {
        "waiting": _('No waiting jobs. Enqueue one: client.queues["%(queue)s"].put(...).')
        % {"queue": formatting.name(name)},
        "running": _("No running jobs. If jobs are waiting, start a worker for this queue."),
        "stalled": _("No stalled jobs."),
        "scheduled": _("No scheduled jobs. Jobs enqueued with a delay appear here."),
        "depends": _("No jobs wait for other jobs."),
    }[tab]
