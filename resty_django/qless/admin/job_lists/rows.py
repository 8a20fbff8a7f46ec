"""Jobs as table rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from resty_django.admin.formatting import NONE
from resty_django.admin.tables import (
    Column,
    Row,
    SortOrder,
    Table,
    order_of,
    table,
)

from ...clients.client import Client
from ...clients.job import Job
from ...errors import QlessError
from ...models import token
from ...redaction import MARKS
from ...search.terms import Fragment, argument_texts
from .. import formatting
from ..redis_reads import redis_command
from .search import fragments_html
from .sources import URGENT_STATES

COLUMNS: Final = (
    Column("job", _("Job")),
    Column("klass", _("Class")),
    Column("arguments", _("Arguments"), sorts=False),
    Column("state", _("State")),
    Column("queue", _("Queue")),
    Column("priority", _("Priority"), number=True),
    Column("tags", _("Tags"), sorts=False),
    Column("changed", _("Last change")),
    Column("ran", _("Run time"), number=True),
    Column("about", _("Details"), sorts=False),
    Column("match", _("Match"), sorts=False),
)
"""`match`: where a search has found the job, if not in its arguments."""
URGENCY: Final = {state: rank for rank, state in enumerate((*URGENT_STATES, "failed", "complete"))}
"""The order of states by urgency."""
STOPPED: Final = "worker stopped"
"""The entry of a history that a stopping worker adds before it returns a job to its queue."""


def job_row(job: Job, now: float, due: float | None = None, places: Sequence[Fragment] = ()) -> Row:
    """Return a job as a row for `table_of_jobs`.

    `due`: when a scheduled job can run (epoch seconds); `places`: the matches of a search.
    """
    history = history_of(job)
    changed_at = float(history[-1].get("when") or 0) if history else 0.0
    state = state_of(job, now)
    ran = _ran_for(history, state, now)
    return Row(
        cells={
            "job": formatting.job_link(job.jid),
            "klass": formatting.breakable(job.klass),
            "state": formatting.state(state),
            "queue": formatting.breakable(job.queue_name),
            "priority": formatting.number(job.priority),
            "tags": formatting.name(", ".join(map(str, job.tags)), 80),
            "changed": formatting.relative_time(changed_at, now),
            "ran": _("< 1 s") if ran == 0 else formatting.age(ran),
            "about": detail_of(job, state, now, due),
            "match": fragments_html([place for place in places if not place.label.startswith("args")]),
        },
        values={
            "job": job.jid,
            "klass": job.klass,
            "state": URGENCY.get(state, len(URGENCY)),
            "queue": job.queue_name,
            "priority": job.priority,
            "tags": job.tags,
            "changed": changed_at,
            "ran": ran,
            "arguments": _arguments_of(job, places),
            "group": str(failure_of(job).get("group", "")) if state == "failed" else "",
        },
        pick=token(job.jid),
        title=formatting.short(job.jid),
    )


def job_rows(
    client: Client, jobs: Sequence[Job], now: float, fragments: Sequence[Sequence[Fragment]] = ()
) -> list[Row]:
    """Return jobs as rows, with the times of scheduled jobs. `fragments`: the matches of a search in each job."""
    due = _due_times(client, [job for job in jobs if job.state == "scheduled"])
    places = fragments or [()] * len(jobs)
    return [job_row(job, now, due.get(job.jid), found) for job, found in zip(jobs, places, strict=True)]


def _arguments_of(job: Job, places: Sequence[Fragment]) -> dict[tuple[str, str], SafeString]:
    """Return the redacted arguments as HTML by path and text: matches of a search first, hidden arguments last."""
    marked = {(place.label.removeprefix("args").removeprefix("."), place.text): place for place in places}
    try:
        texts = argument_texts(job.klass, job.data or {})
    except QlessError:
        return {}
    pairs = sorted(texts, key=lambda pair: (pair not in marked, pair[1] in MARKS))
    return {pair: _argument_html(*pair, marked.get(pair)) for pair in pairs}


def _argument_html(path: str, text: str, place: Fragment | None) -> SafeString:
    if place:
        return fragments_html([replace(place, label=path)])
    label = format_html('<span class="resty-quiet">{}:</span> ', formatting.name(path, 40)) if path else ""
    return format_html("{}{}", label, formatting.breakable(text, 40))


def _first_arguments(arguments: Sequence[SafeString]) -> SafeString:
    shown = [*arguments[:4], *(["…"] if len(arguments) > 4 else [])]
    return format_html_join(", ", "{}", ((cell,) for cell in shown))


def _ran_for(history: Sequence[Mapping[str, Any]], state: str, now: float) -> float | None:
    """Return the whole seconds of the latest run, which may not have ended; None if they are unknown."""
    times: list[Any] = [None, None]
    for entry in history:
        if entry.get("what") in ("popped", "taken"):
            times = [entry.get("when"), now if state in ("running", "stalled") else None]
        elif entry.get("what") in ("done", "failed", "failed-retries"):
            times[1] = entry.get("when")
    return max(0.0, (times[1] - times[0]) // 1) if all(isinstance(time, int | float) for time in times) else None


def table_of_jobs(
    request: HttpRequest, rows: Sequence[Row], *, order: SortOrder | None = None, **options: Any
) -> Table:
    """Return rows of jobs as a table.

    Values that all rows have in common stand above it, with links, and columns without content are left out. `order`,
    `options`: see `tables.table`.
    """
    kept = (order_of(request, COLUMNS) if order is None else order).key
    jobs = [row.values for row in rows if row.values]
    first: Mapping[str, Any] = jobs[0] if len(jobs) > 1 else {"arguments": {}, "group": "", "queue": "", "tags": ()}
    common = {pair: cell for pair, cell in first["arguments"].items() if all(pair in job["arguments"] for job in jobs)}
    group = first["group"] if all(job["group"] == first["group"] for job in jobs) else ""
    shown = [_row_without(row, common, group) for row in rows]
    links = {"queue": formatting.link("queue", first["queue"]), "tags": formatting.tag_links(first["tags"])}
    sharable = ("klass", "state", "queue", "priority", "tags", "about", "match")
    columns: list[Column] = []
    shared: list[tuple[str | Promise, object]] = []
    for column in COLUMNS:
        cells = {str(row.cells.get(column.key, "")) or NONE for row in shown}
        is_shared = len(rows) > 1 == len(cells) and column.key in sharable
        if column.key in ("job", kept) or not (is_shared or cells == {NONE}):
            columns.append(column)
        elif cells != {NONE}:
            shared.append((column.label, links.get(column.key) or shown[0].cells[column.key]))
    if group:
        shared.append((_("Failure group"), formatting.link("failuregroup", group)))
    if common:
        shared.append((_("Arguments"), _first_arguments([*common.values()])))
    return replace(table(request, columns, shown, order=order, **options), shared=shared)


def _row_without(row: Row, arguments: Collection[tuple[str, str]], group: str) -> Row:
    """Return a row without the arguments and the failure group that all rows have in common."""
    others = [cell for pair, cell in row.values.get("arguments", {}).items() if pair not in arguments]
    about = row.cells.get("about", "")
    if row.values.get("group") not in (None, "", group):
        about = format_html("{} {}", formatting.breakable(row.values["group"]), about)
    return replace(row, cells={**row.cells, "arguments": _first_arguments(others), "about": about})


def _due_times(client: Client, jobs: Sequence[Job]) -> dict[str, float]:
    """Return when scheduled jobs can run: one call for each of their queues."""
    by_queue: dict[str, list[str]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue_name, []).append(job.jid)
    due: dict[str, float] = {}
    for queue, jids in by_queue.items():
        times = redis_command(client, "ZMSCORE", f"q:{queue}-scheduled", *jids)
        due |= {jid: float(at) for jid, at in zip(jids, times, strict=True) if at is not None}
    return due


def state_of(job: Job, now: float) -> str:
    """Return the state to display.

    A running job whose lock has expired is stalled. A job that a stopped worker returned to its queue is waiting. A
    complete job may have been skipped.
    """
    if job.state == "complete" and any(entry.get("what") == "skipped" for entry in history_of(job)):
        return "skipped"
    if job.state == "stalled" and any(entry.get("what") == STOPPED for entry in history_of(job)[-1:]):
        return "waiting"
    return "stalled" if job.state == "running" and 0 < job.expires_at <= now else job.state


def detail_of(job: Job, state: str, now: float, due: float | None = None) -> object:
    """Return details for the state: the error, the lease, the time at which it can run, or the dependencies."""
    if state == "scheduled" and due is not None:
        return format_html("{} {}", _("can run"), formatting.relative_time(due, now))
    if state == "failed":
        message = str(failure_of(job).get("message", "")).strip()
        text = formatting.breakable(message.splitlines()[-1] if message else "", 80)
        return format_html('<span class="resty-quiet resty-about">{}</span>', text)
    if state in ("running", "stalled"):
        lease_left = job.expires_at - now
        template = _("lease %(time)s") if lease_left > 0 else _("lease expired %(time)s ago")
        text = template % {"time": formatting.duration(lease_left)}
        return format_html("{} · {}", formatting.breakable(job.worker_name), text)
    if job.dependencies:
        return _("waits for %(jobs)s") % {"jobs": formatting.job_count(len(job.dependencies))}
    return ""


def failure_of(job: Job) -> dict[str, Any]:
    try:
        return job.failure
    except (QlessError, ValueError, TypeError):
        return {}


def history_of(job: Job) -> list[dict[str, Any]]:
    """Return the readable entries of the history, oldest first, without the timeouts of jobs by stopped workers."""
    try:
        entries = [entry for entry in job.raw_queue_history if isinstance(entry, dict)]
    except QlessError:
        return []
    steps = [entry.get("what") for entry in entries]
    return [entry for n, entry in enumerate(entries) if steps[max(0, n - 1) : n + 1] != [STOPPED, "timed-out"]]


def gone_row(jid: str) -> Row:
    """Return a row for a jid whose job was canceled or has expired."""
    return Row(
        {"job": formatting.job_link(jid), "klass": format_html('<span class="resty-quiet">{}</span>', _("gone"))}
    )
