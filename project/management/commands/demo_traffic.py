"""`manage.py demo_traffic`: visitors for the demo."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from project import traffic


class Command(BaseCommand):
    help = "Visit the demo site as its customers would, about twice a second, until Ctrl-C or SIGTERM."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address of the site (default: %(default)s).")
        parser.add_argument("--http-port", type=int, default=8000, help="Port of the site (default: %(default)s).")
        parser.add_argument("--udp-port", type=int, default=1200, help="Port of the ID server (default: %(default)s).")
        parser.add_argument("--visits", type=int, help="How many visits (default: without end).")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            traffic.run(options["host"], options["http_port"], options["udp_port"], options["visits"])
        except KeyboardInterrupt:
            self.stdout.write("The visitors have gone.")
