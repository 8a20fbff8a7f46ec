"""List of recurring jobs and cron tasks, with the results of their latest jobs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from resty_django.admin.formatting import NONE
from resty_django.admin.tables import (
    MAX_SORTED,
    PAGE_SIZE,
    Column,
    Row,
    Table,
    filter_of,
    order_of,
    pager,
    sheet_of,
    sort,
    table,
)
from resty_django.text import printable

from ...clients.client import Client
from ...clients.job import Job
from ...clients.recurring import PAUSE_SECONDS, RecurringJob, is_paused, of_reply
from ...job_classes import discover_once, is_allowed
from ...models import token
from ...tasks.abandoned import Declared, of_tasks
from ...tasks.eager import DEFAULT_RETRIES
from ...tasks.schedule import CRON, is_cron_paused, latest_jids, next_times, scheduled
from .. import formatting
from ..job_lists.rows import history_of, state_of
from ..redis_reads import fetch_jobs, redis_command, sorted_set

COLUMNS: Final = (
    Column("jid", gettext_lazy("Recurring job")),
    Column("klass", gettext_lazy("Class")),
    Column("queue", gettext_lazy("Queue")),
    Column("interval", gettext_lazy("Schedule"), number=True),
    Column("next", pgettext_lazy("time", "Next"), time=True),
    Column("count", gettext_lazy("Made"), number=True),
    Column("results", gettext_lazy("Latest jobs"), sorts=False),
    Column("by", gettext_lazy("Declared by")),
    Column("tags", gettext_lazy("Tags"), sorts=False),
)
JOBS_PER_ROW: Final = 3
"""Maximum number of latest jobs whose state a row shows."""


@dataclass(frozen=True, slots=True)
class CronTask:
    """A task with `cron=`, with the attributes of a `RecurringJob`. `jid`: its key in URLs, which no job has."""

    klass: str
    queue_name: str
    cron: str
    priority: float
    retries: int
    tags: Sequence[str]

    @property
    def jid(self) -> str:
        return f"{CRON}{self.klass}"

    @property
    def data(self) -> dict[str, Any]:
        return {"args": [], "kwargs": {}}


def cron_tasks() -> dict[str, CronTask]:
    """Return the cron tasks of the code by `jid`, sorted by queue and name. Imports the modules of tasks."""
    discover_once()
    tasks = [
        CronTask(
            task.name,
            task.queue,
            task.schedule.cron,
            task.options.priority,
            DEFAULT_RETRIES if task.options.retries is None else task.options.retries,
            [*task.options.tags],
        )
        for task in list(scheduled.values())
        if task.schedule is not None and task.schedule.cron is not None and is_allowed(task.path)
    ]
    return {task.jid: task for task in sorted(tasks, key=lambda task: (task.queue_name, task.klass))}


def recurring_table(
    request: HttpRequest,
    client: Client,
    queues: Sequence[str],
    declared: Sequence[Declared] | None = None,
    *,
    cron: Sequence[CronTask] = (),
    actions: Sequence[tuple[str, str | Promise]] = (),
) -> Table:
    """Return a table of the queues' recurring jobs, sorted by queue and next time, followed by cron tasks.

    `declared`: the recurring jobs of tasks (None: read them). `actions`: the operations that the user may do, as pairs
    of URL name and label.
    """
    totals = [redis_command(client, "ZCARD", f"q:{queue}-recur") for queue in queues]
    count, cron_count = sum(totals), len(cron)
    order = order_of(request, COLUMNS)
    text = filter_of(request, "name").casefold()
    sorts_all = bool(text) or (bool(order) and count + cron_count <= MAX_SORTED)
    page = pager(request, count + cron_count)
    start, count_left = (0, MAX_SORTED) if sorts_all else (page.start, PAGE_SIZE)
    cron_shown = cron if sorts_all else cron[max(0, start - count) : max(0, start + count_left - count)]
    due: dict[str, float] = {}
    for queue, total in zip(queues, totals, strict=True):
        if start < total and count_left > 0:
            due_of_queue = sorted_set(client, "ZRANGE", f"q:{queue}-recur", start, start + count_left - 1)
            due |= due_of_queue
            count_left -= len(due_of_queue)
        start = max(0, start - total)
    now = client.clock()
    declared_by_jid = {entry.job.jid: entry for entry in (of_tasks(client) if declared is None else declared)}
    rows = [
        *(_row(job, due[job.jid], now, declared_by_jid.get(job.jid)) for job in jobs_of(client, list(due))),
        *(_cron_row(client, task, now) for task in cron_shown),
    ]
    if sorts_all:
        rows = [row for row in rows if _contains(row, text)]
        page = pager(request, len(rows))
        rows = list(page.rows_of(sort(rows, order)))
    recurring = table(
        request,
        (*COLUMNS, Column("actions", _("Actions"), sorts=False)) if actions else COLUMNS,
        _completed(client, rows, now, actions),
        caption=_("Recurring jobs"),
        empty=_("No matching recurring jobs. Remove the filter.")
        if text
        else _('No recurring jobs. Declare one: client.queues["mail"].recur("shop.jobs.SendDigest", {}, 3600).'),
        position=page,
        sorts=None if sorts_all or count + cron_count <= MAX_SORTED else (),
        check_boxes=True,
        export=sheet_of(
            "recurring",
            [column for column in COLUMNS if column.key != "results"],
            lambda: (row for row in _all_rows(client, queues, cron, now, declared_by_jid) if _contains(row, text)),
        ),
    )
    limit = _("The filter searches the first %(jobs)s.") % {"jobs": formatting.job_count(MAX_SORTED)}
    return replace(
        recurring,
        summary=formatting.job_count(count + cron_count),
        order=limit if text and count + cron_count > MAX_SORTED else "",
    )


def _contains(row: Row, text: str) -> bool:
    """Return whether the name, the class or the queue of a row contains a text in lower case."""
    return any(text in row.values[name].casefold() for name in ("jid", "klass", "queue"))


def _all_rows(
    client: Client, queues: Sequence[str], cron: Sequence[CronTask], now: float, declared: Mapping[str, Declared]
) -> Iterator[Row]:
    """Yield the rows of all recurring jobs and cron tasks."""
    for queue in queues:
        for start in itertools.count(0, PAGE_SIZE):
            due = sorted_set(client, "ZRANGE", f"q:{queue}-recur", start, start + PAGE_SIZE - 1)
            yield from (_row(job, due[job.jid], now, declared.get(job.jid)) for job in jobs_of(client, list(due)))
            if len(due) < PAGE_SIZE:
                break
    yield from (_cron_row(client, task, now) for task in cron)


def jobs_of(client: Client, jids: Sequence[str]) -> list[RecurringJob]:
    """Return the recurring jobs with these jids that exist."""
    replies = client.call_many([("recur.get", jid) for jid in jids]) if jids else []
    jobs = [of_reply(client, reply) for reply in replies if not isinstance(reply, Exception)]
    return [job for job in jobs if job is not None]


def queue_jids(client: Client, queue: str) -> list[str]:
    """Return the jids of all recurring jobs of a queue."""
    return list(redis_command(client, "ZRANGE", f"q:{queue}-recur", 0, -1))


def spawned_jids(job: RecurringJob, count: int) -> list[str]:
    """Return the jids of the latest jobs of a recurring job, newest first; the jobs may have expired."""
    return [f"{job.jid}-{number}" for number in range(job.count, max(0, job.count - count), -1)]


def results(jobs: Mapping[str, Job], jids: Sequence[str], now: float) -> SafeString | str:
    """Return the states of jobs as icons that lead to them. `jobs`: those that exist."""
    states = {jid: state_of(jobs[jid], now) for jid in jids if jid in jobs}
    links = (
        (
            formatting.url("job", jid),
            f"{formatting.state_name(state)}, {_changed(jobs[jid], now)}",
            f"{formatting.short(jid)}: {formatting.state_name(state)}",
            formatting.state(state, named=False),
        )
        for jid, state in states.items()
    )
    template = '<a class="resty-result" href="{}" title="{}" aria-label="{}">{}</a>'
    return format_html_join(" ", template, links) or NONE


def _changed(job: Job, now: float) -> str:
    history = history_of(job)
    when = history[-1].get("when") if history else None
    if not isinstance(when, int | float):
        return ""
    return _("%(time)s ago") % {"time": formatting.duration(now - float(when))}


def _completed(
    client: Client, rows: Sequence[Row], now: float, actions: Sequence[tuple[str, str | Promise]]
) -> list[Row]:
    """Return the rows of a page with the results of their jobs and with their actions."""
    jids = [jid for row in rows for jid in row.values["jids"]]
    jobs = {job.jid: job for job in fetch_jobs(client, jids)[0]}
    return [
        replace(
            row,
            cells={
                **row.cells,
                "results": results(jobs, row.values["jids"], now),
                "actions": formatting.joined(
                    (formatting.url("recurringjob", row.values["jid"], name), label)
                    for name, label in actions
                    if name != ("pause" if row.values["paused"] else "resume")
                ),
            },
        )
        for row in rows
    ]


def _row(job: RecurringJob, due: float, now: float, declared: Declared | None) -> Row:
    paused = is_paused(due)
    cells = {
        "jid": formatting.link("recurringjob", job.jid, formatting.short(job.jid)),
        "interval": _("every %s") % formatting.duration(job.interval),
        "next": formatting.state("paused") if paused else formatting.relative_time(due, now),
        "count": formatting.number(job.count),
    }
    values = {
        "interval": job.interval,
        "next": due % PAUSE_SECONDS,
        "count": job.count,
        "jids": spawned_jids(job, JOBS_PER_ROW),
    }
    return _row_of(job, cells, values, paused, declared_by(declared), job.jid)


def _cron_row(client: Client, task: CronTask, now: float) -> Row:
    paused = is_cron_paused(client, task.klass)
    due = next(iter(next_times(task.klass, now, 1)), None)
    cells = {
        "jid": formatting.link("recurringjob", task.jid, formatting.name(task.jid, 40)),
        "interval": format_html("<code>{}</code>", task.cron),
        "next": formatting.state("paused") if paused else formatting.relative_time(due, now),
        "count": NONE,
    }
    values = {"next": due, "jids": latest_jids(task.klass, now, JOBS_PER_ROW)}
    return _row_of(task, cells, values, paused, _("a task"), task.klass)


def _row_of(
    job: RecurringJob | CronTask,
    cells: Mapping[str, object],
    values: Mapping[str, object],
    paused: bool,
    by: str,
    title: str,
) -> Row:
    """Return a row with the columns that recurring jobs and cron tasks fill alike. `cells`, `values`: the others."""
    shared_cells = {
        "klass": formatting.name(job.klass),
        "queue": formatting.link("queue", job.queue_name),
        "by": by,
        "tags": formatting.tag_links(job.tags),
    }
    shared_values = {"jid": job.jid, "klass": job.klass, "queue": job.queue_name, "by": by, "paused": paused}
    return Row({**cells, **shared_cells}, {**values, **shared_values}, token(job.jid), formatting.name(title))


def declared_by(declared: Declared | None) -> str:
    """Return the origin of a recurring job."""
    if declared is None:
        return _("people")
    return _("a removed task") if declared.abandoned else _("a task")


def declared_by_text(declared: Declared | None) -> str:
    """Return the origin of a recurring job, with what is known about its task."""
    if declared is None or not (declared.fault or declared.unknown):
        return declared_by(declared)
    if declared.unknown:
        return f"{declared_by(declared)}: {printable(declared.unknown, 300)}"
    ago = formatting.duration(max(0.0, declared.ago))
    template = _("%(by)s: %(fault)s. A worker declared it %(ago)s ago.")
    text = str(template % {"by": declared_by(declared), "fault": declared.fault, "ago": ago})
    return text + " " + _("Cancel it to stop creating such jobs.") if declared.abandoned else text
