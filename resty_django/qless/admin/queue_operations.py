"""Operations on queues, on one or on many, each with its undo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.text import printable

from ..clients.queue import pause_with_reason, unpause_and_forget_reason
from ..clients.replies import QueueCounts
from ..errors import QlessError
from . import formatting, overview
from .forms import PauseForm
from .glossary import OPERATION_HELP
from .job_lists import redis_command
from .row_operations import Change, RowOperation


def _pause(admin: Any, request: HttpRequest, counts: QueueCounts, argument: Any) -> Change:
    reason, stops_jobs = argument.get("reason", ""), bool(argument.get("stop_jobs"))
    pause_with_reason(admin.client().queues[counts.name], reason, stops_jobs)
    return Change(
        log_text=f"Paused{', its running jobs stopped' if stops_jobs else ''}. {printable(reason, 200)}".strip(),
        undo=("unpause", {"reason": reason}),
        message=_("The queue is paused."),
    )


def _unpause(admin: Any, request: HttpRequest, counts: QueueCounts, argument: Any) -> Change:
    client = admin.client()
    reason = overview.pause_reasons(client, [counts.name]).get(counts.name, "") if counts.paused else ""
    if argument.get("reason", reason) != reason:  # an undo
        text = _("It was paused again since then, with the reason “%(reason)s”.")
        raise QlessError(text % {"reason": printable(reason, 200)})
    unpause_and_forget_reason(client.queues[counts.name])
    undo = ("pause", {"reason": reason}) if counts.paused and reason.isprintable() else None
    return Change(log_text="Resumed.", undo=undo, message=_("The queue is active again."))


def _forget(admin: Any, request: HttpRequest, counts: QueueCounts, argument: Any) -> Change:
    client = admin.client()
    since = redis_command(client, "ZSCORE", "queues", counts.name)
    client.queues[counts.name].forget()
    undo = None if since is None else ("remember", {"since": float(since)})
    return Change(log_text="Forgot the queue.", undo=undo, message=_("The queue was removed from the list."))


def _remember(admin: Any, request: HttpRequest, name: str, argument: Any) -> Change:
    """Return a queue to the list, unless a job has returned it meanwhile."""
    if not redis_command(admin.client(), "ZADD", "queues", "NX", argument["since"], name):
        raise QlessError(_("It is in the list again since then."))
    return Change(log_text="Undone.")


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
        RowOperation(
            "remember",
            gettext_lazy("Return to the list"),
            "",
            "configure_jobs",
            _remember,
            listed=False,
            by_name=True,
        ),
    )
}
