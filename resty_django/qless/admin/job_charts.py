"""Charts of queues and classes: jobs completed and failed, and durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.chart_axes import Axis, TimeUnit, Unit, time_axis
from resty_django.admin.charts import Chart, Series
from resty_django.admin.formatting import duration, number
from resty_django.admin.lists import Tab

from ..clients.client import Client
from ..clients.figures import Durations, JobTotals, TimeSpan
from .formatting import job_count


@dataclass(frozen=True, slots=True)
class ChartPeriod:
    """A period of the charts, of `count` minutes, hours or days."""

    label: Promise
    unit: TimeUnit
    count: int


PERIODS: Final = {
    "hour": ChartPeriod(gettext_lazy("Last hour"), "minute", 60),
    "day": ChartPeriod(gettext_lazy("Last day"), "hour", 24),
    "week": ChartPeriod(gettext_lazy("Last week"), "day", 7),
    "month": ChartPeriod(gettext_lazy("Last 30 days"), "day", 30),
}


def period_of(request: HttpRequest, default: str = "hour") -> str:
    """Return the period in the URL parameter `period`: one of `PERIODS`."""
    period = request.GET.get("period", "")
    return period if period in PERIODS else default


def period_tabs(period: str, query: str = "") -> list[Tab]:
    """Return links to all periods. `period`: the current one; `query`: other parameters, such as "q=x&"."""
    return [Tab(f"?{query}period={key}", entry.label, key == period) for key, entry in PERIODS.items()]


def spans_of(client: Client, period: str, *, queue: str = "", klass: str = "") -> list[TimeSpan]:
    """Return the figures of a period by minute, hour or day, for all jobs, a queue or a class."""
    return client.figures.spans(PERIODS[period].unit, PERIODS[period].count, queue=queue, klass=klass)


def figures_charts(spans: Sequence[TimeSpan], period: str) -> list[Chart]:
    """Return the charts of a period: jobs completed and failed, and percentiles of their waiting and running times."""
    totals = [span.totals for span in spans]
    unit = PERIODS[period].unit
    axis = time_axis([span.start for span in spans], unit)
    return [
        _outcomes_chart(totals, axis, unit),
        _times_chart([total.waits for total in totals], [total.runs for total in totals], axis),
    ]


def _outcomes_chart(totals: Sequence[JobTotals], axis: Axis, unit: TimeUnit) -> Chart:
    completed, failed = [total.completed for total in totals], [total.failed for total in totals]
    return Chart(
        _("Completed and failed"),
        [Series("failed", _("Failed"), failed), Series("completed", _("Completed"), completed)],
        axis,
        y_label={"minute": _("jobs per minute"), "hour": _("jobs per hour"), "day": _("jobs per day")}[unit],
        summary=_("%(jobs)s completed, %(failed)s failed; most completed: %(maximum)s")
        % {
            "jobs": job_count(sum(completed)),
            "failed": number(sum(failed)),
            "maximum": number(max(completed, default=0)),
        },
    )


def _times_chart(waits: Sequence[Durations], runs: Sequence[Durations], axis: Axis) -> Chart:
    def percentiles(durations: Sequence[Durations], share: float) -> list[float | None]:
        return [each.percentile(share) for each in durations]

    kinds = ((_("waiting"), sum(waits, Durations())), (_("running"), sum(runs, Durations())))
    summaries = [
        _("%(kind)s p50 %(p50)s, p95 %(p95)s")
        % {"kind": kind, "p50": duration(total.percentile(0.5) or 0), "p95": duration(total.percentile(0.95) or 0)}
        for kind, total in kinds
        if total.count
    ]
    return Chart(
        _("Waiting and running time"),
        [
            Series("waits", _("Waiting time, p95"), percentiles(waits, 0.95), "line"),
            Series("runs", _("Running time, p95"), percentiles(runs, 0.95), "line"),
            Series("waits-p50", _("Waiting time, p50"), percentiles(waits, 0.5), "table"),
            Series("runs-p50", _("Running time, p50"), percentiles(runs, 0.5), "table"),
        ],
        axis,
        y_label=_("duration"),
        unit=Unit.SECONDS,
        summary="; ".join(summaries) or _("no jobs"),
        height=120,
    )
