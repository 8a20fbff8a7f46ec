"""Rows of the list of workers, facts and jobs of a worker's page, and reasons why a worker is stuck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.export import Sheet
from resty_django.admin.formatting import NONE
from resty_django.admin.tables import Column, Row, Table, table

from ...clients.client import Client
from ...clients.job import Job
from ...clients.replies import SILENT_SECONDS, WorkerCounts, WorkerLife
from ...clients.serialization import as_list
from ...clients.worker_reports import QUIET, RESUME, SCALE, STACKS, STOP, ReportedJob, WorkerReport
from ...models import token
from .. import formatting
from ..job_lists.rows import history_of
from ..redis_reads import fetch_jobs

LIST_COLUMNS: Final = (
    Column("name", gettext_lazy("Worker")),
    Column("state", gettext_lazy("State")),
    Column("process", gettext_lazy("Process")),
    Column("version", gettext_lazy("Version")),
    Column("queues", gettext_lazy("Queues"), sorts=False),
    Column("slots", gettext_lazy("Slots"), number=True),
    Column("jobs", gettext_lazy("Running"), number=True),
    Column("stalled", gettext_lazy("Stalled"), number=True),
    Column("longest", gettext_lazy("Longest job")),
    Column("uptime", gettext_lazy("Uptime"), number=True),
    Column("seen", gettext_lazy("Last seen"), time=True),
)
CONTROL_COLUMN: Final = Column("control", gettext_lazy("Control"), sorts=False)
MAX_CLASS_CHARS: Final = 60
"""Maximum length of the name of a class in a cell."""
REQUEST_LABELS: Final = {
    QUIET: gettext_lazy("Quiet"),
    RESUME: gettext_lazy("Resume"),
    STOP: gettext_lazy("Stop"),
    SCALE: gettext_lazy("Scale"),
    STACKS: gettext_lazy("Stacks"),
}


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Facts about a worker. `life` and `report` are None for workers of other clients."""

    counts: WorkerCounts
    seen: float | None
    life: WorkerLife | None
    report: WorkerReport | None

    @property
    def name(self) -> str:
        return self.counts.name

    @property
    def stuck_reason(self) -> str:
        """Why the worker is stuck: it is silent while it holds jobs, or a job runs too long; empty if it is not."""
        if self.life is not None and self.life.age >= SILENT_SECONDS and self.counts.jobs + self.counts.stalled:
            return _("stuck: silent for %(time)s") % {"time": formatting.duration(self.life.age)}
        job = None if self.report is None else self.report.late_job
        if job is None or self.report is None:
            return ""
        return _("stuck: %(class)s has been running for %(time)s") % {
            "class": formatting.name(job.klass, MAX_CLASS_CHARS),
            "time": formatting.duration(job.seconds + self.report.age),
        }


def state_cell(info: WorkerInfo, now: float, *, with_reason: bool = True) -> SafeString | str:
    """Return life, state, reason for being stuck and unconfirmed requests; empty for workers of other clients."""
    if info.life is None:
        return ""
    help_text = {
        "alive": _("The worker reports every 10 seconds."),
        "silent": _("No report for 30 seconds: the worker is blocked, stopped, or cut off from the server."),
        "gone": _("No report for two minutes. After ten minutes the worker is removed from the list."),
    }[info.life.state]
    parts: list[str] = [format_html('<span title="{}">{}</span>', help_text, info.life.state)]
    if info.report is not None and info.report.state != "running":
        labels = {"quiet": _("quiet: takes no new jobs"), "stopping": _("stopping")}
        parts.append(labels.get(info.report.state) or formatting.name(info.report.state, 40))
    if with_reason and info.stuck_reason:
        parts.append(format_html('<strong class="resty-alarm">{}</strong>', info.stuck_reason))
    parts += requests_pending(info.report, now)
    return format_html_join(" · ", "{}", ((part,) for part in parts))


def requests_pending(report: WorkerReport | None, now: float) -> list[SafeString]:
    """Return a text for each request to quiet, resume, stop or scale that the worker has not confirmed."""
    return [
        format_html(
            '<span class="resty-quiet">{}</span>',
            format_html(
                _("{action}: requested {time}, not confirmed yet"),
                action=REQUEST_LABELS[request.action]
                if request.slots is None
                else f"{REQUEST_LABELS[request.action]} ({formatting.number(request.slots)})",
                time=formatting.relative_time(request.at, now),
            ),
        )
        for request in (() if report is None else report.requests)
        if request.action != STACKS
    ]


def list_row(info: WorkerInfo, now: float, control: SafeString | str = "") -> Row:
    """Return a worker as a row; cells about its process are empty for workers of other clients."""
    cells: dict[str, object] = {
        "name": formatting.link("worker", info.name),
        "state": state_cell(info, now),
        "queues": queue_links(info.life, 5),
        "jobs": formatting.number(info.counts.jobs),
        "stalled": formatting.number(info.counts.stalled),
        "seen": formatting.relative_time(info.seen, now),
        "control": control,
    }
    sort_keys: dict[str, object] = {
        "name": info.name,
        "state": info.life.state if info.life is not None else "",
        "jobs": info.counts.jobs,
        "stalled": info.counts.stalled,
        "seen": info.seen or 0,
    }
    if (report := info.report) is not None:
        cells |= {
            "process": process_text(report),
            "version": version_cell(report),
            "slots": slots_text(report),
            "uptime": formatting.duration(max(0.0, now - report.started)),
        }
        sort_keys |= {
            "process": process_text(report),
            "version": report.release or report.package,
            "slots": report.slots,
            "uptime": now - report.started,
        }
        if longest := max(report.jobs, key=lambda job: job.seconds, default=None):
            cells["longest"] = _longest_cell(longest, report.age)
            sort_keys["longest"] = longest.seconds + report.age
    return Row(cells, sort_keys, pick=token(info.name), title=formatting.name(info.name))


def process_text(report: WorkerReport) -> str:
    return _("%(host)s, PID %(pid)s") % {"host": formatting.name(report.host, 60), "pid": report.pid}


def slots_text(report: WorkerReport) -> str:
    return f"{formatting.number(report.used)} / {formatting.number(report.slots)}"


def version_cell(report: WorkerReport) -> SafeString:
    """Return the site's release, or the version of resty_django; the tooltip contains all versions."""
    return format_html(
        '<span title="{}">{}</span>', versions_text(report), formatting.name(report.release or report.package, 40)
    )


def versions_text(report: WorkerReport) -> str:
    return _("resty_django %(package)s, Django %(django)s, Python %(python)s") % {
        name: formatting.name(getattr(report, name), 40) for name in ("package", "django", "python")
    }


def queue_links(life: WorkerLife | None, most: int) -> SafeString | str:
    names = [] if life is None else [str(name) for name in as_list(life.queues)]
    links = format_html_join(", ", "{}", ((formatting.link("queue", name),) for name in names[:most]))
    return format_html("{}, …", links) if len(names) > most else links


def facts(info: WorkerInfo, now: float) -> Iterator[tuple[str, object]]:
    """Yield the facts of a worker's page."""
    report = info.report
    yield _("State"), state_cell(info, now, with_reason=False) or _("unknown: this worker does not report")
    if report is not None:
        yield _("Host"), formatting.name(report.host)
        yield _("PID"), str(report.pid)
        yield _("Release"), formatting.name(report.release)
        yield _("Versions"), versions_text(report)
        yield _("Pool"), formatting.name(report.pool, 40)
    if info.life is not None:
        yield _("Queues"), queue_links(info.life, 100)
    if report is not None:
        yield _("Slots in use"), slots_text(report)
        yield _("Started"), formatting.relative_time(report.started, now)
    yield _("Last seen"), formatting.relative_time(info.seen, now)


def jobs_table(
    request: HttpRequest, jobs: Sequence[Job], report: WorkerReport | None, now: float, sheet: Sheet
) -> Table:
    """Return the jobs of a worker, those that have run longest first, with the export of all of them."""
    usual = {} if report is None else {job.klass: job.usual for job in report.jobs}
    rows = sorted((_job_row(job, usual.get(job.klass), now) for job in jobs), key=_by_duration)
    columns = (
        Column("job", _("Job")),
        Column("klass", _("Class")),
        Column("queue", _("Queue")),
        Column("running", _("Running for"), number=True),
        Column("usual", _("Usually"), number=True),
        Column("lease", _("Lease left"), number=True),
    )
    empty = _("The worker has no running jobs, or is no longer known.")
    return table(request, columns, rows, caption=_("Jobs of the worker"), empty=empty, export=sheet)


def _job_row(job: Job, usual: float | None, now: float) -> Row:
    popped = [entry.get("when") for entry in history_of(job) if entry.get("what") == "popped"]
    started = float(popped[-1]) if popped and isinstance(popped[-1], int | float) else None
    lease = job.expires_at - now
    return Row(
        {
            "job": formatting.job_link(job.jid),
            "klass": formatting.name(job.klass),
            "queue": formatting.link("queue", job.queue_name),
            "running": NONE if started is None else formatting.duration(max(0.0, now - started)),
            "usual": formatting.age(usual),
            "lease": formatting.duration(lease)
            if lease > 0
            else _("expired %(time)s ago") % {"time": formatting.duration(lease)},
        },
        {
            "job": job.jid,
            "klass": job.klass,
            "queue": job.queue_name,
            "running": "" if started is None else now - started,
            "usual": "" if usual is None else usual,
            "lease": lease,
        },
    )


def _by_duration(row: Row) -> float:
    running = row.values["running"]
    return -running if isinstance(running, float) else 0.0


def stopped_text(client: Client, info: WorkerInfo) -> SafeString:
    """Return the process that a stop ends, its grace period, and its running jobs, the first ten by name."""
    report = info.report
    process = [] if report is None else [process_text(report)]
    if report is not None and report.grace is not None:
        process.append(_("grace period %(time)s") % {"time": formatting.duration(report.grace)})
    jids = client.workers[info.name].jobs
    jobs = fetch_jobs(client, jids[:10])[0]
    process.append(_("%(jobs)s running") % {"jobs": formatting.job_count(len(jids))})
    names = [(formatting.name(job.klass, MAX_CLASS_CHARS), formatting.job_link(job.jid)) for job in jobs]
    if jids[10:]:
        names.append((_("and %(count)s more") % {"count": formatting.number(len(jids) - len(jobs))}, ""))
    return format_html("{}{}{}", ", ".join(process), ": " if names else "", format_html_join(", ", "{} {}", names))


def _longest_cell(job: ReportedJob, age: float) -> SafeString:
    link = formatting.link("job", job.jid, formatting.name(job.klass, MAX_CLASS_CHARS))
    return format_html("{} {}", link, formatting.duration(job.seconds + age))
