"""The section of a page about one failure: the error, the place that raised it, and the traceback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from django.utils.safestring import SafeString

from resty_django.text import printable

from ...clients.job import Job
from .. import formatting
from ..job_lists.rows import failure_of
from .tracebacks import Line, Location, report_of


class FailureContext(TypedDict):
    """The context of `failure.html`.

    `lines`: the message with its traceback, empty if it is not longer than the error line. `job`: a link to the job,
    for pages about several.
    """

    error: str
    location: Location | None
    lines: Sequence[Line]
    group: SafeString | str
    when: SafeString | str
    worker: SafeString | str
    job: SafeString | str


def failure_context(job: Job | None, now: float, *, names_job: bool = False) -> FailureContext | None:
    """Return the failure of a job, None if it never failed. `names_job`: whether the section links to the job, and
    not to the failure group."""
    failure = failure_of(job) if job is not None else {}
    if job is None or failure.get("group") is None:
        return None
    when = failure.get("when")
    report = report_of(_bounded(str(failure.get("message", ""))))
    return {
        "error": formatting.name(report.error, 500),
        "location": report.location,
        "lines": [] if len(report.lines) == 1 and report.lines[0].text.strip() == report.error else report.lines,
        "group": "" if names_job else formatting.link("failuregroup", str(failure["group"])),
        "when": formatting.relative_time(float(when) if isinstance(when, int | float) else None, now),
        "worker": formatting.link("worker", str(failure.get("worker") or "")),
        "job": formatting.job_link(job.jid) if names_job else "",
    }


def _bounded(message: str) -> str:
    """Return the message with invisible characters escaped; if it is long, without its middle."""
    half = 10_000  # characters
    if len(message) > 2 * half:
        message = f"{message[:half]}\n…\n{message[-half:]}"
    return printable(message, 2 * half + 3)
