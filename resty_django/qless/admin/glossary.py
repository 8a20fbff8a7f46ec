"""Help texts for states, and for operations that are not in `operations.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.utils.translation import gettext_lazy as _

STATE_HELP: Final[Mapping[str, Any]] = {
    "waiting": _("It is ready: the next worker of its queue that has room gets it."),
    "running": _("A worker has it, under a lock that the worker prolongs while it runs."),
    "stalled": _(
        "Its lock has expired: the worker is gone, or gave no sign. Another one gets it, at the cost of a retry."
    ),
    "scheduled": _("It was put or retried with a delay, and is ready after that."),
    "depends": _("It waits until other jobs are complete."),
    "failed": _("It has failed, or lost its worker too often. It stays until somebody retries or cancels it."),
    "complete": _("It is done. It is deleted after the time that the options tell."),
    "recurring": _("Not a job: it makes one in its queue at each interval."),
    "paused": _("Of a queue: its jobs are not handed out."),
}

OPERATION_HELP: Final[Mapping[str, tuple[Any, Any]]] = {
    "clone": (_("Clone"), _("A new job of the same class, with a jid of its own. This one stays as it is.")),
    "undepend": (
        _("Do not wait for a job"),
        _("The job waits for that one no longer. If it waits for no other, it is ready to run."),
    ),
    "edit": (
        _("Edit a recurring job"),
        _("Jobs that were made already stay as they are. Another interval moves the next time."),
    ),
    "cancel": (
        _("Cancel a recurring job"),
        _("No more jobs are made of it; those that were made stay. This cannot be undone."),
    ),
    "pause": (
        _("Pause a queue"),
        _("No job of the queue is handed out until it goes on. Jobs that run go on to run."),
    ),
    "unpause": (_("Unpause a queue"), _("Jobs of the queue are handed out again, at once.")),
    "forget": (
        _("Forget a queue"),
        _("The queue is listed no more, until a job is put into it. Only a queue without jobs is forgotten."),
    ),
    "deregister": (
        _("Deregister a worker"),
        _("The worker is listed no more, until it looks for a job. Its jobs stay its own until the locks expire."),
    ),
    "unset": (_("Unset an option"), _("The option has its default again, for all clients.")),
}
"""Title and effect of each operation."""
