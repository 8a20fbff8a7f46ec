"""Operations on jobs: requests to the core, permissions and preconditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from resty_django.admin.operations import BulkResult, Operation, OperationResult
from resty_django.admin.tables import PAGE_SIZE
from resty_django.redis.errors import StoreError
from resty_django.text import printable

from ...clients.default import default_client
from ...clients.job import Job
from ...clients.put_options import options_of
from ...clients.transport import Request
from ...errors import DependencyError, QlessError
from .. import formatting
from ..forms import OperationForm

RequestMaker = Callable[[Job, dict[str, Any]], Request]


def _operation(
    name: str,
    label: Any,
    done: Any,
    permission: str,
    request: RequestMaker,
    *,
    effect: Any,
    applies: Callable[[Job], bool] = lambda job: True,
    field: str = "",
    danger: bool = False,
) -> Operation[Job]:
    """Return an operation on jobs. `request`: to the core, for a job; `field`: the name of the operation's argument."""

    def run(job: Job, data: dict[str, Any]) -> OperationResult:
        if not applies(job):
            text = gettext("The job's state does not allow this: %(state)s.")
            raise QlessError(text % {"state": formatting.state_name(job.state)})
        default_client().call(*request(job, data))
        argument = data.get(field, "")
        detail = f" ({printable(str(argument), 200)})" if argument != "" else ""
        message = format_html("{} {}{}.", done, formatting.short(job.jid), detail)
        return OperationResult(f"{label} {argument}".strip() + ".", message, gone=name == "cancel")

    def run_many(jobs: Mapping[str, Job], data: dict[str, Any]) -> BulkResult:
        change = OperationResult(f"{label} {data.get(field, '')}".strip() + ".", gone=name == "cancel")
        done_jobs, errors = _send(name, request, [*jobs.values()], data)
        return BulkResult({job.jid: change for job in done_jobs}, errors)

    return Operation(
        name,
        label,
        permission,
        run,
        effect,
        done=done,
        applies=applies,
        form=partial(OperationForm, name, field),
        danger=danger,
        run_many=run_many,
    )


def _send(name: str, request: RequestMaker, jobs: Sequence[Job], data: dict[str, Any]) -> tuple[list[Job], list[str]]:
    """Send the requests for jobs, one page of them per call; return the changed jobs, and errors of the others."""
    client = default_client()
    done: list[Job] = []
    errors: list[str] = []
    for start in range(0, len(jobs), PAGE_SIZE):
        batch = jobs[start : start + PAGE_SIZE]
        try:
            replies = client.call_many([request(job, data) for job in batch])
        except StoreError as error:  # report the jobs that are already done
            return done, [*errors, str(error)]
        refused = [(job, reply) for job, reply in zip(batch, replies, strict=True) if isinstance(reply, Exception)]
        done += [job for job, reply in zip(batch, replies, strict=True) if not isinstance(reply, Exception)]
        if name == "cancel" and any(isinstance(reply, DependencyError) for _job, reply in refused):
            # jobs that depend on each other are canceled in one call
            (reply,) = client.call_many([("cancel", *(job.jid for job, _reply in refused))])
            if not isinstance(reply, Exception):
                done += [job for job, _reply in refused]
                continue
        errors += [str(reply) for _job, reply in refused]
    return done, errors


def _requeue(job: Job, queue: str) -> Request:
    options = options_of(job.priority, job.tags, job.original_retries, job.dependencies)
    return ("requeue", job.client.worker_name, queue, job.jid, job.klass, job.raw_data, 0, *options)


OPERATIONS: Final[Mapping[str, Operation[Job]]] = {
    operation.name: operation
    for operation in (
        _operation(
            "retry",
            _("Retry"),
            _("Retried"),
            "retry_job",
            lambda job, data: _requeue(job, job.queue_name),
            applies=lambda job: job.state == "failed" and bool(job.queue_name),
            effect=_("Failed jobs return to their queues with all of their retries. This cannot be undone."),
        ),
        _operation(
            "run_now",
            _("Run now"),
            _("Moved to the waiting jobs:"),
            "retry_job",
            lambda job, data: _requeue(job, job.queue_name),
            applies=lambda job: job.state == "scheduled" and bool(job.queue_name),
            effect=_("Scheduled jobs become ready at once, with all of their retries. This cannot be undone."),
        ),
        _operation(
            "move",
            _("Move to a queue"),
            _("Moved"),
            "retry_job",
            lambda job, data: _requeue(job, data["queue"]),
            field="queue",
            effect=_("The job will wait in the other queue. If a worker is running it, the worker loses it."),
        ),
        _operation(
            "timeout",
            _("Time out"),
            _("Timed out"),
            "retry_job",
            lambda job, data: ("timeout", job.jid),
            applies=lambda job: job.state == "running",
            danger=True,
            effect=_("Running jobs are taken from their workers and go ahead of all others. This cannot be undone."),
        ),
        _operation(
            "priority",
            _("Change the priority"),
            _("Changed the priority of"),
            "edit_job",
            lambda job, data: ("priority", job.jid, data["priority"]),
            field="priority",
            effect=_("A waiting job goes ahead of all others with the new priority. The former priority is not kept."),
        ),
        _operation(
            "tag",
            _("Add a tag"),
            _("Tagged"),
            "edit_job",
            lambda job, data: ("tag", "add", job.jid, data["tag"]),
            field="tag",
            effect=_("Jobs can be found by their tags, in lists and by other programs."),
        ),
        _operation(
            "untag",
            _("Remove a tag"),
            _("Removed the tag of"),
            "edit_job",
            lambda job, data: ("tag", "remove", job.jid, data["tag"]),
            applies=lambda job: bool(job.tags),
            field="tag",
            effect=_("The job can no longer be found by this tag."),
        ),
        _operation(
            "track",
            _("Track"),
            _("Tracked"),
            "edit_job",
            lambda job, data: ("track", "track", job.jid),
            effect=_("Tracked jobs are listed, and each of their steps is announced as an event."),
        ),
        _operation(
            "untrack",
            _("Stop tracking"),
            _("Stopped tracking"),
            "edit_job",
            lambda job, data: ("track", "untrack", job.jid),
            effect=_("The job leaves the list of tracked jobs, and its steps are no longer announced."),
        ),
        _operation(
            "release",
            _("Remove all dependencies"),
            _("Released"),
            "edit_job",
            lambda job, data: ("depends", job.jid, "off", "all"),
            applies=lambda job: job.state == "depends",
            danger=True,
            effect=_(
                "The jobs are ready to run: they no longer wait for other jobs, not even for those that still run. "
                "This cannot be undone."
            ),
        ),
        _operation(
            "cancel",
            _("Delete"),
            _("Deleted"),
            "cancel_job",
            lambda job, data: ("cancel", job.jid),
            applies=lambda job: job.state != "complete",
            danger=True,
            effect=_("Deletes the job, even if a worker is running it. This cannot be undone."),
        ),
    )
}
