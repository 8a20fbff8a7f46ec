"""`manage.py resty_metrics`: print the metrics, or the Prometheus rules and the Grafana dashboard for them."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django import metrics
from resty_django.extras import MissingExtra


class Command(BaseCommand):
    help = "Print all metrics in the format of Prometheus, or the rules or the dashboard that come with this package."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--rules", action="store_true", help="Print alerting and recording rules for Prometheus.")
        group.add_argument("--dashboard", action="store_true", help="Print a dashboard for Grafana as JSON.")

    def handle(self, *args: object, **options: Any) -> None:
        name = "rules.yml" if options["rules"] else "dashboard.json" if options["dashboard"] else None
        if name is not None:
            folder = files(metrics) / "monitoring"
            self.stdout.write((folder / name).read_text(encoding="utf-8"), ending="")
            return
        try:
            from resty_django.metrics.exposition import exposed
        except MissingExtra as error:
            raise CommandError(str(error)) from None
        text = exposed("")[0].decode()
        self.stdout.write(text.replace("\t", " "), ending="")  # a tab would move the cursor of a terminal
