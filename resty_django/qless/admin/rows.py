"""Jobs as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from ..errors import QlessError
from ..job import Job
from ..models import token
from . import shown
from .sources import SORTED, Scope, Source
from .tables import PAGE, Column, Pager, Row, Table, changed, order_of, page_of, pager, sort, table

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


def row_of(job: Job, now: float) -> Row:
    history = history_of(job)
    at = float(history[-1].get("when") or 0) if history else 0.0
    state = state_of(job, now)
    return Row(
        cells={
            "job": shown.job_link(job.jid),
            "klass": shown.name(job.klass),
            "state": shown.state(state),
            "queue": shown.link("queue", job.queue_name),
            "priority": shown.number(job.priority),
            "tags": shown.tags(job.tags),
            "changed": shown.moment(at, now),
            "about": about(job, state, now),
        },
        values={
            "job": job.jid,
            "klass": job.klass,
            "state": state,
            "queue": job.queue_name,
            "priority": job.priority,
            "changed": at,
        },
        pick=token(job.jid),
        title=shown.short(job.jid),
    )


def state_of(job: Job, now: float) -> str:
    """As people see it: a running job whose lock has expired is stalled."""
    return "stalled" if job.state == "running" and 0 < job.expires_at <= now else job.state


def about(job: Job, state: str, now: float) -> Any:
    """What is of interest in this state."""
    if state == "failed":
        failure = failure_of(job)
        message = str(failure.get("message", "")).strip()
        return format_html(
            '{} <span class="resty-quiet">{}</span>',
            shown.link("failuregroup", str(failure.get("group", ""))),
            shown.name(message.splitlines()[-1] if message else "", 80),
        )
    if state in ("running", "stalled"):
        left = job.expires_at - now
        words = _("lock for {}") if left > 0 else _("lock lost for {}")
        return format_html("{} · {}", shown.link("worker", job.worker_name), str(words).format(shown.seconds(left)))
    if job.dependencies:
        return str(_("waits for {}")).format(shown.jobs(len(job.dependencies)))
    return ""


def failure_of(job: Job) -> dict[str, Any]:
    try:
        return job.failure
    except (QlessError, ValueError, TypeError):
        return {}


def history_of(job: Job) -> list[dict[str, Any]]:
    """What happened, oldest first, as far as it can be read."""
    try:
        return [each for each in job.raw_queue_history if isinstance(each, dict)]
    except QlessError:
        return []


def jobs_table(
    request: HttpRequest, client: Any, scope: Scope, *, caption: Any, empty: Any, picks: bool = True
) -> tuple[Table, Source]:
    """The jobs of a scope: by pages where the list is counted, else by a search that goes on."""
    source, now = Source(client, scope), client.clock()
    options: dict[str, Any] = {"caption": caption, "empty": empty, "picks": picks}
    if not source.exact:
        part = source.walk(request.GET.get("cursor", ""))
        note = (
            str(_("Looked at {}.")).format(shown.jobs(part.looked_at)) if part.cursor and len(part.jobs) < PAGE else ""
        )
        at = Pager(next=changed(request, cursor=part.cursor) if part.cursor else "", note=note)
        if part.cursor and not part.jobs:
            options["empty"] = _("None so far: go on with the next ones.")
        rows = [row_of(job, now) for job in part.jobs]
        return table(request, COLUMNS, rows, at=at, sortable=False, **options), source
    key, down = order_of(request, COLUMNS)
    if key and (total := source.total()) <= SORTED:
        jobs: Sequence[Job] = source.whole(total)
        rows = sort([row_of(job, now) for job in jobs], key, down)
        at = pager(request, len(rows))
        return table(request, COLUMNS, rows[max(0, at.first - 1) : at.last], at=at, **options), source
    page = page_of(request)
    part = source.page((page - 1) * PAGE)
    if page > 1 and not part.jobs:  # the list has become shorter
        page = max(1, -(-(part.total or 0) // PAGE))
        part = source.page((page - 1) * PAGE)
    rows = [row_of(job, now) for job in part.jobs]
    rows += [gone_row(jid) for jid in part.gone]
    at = pager(request, part.total or 0)
    return table(request, COLUMNS, rows, at=at, sortable=(part.total or 0) <= SORTED, **options), source


def gone_row(jid: str) -> Row:
    """A jid that a list still has, of a job that was canceled or has expired."""
    return Row({"job": shown.job_link(jid), "klass": format_html('<span class="resty-quiet">{}</span>', _("gone"))})


__all__ = ["failure_of", "history_of", "jobs_table", "row_of", "state_of"]
