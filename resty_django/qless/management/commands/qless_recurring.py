"""`manage.py qless_recurring`: lists the recurring jobs, and cancels those whose task no longer exists."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.redis.errors import StoreError
from resty_django.text import one_line

from ...clients.client import Client
from ...clients.default import default_client
from ...clients.recurring import RecurringJob, of_reply
from ...clients.transport import batches
from ...errors import QlessError
from ...tasks.abandoned import ABANDONED_SECONDS, Declared, of_tasks
from .. import tables
from ..tables import EXIT_DOWN, named


class Command(BaseCommand):
    help = (
        "List the recurring jobs and show which of them a task has declared. A task that is removed from the code, or "
        "loses its every=, leaves its recurring job behind; --prune cancels such jobs once no worker has declared "
        f"them for {ABANDONED_SECONDS / 60:.0f} minutes. Recurring jobs created by hand are never touched."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--prune", action="store_true", help="Cancel recurring jobs whose task no longer exists.")
        parser.add_argument("--dry-run", action="store_true", help="With --prune: show what would be canceled.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dry_run"] and not options["prune"]:
            raise CommandError("--dry-run needs --prune.")
        try:
            client = default_client()
            declared = of_tasks(client)
            if options["prune"]:
                self._prune(declared, dry=options["dry_run"])
            else:
                self._list(client, declared)
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=EXIT_DOWN) from error
        except (StoreError, QlessError) as error:
            raise CommandError(f"The job queue does not answer: {one_line(error)}", returncode=EXIT_DOWN) from error

    def _prune(self, declared: list[Declared], *, dry: bool) -> None:
        abandoned = [entry for entry in declared if entry.abandoned]
        for entry in abandoned:
            if not dry:
                entry.job.cancel()
            word = "Would cancel" if dry else "Canceled"
            self.stdout.write(
                f"{word} {named(entry.job.jid)} of the queue {named(entry.job.queue_name)}: {one_line(entry.fault)}."
            )
        for entry in declared:
            if (entry.fault and not entry.abandoned) or entry.unknown:
                self.stdout.write(f"Kept {_problem(entry)}")
        if not abandoned:
            self.stdout.write("Nothing to cancel.")

    def _list(self, client: Client, declared: list[Declared]) -> None:
        declared_by_jid = {entry.job.jid: entry for entry in declared}
        jobs = _recurring_jobs(client)
        if not jobs:
            self.stdout.write("No recurring jobs.")
            return
        rows = [
            (
                *(job.jid, named(job.klass), named(job.queue_name), f"{job.interval:g} s", f"{job.count:,}"),
                _declared_by(declared_by_jid.get(job.jid)),
            )
            for job in jobs
        ]
        tables.write(self, ("recurring job", "class", "queue", "every", "made", "declared by"), rows)
        for entry in declared:
            if entry.fault or entry.unknown:
                self.stdout.write(_problem(entry) + (" --prune cancels it." if entry.abandoned else ""))


def _recurring_jobs(client: Client) -> list[RecurringJob]:
    jobs: list[RecurringJob | None] = []
    for queue in client.queues.counts():
        jids = client.queues[queue.name].jobs.recurring(0, -1) if queue.recurring else []
        for batch in batches(jids, 500):
            replies = client.call_many([("recur.get", jid) for jid in batch])
            jobs += [of_reply(client, reply) for reply in replies if not isinstance(reply, Exception)]
    return sorted((job for job in jobs if job is not None), key=lambda job: (job.queue_name, job.jid))


def _declared_by(declared: Declared | None) -> str:
    if declared is None:
        return "people"
    return "a removed task" if declared.abandoned else "a task"


def _problem(declared: Declared) -> str:
    """Return why the code does not declare it, or why this is unknown."""
    if declared.unknown:
        return f"{named(declared.job.jid)}: {one_line(declared.unknown)}."
    ago = max(0.0, declared.ago)
    return f"{named(declared.job.jid)}: {one_line(declared.fault)}; a worker declared it {ago:,.0f} s ago."
