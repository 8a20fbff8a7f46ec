"""`manage.py limits_import FILE`: import policies and overrides from JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.limits.overrides import files
from resty_django.limits.policies.export import BadFile
from resty_django.text import one_line, printable


class Command(BaseCommand):
    help = (
        "Import limit policies and overrides from a file of limits_export, all or nothing. Policies with the same "
        "name, and overrides of the same key and limit, are replaced, others stay. The import takes effect in running "
        "processes at once. Use --dry-run to preview the changes."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="The file (JSON); - for standard input.")
        parser.add_argument(
            "--prune", action="store_true", help="Delete policies and overrides that are not in the file."
        )
        parser.add_argument("--dry-run", action="store_true", help="Print the changes without making them.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            file = options["file"]
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"Cannot read {one_line(options['file'])}: {one_line(error)}.") from error
        try:
            content = files.read(text)
        except BadFile as error:
            raise CommandError(f"{printable(str(error), 10_000)}\nNothing was written.") from error
        prune = options["prune"]
        planned = files.plan(content, prune=prune, prune_overrides=prune)
        for change in planned.acting:
            self.stdout.write(f"{change.what:>8}  {one_line(change.name)}")
            for line in change.lines:
                self.stdout.write(f"          {one_line(line)}")
        if options["dry_run"]:
            self.stdout.write(f"{planned}. Nothing was written (--dry-run).")
            return
        files.apply(content, prune=prune, prune_overrides=prune)
        self.stdout.write(self.style.SUCCESS(f"{planned}."))
