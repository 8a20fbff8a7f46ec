"""History of a job: the list of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ...clients.job import Job
from ...redaction import without_secrets
from .. import formatting
from ..job_lists.rows import STOPPED, failure_of, history_of

MAX_ENTRIES: Final = 200
"""Maximum number of entries on a page: the first one and the latest ones."""
RETRIED: Final = "retried"
"""An entry that pages add: the core keeps no entry of a retry, only the failure that led to it."""


@dataclass(frozen=True, slots=True)
class JobStep:
    """A step of a job. `state`: the job's state after it; `lasted`: how long that lasted, empty for an end."""

    what: SafeString | str
    when: SafeString | str
    details: SafeString | str
    state: str
    lasted: str


@dataclass(frozen=True, slots=True)
class JobHistory:
    """The steps of a job, oldest first. `omitted`: the number of steps left out after the first one."""

    events: Sequence[JobStep]
    omitted: int


@dataclass(frozen=True, slots=True)
class _Span:
    """An entry of the history with the state of the job after it, until `end`.

    `run`: the number of runs so far. `previous`: the name of the entry before it; `queue`: the queue before it.
    """

    entry: Mapping[str, Any]
    state: str
    start: float
    end: float
    is_open: bool
    run: int
    previous: str
    queue: str

    @property
    def what(self) -> str:
        return str(self.entry.get("what", ""))

    @property
    def lasted(self) -> str:
        """How long the state lasted; empty for an end."""
        texts = {
            "waiting": _("%s waiting"),
            "running": _("%s running"),
            "stalled": _("%s stalled"),
            "depends": _("%s waiting for other jobs"),
            "scheduled": _("%s scheduled"),
            "failed": _("%s failed"),
        }
        if self.end <= self.start or self.state not in texts:
            return ""
        text = texts[self.state] % formatting.duration(self.end - self.start)
        return _("%s so far") % text if self.is_open else text


def history(job: Job, now: float) -> JobHistory:
    """Return the steps of a job."""
    entries = _with_retry(job, history_of(job))
    spans = _spans(entries, job, now)
    omitted = max(0, len(spans) - MAX_ENTRIES)
    shown = [spans[0], *spans[omitted + 1 :]] if omitted else spans
    return JobHistory([_step(span, now) for span in shown], omitted)


def _with_retry(job: Job, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the latest retry, which the core keeps only as the failure that led to it, before the steps after it."""
    failure = failure_of(job)
    when = _timestamp(failure)
    if not when or not entries or any(e.get("what") == "failed" and _timestamp(e) >= when for e in entries):
        return entries
    later = next((n for n, entry in enumerate(entries) if _timestamp(entry) > when), len(entries))
    if not later or entries[later - 1].get("what") not in ("popped", "taken"):
        return entries
    retry = {"what": RETRIED, "when": when, "group": failure.get("group"), "worker": failure.get("worker")}
    return [*entries[:later], retry, *entries[later:]]


def _spans(entries: Sequence[Mapping[str, Any]], job: Job, now: float) -> list[_Span]:
    spans: list[_Span] = []
    run, previous, queue = 0, "", ""
    for index, entry in enumerate(entries):
        what = str(entry.get("what", ""))
        state = _state_after(what) or (spans[-1].state if spans else "waiting")
        has_ended = state in ("complete", "failed", "skipped")
        is_last = index + 1 == len(entries)
        if is_last and state == "waiting" and job.state in ("scheduled", "depends"):
            state = job.state
        start = _timestamp(entry)
        end = _timestamp(entries[index + 1]) if not is_last else start if has_ended else now
        run += what == "popped"
        is_open = is_last and not has_ended
        spans.append(_Span(entry, state, start, max(start, end), is_open, run, previous, queue))
        previous, queue = what, str(entry.get("q") or queue) if what == "put" else queue
    return spans


def _state_after(what: str) -> str:
    """Return a job's state after an entry of its history; empty if the entry does not change it."""
    states = {
        "put": "waiting",
        "popped": "running",
        "taken": "running",
        "done": "complete",
        "failed": "failed",
        "failed-retries": "failed",
        "timed-out": "stalled",
        "throttled": "waiting",
        "skipped": "skipped",
        "waits again": "depends",
        RETRIED: "waiting",
        STOPPED: "waiting",
    }
    return states.get(what, "")


def _step(span: _Span, now: float) -> JobStep:
    in_text = {
        "put": ("q", "outcome"),
        "popped": ("worker",),
        "taken": ("worker",),
        "failed": ("group", "worker"),
        RETRIED: ("group", "worker"),
        STOPPED: ("worker",),
        "callback": ("jid",),
        "skipped": ("because",),
    }
    hidden = ("what", "when", *in_text.get(span.what, ()))
    details = without_secrets({key: value for key, value in span.entry.items() if key not in hidden})
    details_text = ", ".join(f"{ {'q': 'queue'}.get(key, key) } {value}" for key, value in details.items())
    linked = str(span.entry.get({"callback": "jid", "skipped": "because"}.get(span.what, ""), ""))
    return JobStep(
        _text_of(span),
        formatting.relative_time(span.start, now),
        formatting.job_link(linked) if linked else formatting.name(details_text, 300) if details else "",
        span.state,
        span.lasted,
    )


def _text_of(span: _Span) -> SafeString | str:
    """Return the text of an entry, with links."""
    if span.what == "put":
        return _put_text(span)
    what, worker, group = span.what, str(span.entry.get("worker") or ""), str(span.entry.get("group") or "")
    worker_link, group_link = formatting.link("worker", worker), formatting.link("failuregroup", group)
    if what == "popped" and worker:
        template = _("Popped by {worker}") if span.run == 1 else _("Popped by {worker}, run {run}")
        return format_html(template, worker=worker_link, run=span.run)
    if what == "taken" and worker:
        return format_html(_("Taken over by {}"), worker_link)
    if what == STOPPED and worker:
        return format_html(_("Returned to its queue: the worker {} was stopped"), worker_link)
    if what == RETRIED and group:
        return format_html(_("Retried by {1} after {0}"), group_link, worker_link)
    if what == "failed" and group:
        return format_html(_("Failed in {1}: {0}") if worker else _("Failed: {}"), group_link, worker_link)
    texts = {
        "done": _("Completed"),
        "timed-out": _("Lock expired"),
        "throttled": _("Waits for a free slot"),
        "callback": _("callback enqueued"),
        "skipped": _("skipped, because a job for which it waited failed or was skipped"),
        "waits again": _("waits again, because the failed job is retried"),
    }
    return texts.get(what) or formatting.name(what)


def _put_text(span: _Span) -> SafeString | str:
    """Return the text of a put: the first one, a retry after a failure, or a change of the queue."""
    queue = str(span.entry.get("q") or "")
    link = formatting.link("queue", queue)
    if not span.previous:
        return format_html(_("Put in {}"), link)
    if span.previous == "failed":
        return format_html(_("Retried in {}"), link)
    return format_html(_("Put in {} again") if queue == span.queue else _("Moved to {}"), link)


def _timestamp(entry: Mapping[str, Any]) -> float:
    when = entry.get("when")
    return float(when) if isinstance(when, int | float) else 0.0
