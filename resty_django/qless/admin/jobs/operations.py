"""Operations on jobs: commands of the core, permissions and preconditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from resty_django.admin.operations import BulkOperationResult, Operation, OperationResult
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


@dataclass(frozen=True, slots=True)
class JobCommand:
    """A command of the core that changes a job, as an operation of the admin.

    `command`: returns the request to the core, given a job and the form's data. `field`: the field of the form, ""
    without a form. For the other fields, see `Operation`.
    """

    name: str
    label: Promise
    done: Promise
    permission: str
    command: Callable[[Job, dict[str, Any]], Request]
    effect: Promise
    applies: Callable[[Job], bool] = lambda job: True
    field: str = ""
    danger: bool = False

    def operation(self) -> Operation[Job]:
        return Operation(
            self.name,
            self.label,
            self.permission,
            self.run,
            self.effect,
            done=self.done,
            applies=self.applies,
            form=partial(OperationForm, self.name, self.field),
            danger=self.danger,
            run_many=self.run_many,
        )

    def run(self, job: Job, data: dict[str, Any]) -> OperationResult:
        """Change one job. Raise `QlessError` if its state does not allow this."""
        if not self.applies(job):
            text = gettext("The job's state does not allow this: %(state)s.")
            raise QlessError(text % {"state": formatting.state_name(job.state)})
        default_client().call(*self.command(job, data))
        argument = data.get(self.field, "")
        detail = f" ({printable(str(argument), 200)})" if argument != "" else ""
        message = format_html(gettext("{} {}{}."), self.done, formatting.short(job.jid), detail)
        return replace(self._result(data), message=message)

    def run_many(self, jobs: Mapping[str, Job], data: dict[str, Any]) -> BulkOperationResult:
        """Change several jobs, one page of them per call."""
        client, result = default_client(), BulkOperationResult()
        all_jobs = [*jobs.values()]
        for start in range(0, len(all_jobs), PAGE_SIZE):
            batch = all_jobs[start : start + PAGE_SIZE]
            try:
                replies = client.call_many([self.command(job, data) for job in batch])
            except StoreError as error:  # report the jobs that are already done
                result.errors.append(str(error))
                break
            refused = {
                job.jid: reply for job, reply in zip(batch, replies, strict=True) if isinstance(reply, Exception)
            }
            if self.name == "cancel" and any(isinstance(error, DependencyError) for error in refused.values()):
                # jobs that depend on each other are canceled in one call
                (reply,) = client.call_many([("cancel", *refused)])
                if not isinstance(reply, Exception):
                    refused = {}
            result.changes.update({job.jid: self._result(data) for job in batch if job.jid not in refused})
            result.errors.extend(map(str, refused.values()))
        return result

    def _result(self, data: dict[str, Any]) -> OperationResult:
        value = data.get(self.field, "")
        return OperationResult.of(lambda: f"{self.label} {value}".strip() + ".", gone=self.name == "cancel")


def _requeue(job: Job, queue: str) -> Request:
    options = options_of(job.priority, job.tags, job.original_retries, job.dependencies)
    return ("requeue", job.client.worker_name, queue, job.jid, job.klass, job.raw_data, 0, *options)


OPERATIONS: Final[Mapping[str, Operation[Job]]] = {
    command.name: command.operation()
    for command in (
        JobCommand(
            "retry",
            _("Retry"),
            _("Retried"),
            "retry_job",
            lambda job, data: _requeue(job, job.queue_name),
            applies=lambda job: job.state == "failed" and bool(job.queue_name),
            effect=_("Failed jobs return to their queues with all of their retries. This cannot be undone."),
        ),
        JobCommand(
            "run_now",
            _("Run now"),
            _("Moved to the waiting jobs:"),
            "retry_job",
            lambda job, data: _requeue(job, job.queue_name),
            applies=lambda job: job.state == "scheduled" and bool(job.queue_name),
            effect=_("Scheduled jobs become ready at once, with all of their retries. This cannot be undone."),
        ),
        JobCommand(
            "move",
            _("Move to a queue"),
            _("Moved"),
            "retry_job",
            lambda job, data: _requeue(job, data["queue"]),
            field="queue",
            effect=_("The job will wait in the other queue. If a worker is running it, the worker loses it."),
        ),
        JobCommand(
            "timeout",
            _("Time out"),
            _("Timed out"),
            "retry_job",
            lambda job, data: ("timeout", job.jid),
            applies=lambda job: job.state == "running",
            danger=True,
            effect=_("Running jobs are taken from their workers and go ahead of all others. This cannot be undone."),
        ),
        JobCommand(
            "priority",
            _("Change the priority"),
            _("Changed the priority of"),
            "edit_job",
            lambda job, data: ("priority", job.jid, data["priority"]),
            field="priority",
            effect=_("A waiting job goes ahead of all others with the new priority. The former priority is not kept."),
        ),
        JobCommand(
            "tag",
            _("Add a tag"),
            _("Tagged"),
            "edit_job",
            lambda job, data: ("tag", "add", job.jid, data["tag"]),
            field="tag",
            effect=_("Jobs can be found by their tags, in lists and by other programs."),
        ),
        JobCommand(
            "untag",
            _("Remove a tag"),
            _("Removed the tag of"),
            "edit_job",
            lambda job, data: ("tag", "remove", job.jid, data["tag"]),
            applies=lambda job: bool(job.tags),
            field="tag",
            effect=_("The job can no longer be found by this tag."),
        ),
        JobCommand(
            "track",
            _("Track"),
            _("Tracked"),
            "edit_job",
            lambda job, data: ("track", "track", job.jid),
            effect=_("Tracked jobs are listed, and each of their steps is announced as an event."),
        ),
        JobCommand(
            "untrack",
            _("Stop tracking"),
            _("Stopped tracking"),
            "edit_job",
            lambda job, data: ("track", "untrack", job.jid),
            effect=_("The job leaves the list of tracked jobs, and its steps are no longer announced."),
        ),
        JobCommand(
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
        JobCommand(
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
