"""Operations on a single job: a new job like it, and the removal of a dependency."""

from __future__ import annotations

from typing import Any, Final

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.operations import Operation, OperationResult, Refused

from ...clients.job import Job
from ...clients.serialization import decode
from ...models import Job as JobRow
from ...models import name_of, token
from ...tasks import calls
from .. import formatting
from ..arguments import arguments_help, checked_arguments, editable_json
from ..forms import JobForm
from ..job_lists.rows import history_of
from ..redis_reads import queue_names


def _undepend(job: Job, dependency: str) -> OperationResult:
    if not dependency and not job.dependencies:
        job.undepend(all=True)
        return OperationResult.of(lambda: _("The job is ready to run."))
    if dependency not in job.dependencies:
        raise Refused(_("The job no longer waits for that job."))
    job.undepend(dependency)
    return OperationResult.of(lambda: _("The job no longer waits for %(jid)s.") % {"jid": formatting.name(dependency)})


def _clone_form(data: QueryDict | None, job: Job) -> JobForm:
    values = clone_values(job)
    queues = dict.fromkeys([*queue_names(job.client), *filter(None, [name_of(values["queue"])])])
    return JobForm(data, [*queues], values, arguments_help(job.klass))


def _clone(job: Job, data: dict[str, Any]) -> OperationResult:
    options = {key: data[key] for key in ("priority", "retries", "delay", "tags")}
    options["tags"] += [tag for tag in map(str, job.tags) if not _is_editable(tag)]
    arguments = checked_arguments(data["arguments"], decode(job.raw_data), job.klass, job.client.clock())
    jid = calls.put(job.client, job.klass, arguments, data["queue"], **options)
    others = [(JobRow.from_name(jid), f"Created from {job.jid}.")]
    return OperationResult(f"Run again as {jid}.", formatting.enqueued(jid), others=others)


CLONE: Final = Operation(
    "clone",
    gettext_lazy("New job like this one"),
    "start_job",
    _clone,
    gettext_lazy(
        "Creates a new job of the same class with these values and its own jid. It waits for no other job. The first "
        "job does not change."
    ),
    form=_clone_form,
    button=gettext_lazy("Enqueue the job"),
)


def undepend_operation(dependency: str) -> Operation[Job]:
    """Return the operation that removes a dependency. `dependency`: a jid; empty for a job that waits for no job."""
    effect = _("The job waits for no job. It will be ready to run. This cannot be undone.")
    if dependency:
        effect = _(
            "The job will no longer wait for %(jid)s. When it has no dependencies left, it is ready to run. "
            "This cannot be undone."
        ) % {"jid": formatting.name(dependency)}
    return Operation(
        "undepend",
        _("Remove a dependency"),
        "edit_job",
        lambda job, data: _undepend(job, dependency),
        effect,
        button=_("Remove the dependency"),
        danger=True,
    )


def clone_values(job: Job) -> dict[str, Any]:
    """Return the values of a form for a job like `job`; a complete job has left its queue, so its last one."""
    queue = job.queue_name or next((str(entry["q"]) for entry in reversed(history_of(job)) if entry.get("q")), "")
    return {
        "queue": token(queue) if queue else "",
        "arguments": editable_json(decode(job.raw_data), job.klass),
        "priority": f"{job.priority:g}",
        "retries": job.original_retries,
        "delay": 0,
        "tags": ", ".join(tag for tag in map(str, job.tags) if _is_editable(tag)),
    }


def _is_editable(tag: str) -> bool:
    """Return whether the form can show a tag; other tags are copied unseen."""
    return tag.isprintable() and "," not in tag
