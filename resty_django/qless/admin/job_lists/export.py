"""Exports of lists of jobs: all jobs of a list, with redacted arguments, read one page at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Any, Final

from resty_django.admin.export import Sheet, moment
from resty_django.admin.tables import PAGE_SIZE
from resty_django.text import printable

from ...clients.client import Client
from ...clients.job import Job
from ...clients.serialization import decode
from ...errors import QlessError
from ...redaction import redacted_arguments
from ..arguments import MAX_ARGUMENTS_CHARS
from .lists import JobList
from .rows import failure_of, history_of, state_of

COLUMNS: Final = (
    *("jid", "class", "state", "queue", "priority", "tags", "retries_left", "worker", "txid", "put", "changed"),
    *("failure_group", "failure_message", "arguments"),
)


def jobs_sheet(client: Client, jobs: Callable[[], Iterable[Job]]) -> Sheet:
    """Return the export of jobs. `jobs`: called when the export begins."""

    def rows() -> Iterator[list[object]]:
        now = client.clock()
        return (_row(job, now) for job in jobs())

    return Sheet("jobs", COLUMNS, rows)


def jobs_of(job_list: JobList) -> Iterator[Job]:
    """Yield all jobs of a list; a search examines the first 100,000 jobs."""
    if job_list.exact:
        for start in count(0, PAGE_SIZE):
            page = job_list.page(start)
            yield from page.jobs
            if len(page.jobs) + len(page.gone) < PAGE_SIZE:
                return
    cursor, scanned = "", 0
    while scanned < 100_000:
        page = job_list.scan(cursor)
        yield from page.jobs
        cursor, scanned = page.cursor, scanned + max(1, page.scanned)
        if not cursor:
            return


def _row(job: Job, now: float) -> list[object]:
    history, failure = history_of(job), failure_of(job)
    return [
        job.jid,
        job.klass,
        state_of(job, now),
        job.queue_name,
        job.priority,
        [str(tag) for tag in job.tags],
        job.retries_left,
        job.worker_name,
        job.txid,
        _when(history[:1]),
        _when(history[-1:]),
        failure.get("group"),
        failure.get("message"),
        _arguments(job),
    ]


def _when(entries: Sequence[dict[str, Any]]) -> datetime | None:
    """Return the time of the only entry of a history."""
    when = entries[0].get("when") if entries else None
    return moment(float(when)) if isinstance(when, int | float) else None


def _arguments(job: Job) -> object:
    """Return the redacted arguments; if they are too long, as a truncated text."""
    try:
        arguments = redacted_arguments(job.klass, decode(job.raw_data))
    except QlessError:
        return None
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return arguments if len(text) <= MAX_ARGUMENTS_CHARS else printable(text, MAX_ARGUMENTS_CHARS)
