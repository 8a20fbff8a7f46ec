"""Operations on jobs: requests to the core, permissions and preconditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext_lazy as _

from resty_django.admin.tables import PAGE_SIZE
from resty_django.redis.errors import StoreError

from ..clients.job import Job
from ..clients.put_options import options_of
from ..clients.transport import Request
from ..errors import DependencyError


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on a job.

    `request`: takes client, job and argument; returns the request to the core. `applies`: takes job and time; returns
    whether the job's state allows it. `field`: the name of its argument.
    """

    name: str
    label: Any
    done_label: Any
    permission: str
    request: Callable[[Any, Job, Any], Request]
    applies: Callable[[Job, float], bool] = lambda job, now: True
    field: str = ""
    danger: bool = False
    effect: Any = ""


def _requeue_request(client: Any, job: Job, queue: str, delay: float = 0) -> Request:
    options = options_of(job.priority, job.tags, job.original_retries, job.dependencies)
    return ("requeue", client.worker_name, queue, job.jid, job.klass, job.raw_data, delay, *options)


def _retry_request(client: Any, job: Job, delay: Any) -> Request:
    return _requeue_request(client, job, job.queue_name, float(delay or 0))


OPERATIONS: Final[Mapping[str, Operation]] = {
    operation.name: operation
    for operation in (
        Operation(
            "retry",
            _("Retry"),
            _("Retried"),
            "retry_job",
            _retry_request,
            applies=lambda job, now: job.state == "failed" and bool(job.queue_name),
            effect=_("Failed jobs return to their queues with all of their retries. This cannot be undone."),
        ),
        Operation(
            "run_now",
            _("Run now"),
            _("Moved to the waiting jobs:"),
            "retry_job",
            lambda client, job, argument: _retry_request(client, job, 0),
            applies=lambda job, now: job.state == "scheduled" and bool(job.queue_name),
            effect=_("Scheduled jobs become ready at once, with all of their retries. This cannot be undone."),
        ),
        Operation(
            "move",
            _("Move to a queue"),
            _("Moved"),
            "retry_job",
            lambda client, job, queue: _requeue_request(client, job, queue),
            field="queue",
            effect=_("The job will wait in the other queue. If a worker is running it, the worker loses it."),
        ),
        Operation(
            "timeout",
            _("Time out"),
            _("Timed out"),
            "retry_job",
            lambda client, job, argument: ("timeout", job.jid),
            applies=lambda job, now: job.state == "running",
            danger=True,
            effect=_("Running jobs are taken from their workers and go ahead of all others. This cannot be undone."),
        ),
        Operation(
            "priority",
            _("Change the priority"),
            _("Changed the priority of"),
            "edit_job",
            lambda client, job, value: ("priority", job.jid, value),
            field="priority",
            effect=_("A waiting job goes ahead of all others with the new priority. The former priority is not kept."),
        ),
        Operation(
            "tag",
            _("Add a tag"),
            _("Tagged"),
            "edit_job",
            lambda client, job, tag: ("tag", "add", job.jid, tag),
            field="tag",
            effect=_("Jobs can be found by their tags, in lists and by other programs."),
        ),
        Operation(
            "untag",
            _("Remove a tag"),
            _("Removed the tag of"),
            "edit_job",
            lambda client, job, tag: ("tag", "remove", job.jid, tag),
            applies=lambda job, now: bool(job.tags),
            field="tag",
            effect=_("The job can no longer be found by this tag."),
        ),
        Operation(
            "track",
            _("Track"),
            _("Tracked"),
            "edit_job",
            lambda client, job, argument: ("track", "track", job.jid),
            effect=_("Tracked jobs are listed, and each of their steps is announced as an event."),
        ),
        Operation(
            "untrack",
            _("Stop tracking"),
            _("Stopped tracking"),
            "edit_job",
            lambda client, job, argument: ("track", "untrack", job.jid),
            effect=_("The job leaves the list of tracked jobs, and its steps are no longer announced."),
        ),
        Operation(
            "release",
            _("Remove all dependencies"),
            _("Released"),
            "edit_job",
            lambda client, job, argument: ("depends", job.jid, "off", "all"),
            applies=lambda job, now: job.state == "depends",
            danger=True,
            effect=_(
                "The jobs are ready to run: they no longer wait for other jobs, not even for those that still run. "
                "This cannot be undone."
            ),
        ),
        Operation(
            "cancel",
            _("Cancel permanently"),
            _("Canceled"),
            "cancel_job",
            lambda client, job, argument: ("cancel", job.jid),
            applies=lambda job, now: job.state != "complete",
            danger=True,
            effect=_("Canceling deletes the job, even if a worker is running it. This cannot be undone."),
        ),
    )
}


@dataclass(slots=True)
class Outcome:
    """The outcome for some jobs: the changed jobs, and the errors of the other jobs."""

    done: list[Job]
    errors: list[str]


def apply(client: Any, operation: Operation, jobs: Sequence[Job], argument: Any) -> Outcome:
    """Apply an operation to jobs, one page of them per call. `argument` may be a function of a job's index."""
    outcome = Outcome([], [])
    for start in range(0, len(jobs), PAGE_SIZE):
        batch = jobs[start : start + PAGE_SIZE]
        arguments = [argument(start + index) if callable(argument) else argument for index in range(len(batch))]
        try:
            replies = client.call_many(
                [operation.request(client, *pair) for pair in zip(batch, arguments, strict=True)]
            )
        except StoreError as error:  # report the jobs that are already done
            outcome.errors.append(str(error))
            break
        refused: list[tuple[Job, str]] = []
        for job, reply in zip(batch, replies, strict=True):
            if isinstance(reply, Exception):
                refused.append((job, str(reply)))
            else:
                outcome.done.append(job)
        outcome.errors += _cancel_together(client, operation, refused, replies, outcome)
    return outcome


def _cancel_together(
    client: Any, operation: Operation, refused: list[tuple[Job, str]], replies: Sequence[Any], outcome: Outcome
) -> list[str]:
    """Cancel jobs that depend on each other in one call; return the errors of jobs that are left."""
    if operation.name == "cancel" and any(isinstance(reply, DependencyError) for reply in replies):
        (result,) = client.call_many([("cancel", *(job.jid for job, _ in refused))])
        if not isinstance(result, Exception):
            outcome.done += [job for job, _ in refused]
            return []
    return [error for _, error in refused]
