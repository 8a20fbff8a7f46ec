"""`manage.py qless_core`: prints the Lua script of the job queue, for clients in any language."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.qless.core import PREFIX, sha1, source


class Command(BaseCommand):
    help = "Print the SHA1 of the job queue's Lua script, for EVALSHA, or with --print the script itself."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--print", action="store_true", help="Print the whole script instead of its SHA1.")
        parser.add_argument(
            "--prefix", default=PREFIX, help=f"Prefix of all keys (default: {PREFIX}, which other clients use)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            text = (source if options["print"] else sha1)(options["prefix"])
        except ValueError as error:
            raise CommandError(f"--prefix: {error}") from None
        self.stdout.write(text, ending="" if options["print"] else "\n")
