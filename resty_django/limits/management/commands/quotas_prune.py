"""`manage.py quotas_prune`: delete old rows of quotas."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.conf import conf
from resty_django.text.durations import parse_duration

from ...quotas import rows


class Command(BaseCommand):
    help = "Delete the rows of quotas whose period ended longer ago than the setting LIMITS QUOTA_KEEP."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--keep", metavar="TIME", help='Time to keep rows after their period, such as "90d".')

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            keep = conf.limits.quota_keep if options["keep"] is None else parse_duration(options["keep"])
        except ValueError as error:
            raise CommandError(f"--keep is not valid. {error}") from error
        before, total = int(time.time() - keep), 0
        while deleted := rows.prune(before, most=500):  # in one statement, so that no lock is held for long
            total += deleted
        self.stdout.write(f"Deleted {total:,} rows of quotas.")
