"""Operations on queues, on one or on many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.text import printable

from ..clients.queue import pause_with_reason, unpause_and_forget_reason
from ..clients.replies import QueueCounts
from . import formatting
from .forms import PauseForm
from .glossary import OPERATION_HELP
from .row_operations import Change, RowOperation


def _pause(admin: Any, request: HttpRequest, counts: QueueCounts, argument: Any) -> Change:
    reason, stops_jobs = argument.get("reason", ""), bool(argument.get("stop_jobs"))
    pause_with_reason(admin.client().queues[counts.name], reason, stops_jobs)
    return Change(
        log_text=f"Paused{', its running jobs stopped' if stops_jobs else ''}. {printable(reason, 200)}".strip(),
        message=_("The queue is paused."),
    )


def _unpause(admin: Any, request: HttpRequest, counts: QueueCounts, argument: Any) -> Change:
    unpause_and_forget_reason(admin.client().queues[counts.name])
    return Change(log_text="Resumed.", message=_("The queue is active again."))


def _forget(admin: Any, request: HttpRequest, counts: QueueCounts, argument: Any) -> Change:
    admin.client().queues[counts.name].forget()
    return Change(log_text="Forgot the queue.", message=_("The queue was removed from the list."))


def _is_empty(counts: QueueCounts) -> bool:
    return not any(getattr(counts, state) for state in (*formatting.QUEUE_STATES, "recurring"))


OPERATIONS_ON_QUEUES: Final[Mapping[str, RowOperation]] = {
    operation.name: operation
    for operation in (
        RowOperation(
            "pause",
            gettext_lazy("Pause"),
            gettext_lazy("Paused"),
            "pause_queue",
            _pause,
            OPERATION_HELP["pause"][1],
            applies=lambda counts: not counts.paused,
            form=PauseForm,
        ),
        RowOperation(
            "unpause",
            gettext_lazy("Resume"),
            gettext_lazy("Resumed"),
            "pause_queue",
            _unpause,
            OPERATION_HELP["unpause"][1],
            applies=lambda counts: counts.paused,
        ),
        RowOperation(
            "forget",
            gettext_lazy("Forget"),
            gettext_lazy("Removed from the list:"),
            "configure_jobs",
            _forget,
            OPERATION_HELP["forget"][1],
            applies=_is_empty,
            danger=True,
        ),
    )
}
