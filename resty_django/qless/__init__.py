"""A job queue on Redis or Valkey that shares its data with the qless clients of other languages.

    from resty_django.qless import client

    jid = client.queues["mail"].put("shop.jobs.SendInvoice", {"order": 7})

`resty_django.qless.core` is the script that all of it stands on; docs/qless/core.md tells its commands, and
docs/qless/client.md the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .clients import Client
    from .default import client
    from .errors import (
        CannotComplete,
        CannotFail,
        CannotRetry,
        CannotTimeout,
        DependencyError,
        InvalidArgument,
        LostLock,
        MethodMissing,
        MethodType,
        NoSuchJob,
        NotAllowed,
        QlessError,
        QueueNotEmpty,
        UnreadableReply,
    )
    from .events import Events
    from .job import Job
    from .queue import Queue
    from .recurring import RecurringJob
    from .values import JobSpec

_HOMES: Final = {
    "Client": "clients",
    "client": "default",
    "Events": "events",
    "Job": "job",
    "Queue": "queue",
    "RecurringJob": "recurring",
    "JobSpec": "values",
}

__all__ = [
    "CannotComplete",
    "CannotFail",
    "CannotRetry",
    "CannotTimeout",
    "Client",
    "DependencyError",
    "Events",
    "InvalidArgument",
    "Job",
    "JobSpec",
    "LostLock",
    "MethodMissing",
    "MethodType",
    "NoSuchJob",
    "NotAllowed",
    "QlessError",
    "Queue",
    "QueueNotEmpty",
    "RecurringJob",
    "UnreadableReply",
    "client",
]


def __getattr__(name: str) -> Any:
    # A site that does not use the queue may have no redis-py, and the core is pure.
    if name in __all__:
        found = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
