"""Operations on all jobs that are connected with a job: retry the failed steps, delete all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.operations import Operation, OperationResult, Refused

from ...clients.graph import Graph
from ...clients.job import Job
from ...errors import GraphTooLarge
from .. import formatting

MAX_CONNECTED: Final = 2000
"""Maximum number of connected jobs that a request walks through."""


def _facts(job: Job, name: str, label: str, count: Callable[[Graph], int]) -> dict[str, object]:
    """Return the number of connected jobs, and of those that change. `name`: of the client's method."""
    try:
        graph = job.client.jobs.graph(job.jid, MAX_CONNECTED)
    except GraphTooLarge:
        raise Refused(
            _("More than %(most)s jobs are connected. Call client.%(name)s() in code, with a higher limit.")
            % {"most": formatting.number(MAX_CONNECTED), "name": name}
        ) from None
    connected = (_("Connected"), formatting.job_count(len(graph.jobs)))
    return {"facts": [connected, (label, formatting.job_count(count(graph)))]}


def _retry(job: Job, data: dict[str, Any]) -> OperationResult:
    count = job.client.retry_graph(job.jid, MAX_CONNECTED)
    return OperationResult.of(lambda: _("Retried %(jobs)s.") % {"jobs": formatting.job_count(count)})


def _cancel(job: Job, data: dict[str, Any]) -> OperationResult:
    count = job.client.cancel_graph(job.jid, MAX_CONNECTED)
    return OperationResult.of(
        lambda: _("Deleted %(jobs)s.") % {"jobs": formatting.job_count(count)}, gone=job.state != "complete"
    )


OPERATIONS_ON_GRAPHS: Final = (
    Operation(
        "retry_graph",
        gettext_lazy("Retry the failed steps"),
        "retry_job",
        _retry,
        gettext_lazy(
            "Connected jobs that failed in a run return to their queues with all of their retries. Jobs that failed "
            "because of them wait for them again. This cannot be undone."
        ),
        explain=lambda job: _facts(job, "retry_graph", _("Failed in a run"), lambda graph: len(graph.failed())),
        partial=True,
    ),
    Operation(
        "cancel_graph",
        gettext_lazy("Delete all connected jobs"),
        "cancel_job",
        _cancel,
        gettext_lazy(
            "Deletes all jobs that are connected through dependencies and groups and are not complete, even if workers "
            "are running them. This cannot be undone."
        ),
        explain=lambda job: _facts(job, "cancel_graph", _("Not complete"), lambda graph: len(graph.not_complete())),
        danger=True,
        partial=True,
    ),
)
