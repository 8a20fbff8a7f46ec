"""Classes of jobs: their counts and durations over time, and their failure groups."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.lists import FigureTile
from resty_django.admin.tables import Column, Row, Table, table

from ..clients.client import Client
from ..clients.figures import JobTotals, by_class, latest_failures, summed
from ..models import JobClass
from . import formatting, job_charts
from .base import JobsAdmin
from .forms import NameForm

COLUMNS: Final = (
    Column("klass", gettext_lazy("Class")),
    Column("completed", gettext_lazy("Completed"), number=True),
    Column("failed", gettext_lazy("Failed"), number=True),
    Column("waited_p50", gettext_lazy("Waiting time, p50"), number=True),
    Column("waited_p95", gettext_lazy("p95"), number=True),
    Column("ran_p50", gettext_lazy("Running time, p50"), number=True),
    Column("ran_p95", gettext_lazy("p95"), number=True),
)


class JobClassAdmin(JobsAdmin[JobClass]):
    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        """List the classes with jobs in a period, those with the most failures first."""
        period = job_charts.period_of(request, "day")
        spans = job_charts.spans_of(self.client(), period)
        totals = by_class(spans)
        names = self.filter_names(request, totals)
        rows = [_row(klass, totals[klass]) for klass in names]
        rows.sort(key=lambda row: (-row.values["failed"], -row.values["completed"], row.values["klass"]))
        classes_table = table(
            request,
            COLUMNS,
            rows,
            caption=_("Classes"),
            empty=_("No matching classes. Remove the filter.") if totals else _("No jobs in this period."),
            export="classes",
        )
        return self.list_page(
            request,
            classes_table,
            form=NameForm(request.GET),
            hidden_filters=[("period", period)],
            periods=job_charts.period_tabs(period),
            charts=job_charts.figures_charts(spans, period),
        )

    @object_page
    def change_view(self, request: HttpRequest, row: JobClass) -> HttpResponse:
        """Show a class: its figures of a period, and the failure groups whose latest jobs have it."""
        client = self.client()
        period = job_charts.period_of(request)
        spans = job_charts.spans_of(client, period, klass=row.name)
        totals = summed(span.totals for span in spans)
        states = ("waiting", "running", "scheduled", "failed", "complete")
        return self.list_page(
            request,
            _failure_groups(request, client, row.name),
            title=formatting.name(row.name),
            object=row,
            on_object=True,
            tiles=[
                FigureTile(_("Completed"), formatting.number(totals.completed)),
                FigureTile(_("Failed"), formatting.number(totals.failed), alarm=totals.failed > 0),
                FigureTile(_("Waiting time, p50"), formatting.age(totals.waits.percentile(0.5))),
                FigureTile(_("Waiting time, p95"), formatting.age(totals.waits.percentile(0.95))),
                FigureTile(_("Running time, p50"), formatting.age(totals.runs.percentile(0.5))),
                FigureTile(_("Running time, p95"), formatting.age(totals.runs.percentile(0.95))),
            ],
            shortcuts=[
                (formatting.list_url("job", klass=row.name), _("All jobs")),
                *(
                    (formatting.list_url("job", klass=row.name, state=state), formatting.state_title(state))
                    for state in states
                ),
            ],
            periods=job_charts.period_tabs(period),
            charts=job_charts.figures_charts(spans, period),
        )


def _row(klass: str, totals: JobTotals) -> Row:
    durations = {
        "waited_p50": totals.waits.percentile(0.5),
        "waited_p95": totals.waits.percentile(0.95),
        "ran_p50": totals.runs.percentile(0.5),
        "ran_p95": totals.runs.percentile(0.95),
    }
    return Row(
        {
            "klass": formatting.link("jobclass", klass) if klass else _("others, which are not counted by name"),
            "completed": formatting.number(totals.completed),
            "failed": formatting.number(totals.failed),
            **{key: formatting.age(seconds) for key, seconds in durations.items()},
        },
        {"klass": klass, "completed": totals.completed, "failed": totals.failed, **durations},
    )


def _failure_groups(request: HttpRequest, client: Client, klass: str) -> Table:
    """Return the failure groups whose two latest jobs have this class, of the 50 largest groups."""
    counts = client.jobs.failed()
    largest = sorted(counts, key=lambda group: (-counts[group], group))[:50]
    latest = latest_failures(client, largest, 2)
    rows = [
        Row(
            {"group": formatting.link("failuregroup", group), "count": formatting.number(counts[group])},
            {"group": group, "count": counts[group]},
        )
        for group in largest
        if klass in latest[group].classes
    ]
    return table(
        request,
        [Column("group", _("Failure group")), Column("count", _("Failed jobs"), number=True)],
        rows,
        caption=_("Failure groups whose latest jobs have this class"),
        empty=_("None of the latest failed jobs has this class."),
        export="failure-groups",
    )
