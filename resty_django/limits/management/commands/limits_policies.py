"""`manage.py limits_policies dump FILE` and `load FILE`: policies and overrides as files."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError

from resty_django.text import one_line

from ...models import LimitOverride, LimitPolicy
from ...policies.files import MAX_CHARACTERS, BadFile, dump, load


class Command(BaseCommand):
    help = "Write the limit policies and overrides of the database to a file, or load them from a file."

    def add_arguments(self, parser: CommandParser) -> None:
        # BaseCommand's parser class needs arguments that subparsers do not pass
        actions = parser.add_subparsers(dest="action", required=True, parser_class=ArgumentParser)
        text = "Write the policies to a file, in the JSON format of Django's dumpdata."
        subparser = actions.add_parser("dump", help=text, description=text)
        subparser.add_argument("file", metavar="FILE", help="The file; - for standard output.")
        subparser.add_argument(
            "--overrides",
            action="store_true",
            help="Also the overrides, which contain IDs of users, addresses and API keys.",
        )
        text = (
            "Load policies and overrides from a file, all or nothing. Policies with the same name, and overrides of "
            "the same key and limit, are replaced, others stay. Running processes follow at once."
        )
        subparser = actions.add_parser("load", help=text, description=text)
        subparser.add_argument("file", metavar="FILE", help="The file; - for standard input.")
        subparser.add_argument("--dry-run", action="store_true", help="Print the changes without making them.")
        subparser.add_argument(
            "--prune",
            action="store_true",
            help="Delete rows that are not in the file: policies if it has policies, overrides if it has overrides.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        file = options["file"]
        try:
            if options["action"] == "dump":
                self._dump(file, options["overrides"])
            else:
                self._load(file, options["prune"], options["dry_run"])
        except BadFile as error:
            raise CommandError(f"{error}\nNothing was changed.") from error
        except DatabaseError as error:
            raise CommandError(f"The database rejected this: {one_line(error)}\nNothing was changed.") from error
        except (OSError, UnicodeError) as error:
            raise CommandError(f"Cannot use {one_line(file)}: {one_line(error)}.") from error

    def _dump(self, file: str, overrides: bool) -> None:
        text = dump([*LimitPolicy.objects.newest(), *(LimitOverride.objects.newest() if overrides else ())])
        if file == "-":
            self.stdout.write(text, ending="")
        else:
            Path(file).write_text(text, encoding="utf-8")

    def _load(self, file: str, prune: bool, dry_run: bool) -> None:
        if file == "-":
            text = sys.stdin.read(MAX_CHARACTERS + 1)
        else:
            with Path(file).open(encoding="utf-8-sig") as stream:
                text = stream.read(MAX_CHARACTERS + 1)
        changes = load(text, prune=prune, dry_run=dry_run)
        for change in changes:
            if change.kind != "unchanged":
                self.stdout.write(f"{change.kind:>9}  {change.row._meta.verbose_name}  {one_line(change.row)}")
                for line in change.lines:
                    self.stdout.write(f"           {one_line(line)}")
        counts = Counter(change.kind for change in changes)
        kinds = ("created", "changed", "deleted", "unchanged")
        total = ", ".join(f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind]) or "The file is empty"
        self.stdout.write(f"{total}. Nothing was changed (--dry-run)." if dry_run else self.style.SUCCESS(f"{total}."))
