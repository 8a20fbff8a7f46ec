"""Jobs and queues as JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from resty_django.api.errors import sendable

from ..errors import UnreadableReply
from ..job import Job
from ..recurring import RecurringJob
from ..redact import redacted_job, without_secrets
from ..values import Result


def brief(job: Job) -> dict[str, Any]:
    """A job in a list: without arguments, history, result and the message of its failure."""
    failure = job.failure
    return {
        "jid": job.jid,
        "klass": job.klass,
        "state": job.state,
        "queue": job.queue_name,
        "worker": job.worker_name,
        "priority": job.priority,
        "retries": job.original_retries,
        "remaining": job.retries_left,
        "expires": job.expires_at or None,
        "tags": job.tags,
        "tracked": job.tracked,
        "txid": job.txid,
        "failure": {name: failure[name] for name in ("group", "when", "worker") if name in failure} or None,
    }


def briefs(jobs: Iterable[Job]) -> list[dict[str, Any]]:
    return [value(brief(job)) for job in jobs]


def whole(job: Job, result: Result | None) -> Any:
    """A job on its own."""
    return value(
        {
            **brief(job),
            "failure": job.failure or None,
            "dependencies": job.dependencies,
            "dependents": job.dependents,
            "spawned_from": job.spawned_from_jid,
            "data": _data(job),
            "history": without_secrets(job.raw_queue_history),
            "result": None if result is None else without_secrets(result.result),
            "progress": None if result is None else result.progress,
            "progress_message": "" if result is None else result.message,
        }
    )


def recurring(job: RecurringJob) -> Any:
    """A recurring job."""
    return value(
        {
            "jid": job.jid,
            "klass": job.klass_name,
            "queue": job.queue_name,
            "interval": job.interval,
            "next": job.next(),
            "count": job.count,
            "priority": job.priority,
            "retries": job.retries,
            "backlog": job.backlog,
            "tags": job.tags,
            "data": _data(job),
        }
    )


def _data(job: Job | RecurringJob) -> Any:
    """The arguments; None where another program wrote what is no JSON."""
    try:
        return redacted_job(job)
    except UnreadableReply:
        return None


def value(found: Any) -> Any:
    """What the core told, with texts that can be sent."""
    return sendable(msgspec.to_builtins(found))
