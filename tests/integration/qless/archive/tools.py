"""Finished jobs for the tests of the archive."""

from __future__ import annotations

from typing import Any

from resty_django.qless import Client
from resty_django.qless.archive.writer import ArchiveWriter, Pass
from resty_django.qless.models import ArchivedJob
from tests.integration.qless.conftest import pop

SEND = "shop.jobs.Send"


def archive_settings(url: str, **archive: Any) -> dict[str, Any]:
    return {"URL": url, "WORKER_NAME": "here-1", "ARCHIVE": {"RETENTION": "365d", **archive}}


def configure(settings: Any, **archive: Any) -> None:
    """Change the settings of the archive of a site that has one."""
    address = settings.RESTY_DJANGO["QLESS"]["URL"]
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": archive_settings(address, **archive)}


def write(client: Client, **options: Any) -> Pass:
    return ArchiveWriter(client).run(**options)


def rows() -> dict[str, ArchivedJob]:
    return {row.name: row for row in ArchivedJob.objects.all()}


def states() -> dict[str, str]:
    return {name: row.state for name, row in rows().items()}


def complete(
    client: Client, jid: str, data: Any = None, *, queue: str = "mail", klass: str = SEND, **options: Any
) -> str:
    """Enqueue a job, and complete it."""
    client.queues[queue].put(klass, {"order": 7} if data is None else data, jid=jid, priority=1000, **options)
    job = pop(client.queues[queue])
    assert job.jid == jid
    job.complete()
    return jid


def fail(client: Client, jid: str, message: str = "Traceback\nKeyError: 'zip_code'", **options: Any) -> str:
    """Enqueue a job, and let it fail."""
    client.queues["mail"].put(SEND, {"order": 8}, jid=jid, priority=1000, **options)
    job = pop(client.queues["mail"])
    assert job.jid == jid
    job.fail("mail-KeyError", message)
    return jid


def drop(client: Client, clock: Any) -> None:
    """Let Redis delete all complete jobs, as it does after `jobs-history`."""
    clock.skew += 8 * 86_400
    complete(client, f"later-{clock.skew:.0f}")
