"""Names of states, and help texts for states of groups and for operations that are not in `operations.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

STATE_NAMES: Final[Mapping[str, Any]] = {
    "waiting": pgettext_lazy("state", "waiting"),
    "running": pgettext_lazy("state", "running"),
    "stalled": pgettext_lazy("state", "stalled"),
    "scheduled": pgettext_lazy("state", "scheduled"),
    "depends": pgettext_lazy("state", "depends"),
    "failed": pgettext_lazy("state", "failed"),
    "complete": pgettext_lazy("state", "complete"),
    "recurring": pgettext_lazy("state", "recurring"),
    "skipped": pgettext_lazy("state", "skipped"),
    "paused": pgettext_lazy("state", "paused"),
    "open": pgettext_lazy("state", "open"),
    "gone": pgettext_lazy("state", "gone"),
}
"""The names of the states of jobs, groups and queues for people; searches, exports and URLs have the keys."""

GROUP_STATE_HELP: Final[Mapping[str, Any]] = {
    "open": _("Members are still being added."),
    "running": _("Not all members have ended."),
    "complete": _("All members are complete or were skipped."),
    "failed": _("All members have ended. At least one of them has failed or was canceled."),
}

OPERATION_HELP: Final[Mapping[str, tuple[Any, Any]]] = {
    "clone": (
        _("Run again with other arguments"),
        _(
            "Creates a new job of the same class with these arguments and its own jid. It waits for no other job. The "
            "first job does not change."
        ),
    ),
    "undepend": (
        _("Remove a dependency"),
        _("The job no longer waits for the other one. When it has no dependencies left, it is ready to run."),
    ),
    "retry_graph": (
        _("Retry the failed steps"),
        _(
            "Connected jobs that failed in a run return to their queues with all of their retries. Jobs that failed "
            "because of them wait for them again. This cannot be undone."
        ),
    ),
    "cancel_graph": (
        _("Cancel all connected jobs"),
        _(
            "Deletes all jobs that are connected through dependencies and groups and are not complete, even if workers "
            "are running them. This cannot be undone."
        ),
    ),
    "retry_group": (
        _("Retry the failed members"),
        _(
            "Failed members, and the jobs because of which members failed, return to their queues with all of their "
            "retries. This cannot be undone."
        ),
    ),
    "cancel_group": (
        _("Cancel all members"),
        _(
            "Deletes the members that have not ended, and earlier steps of chains that only they depend on, even if "
            "workers are running them. Jobs that wait for the group follow their policies. This cannot be undone."
        ),
    ),
    "run_recurring": (
        _("Run now"),
        _("Creates a job at once, in addition to the schedule, which does not change."),
    ),
    "pause_recurring": (
        _("Pause"),
        _(
            "No more jobs are created until it is resumed. Jobs that wait or run continue; scheduled jobs of a cron "
            "task are canceled."
        ),
    ),
    "resume_recurring": (
        _("Resume"),
        _("Jobs are created again, from the next time of the schedule on. Times during the pause are skipped."),
    ),
    "edit": (
        _("Edit a recurring job"),
        _("Applies to future jobs; existing jobs do not change. A new interval moves the next time."),
    ),
    "cancel": (
        _("Cancel a recurring job"),
        _("No more jobs are created; existing jobs stay. This cannot be undone."),
    ),
    "pause": (
        _("Pause a queue"),
        _("Workers receive no jobs from the queue until it is resumed. Running jobs continue."),
    ),
    "unpause": (_("Resume a queue"), _("Workers receive jobs from the queue again.")),
    "forget": (
        _("Forget a queue"),
        _(
            "Removes the queue from the list until a job is put into it. Only possible for a queue without jobs. This "
            "cannot be undone."
        ),
    ),
    "deregister": (
        _("Deregister a worker"),
        _(
            "Removes the worker from the list until it polls for a job. It keeps its jobs until their locks expire. "
            "This cannot be undone."
        ),
    ),
    "quiet_worker": (
        _("Quiet a worker"),
        _("The worker takes no new jobs until it is resumed. Its running jobs continue."),
    ),
    "resume_worker": (_("Resume a worker"), _("The worker takes jobs again.")),
    "stop_worker": (
        _("Stop a worker"),
        _(
            "The worker process stops as after SIGTERM: it takes no new jobs and ends after the running ones; when its "
            "grace period ends, the remaining jobs return to their queues. It is not replaced, and can be started only "
            "on its machine. This cannot be undone."
        ),
    ),
    "scale_worker": (
        _("Scale a worker"),
        _("Changes the number of jobs that the worker runs at once. Jobs that run already continue."),
    ),
    "stacks": (
        _("Show the stacks of a worker's jobs"),
        _("The worker sends where each of its jobs is in its code. Values of variables are not sent."),
    ),
    "unset": (
        _("Unset an option"),
        _("Resets the option to its default, for all clients. The history keeps the former value."),
    ),
}
"""Title and effect of each operation."""
