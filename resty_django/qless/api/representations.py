"""Jobs and queues as JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from resty_django.api.errors import sendable

from ..clients.job import Job
from ..clients.recurring import RecurringJob
from ..clients.replies import JobResult
from ..errors import UnreadableReply
from ..redaction import redacted_job, without_secrets


def job_summary(job: Job) -> dict[str, object]:
    """Return a job for a list, without arguments, history, result and failure message."""
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
        "request_id": job.request_id,
        "failure": {name: failure[name] for name in ("group", "when", "worker") if name in failure} or None,
    }


def job_summaries(jobs: Iterable[Job]) -> list[object]:
    return [to_json(job_summary(job)) for job in jobs]


def job_detail(job: Job, result: JobResult | None) -> object:
    """Return a job with all of its fields."""
    return to_json(
        {
            **job_summary(job),
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


def recurring_job(job: RecurringJob) -> object:
    """Return a recurring job."""
    return to_json(
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


def _data(job: Job | RecurringJob) -> object:
    """Return the redacted arguments; None if another program wrote something that is not JSON."""
    try:
        return redacted_job(job)
    except UnreadableReply:
        return None


def to_json(value: object) -> Any:
    """Return a value from the core as JSON types, with strings that can be encoded as UTF-8."""
    return sendable(msgspec.to_builtins(value))
