"""`manage.py limits_export [NAME ...]`: print policies and overrides as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.limits.overrides import export as override_export
from resty_django.limits.policies import export
from resty_django.text import one_line


class Command(BaseCommand):
    help = "Print the limit policies of the database as JSON, for limits_import and for review."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("names", nargs="*", metavar="NAME", help="Only these policies. Default: all.")
        parser.add_argument(
            "--overrides",
            action="store_true",
            help="Also the overrides, which contain IDs of users, addresses and API keys.",
        )
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="Write to this file instead of standard output."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        rows = export.stored()
        for name in options["names"]:
            if name not in rows:
                raise CommandError(
                    f"There is no policy {name!r}. The policies are: {one_line(', '.join(sorted(rows))) or 'none'}."
                )
        names = options["names"] or rows
        lists = {"policies": export.listed(rows[name].spec() for name in dict.fromkeys(names))}
        if options["overrides"]:
            lists["overrides"] = override_export.listed(row.spec() for row in override_export.stored().values())
        text = export.as_text(lists)
        if options["output"] is None:
            self.stdout.write(text, ending="")
            return
        try:
            options["output"].write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"Cannot write {one_line(options['output'])}: {one_line(error)}.") from error
