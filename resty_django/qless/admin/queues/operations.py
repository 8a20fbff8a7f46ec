"""Operations on queues: pause, resume and forget.

Each has its own page for one queue; the overview offers it for selected queues (`resty_django/admin/operations.py`).
The target is the queue's `QueueCounts`, by which `applies` decides; `data` contains the fields of the form.
"""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.operations import Operation, OperationResult
from resty_django.text import printable

from ...clients.default import default_client
from ...clients.replies import QUEUE_STATES, QueueCounts
from ..forms import PauseForm


def _pause(counts: QueueCounts, data: dict[str, Any]) -> OperationResult:
    """Pause a queue. `PauseForm` adds the name of the user to `data` as `by`."""
    reason, stops_jobs = data.get("reason", ""), bool(data.get("stop_jobs"))
    default_client().queues[counts.name].pause(stops_jobs, reason=reason, by=data["by"])
    entry = "Paused, its running jobs stopped." if stops_jobs else "Paused."
    return OperationResult(f"{entry} {printable(reason, 200)}".strip(), _("The queue is paused."))


def _unpause(counts: QueueCounts, data: dict[str, Any]) -> OperationResult:
    default_client().queues[counts.name].unpause()
    return OperationResult("Resumed.", _("The queue is active again."))


def _forget(counts: QueueCounts, data: dict[str, Any]) -> OperationResult:
    default_client().queues[counts.name].forget()
    return OperationResult("Forgot the queue.", _("The queue was removed from the list."), gone=True)


def _is_empty(counts: QueueCounts) -> bool:
    return not any(getattr(counts, state) for state in QUEUE_STATES)


OPERATIONS_ON_QUEUES: Final = (
    Operation(
        "pause",
        gettext_lazy("Pause"),
        permission="pause_queue",
        run=_pause,
        effect=gettext_lazy("Workers receive no jobs from the queue until it is resumed. Running jobs continue."),
        done=gettext_lazy("Paused"),
        applies=lambda counts: not counts.paused,
        form=lambda data, counts: PauseForm(data),
        button=gettext_lazy("Pause the queue"),
    ),
    Operation(
        "unpause",
        gettext_lazy("Resume"),
        permission="pause_queue",
        run=_unpause,
        effect=gettext_lazy("Workers receive jobs from the queue again."),
        done=gettext_lazy("Resumed"),
        applies=lambda counts: counts.paused,
        button=gettext_lazy("Resume the queue"),
    ),
    Operation(
        "forget",
        gettext_lazy("Forget"),
        permission="configure_jobs",
        run=_forget,
        effect=gettext_lazy(
            "Removes the queue from the list until a job is put into it. Only possible for a queue without jobs. This "
            "cannot be undone."
        ),
        done=gettext_lazy("Removed from the list:"),
        applies=_is_empty,
        button=gettext_lazy("Forget the queue"),
        danger=True,
    ),
)
