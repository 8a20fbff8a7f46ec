"""Operations on recurring jobs and cron tasks, on one or on many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.text import printable

from ..clients.recurring import RecurringJob
from ..errors import InvalidArgument, QlessError
from ..models import Job as JobRow
from ..tasks import calls
from ..tasks.schedule import is_cron_paused, pause_cron, resume_cron
from . import formatting
from .glossary import OPERATION_HELP
from .operations import OPERATIONS
from .recurring_list import CronTask, cron_tasks, jobs_of
from .row_operations import Change, RowOperation


@dataclass(frozen=True, slots=True)
class Target:
    """A recurring job, or a cron task, whose schedule is in the code."""

    client: Any
    job: RecurringJob | CronTask

    @property
    def is_cron(self) -> bool:
        return isinstance(self.job, CronTask)

    @property
    def paused(self) -> bool:
        """Whether it is paused. Asks the server."""
        job = self.job
        return is_cron_paused(self.client, job.klass) if isinstance(job, CronTask) else job.paused()

    def recurring(self) -> RecurringJob:
        """Return the recurring job. Raise `InvalidArgument` for a cron task."""
        if isinstance(self.job, CronTask):
            raise InvalidArgument(_("The code of the task sets its schedule and options. Change them there."))
        return self.job


def targets_of(client: Any, names: Sequence[str]) -> dict[str, Target]:
    """Return the recurring jobs and cron tasks with these names that exist."""
    jobs = {job.jid: Target(client, job) for job in jobs_of(client, names)}
    cron = cron_tasks() if len(jobs) < len(names) else {}
    return jobs | {name: Target(client, cron[name]) for name in names if name not in jobs and name in cron}


def _run_now(admin: Any, request: HttpRequest, target: Target, argument: Any) -> Change:
    job = target.job
    jid = calls.put(
        target.client,
        job.klass,
        job.data,
        job.queue_name,
        priority=job.priority,
        retries=job.retries,
        tags=job.tags,
    )
    admin.add_history(request, f"Created from {job.jid}.", JobRow.from_name(jid))
    return Change(log_text=f"Ran now as {jid}.", message=formatting.enqueued(jid))


def _pause(admin: Any, request: HttpRequest, target: Target, argument: Any) -> Change:
    job, canceled, message = target.job, 0, _("Paused: no more jobs are created.")
    if isinstance(job, CronTask):
        canceled = pause_cron(target.client, job.klass)
    else:
        job.pause()
    if canceled:
        message += " " + _("Scheduled jobs that were canceled: %(count)s.") % {"count": canceled}
    return Change(log_text="Paused.", message=message)


def _resume(admin: Any, request: HttpRequest, target: Target, argument: Any) -> Change:
    job = target.job
    if isinstance(job, CronTask):
        resume_cron(target.client, job.klass)
    else:
        job.resume()
    return Change(log_text="Resumed.", message=_("Resumed: jobs are created again."))


def _cancel(admin: Any, request: HttpRequest, target: Target, argument: Any) -> Change:
    target.recurring().cancel()
    return Change(log_text="Canceled.", message=_("The recurring job was canceled."))


def _tag(admin: Any, request: HttpRequest, target: Target, tag: Any) -> Change:
    job = target.recurring()
    if tag in job.tags:
        raise QlessError(_("It has this tag already."))
    job.tag(tag)
    text = f"{OPERATIONS['tag'].label} {printable(tag, 200)}."
    return Change(text, _("Changed the tags of future jobs."))


def _untag(admin: Any, request: HttpRequest, target: Target, tag: Any) -> Change:
    job = target.recurring()
    if tag not in job.tags:
        raise QlessError(_("It does not have this tag."))
    job.untag(tag)
    text = f"{OPERATIONS['untag'].label} {printable(tag, 200)}."
    return Change(text, _("Changed the tags of future jobs."))


def _edit(admin: Any, request: HttpRequest, target: Target, changes: Any) -> Change:
    """Change fields; `changes`: their new values."""
    job = target.recurring()
    old_values = {key: getattr(job, "queue_name" if key == "queue" else key) for key in changes}
    job.update(**changes)
    text = ", ".join(
        key if key == "data" else f"{key} from {old_values[key]} to {value}" for key, value in changes.items()
    )
    message = _("Saved. The changes apply to future jobs.")
    return Change(log_text=f"Changed {printable(text, 500)}.", message=message)


OPERATIONS_ON_RECURRING: Final[Mapping[str, RowOperation]] = {
    operation.name: operation
    for operation in (
        RowOperation(
            "run_now",
            OPERATION_HELP["run_recurring"][0],
            gettext_lazy("Enqueued a job for"),
            "retry_job",
            _run_now,
            OPERATION_HELP["run_recurring"][1],
        ),
        RowOperation(
            "pause",
            OPERATION_HELP["pause_recurring"][0],
            gettext_lazy("Paused"),
            "edit_job",
            _pause,
            OPERATION_HELP["pause_recurring"][1],
            applies=lambda target: not target.paused,
        ),
        RowOperation(
            "resume",
            OPERATION_HELP["resume_recurring"][0],
            gettext_lazy("Resumed"),
            "edit_job",
            _resume,
            OPERATION_HELP["resume_recurring"][1],
            applies=lambda target: target.paused,
        ),
        RowOperation(
            "cancel",
            gettext_lazy("Cancel"),
            gettext_lazy("Canceled"),
            "cancel_job",
            _cancel,
            OPERATION_HELP["cancel"][1],
            applies=lambda target: not target.is_cron,
            danger=True,
        ),
        RowOperation("edit", gettext_lazy("Edit"), "", "edit_job", _edit, listed=False),
        RowOperation("tag", OPERATIONS["tag"].label, "", "edit_job", _tag, listed=False),
        RowOperation("untag", OPERATIONS["untag"].label, "", "edit_job", _untag, listed=False),
    )
}
