"""Requests to workers, to one or to many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..clients.worker_reports import QUIET, RESUME, WorkerReport
from ..errors import QlessError
from .glossary import OPERATION_HELP
from .row_operations import Change, RowOperation
from .worker_rows import WorkerInfo


def takes_requests(worker: WorkerInfo) -> bool:
    """Return whether the worker reports, and does not stop."""
    return worker.report is not None and worker.report.state != "stopping"


def is_quiet(report: WorkerReport) -> bool:
    """Return whether the worker is quiet, or will be when it has confirmed the requests to it."""
    latest = max((entry for entry in report.requests if entry.action in (QUIET, RESUME)), key=_id, default=None)
    return report.state == "quiet" if latest is None else latest.action == QUIET


def _id(entry: Any) -> int:
    return int(entry.id)


def _quiet(admin: Any, request: HttpRequest, worker: WorkerInfo, argument: Any) -> Change:
    admin.client().workers.quiet(worker.name)
    return Change(
        log_text="Asked to take no new jobs.",
        message=_("The worker was asked to take no new jobs."),
    )


def _resume(admin: Any, request: HttpRequest, worker: WorkerInfo, argument: Any) -> Change:
    admin.client().workers.resume(worker.name)
    return Change(log_text="Asked to take jobs again.", message=_("The worker was asked to take jobs again."))


def _stop(admin: Any, request: HttpRequest, worker: WorkerInfo, argument: Any) -> Change:
    admin.client().workers.stop(worker.name)
    return Change(
        log_text="Asked to stop.",
        message=_("The worker was asked to stop. It ends after its running jobs, and is not replaced."),
    )


def _scale(admin: Any, request: HttpRequest, worker: WorkerInfo, argument: Any) -> Change:
    if worker.report is None:
        raise QlessError(_("The worker does not report, so it cannot be scaled."))
    admin.client().workers.scale(worker.name, slots := argument["slots"])
    return Change(
        log_text=f"Asked to run {slots} jobs at once.",
        message=_("The worker was asked to change its number of slots."),
    )


def _deregister(admin: Any, request: HttpRequest, worker: WorkerInfo, argument: Any) -> Change:
    admin.client().workers.deregister(worker.name)
    return Change(log_text="Deregistered.", message=_("The worker was removed from the list."))


OPERATIONS_ON_WORKERS: Final[Mapping[str, RowOperation]] = {
    operation.name: operation
    for operation in (
        RowOperation(
            "quiet",
            gettext_lazy("Quiet"),
            gettext_lazy("Asked to take no new jobs:"),
            "control_worker",
            _quiet,
            OPERATION_HELP["quiet_worker"][1],
            applies=lambda worker: takes_requests(worker) and not is_quiet(worker.report),
        ),
        RowOperation(
            "resume",
            gettext_lazy("Resume"),
            gettext_lazy("Asked to take jobs again:"),
            "control_worker",
            _resume,
            OPERATION_HELP["resume_worker"][1],
            applies=lambda worker: takes_requests(worker) and is_quiet(worker.report),
        ),
        RowOperation(
            "stop",
            gettext_lazy("Stop"),
            gettext_lazy("Asked to stop:"),
            "control_worker",
            _stop,
            OPERATION_HELP["stop_worker"][1],
            applies=takes_requests,
            danger=True,
        ),
        RowOperation("scale", gettext_lazy("Scale"), "", "control_worker", _scale, listed=False),
        RowOperation(
            "deregister",
            gettext_lazy("Deregister"),
            gettext_lazy("Removed from the list:"),
            "configure_jobs",
            _deregister,
            OPERATION_HELP["deregister"][1],
            danger=True,
        ),
    )
}
