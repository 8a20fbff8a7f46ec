"""`manage.py qless_archive`: write finished jobs to the archive in the database, and delete old rows."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError

from resty_django.conf import conf
from resty_django.health import described
from resty_django.redis.errors import StoreError

from ...archive.marks import ArchiveStatus, status
from ...archive.writer import ArchiveWriter
from ...clients.default import default_client
from ...errors import QlessError
from ..tables import EXIT_DOWN


class Command(BaseCommand):
    help = (
        "Write jobs that have finished since the last pass to the archive, and delete rows older than RETENTION. "
        "Workers do the same continuously. Exit code: 0; 1 if the archive is late or lost jobs in the last day; 2 if "
        "Redis or the database does not answer."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--again", action="store_true", help="Read all jobs that Redis has, for example after a restored backup."
        )
        parser.add_argument("--status", action="store_true", help="Only show the state of the archive.")
        parser.add_argument("--json", action="store_true", help="Print the state as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        if not conf.qless.archive.enabled:
            raise CommandError('There is no archive. Set "ARCHIVE": {"RETENTION": "365d"} in QLESS.')
        try:
            client = default_client()
            if not options["status"]:
                outcome = ArchiveWriter(client).run(again=options["again"])
                if outcome.locked:
                    self.stderr.write("Another process is writing the archive. Nothing was done.")
                elif not options["json"]:
                    counts = outcome.counts
                    self.stdout.write(f"{counts['written']:,} jobs written, {counts['pruned']:,} old rows deleted.")
            archive = status(client)
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=EXIT_DOWN) from error
        except (StoreError, QlessError, DatabaseError) as error:
            raise CommandError(f"The archive cannot be written: {described(error)}", returncode=EXIT_DOWN) from error
        if options["json"]:
            self.stdout.write(json.dumps(asdict(archive)))
        else:
            self._show(archive)
        if archive.late or archive.loses:
            raise CommandError("The archive is late, or has lost jobs in the last day.", returncode=1)

    def _show(self, archive: ArchiveStatus) -> None:
        self.stdout.write(
            f"{archive.behind:,} complete and {archive.canceled:,} canceled jobs not archived yet; "
            f"lag {archive.lag:,.1f} s; "
            f"{archive.written:,} written, {archive.skipped:,} rejected, {archive.lost:,} lost in total."
        )
