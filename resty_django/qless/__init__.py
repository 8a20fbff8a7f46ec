"""A job queue on Redis or Valkey that shares its data with the qless clients of other languages.

    from resty_django.qless import client

    jid = client.queues["mail"].put("shop.jobs.SendInvoice", {"order": 7})

docs/qless/client.md describes the client, docs/qless/core.md the script in Redis (`resty_django.qless.core`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .clients.client import Client
    from .clients.default import client
    from .clients.events import Events
    from .clients.job import Job
    from .clients.put_options import Callback
    from .clients.queue import Queue
    from .clients.recurring import RecurringJob
    from .clients.replies import JobSpec
    from .errors import (
        CannotComplete,
        CannotFail,
        CannotRetry,
        CannotTimeout,
        DependencyError,
        DuplicateTask,
        GraphTooLarge,
        GroupError,
        InvalidArgument,
        LostLock,
        MaxRetriesExceeded,
        MethodMissing,
        MethodType,
        NoSuchJob,
        NotAllowed,
        QlessError,
        QueueNotEmpty,
        ResultGone,
        TaskExpired,
        TaskFailed,
        UnreadableReply,
    )
    from .tasks.base import Task, task
    from .tasks.canvas import chain, chord, group
    from .tasks.context import TaskContext
    from .tasks.group_results import GroupResult
    from .tasks.outcomes import GroupOutcome, Outcome
    from .tasks.results import AsyncResult

_MODULES: Final = {
    "Callback": "clients.put_options",
    "Client": "clients.client",
    "client": "clients.default",
    "Events": "clients.events",
    "Job": "clients.job",
    "Queue": "clients.queue",
    "RecurringJob": "clients.recurring",
    "JobSpec": "clients.replies",
    "AsyncResult": "tasks.results",
    "GroupOutcome": "tasks.outcomes",
    "GroupResult": "tasks.group_results",
    "Outcome": "tasks.outcomes",
    "Task": "tasks.base",
    "TaskContext": "tasks.context",
    "chain": "tasks.canvas",
    "chord": "tasks.canvas",
    "group": "tasks.canvas",
    "task": "tasks.base",
}

__all__ = [
    "AsyncResult",
    "Callback",
    "CannotComplete",
    "CannotFail",
    "CannotRetry",
    "CannotTimeout",
    "Client",
    "DependencyError",
    "DuplicateTask",
    "Events",
    "GraphTooLarge",
    "GroupError",
    "GroupOutcome",
    "GroupResult",
    "InvalidArgument",
    "Job",
    "JobSpec",
    "LostLock",
    "MaxRetriesExceeded",
    "MethodMissing",
    "MethodType",
    "NoSuchJob",
    "NotAllowed",
    "Outcome",
    "QlessError",
    "Queue",
    "QueueNotEmpty",
    "RecurringJob",
    "ResultGone",
    "Task",
    "TaskContext",
    "TaskExpired",
    "TaskFailed",
    "UnreadableReply",
    "chain",
    "chord",
    "client",
    "group",
    "task",
]


def __getattr__(name: str) -> Any:
    # A site that does not use the queue may have no redis-py, and the core is pure.
    if name in __all__:
        exported = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
        globals()[name] = exported
        return exported
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
