"""Groups of failures: count, first and last failure, and the message of the newest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.base import object_page, viewer_page
from resty_django.admin.bulk import Selection
from resty_django.admin.charts import Series, sparkline
from resty_django.admin.formatting import NONE
from resty_django.admin.lists import FigureTile, ListContext
from resty_django.admin.operations import Operation, OperationResult, Refused
from resty_django.admin.tables import MAX_SORTED, Column, Row, SortOrder, Table, order_of, pager, sheet_of, sort, table
from resty_django.conf import conf

from ..clients.client import Client
from ..clients.default import default_client
from ..clients.figures import LatestFailures, latest_failures
from ..clients.serialization import text
from ..models import FailureGroup, token
from . import formatting
from .base import TEMPLATES, JobsAdmin
from .forms import NameForm, PaceForm
from .job_lists.filters import JobFilter
from .job_lists.lists import JobList
from .job_lists.table import job_list_table
from .jobs.bulk import JobLists
from .jobs.failure_report import FailureContext, failure_context
from .jobs.operations import OPERATIONS
from .redis_reads import failed_jids, fetch_jobs, queue_counts, redis_command

COLUMNS: Final = (
    Column("group", gettext_lazy("Failure group")),
    Column("count", gettext_lazy("Jobs"), number=True),
    Column("first", gettext_lazy("First seen"), number=True, time=True),
    Column("last", gettext_lazy("Last seen"), number=True, time=True),
    Column("spark", gettext_lazy("Latest 25"), sorts=False),
    Column("says", gettext_lazy("Latest error"), sorts=False),
)


class GroupContext(ListContext):
    """The context of `group.html`. `failure`: the newest job's; `paced`: the progress of a paced retry."""

    failure: FailureContext | None
    table: Table
    paced: Mapping[str, object] | None


def _pace(group: str, data: dict[str, Any]) -> OperationResult:
    if not (count := default_client().call("pace", group, data["rate"])):
        raise Refused(_("This group has no failed jobs any more."))
    return OperationResult.of(
        lambda: (
            _("Started the paced retry of %(jobs)s: %(rate)s per second.")
            % {"jobs": formatting.job_count(count), "rate": formatting.number(data["rate"])}
        )
    )


def _stop_pace(group: str, data: dict[str, Any]) -> OperationResult:
    if not (count := default_client().call("pace", group, 0)):
        raise Refused(_("The paced retry has ended already."))
    return OperationResult.of(
        lambda: _("Stopped the paced retry. Still failed: %(jobs)s.") % {"jobs": formatting.job_count(count)}
    )


PACE: Final = Operation(
    "pace",
    gettext_lazy("Retry at a pace"),
    "retry_job",
    _pace,
    gettext_lazy(
        "Failed jobs return to their queues one after the other, oldest first, with all of their retries, while "
        "workers poll these queues. Until its turn, a job stays failed. You can close the page."
    ),
    done=gettext_lazy("Started the paced retry of"),
    explain=lambda group: {
        "facts": [(_("Failed jobs"), formatting.number(failed_jids(default_client(), group, 0, 1)[0]))]
    },
    form=lambda data, group: PaceForm(data),
)


class FailureGroupAdmin(JobsAdmin[FailureGroup]):
    operations = (OPERATIONS["retry"], PACE, OPERATIONS["move"], OPERATIONS["cancel"])

    def extra_urls(self) -> list[URLPattern]:
        stop_pace = Operation(
            "stop_pace",
            gettext_lazy("Stop the paced retry"),
            "retry_job",
            _stop_pace,
            gettext_lazy("The jobs that are left stay failed."),
        )
        return [self.page_url("bulk", self.bulk_view, "bulk/"), *self.operation_urls(PACE, stop_pace)]

    def target(self, obj: FailureGroup) -> str:
        return obj.name

    def count_text(self, count: int) -> str:
        return formatting.job_count(count)

    def selection(self, request: HttpRequest, names: Sequence[str] | None) -> Selection:
        """Return the jobs of failure groups."""
        client = self.client()
        groups = self.filter_names(request, client.jobs.failed()) if names is None else names
        lists = [JobList(client, JobFilter(group=group)) for group in groups if group]  # none: all jobs
        return JobLists(client, lists, is_all=False)

    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        client = self.client()
        groups: dict[str, int] = client.jobs.failed()
        rows = [Row({}, {"group": group, "count": groups[group]}) for group in self.filter_names(request, groups)]
        order = order_of(request, COLUMNS)
        page = pager(request, len(rows))
        if order.key in ("first", "last") and len(rows) <= MAX_SORTED:
            rows = sort(_rows(client, rows), order)
            shown_rows = page.rows_of(rows)
        else:
            column = order.key if order.key in ("group", "count") else "count"
            rows = sort(rows, SortOrder(column, order.descending if order else True))
            shown_rows = _rows(client, page.rows_of(rows))
        failures_table = table(
            request,
            COLUMNS,
            shown_rows,
            caption=_("Failures"),
            empty=_("No matching groups. Remove the filter.") if groups else _("No failed jobs."),
            position=page,
            check_boxes=True,
            export=sheet_of(
                "failure-groups", [column for column in COLUMNS if column.key != "spark"], lambda: _rows(client, rows)
            ),
        )
        summary = _("%(jobs)s failed") % {"jobs": formatting.job_count(sum(groups.values()))}
        return self.list_page(
            request,
            replace(failures_table, summary=summary),
            facts=[(_("Failed jobs are deleted"), text)] if (text := _retention_text()) else [],
            form=NameForm(request.GET),
            bulk=formatting.list_url("job", "bulk", state="failed"),
            operations=self.offered(request),
            selection_url="bulk/",
            selection_label=_("Action for the jobs of the groups"),
            quick_operations=self._quick_operations(request, _("Retry everything"), None, _("Delete everything"))
            if groups
            else [],
        )

    @object_page
    def change_view(self, request: HttpRequest, row: FailureGroup) -> HttpResponse:
        client = self.client()
        return self.page(request, f"{TEMPLATES}/group.html", self._group_context(request, client, row))

    def _group_context(self, request: HttpRequest, client: Client, row: FailureGroup) -> GroupContext:
        group, now = row.name, client.clock()
        job_list = JobList(client, JobFilter(group=group))
        failed_jobs = job_list_table(
            request,
            job_list,
            caption=_("Failed jobs of the group"),
            empty=_("This group has no failed jobs any more."),
        )
        count = job_list.total()
        newest = next(iter(fetch_jobs(client, job_list.jids(0, 1))[0]), None)
        latest = latest_failures(client, [group])[group]
        return {
            "title": formatting.name(group),
            "object": row,
            "on_object": True,
            "tiles": [
                FigureTile(_("Failed jobs"), formatting.number(count), alarm=count > 0),
                FigureTile(_("First seen"), formatting.relative_time(latest.first or None, now)),
                FigureTile(_("Last seen"), formatting.relative_time(_last(latest), now)),
                FigureTile(COLUMNS[4].label, _sparkline(latest.times, now) or NONE),
            ],
            "paced": _paced_context(client, group, count),
            "failure": failure_context(newest, now, names_job=True),
            "table": failed_jobs,
            "bulk": formatting.list_url("job", "bulk", group=token(group)),
            "operations": self.offered(request, [*OPERATIONS.values()]),
            "select_all": count,
            "quick_operations": self._quick_operations(request, _("Retry all"), _("Move all"), _("Delete all"))
            if count
            else [],
            "quick_links": [(formatting.url("failuregroup", group, "pace"), PACE.label)]
            if count and self.may(request, "retry_job")
            else [],
            "actions": [(formatting.url("failuregroup", group, "history"), _("History"), False)],
        }

    def _quick_operations(self, request: HttpRequest, *labels: str | None) -> list[tuple[str, str, bool]]:
        """Return buttons for operations on all jobs of the list: name, label, and whether it is dangerous."""
        labelled = zip(("retry", "move", "cancel"), labels, strict=True)
        return [
            (name, label, OPERATIONS[name].danger)
            for name, label in labelled
            if label and self.may(request, OPERATIONS[name].permission)
        ]


def _retention_text() -> str:
    """Return when failed jobs are deleted by the settings; empty: never."""
    settings = conf.qless.retention
    parts: list[str] = []
    if settings.failed is not None:
        parts.append(_("after %(time)s") % {"time": formatting.duration(settings.failed)})
    if settings.failed_count is not None:
        parts.append(_("the oldest beyond %(jobs)s") % {"jobs": formatting.job_count(settings.failed_count)})
    if any(limits.failed is not None or limits.failed_count is not None for limits in settings.queues.values()):
        parts.append(_("some queues have other limits"))
    return "; ".join(parts)


def _paced_context(client: Client, group: str, failed: int) -> dict[str, object] | None:
    """Return the progress of a group's paced retry; None a day after its end. `failed`: the number of failed jobs."""
    values = redis_command(client, "HMGET", f"paced:{group}", "id", "queue", "rate", "left", "stopped")
    id, queue, rate, left_text, stopped = (text(value) if isinstance(value, bytes) else value or "" for value in values)
    jobs = client.groups.get(id) if id else None
    if jobs is None:
        return None
    left = min(int(left_text or 0), failed)
    first = redis_command(client, "ZRANGE", f"q:{queue}-paced", 0, 0) if left else []
    note: str
    if left and any(counts.paused for counts in queue_counts(client, [queue])):
        note = format_html(_("Waits: the queue {} is paused."), formatting.link("queue", queue))
    elif first and first[0] != group:
        note = format_html(_("Waits: the jobs of {} come first."), formatting.link("failuregroup", first[0]))
    elif stopped:
        note = _("Stopped. Still failed: %(jobs)s.") % {"jobs": formatting.job_count(int(stopped))}
    else:
        note = _("%(rate)s per second") % {"rate": formatting.number(float(rate))}
    ended = jobs.total - jobs.left
    counts = [
        (_("To be retried"), left),
        (_("Waiting or running"), jobs.left),
        (_("Complete"), jobs.done + jobs.skipped),
        *([(_("Canceled"), jobs.canceled)] if jobs.canceled else []),
    ]
    time_left = formatting.age(left / float(rate) if left else None)
    return {
        "note": note,
        "total": left + jobs.total,
        "ended": ended,
        "url": formatting.url("jobgroup", id),
        "stop": left and formatting.url("failuregroup", group, "stop_pace"),
        "tiles": [
            *(FigureTile(label, formatting.number(number)) for label, number in counts),
            FigureTile(_("Failed again"), formatting.number(jobs.failed), alarm=jobs.failed > 0),
            FigureTile(_("Time left"), time_left),
        ],
    }


def _rows(client: Client, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of groups with all columns. `rows`: their names and counts."""
    now = client.clock()
    latest = latest_failures(client, [row.values["group"] for row in rows])
    return [_row(row.values, latest[row.values["group"]], now) for row in rows]


def _row(values: Mapping[str, Any], latest: LatestFailures, now: float) -> Row:
    group, first, last = values["group"], latest.first or None, _last(latest)
    message = latest.message.strip()
    return Row(
        {
            "group": formatting.link("failuregroup", group),
            "count": formatting.number(values["count"]),
            "first": formatting.relative_time(first, now),
            "last": formatting.relative_time(last, now),
            "spark": _sparkline(latest.times, now),
            "says": formatting.name(message.splitlines()[-1] if message else "", 100),
        },
        {**values, "first": first, "last": last},
        pick=token(group),
        title=formatting.name(group),
    )


def _last(latest: LatestFailures) -> float | None:
    return next(iter(latest.times), 0) or None


def _sparkline(failed_at: Sequence[float], now: float) -> str:
    """Draw the times of the newest failures, from the earliest of them until now."""
    times = [timestamp for timestamp in failed_at if timestamp]
    if not times:
        return ""
    first, counts = min(times), [0] * 24
    width = max(1.0, now - first) / len(counts)
    for timestamp in times:
        counts[max(0, min(len(counts) - 1, int((timestamp - first) / width)))] += 1
    label = _("Latest %(count)s failures, the first %(time)s ago") % {
        "count": len(times),
        "time": formatting.duration(now - first),
    }
    return sparkline([Series("failed", "", counts)], label, width=120, height=20)
