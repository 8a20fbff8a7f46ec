"""Recurring jobs that tasks have declared: told from those of people, and found where the task is gone.

A worker notes when it declares one (`schedule.DECLARED`). Whoever declares, changes or cancels a recurring job by hand
takes the note away and makes it a job of people, which nothing here touches.

While new code is rolled out old workers go on declaring what they know. So a recurring job counts as abandoned when the
code of this process does not declare it, and no worker has done so for `QUIET` seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .call import Plain, Steps
from .classes import find
from .clients import Client
from .errors import NotAllowed
from .recurring import RecurringJob, of_reply
from .schedule import DECLARED, EVERY, scheduled
from .texts import scores

QUIET: Final = 600.0
"""Seconds without a worker that declares it. Workers do so every 20 seconds."""


@dataclass(frozen=True, slots=True)
class Declared:
    """`ago`: seconds since a worker declared it. `fault`: why the code of this process does not; empty: it does, or
    cannot be asked. `unknown`: why it cannot be asked."""

    job: RecurringJob
    ago: float
    fault: str = ""
    unknown: str = ""

    @property
    def abandoned(self) -> bool:
        """Whether nobody declares it any more."""
        return bool(self.fault) and self.ago >= QUIET


def of_tasks(client: Client) -> list[Declared]:
    """All that tasks have declared, by their jids. Imports the modules of these tasks. Raises `StoreError`."""
    noted = client.run(_noted(client))
    replies = client.call_many([("recur.get", jid) for jid in noted]) if noted else []
    found = []
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
        job = of_reply(client, reply)
        if job is not None and job.jid == f"{EVERY}{job.klass}":
            fault, unknown = _asked(job.klass)
            found.append(Declared(job, client.clock() - noted[job.jid], fault, unknown))
    return sorted(found, key=lambda each: each.job.jid)


def _noted(client: Client) -> Steps[dict[str, float]]:
    return scores((yield Plain(("ZRANGE", client.prefix + DECLARED, 0, -1, "WITHSCORES"))))


def _asked(klass: str) -> tuple[str, str]:
    """Why the code does not declare this task, and why that cannot be said; both empty: it does."""
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
    """Whether the task, or a module on the way to it, does not exist; else something that a module needs is missing."""
    name = error.name or ""
    return name == klass or (isinstance(error, ModuleNotFoundError) and bool(name) and klass.startswith(f"{name}."))


__all__ = ["QUIET", "Declared", "of_tasks"]
