"""`manage.py resty_forget KEY`: erase the data stored about an IP address or a user."""

from __future__ import annotations

from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError

from resty_django import erasing
from resty_django.conf import conf
from resty_django.shdict import SharedDictError
from resty_django.text import logger, one_line

log = logger("resty_django")

EXIT_INCOMPLETE: Final = 2
EVERYWHERE: Final = (
    "Log files, and records shipped to a log server: records of rejected requests contain the path and the key.",
    "The database, except for the rows of quotas and archived jobs: the admin's history, and rows of your own models.",
    "Jobs in Redis: arguments, results and errors. Complete jobs are deleted after jobs-history (7 days); failed jobs "
    "stay until they are retried or cancelled.",
    "Expired items: their bytes stay in the dictionary's memory until they are overwritten.",
)


class Command(BaseCommand):
    help = (
        "Erase keys, such as IP addresses and primary keys of users, from the states of limits, the lists of "
        "most rejected keys, the caches' lists of slowest keys, and archived jobs. Lists the data that is not erased. "
        "Exit code: 0, or 2 if a store did not respond."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("keys", nargs="+", metavar="KEY", help="An IP address, or the key of a user.")
        parser.add_argument(
            "--dry-run", action="store_true", help="Count the entries that would be erased, without changing anything."
        )
        parser.add_argument(
            "--dictionary",
            action="append",
            default=[],
            metavar="NAME",
            help="Also search this shared dictionary for states of limits; may be repeated.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        for name in options["dictionary"]:
            if name not in conf.shared_dicts:
                raise CommandError(f"--dictionary {name!r} is not in SHARED_DICTS. Add it or fix the name.")
        dry, failed = options["dry_run"], []
        word = "would be erased" if dry else "erased"
        for eraser in erasing.parts():
            counts: dict[str, int] = {}
            try:
                for key in options["keys"]:
                    for erased in eraser.erase(key, dry, options["dictionary"]):
                        counts[erased.what] = counts.get(erased.what, 0) + erased.count
            except (SharedDictError, ImproperlyConfigured, DatabaseError) as error:
                failed.append(f"{eraser.name}: {one_line(error)}")
            for what, count in counts.items():
                self.stdout.write(f"{eraser.name}: {count:,} {what} {word}")
                if not dry:
                    log.info("%s: erased %d %s of one key", eraser.name, count, what)
        self.stdout.write("Not erased:")
        for sentence in (*EVERYWHERE, *(sentence for eraser in erasing.parts() for sentence in eraser.kept)):
            self.stdout.write(f"- {sentence}")
        if failed:
            raise CommandError(
                f"Not everything was erased. Run this command again: {'; '.join(failed)}", returncode=EXIT_INCOMPLETE
            )
