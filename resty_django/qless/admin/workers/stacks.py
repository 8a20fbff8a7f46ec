"""The stacks of a worker's jobs on its page: requested by an operator, sent by the worker, kept for two minutes."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from resty_django.text import printable

from ...clients.client import Client
from ...clients.worker_reports import STACKS, Frame, JobStack, WorkerReport
from .. import formatting
from ..jobs.tracebacks import Line, Location, is_library

ANSWER_SECONDS: Final = 2.0
"""Time for which a request waits for the worker's answer."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack for the template. `title`: the job, its class and duration.

    `location`: the innermost frame of the site's code, or of all if there is none.
    """

    title: str
    location: Location | None
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Stacks:
    """The section of the page. `note`: a request that the worker has not answered."""

    note: str
    age: str
    stacks: Sequence[Stack]
    left_out: str


def request_stacks(client: Client, name: str) -> bool:
    """Request stacks; return whether the worker answered within `ANSWER_SECONDS`, so that the next page shows them."""
    request = client.workers.request_stacks(name)
    until = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        answer = client.workers.stacks(name)
        if answer is not None and answer.id == request:
            return True
        time.sleep(0.05)
    return False


def stacks_section(client: Client, name: str, report: WorkerReport | None, now: float) -> Stacks | None:
    """Return the section; None if nobody has requested stacks in the last minutes."""
    answer = client.workers.stacks(name)
    requests = () if report is None else report.requests
    request = next((request for request in requests if request.action == STACKS), None)
    if answer is None and request is None:
        return None
    note = ""
    if request is not None and (answer is None or answer.id != request.id):
        waited = max(0.0, now - request.at)
        if waited < 10:  # seconds
            note = _("Stacks were requested %(time)s ago. The worker has not answered yet.")
        else:
            note = _(
                "The worker has not answered a request for stacks for %(time)s: it is blocked, stopped, or cut off "
                "from the server."
            )
        note %= {"time": formatting.duration(waited)}
    if answer is None:
        return Stacks(note, "", (), "")
    left_out = ngettext("%(count)s more job is not shown.", "%(count)s more jobs are not shown.", answer.left_out) % {
        "count": formatting.number(answer.left_out)
    }
    return Stacks(
        note,
        formatting.relative_time(answer.at, now),
        [_stack(stack) for stack in answer.jobs],
        left_out if answer.left_out else "",
    )


def _stack(stack: JobStack) -> Stack:
    frames = [_location(frame) for frame in stack.frames]
    candidates = [frame for frame in frames if not frame.library] or frames
    return Stack(_title(stack), candidates[-1] if candidates else None, [_line(frame) for frame in frames])


def _title(stack: JobStack) -> str:
    if not stack.jid:
        return _("A thread that runs a job: a job holds the interpreter of the worker")
    return format_html(
        "{} · {} · {}", formatting.job_link(stack.jid), formatting.name(stack.klass), formatting.duration(stack.seconds)
    )


def _line(location: Location) -> Line:
    """Return a frame as in a traceback."""
    text = traceback.format_list([(location.path, location.number, location.function, location.source)])[0]
    return Line(text.rstrip("\n"), location.library)


def _location(frame: Frame) -> Location:
    path = printable(frame.path, 500)
    return Location(path, frame.line, printable(frame.function, 200), printable(frame.source, 200), is_library(path))
