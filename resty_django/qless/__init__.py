"""A job queue on Redis or Valkey that shares its data with the qless clients of other languages.

    from resty_django.qless import client

    jid = client.queues["mail"].put("shop.jobs.SendInvoice", {"order": 7})

docs/reference/jobs/client.md describes the client, docs/reference/jobs/core.md the script in Redis
(`resty_django.qless.core`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from resty_django import lazy

if TYPE_CHECKING:
    from .clients.client import Client
    from .clients.default import client
    from .clients.events import Events
    from .clients.job import Job
    from .clients.put_options import Callback, JobSpec
    from .clients.queue import Queue
    from .clients.recurring import RecurringJob
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
    from .tasks.outcomes import GroupOutcome, TaskOutcome
    from .tasks.results import AsyncResult


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
    "QlessError",
    "Queue",
    "QueueNotEmpty",
    "RecurringJob",
    "ResultGone",
    "Task",
    "TaskContext",
    "TaskExpired",
    "TaskFailed",
    "TaskOutcome",
    "UnreadableReply",
    "chain",
    "chord",
    "client",
    "group",
    "task",
]

# A site that does not use the queue may have no redis-py, and the core is pure.
__getattr__ = lazy.members(
    __name__,
    {
        "clients.client": "Client",
        "clients.default": "client",
        "clients.events": "Events",
        "clients.job": "Job",
        "clients.put_options": "Callback JobSpec",
        "clients.queue": "Queue",
        "clients.recurring": "RecurringJob",
        "errors": "CannotComplete CannotFail CannotRetry CannotTimeout DependencyError DuplicateTask GraphTooLarge "
        "GroupError InvalidArgument LostLock MaxRetriesExceeded MethodMissing MethodType NoSuchJob NotAllowed "
        "QlessError QueueNotEmpty ResultGone TaskExpired TaskFailed UnreadableReply",
        "tasks.base": "Task task",
        "tasks.canvas": "chain chord group",
        "tasks.context": "TaskContext",
        "tasks.group_results": "GroupResult",
        "tasks.outcomes": "GroupOutcome TaskOutcome",
        "tasks.results": "AsyncResult",
    },
)
