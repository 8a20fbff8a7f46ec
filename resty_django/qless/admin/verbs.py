"""What operators do to jobs, to one or to many: the request to the core, who may, whom it fits, how to undo it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.core import signing
from django.utils.translation import gettext_lazy as _

from resty_django.redis import StoreError

from ..call import Request
from ..errors import DependencyError
from ..job import Job
from ..options import options_of
from .rows import state_of
from .sources import fetched
from .tables import PAGE

SALT: Final = "resty_django.qless.admin.undo"
UNDONE_WITHIN: Final = 3600
"""Seconds for which an undo is offered."""
UNDONE_JOBS: Final = 50
"""The most jobs of one undo: it travels in an address."""


@dataclass(frozen=True, slots=True)
class Verb:
    """`request`: (client, job, argument) to a request; `undo`: (job, argument) to the verb and argument that take it
    back; `field`: the name of its argument."""

    name: str
    label: Any
    done: Any
    permission: str
    request: Callable[[Any, Job, Any], Request]
    fits: Callable[[Job, float], bool] = lambda job, now: True
    undo: Callable[[Job, Any], tuple[str, Any] | None] = lambda job, argument: None
    field: str = ""
    danger: bool = False
    effect: Any = ""


def _requeue(client: Any, job: Job, queue: str, delay: float = 0) -> Request:
    options = options_of(job.priority, job.tags, job.original_retries, job.dependencies)
    return ("requeue", client.worker_name, queue, job.jid, job.klass, job.raw_data, delay, *options)


def retried(client: Any, job: Job, delay: Any) -> Request:
    return _requeue(client, job, job.queue_name, float(delay or 0))


VERBS: Final[Mapping[str, Verb]] = {
    verb.name: verb
    for verb in (
        Verb(
            "retry",
            _("Retry"),
            _("Retried"),
            "retry_job",
            retried,
            fits=lambda job, now: job.state == "failed" and bool(job.queue_name),
            effect=_("A failed job waits in its queue again, with all of its retries. This cannot be undone."),
        ),
        Verb(
            "move",
            _("Move to a queue"),
            _("Moved"),
            "retry_job",
            lambda client, job, queue: _requeue(client, job, queue),
            undo=lambda job, queue: ("move", job.queue_name) if job.state in ("waiting", "depends") else None,
            field="queue",
            effect=_("A job that is moved waits in that queue. A worker that runs it loses it."),
        ),
        Verb(
            "timeout",
            _("Time out"),
            _("Timed out"),
            "retry_job",
            lambda client, job, argument: ("timeout", job.jid),
            fits=lambda job, now: job.state == "running",
            danger=True,
            effect=_("A running job is taken from its worker, and goes before all others. This cannot be undone."),
        ),
        Verb(
            "priority",
            _("Change the priority"),
            _("Changed the priority of"),
            "edit_job",
            lambda client, job, value: ("priority", job.jid, value),
            undo=lambda job, value: ("priority", job.priority),
            field="priority",
            effect=_("A job that waits goes before all others of the new priority."),
        ),
        Verb(
            "tag",
            _("Add a tag"),
            _("Tagged"),
            "edit_job",
            lambda client, job, tag: ("tag", "add", job.jid, tag),
            undo=lambda job, tag: ("untag", tag) if tag not in job.tags else None,
            field="tag",
            effect=_("A job is found by its tags, in lists and by other programs."),
        ),
        Verb(
            "untag",
            _("Remove a tag"),
            _("Removed the tag of"),
            "edit_job",
            lambda client, job, tag: ("tag", "remove", job.jid, tag),
            fits=lambda job, now: bool(job.tags),
            undo=lambda job, tag: ("tag", tag) if tag in job.tags else None,
            field="tag",
            effect=_("The job is found by this tag no longer."),
        ),
        Verb(
            "track",
            _("Track"),
            _("Tracked"),
            "edit_job",
            lambda client, job, argument: ("track", "track", job.jid),
            undo=lambda job, argument: None if job.tracked else ("untrack", ""),
            effect=_("A tracked job is listed, and events tell of each of its steps."),
        ),
        Verb(
            "untrack",
            _("Stop tracking"),
            _("Stopped tracking"),
            "edit_job",
            lambda client, job, argument: ("track", "untrack", job.jid),
            undo=lambda job, argument: ("track", "") if job.tracked else None,
            effect=_("The job is in the list of tracked ones no longer, and events tell of it no more."),
        ),
        Verb(
            "cancel",
            _("Cancel for good"),
            _("Canceled"),
            "cancel_job",
            lambda client, job, argument: ("cancel", job.jid),
            fits=lambda job, now: state_of(job, now) != "complete",
            danger=True,
            effect=_("A canceled job is deleted. A worker that runs it loses it. This cannot be undone."),
        ),
    )
}


@dataclass(slots=True)
class Outcome:
    """What became of some jobs: those done, what takes it back, and the errors of the others."""

    done: list[Job]
    undo: list[tuple[str, str, Any]]
    errors: list[str]


def apply(client: Any, verb: Verb, jobs: Sequence[Job], argument: Any) -> Outcome:
    """Do it to jobs, a page of them in each turn. `argument` may be a function of a job's place."""
    outcome = Outcome([], [], [])
    for start in range(0, len(jobs), PAGE):
        part = jobs[start : start + PAGE]
        given = [argument(start + place) if callable(argument) else argument for place in range(len(part))]
        try:
            replies = client.call_many([verb.request(client, *pair) for pair in zip(part, given, strict=True)])
        except StoreError as error:  # what is done already is to be told
            outcome.errors.append(str(error))
            break
        again: list[tuple[Job, str]] = []
        for job, value, reply in zip(part, given, replies, strict=True):
            if isinstance(reply, Exception):
                again.append((job, str(reply)))
                continue
            outcome.done.append(job)
            back = verb.undo(job, value)
            if back is not None:
                outcome.undo.append((job.jid, *back))
        outcome.errors += _together(client, verb, again, replies, outcome)
    return outcome


def _together(
    client: Any, verb: Verb, left: list[tuple[Job, str]], replies: Sequence[Any], outcome: Outcome
) -> list[str]:
    """Jobs that depend on each other are canceled by one call, or once the others are gone."""
    if verb.name == "cancel" and any(isinstance(each, DependencyError) for each in replies):
        (reply,) = client.call_many([("cancel", *(job.jid for job, _ in left))])
        if not isinstance(reply, Exception):
            outcome.done += [job for job, _ in left]
            return []
    return [error for _, error in left]


def undo_token(outcome: Outcome, user: Any) -> str:
    """What an undo needs, signed; empty where nothing can be undone, or not all."""
    if not outcome.undo or len(outcome.undo) > UNDONE_JOBS or len(outcome.undo) < len(outcome.done):
        return ""
    return signing.dumps([user.pk, outcome.undo], salt=SALT, compress=True)


def undo_of(token: str, user: Any) -> list[tuple[str, str, Any]]:
    """Jid, verb and argument of each job. Empty: the token is of somebody else, or too old."""
    try:
        owner, found = signing.loads(token, salt=SALT, max_age=UNDONE_WITHIN)
    except signing.BadSignature:
        return []
    return [(jid, verb, argument) for jid, verb, argument in found] if owner == user.pk else []


def take_back(client: Any, wanted: Sequence[tuple[str, str, Any]]) -> Outcome:
    """Undo it, as far as the jobs are there."""
    jobs = {job.jid: job for job in fetched(client, [jid for jid, _, _ in wanted])[0]}
    total = Outcome([], [], [])
    for jid, name, argument in wanted:
        if jid in jobs and (name != "move" or jobs[jid].state in ("waiting", "depends")):
            one = apply(client, VERBS[name], [jobs[jid]], argument)
            total.done += one.done
            total.errors += one.errors
    return total


__all__ = ["VERBS", "Outcome", "Verb", "apply", "retried", "take_back", "undo_of", "undo_token"]
