"""Recurring jobs created by tasks, and those whose task no longer exists.

A worker notes when it declares one (`schedule.DECLARED`). Declaring, changing or canceling a recurring job by hand
deletes the note and makes it a job of people, which this module leaves alone.

While new code is deployed, old workers still declare their tasks. So a recurring job counts as abandoned when the code
of this process does not declare it, and no worker has done so for `QUIET` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..clients.client import Client
from ..clients.recurring import RecurringJob, of_reply
from ..errors import NotAllowed
from .registry import find
from .schedule import EVERY, declared_at, scheduled

QUIET: Final = 600.0
"""Seconds without a declaration. Workers declare every 20 seconds."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A recurring job that a worker has declared.

    `ago`: seconds since then. `fault`: why the code of this process does not declare it; empty: it does, or that is
    unknown. `unknown`: why it is unknown.
    """

    job: RecurringJob
    ago: float
    fault: str = ""
    unknown: str = ""

    @property
    def abandoned(self) -> bool:
        """Whether neither code nor workers declare it any more."""
        return bool(self.fault) and self.ago >= QUIET


def of_tasks(client: Client) -> list[Declared]:
    """Return all that tasks have declared, by jid. Imports the modules of these tasks. Raises `StoreError`."""
    times = client.run(declared_at(client))
    replies = client.call_many([("recur.get", jid) for jid in times]) if times else []
    declared = []
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
        job = of_reply(client, reply)
        if job is not None and job.jid == f"{EVERY}{job.klass}":
            fault, unknown = _why_undeclared(job.klass)
            declared.append(Declared(job, client.clock() - times[job.jid], fault, unknown))
    return sorted(declared, key=lambda entry: entry.job.jid)


def _why_undeclared(klass: str) -> tuple[str, str]:
    """Return why the code does not declare this task, and why that is unknown; both empty: it does."""
    try:
        find(klass)
    except NotAllowed:
        return "it is not among what jobs may run", ""
    except ImportError as error:
        if _is_gone(klass, error):
            return "there is no such task any more", ""
        return "", f"its module cannot be imported: {error}"
    except Exception as error:
        return "", f"its module cannot be imported: {type(error).__name__}: {error}"
    task = scheduled.get(klass)
    if task is None or task.schedule is None:
        return "it has no every= any more", ""
    return ("it has cron= in place of every=" if task.schedule.every is None else ""), ""


def _is_gone(klass: str, error: ImportError) -> bool:
    """Return whether the task, or a module on its path, does not exist; else an import of a module fails."""
    name = error.name or ""
    return name == klass or (isinstance(error, ModuleNotFoundError) and bool(name) and klass.startswith(f"{name}."))
