"""Operations on recurring jobs and cron tasks: run now, pause, resume, cancel, tag and edit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, override

from resty_django.admin.operations import Operation, OperationResult, Refused, changed_text
from resty_django.text import printable

from ...clients.client import Client
from ...clients.recurring import RecurringJob
from ...errors import InvalidArgument
from ...models import Job as JobRow
from ...redaction import redacted_arguments
from ...tasks import calls
from ...tasks.schedule import is_cron_paused, pause_cron, resume_cron
from .. import formatting
from ..arguments import arguments_help, checked_arguments, editable_json
from ..forms import OperationForm, RecurringForm
from ..jobs.operations import OPERATIONS
from ..redis_reads import queue_names
from .table import CronTask, cron_tasks, jobs_of


@dataclass(frozen=True, slots=True)
class RecurringTarget:
    """A recurring job, or a cron task, whose schedule is in the code."""

    client: Client
    job: RecurringJob | CronTask

    @property
    def is_cron(self) -> bool:
        return isinstance(self.job, CronTask)

    @property
    def paused(self) -> bool:
        """Whether it is paused; reads this from Redis."""
        job = self.job
        return is_cron_paused(self.client, job.klass) if isinstance(job, CronTask) else job.paused()

    def recurring(self) -> RecurringJob:
        """Return the recurring job. Raise `InvalidArgument` for a cron task."""
        if isinstance(self.job, CronTask):
            raise InvalidArgument(_("The code of the task sets its schedule and options. Change them there."))
        return self.job


def targets_of(client: Client, names: Sequence[str]) -> dict[str, RecurringTarget]:
    """Return the recurring jobs and cron tasks with these names that exist."""
    jobs = {job.jid: RecurringTarget(client, job) for job in jobs_of(client, names)}
    cron = cron_tasks() if len(jobs) < len(names) else {}
    return jobs | {name: RecurringTarget(client, cron[name]) for name in names if name not in jobs and name in cron}


def _run_now(target: RecurringTarget, data: dict[str, Any]) -> OperationResult:
    job = target.job
    jid = calls.put(
        target.client, job.klass, job.data, job.queue_name, priority=job.priority, retries=job.retries, tags=job.tags
    )
    others = [(JobRow.from_name(jid), f"Created from {job.jid}.")]
    return OperationResult(f"Ran now as {jid}.", formatting.enqueued(jid), others=others)


def _pause(target: RecurringTarget, data: dict[str, Any]) -> OperationResult:
    job, canceled, message = target.job, 0, _("Paused: no more jobs are created.")
    if isinstance(job, CronTask):
        canceled = pause_cron(target.client, job.klass)
    else:
        job.pause()
    if canceled:
        message += " " + _("Scheduled jobs that were canceled: %(count)s.") % {"count": formatting.number(canceled)}
    return OperationResult("Paused.", message)


def _resume(target: RecurringTarget, data: dict[str, Any]) -> OperationResult:
    job = target.job
    if isinstance(job, CronTask):
        resume_cron(target.client, job.klass)
    else:
        job.resume()
    return OperationResult("Resumed.", _("Resumed: jobs are created again."))


def _cancel(target: RecurringTarget, data: dict[str, Any]) -> OperationResult:
    target.recurring().cancel()
    return OperationResult("Canceled.", _("The recurring job was canceled."), gone=True)


def _change_tags(target: RecurringTarget, data: dict[str, Any], name: str) -> OperationResult:
    """Add or remove a tag. `name`: "tag" or "untag"."""
    job, tag = target.recurring(), data["tag"]
    if (tag in job.tags) == (name == "tag"):
        raise Refused(_("It has this tag already.") if name == "tag" else _("It does not have this tag."))
    getattr(job, name)(tag)
    with override(None):
        entry = f"{OPERATIONS[name].label} {printable(tag, 200)}."
    return OperationResult(entry, _("Changed the tags of future jobs."))


def edit_form(data: QueryDict | None, target: RecurringTarget, *, with_arguments: bool) -> RecurringForm:
    job = target.recurring()
    initial = {
        "queue": job.queue_name,
        "interval": f"{job.interval:g}",
        "priority": f"{job.priority:g}",
        "retries": job.retries,
        "backlog": job.backlog,
        "arguments": editable_json(job.data, job.klass),
    }
    return RecurringForm(
        data, queue_names(target.client), initial, arguments_help(job.klass) if with_arguments else None
    )


def _edit(target: RecurringTarget, data: dict[str, Any]) -> OperationResult:
    job = target.recurring()
    if "arguments" in data:
        data["data"] = checked_arguments(data.pop("arguments"), job.data, job.klass, target.client.clock())
    old_values = {key: getattr(job, "queue_name" if key == "queue" else key) for key in data}
    changes = {key: value for key, value in data.items() if value != old_values[key]}
    if not changes:
        return OperationResult("Changed nothing.", _("No changes."))
    job.update(**changes)
    if "data" in changes:
        old_values["data"], changes["data"] = (
            json.dumps(redacted_arguments(job.klass, value), ensure_ascii=False)
            for value in (old_values["data"], changes["data"])
        )
    text = ", ".join(changed_text(key.capitalize(), old_values[key], value) for key, value in changes.items())
    return OperationResult(f"Changed {text}.", _("Saved. The changes apply to future jobs."))


EDIT: Final = Operation(
    "edit",
    gettext_lazy("Edit"),
    "edit_job",
    _edit,
    gettext_lazy("Applies to future jobs; existing jobs do not change. A new interval moves the next time."),
    button=gettext_lazy("Save for future jobs"),
)
OPERATIONS_ON_RECURRING: Final = (
    Operation(
        "run_now",
        gettext_lazy("Run now"),
        permission="retry_job",
        run=_run_now,
        effect=gettext_lazy("Creates a job at once, in addition to the schedule, which does not change."),
        done=gettext_lazy("Enqueued a job for"),
    ),
    Operation(
        "pause",
        gettext_lazy("Pause"),
        permission="edit_job",
        run=_pause,
        effect=gettext_lazy(
            "No more jobs are created until it is resumed. Jobs that wait or run continue; scheduled jobs of a cron "
            "task are canceled."
        ),
        done=gettext_lazy("Paused"),
        applies=lambda target: not target.paused,
    ),
    Operation(
        "resume",
        gettext_lazy("Resume"),
        permission="edit_job",
        run=_resume,
        effect=gettext_lazy(
            "Jobs are created again, from the next time of the schedule on. Times during the pause are skipped."
        ),
        done=gettext_lazy("Resumed"),
        applies=lambda target: target.paused,
    ),
    Operation(
        "cancel",
        gettext_lazy("Cancel"),
        permission="cancel_job",
        run=_cancel,
        effect=gettext_lazy("No more jobs are created; existing jobs stay. This cannot be undone."),
        done=gettext_lazy("Canceled"),
        applies=lambda target: not target.is_cron,
        button=gettext_lazy("Cancel the recurring job"),
        danger=True,
    ),
    *(
        Operation(
            name,
            OPERATIONS[name].label,
            "edit_job",
            partial(_change_tags, name=name),
            form=partial(OperationForm, name, "tag"),
        )
        for name in ("tag", "untag")
    ),
)
