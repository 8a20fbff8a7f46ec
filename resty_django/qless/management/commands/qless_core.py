"""`manage.py qless_core`: prints the Lua script of the job queue, for clients in any language."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.qless.core import PREFIX, sha1, source


class Command(BaseCommand):
    help = "Print the core of the job queue, or the SHA1 that EVALSHA knows it by once it is loaded."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--print", action="store_true", help="Print the whole script instead of its SHA1.")
        parser.add_argument(
            "--prefix", default=PREFIX, help=f"What all keys begin with (default: {PREFIX}, that of other clients)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            text = (source if options["print"] else sha1)(options["prefix"])
        except ValueError as error:
            raise CommandError(f"--prefix: {error}") from None
        self.stdout.write(text, ending="" if options["print"] else "\n")
