"""`manage.py qless_recurring`: the recurring jobs, and an end to those whose task is gone."""

from __future__ import annotations

from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.redis import StoreError

from ...clients import Client
from ...declared import QUIET, Declared, of_tasks
from ...default import default_client
from ...errors import QlessError
from ...recurring import RecurringJob, of_reply
from ..tables import lines, named

EXIT_DOWN: Final = 2
BATCH: Final = 500


class Command(BaseCommand):
    help = (
        "List the recurring jobs, and say which of them tasks have declared. A task that is taken out of the code, or "
        "loses its every=, leaves its recurring job behind; --prune cancels such jobs, once no worker has declared "
        f"them for {QUIET / 60:.0f} minutes. Those that people have made are never touched."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--prune", action="store_true", help="Cancel those whose task this code does not have.")
        parser.add_argument("--dry-run", action="store_true", help="With --prune: tell what would be canceled.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["dry_run"] and not options["prune"]:
            raise CommandError("--dry-run goes with --prune.")
        try:
            client = default_client()
            declared = of_tasks(client)
            if options["prune"]:
                self._prune(declared, dry=options["dry_run"])
            else:
                self._list(client, declared)
        except (StoreError, QlessError) as error:
            raise CommandError(f"The job queue does not answer: {error}", returncode=EXIT_DOWN) from error

    def _prune(self, declared: list[Declared], *, dry: bool) -> None:
        gone = [each for each in declared if each.abandoned]
        for each in gone:
            if not dry:
                each.job.cancel()
            word = "Would cancel" if dry else "Canceled"
            self.stdout.write(f"{word} {named(each.job.jid)} of the queue {named(each.job.queue_name)}: {each.fault}.")
        for each in declared:
            if (each.fault and not each.abandoned) or each.unknown:
                self.stdout.write(f"Kept {_told(each)}")
        if not gone:
            self.stdout.write("There is nothing to cancel.")

    def _list(self, client: Client, declared: list[Declared]) -> None:
        known = {each.job.jid: each for each in declared}
        jobs = _all(client)
        if not jobs:
            self.stdout.write("No job recurs.")
            return
        rows = [
            (
                *(job.jid, named(job.klass), named(job.queue_name), f"{job.interval:g} s", f"{job.count:,}"),
                _word(known.get(job.jid)),
            )
            for job in jobs
        ]
        head, *rest = lines(("recurring job", "class", "queue", "every", "made", "declared by"), rows)
        self.stdout.write(self.style.MIGRATE_HEADING(head))
        for line in rest:
            self.stdout.write(line)
        for each in declared:
            if each.fault or each.unknown:
                self.stdout.write(_told(each) + (" --prune cancels it." if each.abandoned else ""))


def _all(client: Client) -> list[RecurringJob]:
    found = []
    for queue in client.queues.counts():
        jids = client.queues[queue.name].jobs.recurring(0, -1) if queue.recurring else []
        for first in range(0, len(jids), BATCH):
            replies = client.call_many([("recur.get", jid) for jid in jids[first : first + BATCH]])
            found += [of_reply(client, reply) for reply in replies if not isinstance(reply, Exception)]
    return sorted((job for job in found if job is not None), key=lambda job: (job.queue_name, job.jid))


def _word(declared: Declared | None) -> str:
    if declared is None:
        return "people"
    return "a task that is gone" if declared.abandoned else "a task"


def _told(declared: Declared) -> str:
    """A sentence about one that is not in the code."""
    if declared.unknown:
        return f"{named(declared.job.jid)}: {declared.unknown}."
    return f"{named(declared.job.jid)}: {declared.fault}; a worker declared it {max(0.0, declared.ago):,.0f} s ago."
