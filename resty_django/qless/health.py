"""What `manage.py resty_check` says of the job queue."""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.core.exceptions import ImproperlyConfigured

from resty_django import health
from resty_django.conf import raw_section
from resty_django.health import Finding


def register() -> None:
    """Register the probe `jobs`."""
    health.register("jobs", probe)


def probe() -> Iterator[Finding]:
    """Whether the server answers, which it is and whether it keeps the jobs.

    Stalled jobs are a warning, and recurring jobs whose task is gone.
    """
    try:
        from resty_django.redis import StoreError
        from resty_django.redis.servers import server_info

        from .declared import of_tasks
        from .default import default_client

        client = default_client()
        redis = client.source.sync()
    except (ImportError, ImproperlyConfigured) as error:
        if raw_section("QLESS"):
            raise
        why = str(error) if isinstance(error, ImproperlyConfigured) else f"it needs redis-py ({error})."
        yield Finding("ok", "jobs", f"There is no job queue: {why}")
        return
    start = time.perf_counter()
    try:
        queues = client.queues.counts()
        took = (time.perf_counter() - start) * 1000
        failed = client.jobs.failed()
        left = [each for each in of_tasks(client) if each.abandoned]
        about = server_info(redis, client.prefix)
    except StoreError as error:
        yield Finding("error", "jobs", f"The server of the job queue cannot be used: {error}")
        return
    text = f"{about.name} {about.version} answers in {took:.1f} ms; {len(queues)} queues."
    if about.keeps is False:
        text += " It writes nothing to a disk, so jobs are lost when it ends: set appendonly yes."
    yield Finding("warning" if about.keeps is False else "ok", "jobs", text)
    for queue in queues:
        text = f"{queue.waiting:,} waiting, {queue.running:,} running, {queue.scheduled:,} scheduled jobs."
        if queue.stalled:
            text += f" The locks of {queue.stalled:,} have expired: their workers are gone, or do not call heartbeat."
        yield Finding("warning" if queue.stalled else "ok", f"queue {queue.name}", text)
    for each in left:
        text = f"It goes on making jobs of a task that is gone: {each.fault}. See manage.py qless_recurring."
        yield Finding("warning", f"recurring {each.job.jid}", text)
    for group, count in sorted(failed.items()):
        yield Finding("ok", f"failed {group}", f"{count:,} jobs.")


__all__ = ["probe", "register"]
