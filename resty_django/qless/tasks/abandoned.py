"""Recurring jobs created by tasks, and those whose task no longer exists.

A worker records when it declares one (`schedule.DECLARED`). Declaring, changing or canceling a recurring job by hand
deletes that record: from then on the job counts as created by hand, and this module leaves it alone.

While new code is deployed, old workers still declare their tasks. So a recurring job counts as abandoned when the code
of this process does not declare it, and no worker has done so for `ABANDONED_SECONDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..clients.client import Client
from ..clients.recurring import RecurringJob, of_reply
from ..clients.transport import checked, skipping_refusals
from ..errors import NotAllowed
from ..job_classes import find
from .schedule import EVERY, declared_at, log, scheduled

ABANDONED_SECONDS: Final = 600.0
"""Time after its last declaration until a recurring job can be abandoned. Workers declare every 20 seconds."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A recurring job that a worker has declared.

    `ago`: seconds since the last declaration. `fault`: why the code of this process does not declare it; empty if it
    does, or if that is unknown. `unknown`: why it is unknown.
    """

    job: RecurringJob
    ago: float
    fault: str = ""
    unknown: str = ""

    @property
    def abandoned(self) -> bool:
        """Whether neither code nor workers declare it any more."""
        return bool(self.fault) and self.ago >= ABANDONED_SECONDS


def of_tasks(client: Client) -> list[Declared]:
    """Return all recurring jobs that tasks have declared, sorted by jid. Imports the modules of these tasks.

    Raises `StoreError`.
    """
    times = client.run(declared_at(client))
    replies = client.call_many([("recur.get", jid) for jid in times]) if times else []
    declared = []
    for jid, reply in zip(times, replies, strict=True):
        with skipping_refusals(log, "recurring job %s cannot be read", jid):
            job = of_reply(client, checked(reply))
            if job is not None and job.jid == f"{EVERY}{job.klass}":
                fault, unknown = _why_undeclared(job.klass)
                declared.append(Declared(job, client.clock() - times[job.jid], fault, unknown))
    return sorted(declared, key=lambda entry: entry.job.jid)


def _why_undeclared(klass: str) -> tuple[str, str]:
    """Return why the code does not declare this task, and why that is unknown; both are empty if it does."""
    try:
        find(klass)
    except NotAllowed:
        return "it is not a task that workers may run", ""
    except ImportError as error:
        if is_gone(klass, error):
            return "the task no longer exists", ""
        return "", f"its module cannot be imported: {error}"
    except Exception as error:
        return "", f"its module cannot be imported: {type(error).__name__}: {error}"
    task = scheduled.get(klass)
    if task is None or task.schedule is None:
        return "the task no longer has every=", ""
    return ("the task has cron= instead of every=" if task.schedule.every is None else ""), ""


def is_gone(klass: str, error: Exception) -> bool:
    """Return whether the error means that the task, or a module on its path, does not exist."""
    name = getattr(error, "name", "") or ""
    return name == klass or (isinstance(error, ModuleNotFoundError) and bool(name) and klass.startswith(f"{name}."))
