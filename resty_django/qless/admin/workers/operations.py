"""Operations on workers: quiet, resume, stop, scale, show stacks and deregister."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.operations import Operation, OperationResult, Refused

from ...clients.default import default_client
from ...clients.worker_reports import QUIET, RESUME
from .. import formatting
from .rows import WorkerInfo, stopped_text
from .stacks import request_stacks


def _is_quiet(worker: WorkerInfo) -> bool | None:
    """Return whether the worker is quiet, or will be once it follows the latest request.

    Return None if it takes no requests, because it is stopping or does not report.
    """
    report = worker.report
    if report is None or report.state == "stopping":
        return None
    requests = [entry for entry in report.requests if entry.action in (QUIET, RESUME)]
    latest = max(requests, key=lambda entry: int(entry.id), default=None)
    return report.state == "quiet" if latest is None else latest.action == QUIET


def _quiet(worker: WorkerInfo, data: dict[str, Any]) -> OperationResult:
    default_client().workers.quiet(worker.name)
    return OperationResult("Asked to take no new jobs.", _("The worker was asked to take no new jobs."))


def _resume(worker: WorkerInfo, data: dict[str, Any]) -> OperationResult:
    default_client().workers.resume(worker.name)
    return OperationResult("Asked to take jobs again.", _("The worker was asked to take jobs again."))


def _stop(worker: WorkerInfo, data: dict[str, Any]) -> OperationResult:
    default_client().workers.stop(worker.name)
    message = _("The worker was asked to stop. Jobs that outlast its grace period run again. It is not replaced.")
    return OperationResult("Asked to stop.", message)


class ScaleForm(forms.Form):
    """The number of slots, within the bounds that the worker reports."""

    def __init__(self, data: QueryDict | None, worker: WorkerInfo) -> None:
        if worker.report is None:
            raise Refused(_("The worker does not report, so it cannot be scaled."))
        super().__init__(data, initial={"slots": worker.report.slots})
        self.fields["slots"] = forms.IntegerField(
            label=_("Slots"),
            min_value=1,
            max_value=worker.report.max_slots,
            help_text=_("Number of jobs that the worker runs at once: 1 to %(max)s.")
            % {"max": formatting.number(worker.report.max_slots)},
        )


def _scale(worker: WorkerInfo, data: dict[str, Any]) -> OperationResult:
    default_client().workers.scale(worker.name, data["slots"])
    message = _("The worker was asked to change its number of slots.")
    return OperationResult(f"Asked to run {data['slots']} jobs at once.", message)


def _request_stacks(worker: WorkerInfo, data: dict[str, Any]) -> OperationResult:
    answered = request_stacks(default_client(), worker.name)
    message = _("The worker sent its stacks.") if answered else _("The worker has not answered yet.")
    return OperationResult("Requested the stacks of its jobs.", message)


def _deregister(worker: WorkerInfo, data: dict[str, Any]) -> OperationResult:
    default_client().workers.deregister(worker.name)
    return OperationResult("Deregistered.", _("The worker was removed from the list."), gone=True)


OPERATIONS_ON_WORKERS: Final = (
    Operation(
        "quiet",
        gettext_lazy("Quiet"),
        permission="control_worker",
        run=_quiet,
        effect=gettext_lazy("The worker takes no new jobs until it is resumed. Its running jobs continue."),
        done=gettext_lazy("Asked to take no new jobs:"),
        applies=lambda worker: _is_quiet(worker) is False,
        title=gettext_lazy("Quiet a worker"),
    ),
    Operation(
        "resume",
        gettext_lazy("Resume"),
        permission="control_worker",
        run=_resume,
        effect=gettext_lazy("The worker takes jobs again."),
        done=gettext_lazy("Asked to take jobs again:"),
        applies=lambda worker: _is_quiet(worker) is True,
        title=gettext_lazy("Resume a worker"),
    ),
    Operation(
        "stop",
        gettext_lazy("Stop"),
        permission="control_worker",
        run=_stop,
        effect=gettext_lazy(
            "The worker process stops as after SIGTERM: it takes no new jobs and ends after the running ones. When its "
            "grace period ends, the remaining jobs are interrupted and return to their queues ahead of all others; "
            "they run again from the beginning. The process is not replaced, and can be started only on its machine. "
            "This cannot be undone."
        ),
        explain=lambda worker: {"facts": [(_("Worker"), stopped_text(default_client(), worker))]},
        done=gettext_lazy("Asked to stop:"),
        applies=lambda worker: _is_quiet(worker) is not None,
        title=gettext_lazy("Stop a worker"),
        danger=True,
    ),
    Operation(
        "scale",
        gettext_lazy("Scale a worker"),
        permission="control_worker",
        run=_scale,
        effect=gettext_lazy("Changes the number of jobs that the worker runs at once. Jobs that run already continue."),
        form=ScaleForm,
    ),
    Operation(
        "stacks",
        gettext_lazy("Show the stacks of a worker's jobs"),
        permission="control_worker",
        run=_request_stacks,
        effect=gettext_lazy(
            "The worker sends where each of its jobs is in its code. Values of variables are not sent."
        ),
    ),
    Operation(
        "deregister",
        gettext_lazy("Deregister"),
        permission="configure_jobs",
        run=_deregister,
        effect=gettext_lazy(
            "Removes the worker from the list until it polls for a job. It keeps its jobs until their locks expire. "
            "This cannot be undone."
        ),
        done=gettext_lazy("Removed from the list:"),
        title=gettext_lazy("Deregister a worker"),
        button=gettext_lazy("Deregister the worker"),
        danger=True,
    ),
)
