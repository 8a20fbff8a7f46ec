"""Jobs as table rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from resty_django.admin.tables import (
    PAGE_SIZE,
    Column,
    Pager,
    Row,
    Table,
    changed,
    columns_of,
    number_of,
    order_of,
    page_of,
    pager,
    sort,
    table,
    with_choices,
)

from ..clients.job import Job
from ..errors import QlessError
from ..models import token
from . import formatting
from .job_lists import MAX_SORTED, JobFilter, JobList
from .job_search import fragments_html

COLUMNS: Final = (
    Column("job", _("Job")),
    Column("klass", _("Class")),
    Column("state", _("State")),
    Column("queue", _("Queue")),
    Column("priority", _("Priority"), number=True),
    Column("tags", _("Tags"), sorts=False),
    Column("changed", _("Last change")),
    Column("about", _("About"), sorts=False),
)
MORE_COLUMNS: Final = (
    Column("retries", _("Retries left"), number=True),
    Column("worker", _("Worker")),
    Column("txid", _("Transaction")),
)
ALL_COLUMNS: Final = (*COLUMNS, *MORE_COLUMNS)
"""The columns that users can choose; `COLUMNS` are the default."""
MATCH_COLUMN: Final = Column("match", _("Match"), sorts=False)
"""The column of a search: where a job matches."""


def job_row(job: Job, now: float) -> Row:
    history = history_of(job)
    changed_at = float(history[-1].get("when") or 0) if history else 0.0
    state = state_of(job, now)
    return Row(
        cells={
            "job": formatting.job_link(job.jid),
            "klass": formatting.name(job.klass),
            "state": formatting.state(state),
            "queue": formatting.link("queue", job.queue_name),
            "priority": formatting.number(job.priority),
            "tags": formatting.tag_links(job.tags),
            "changed": formatting.relative_time(changed_at, now),
            "about": detail_of(job, state, now),
            "retries": formatting.number(max(0, job.retries_left)),
            "worker": formatting.link("worker", job.worker_name),
            "txid": formatting.txid_link(job.txid),
        },
        values={
            "job": job.jid,
            "klass": job.klass,
            "state": state,
            "queue": job.queue_name,
            "priority": job.priority,
            "changed": changed_at,
            "retries": job.retries_left,
            "worker": job.worker_name,
            "txid": job.txid,
        },
        pick=token(job.jid),
        title=formatting.short(job.jid),
    )


def state_of(job: Job, now: float) -> str:
    """Return the state to display: a running job whose lock has expired is stalled, and a complete job may have been
    skipped."""
    if job.state == "complete" and any(entry.get("what") == "skipped" for entry in history_of(job)):
        return "skipped"
    return "stalled" if job.state == "running" and 0 < job.expires_at <= now else job.state


def detail_of(job: Job, state: str, now: float) -> Any:
    """Return details for the state: the failure, the lease, or the dependencies."""
    if state == "failed":
        failure = failure_of(job)
        message = str(failure.get("message", "")).strip()
        return format_html(
            '{} <span class="resty-quiet">{}</span>',
            formatting.link("failuregroup", str(failure.get("group", ""))),
            formatting.name(message.splitlines()[-1] if message else "", 80),
        )
    if state in ("running", "stalled"):
        lease_left = job.expires_at - now
        template = _("lease %(time)s") if lease_left > 0 else _("lease expired %(time)s ago")
        text = template % {"time": formatting.duration(lease_left)}
        return format_html("{} · {}", formatting.link("worker", job.worker_name), text)
    if job.dependencies:
        return _("waits for %(jobs)s") % {"jobs": formatting.job_count(len(job.dependencies))}
    return ""


def failure_of(job: Job) -> dict[str, Any]:
    try:
        return job.failure
    except (QlessError, ValueError, TypeError):
        return {}


def history_of(job: Job) -> list[dict[str, Any]]:
    """Return the readable entries of the history, oldest first."""
    try:
        return [entry for entry in job.raw_queue_history if isinstance(entry, dict)]
    except QlessError:
        return []


def jobs_table(
    request: HttpRequest, client: Any, job_filter: JobFilter, *, caption: Any, empty: Any, picks: bool = True
) -> tuple[Table, JobList]:
    """Return the jobs of a filter: numbered pages if the list is exact, else a search with a cursor."""
    job_list = JobList(client, job_filter)
    columns = columns_of(request, ALL_COLUMNS, COLUMNS)
    make_table = _paged_table if job_list.exact else _search_table
    jobs = make_table(request, job_list, columns, client.clock(), caption, empty, picks)
    if jobs.pager.total is not None:
        jobs = replace(jobs, summary=formatting.job_count(jobs.pager.total))
    return with_choices(request, jobs, ALL_COLUMNS, columns), job_list


def _search_table(
    request: HttpRequest,
    job_list: JobList,
    columns: Sequence[Column],
    now: float,
    caption: Any,
    empty: Any,
    picks: bool,
) -> Table:
    page = job_list.scan(request.GET.get("cursor", ""))
    note, next_url = "", ""
    if page.cursor:
        examined = number_of(request, "examined") + page.scanned
        next_url = changed(request, cursor=page.cursor, examined=examined)
        note = _examined(examined, page.candidates)
        if not page.jobs:
            empty = _("No matches so far. Continue with the next page.")
    rows = [job_row(job, now) for job in page.jobs]
    if job_list.job_filter.terms:
        columns = (*columns, MATCH_COLUMN)
        rows = [
            replace(row, cells={**row.cells, "match": fragments_html(places)})
            for row, places in zip(rows, page.fragments, strict=True)
        ]
    position = Pager(next=next_url, note=note)
    return table(request, columns, rows, caption=caption, empty=empty, picks=picks, position=position, sortable=False)


def _examined(examined: int, candidates: int | None) -> str:
    """Return the progress of a search."""
    if candidates is None or candidates < examined:
        return str(_("Examined {}.")).format(formatting.job_count(examined))
    return str(_("Examined {examined} of about {jobs}.")).format(
        examined=formatting.number(examined), jobs=formatting.job_count(candidates)
    )


def _paged_table(
    request: HttpRequest,
    job_list: JobList,
    columns: Sequence[Column],
    now: float,
    caption: Any,
    empty: Any,
    picks: bool,
) -> Table:
    key, descending = order_of(request, columns)
    if key and (total := job_list.total()) <= MAX_SORTED:
        rows = sort([job_row(job, now) for job in job_list.all_jobs(total)], key, descending)
        position = pager(request, len(rows))
        rows = rows[max(0, position.first - 1) : position.last]
        return table(request, columns, rows, caption=caption, empty=empty, picks=picks, position=position)
    number = page_of(request)
    page = job_list.page((number - 1) * PAGE_SIZE)
    total = page.total or 0
    if number > 1 and not page.jobs:  # the list has become shorter
        page = job_list.page((max(1, -(-total // PAGE_SIZE)) - 1) * PAGE_SIZE)
        total = page.total or 0
    return table(
        request,
        columns,
        [*(job_row(job, now) for job in page.jobs), *(gone_row(jid) for jid in page.gone)],
        caption=caption,
        empty=empty,
        picks=picks,
        position=pager(request, total),
        sortable=total <= MAX_SORTED,
    )


def gone_row(jid: str) -> Row:
    """Return a row for a jid whose job was canceled or has expired."""
    return Row(
        {"job": formatting.job_link(jid), "klass": format_html('<span class="resty-quiet">{}</span>', _("gone"))}
    )
