"""Charts of queues and classes: jobs completed and failed, and durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.chart_axes import DAY, HOUR, MINUTE, Axis, Unit, time_axis
from resty_django.admin.charts import LINE, TABLE, Chart, Series
from resty_django.admin.formatting import duration, number, percent

from ..clients.figures import UNITS, Durations, Span, Totals
from ..clients.replies import QueueStats
from .formatting import job_count

PERIODS: Final[dict[str, str | Promise]] = {
    "hour": gettext_lazy("Last hour"),
    "day": gettext_lazy("Last day"),
    "week": gettext_lazy("Last week"),
    "month": gettext_lazy("Last 30 days"),
}
SPANS: Final = {"hour": ("minute", 60), "day": ("hour", 24), "week": ("day", 7), "month": ("day", 30)}
"""Unit and number of the spans of a period."""
_PER: Final[dict[int, str | Promise]] = {
    MINUTE: gettext_lazy("jobs per minute"),
    HOUR: gettext_lazy("jobs per hour"),
    DAY: gettext_lazy("jobs per day"),
}

BOUNDS: Final = (0, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800)
"""Lower bounds of the bars of a histogram, in seconds."""


def period_of(request: HttpRequest, default: str = "hour") -> str:
    """Return the period in the URL parameter `period`: one of `PERIODS`."""
    period = request.GET.get("period", "")
    return period if period in PERIODS else default


def period_links(period: str, query: str = "") -> list[tuple[str, Any, bool]]:
    """Return links to all periods: URL, text, and whether it is `period`. `query`: other parameters, such as "q=x&"."""
    return [(f"?{query}period={key}", str(label), key == period) for key, label in PERIODS.items()]


def spans_of(client: Any, period: str, *, queue: str = "", klass: str = "") -> list[Span]:
    """Return the figures of a period by minute, hour or day; of one queue, or of one class."""
    unit, count = SPANS[period]
    return client.figures.spans(unit, count, queue=queue, klass=klass)  # type: ignore[no-any-return]


def figures_charts(spans: Sequence[Span], period: str) -> list[Chart]:
    """Return the charts of a period: jobs completed and failed, and percentiles of their waiting and running times."""
    totals = [span.totals for span in spans]
    axis = time_axis([span.start for span in spans], UNITS[SPANS[period][0]])
    return [
        _outcomes_chart(totals, axis, period),
        _percentiles_chart(_("Waiting time"), [total.waits for total in totals], axis),
        _percentiles_chart(_("Running time"), [total.runs for total in totals], axis),
    ]


def _outcomes_chart(totals: Sequence[Totals], axis: Axis, period: str) -> Chart:
    completed, failed = [total.completed for total in totals], [total.failed for total in totals]
    return Chart(
        _("Completed and failed"),
        [Series("failed", _("Failed"), failed), Series("completed", _("Completed"), completed)],
        axis,
        y_label=str(_PER[UNITS[SPANS[period][0]]]),
        summary=_("%(jobs)s completed, %(failed)s failed; most completed: %(maximum)s")
        % {
            "jobs": job_count(sum(completed)),
            "failed": number(sum(failed)),
            "maximum": number(max(completed, default=0)),
        },
    )


def _percentiles_chart(title: str, durations: Sequence[Durations], axis: Axis) -> Chart:
    total = sum(durations, Durations())
    summary = _("no jobs")
    if total.count:
        summary = _("%(jobs)s, p50 %(p50)s, p95 %(p95)s") % {
            "jobs": job_count(total.count),
            "p50": duration(total.percentile(0.5) or 0),
            "p95": duration(total.percentile(0.95) or 0),
        }
    return Chart(
        title,
        [
            Series(
                "p50",
                _("p50: half of the jobs"),
                [span_durations.percentile(0.5) for span_durations in durations],
                LINE,
            ),
            Series(
                "p95",
                _("p95: 95 % of the jobs"),
                [span_durations.percentile(0.95) for span_durations in durations],
                LINE,
            ),
            Series("jobs", _("Jobs"), [span_durations.count for span_durations in durations], TABLE, Unit.COUNT),
        ],
        axis,
        y_label=_("duration"),
        unit=Unit.SECONDS,
        summary=summary,
        height=120,
    )


def durations_chart(title: str, days: Sequence[Any]) -> Chart:
    """Return the durations on the given days as one histogram with fewer bars, with mean and percentiles."""
    histogram = [sum(values) for values in zip(*(day.histogram for day in days), strict=False)]
    count = sum(day.count for day in days)
    if not count:
        return Chart(
            title,
            [Series("bar", _("Jobs"), [])],
            Axis([]),
            y_label=_("jobs"),
            summary=_("no jobs"),
        )
    mean = sum(day.mean * day.count for day in days) / count
    bars_of_histogram = [0.0] * len(BOUNDS)
    for index, value in enumerate(histogram):
        bars_of_histogram[_bar_index(_bin_start(index))] += value
    bar_count = max((index for index, value in enumerate(bars_of_histogram) if value), default=0) + 1
    labels = [
        f"{duration(lower) if lower else '0 s'} – {duration(upper)}"
        for lower, upper in zip(BOUNDS, (*BOUNDS[1:], 7 * DAY), strict=True)
    ][:bar_count]
    parts = [job_count(count), _("mean %(time)s") % {"time": duration(mean)}]
    if len(days) == 1:
        parts.append(_("deviation %(time)s") % {"time": duration(days[0].std)})
    parts += [
        _("%(share)s within %(time)s") % {"share": percent(share), "time": duration(within)}
        for share, within in percentiles(histogram)
    ]
    return Chart(
        title,
        [Series("bar", _("Jobs"), bars_of_histogram[:bar_count])],
        Axis(labels, _marks(bar_count), _("Time")),
        y_label=_("jobs"),
        summary=", ".join(parts),
        newest_first=False,
    )


def percentiles(histogram: Sequence[float], shares: Sequence[float] = (0.5, 0.9, 0.99)) -> list[tuple[float, float]]:
    """Return pairs of a share and its duration in seconds: the upper bound of the histogram bin."""
    total = sum(histogram)
    durations = []
    for share in shares:
        cumulated = 0.0
        for index, count in enumerate(histogram):
            cumulated += count
            if total and cumulated >= share * total:
                durations.append((share, _bin_start(index + 1)))
                break
    return durations


def days_of_period(period: str, now: float) -> list[float]:
    """Return timestamps of the days of a period: the core keeps statistics by day."""
    return [now - 86400 * day for day in range({"week": 7, "month": 30}.get(period, 1))]


def totals(days: Sequence[QueueStats]) -> dict[str, int]:
    return {kind: sum(getattr(day, kind) for day in days) for kind in ("failures", "failed", "retries")}


def _marks(bar_count: int) -> list[tuple[int, str]]:
    """Return short labels of the lower bounds of bars."""
    return [
        (index, duration(lower).replace(" ", "") if lower else "0") for index, lower in enumerate(BOUNDS[:bar_count])
    ]


def _bin_start(index: int) -> float:
    """Return the lower bound, in seconds, of a bin of the core's histogram: seconds, minutes, hours, days."""
    for length, unit in ((60, 1), (59, 60), (23, 3600)):
        if index < length:
            return (index if unit == 1 else index + 1) * unit
        index -= length
    return (index + 1) * 86400


def _bar_index(start: float) -> int:
    return max(index for index, lower in enumerate(BOUNDS) if lower <= start)
