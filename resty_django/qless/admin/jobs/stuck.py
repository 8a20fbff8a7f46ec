"""Jobs that wait for something that will not end: the list, and a notice for the page of a queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from resty_django.admin.export import Sheet
from resty_django.admin.tables import PAGE_SIZE, Column, Pager, Row, changed, order_of, sort, table

from ...clients.client import Client
from ...clients.replies import StuckJob
from ...models import Job, name_of, token
from .. import formatting
from ..base import JobsAdmin
from ..redis_reads import fetch_jobs

COLUMNS: Final = (
    Column("job", gettext_lazy("Job")),
    Column("klass", gettext_lazy("Class")),
    Column("queue", gettext_lazy("Queue")),
    Column("reason", gettext_lazy("Reason")),
    Column("actions", gettext_lazy("Actions"), sorts=False),
)
STUCK: Final = "stuck"
"""Parameter of a bulk operation's URL: return to the list of stuck jobs."""
JOBS_PER_CALL: Final = 100
"""Maximum number of jobs that one call examines."""
MAX_QUEUES: Final = 100
"""Maximum number of queues in the list of all queues."""


@dataclass(frozen=True, slots=True)
class StuckJobs:
    """Stuck jobs, and the number of jobs examined. `cursor`: where the next page starts; empty at the end."""

    jobs: Sequence[StuckJob]
    examined: int
    cursor: str = ""


def stuck_page(admin: JobsAdmin[Job], request: HttpRequest) -> HttpResponse:
    """Show stuck jobs. URL parameters: `queue`, `cursor`; `o` sorts the jobs of a page.

    Without a queue, the page examines the first 100 jobs that wait in each queue.
    """
    client, queue = admin.client(), name_of(request.GET.get("queue", ""))
    stuck = _in_queue(client, queue, request.GET.get("cursor", "")) if queue else _in_all_queues(client)
    jobs = {job.jid: job for job in fetch_jobs(client, [job.jid for job in stuck.jobs])[0]}
    rows = [_stuck_row(admin, request, job, jobs[job.jid].klass) for job in stuck.jobs if job.jid in jobs]
    stuck_table = table(
        request,
        COLUMNS,
        sort(rows, order_of(request, COLUMNS)),
        caption=_("Stuck jobs"),
        empty=_("No matches so far. Continue with the next page.") if stuck.cursor else _("No stuck jobs."),
        position=Pager(
            next=changed(request, cursor=stuck.cursor) if stuck.cursor else "",
            note=_("Examined %(jobs)s.") % {"jobs": formatting.job_count(stuck.examined)},
        ),
        check_boxes=True,
        export=Sheet("stuck", ("job", "klass", "queue", "reason", "other"), lambda: _exported(client, queue)),
    )
    query = formatting.query_of({STUCK: 1, "queue": request.GET.get("queue")})
    shortcuts = [(stuck_url(), _("All queues")), (formatting.url("queue", queue), _("The queue"))] if queue else []
    return admin.list_page(
        request,
        stuck_table,
        title=_("Stuck jobs in %(queue)s") % {"queue": formatting.name(queue)} if queue else _("Stuck jobs"),
        shortcuts=shortcuts,
        bulk=f"{reverse('admin:resty_qless_job_bulk')}{query}",
        operations=admin.offered(request),
    )


def _stuck_row(admin: JobsAdmin[Job], request: HttpRequest, job: StuckJob, klass: str) -> Row:
    reasons = {
        "failed": _("It waits for a job or a group that has failed. Retry that, or release this job."),
        "gone": _("It waits for a job that does not exist, because another client deleted it."),
        "complete": _("It waits for a job that is complete, but did not release it."),
        "itself": _("It waits for itself."),
        "nothing": _("It waits for no job, but is not in the list of waiting jobs."),
    }
    actions = []
    if admin.may(request, "edit_job"):
        dependency = token(job.other) if job.other else None
        actions.append((formatting.url("job", job.jid, "undepend", on=dependency), _("release")))
    if admin.may(request, "cancel_job"):
        actions.append((formatting.url("job", job.jid, "cancel"), _("delete")))
    other = formatting.job_link(job.other) if job.other and job.other != job.jid else ""
    return Row(
        {
            "job": formatting.job_link(job.jid),
            "klass": formatting.name(klass),
            "queue": formatting.link("queue", job.queue),
            "reason": format_html("{} {}", reasons.get(job.reason, job.reason), other),
            "actions": formatting.joined(actions),
        },
        {"job": job.jid, "klass": klass, "queue": job.queue, "reason": job.reason},
        pick=token(job.jid),
        title=formatting.short(job.jid),
    )


def stuck_url(queue: str = "") -> str:
    """Return the URL of the list of stuck jobs, of one queue or of all."""
    return reverse("admin:resty_qless_job_stuck") + formatting.query_of({"queue": token(queue) if queue else ""})


def stuck_notice(client: Client, queue: str) -> tuple[str, str] | None:
    """Return URL and text of a notice about stuck jobs among the first 100 that wait in a queue; None without any."""
    count = len(client.queues[queue].stuck().jobs)
    if not count:
        return None
    text = ngettext(
        "%(count)s job waits for something that will not end.",
        "%(count)s jobs wait for something that will not end.",
        count,
    )
    return stuck_url(queue), text % {"count": formatting.number(count)}


def _in_queue(client: Client, name: str, cursor: str) -> StuckJobs:
    """Return stuck jobs of a queue from `cursor` on. Ten calls examine at most 1000 jobs."""
    queue = client.queues[name]
    stuck: list[StuckJob] = []
    first = position = int(cursor) if cursor.isascii() and cursor.isdigit() and len(cursor) < 12 else 0
    for _call in range(10):
        page = queue.stuck(str(position))
        stuck += page.jobs
        if not page.cursor:
            return StuckJobs(stuck, max(0, queue.counts().depends - first))
        position = int(page.cursor)
        if len(stuck) >= PAGE_SIZE:
            break
    return StuckJobs(stuck, position - first, str(position))


def _exported(client: Client, name: str) -> Iterator[Sequence[object]]:
    """Yield stuck jobs of a queue, or of the first `MAX_QUEUES` queues if `name` is empty."""
    names = [name] if name else [counts.name for counts in client.queues.counts() if counts.depends][:MAX_QUEUES]
    for queue in names:
        cursor = ""
        for _call in range(1000):
            page = client.queues[queue].stuck(cursor, JOBS_PER_CALL)
            jobs = {job.jid: job for job in fetch_jobs(client, [job.jid for job in page.jobs])[0]}
            for job in page.jobs:
                if job.jid in jobs:
                    yield job.jid, jobs[job.jid].klass, job.queue, job.reason, job.other
            cursor = page.cursor
            if not cursor:
                break


def _in_all_queues(client: Client) -> StuckJobs:
    """Return the stuck jobs among the first that wait in each queue."""
    stuck: list[StuckJob] = []
    examined = 0
    for counts in [counts for counts in client.queues.counts() if counts.depends][:MAX_QUEUES]:
        stuck += client.queues[counts.name].stuck("", JOBS_PER_CALL).jobs
        examined += min(JOBS_PER_CALL, counts.depends)
    return StuckJobs(stuck, examined)
