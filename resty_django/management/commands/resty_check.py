"""`manage.py resty_check`: the health of every configured part, for people and for monitoring."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django import health
from resty_django.text import one_line

EXIT_WARNING: Final = 1
EXIT_ERROR: Final = 2


class Command(BaseCommand):
    help = (
        "Ask every configured part how it is. Exit code: 0 when all is well, 2 when something is in error, and with "
        "--fail-on warning 1 when there are only warnings (the codes of Nagios plug-ins)."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of a table.")
        parser.add_argument(
            "--fail-on",
            choices=["error", "warning"],
            default="error",
            help="The mildest level that gives an exit code other than 0 (default: error).",
        )
        parser.add_argument(
            "--only", action="append", metavar="PROBE", help="Run this probe alone; may be given several times."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        only: list[str] | None = options["only"]
        unknown = sorted(set(only or ()) - set(health.names()))
        if unknown:
            raise CommandError(
                f"--only {one_line(unknown[0])}: there is no such probe; there are {', '.join(health.names())}.",
                returncode=EXIT_ERROR,
            )
        findings = list(health.run(only))
        errors = sum(finding.level == "error" for _, finding in findings)
        warnings = sum(finding.level == "warning" for _, finding in findings)
        if options["json"]:
            rows = [{"probe": probe, **asdict(finding)} for probe, finding in findings]
            status = "error" if errors else "warning" if warnings else "ok"
            self.stdout.write(json.dumps({"status": status, "findings": rows}, ensure_ascii=False))
        else:
            self._table(findings)
        if errors or (warnings and options["fail_on"] == "warning"):
            raise CommandError(
                f"{errors} in error, {warnings} with a warning.", returncode=EXIT_ERROR if errors else EXIT_WARNING
            )

    def _table(self, findings: list[tuple[str, health.Finding]]) -> None:
        paint = {"ok": self.style.SUCCESS, "warning": self.style.WARNING, "error": self.style.ERROR}
        widths = [
            max((len(cell) for cell in column), default=0)
            for column in (
                [probe for probe, _ in findings],
                [finding.subject for _, finding in findings],
            )
        ]
        for probe, finding in findings:
            level = paint[finding.level](f"{finding.level:7}")
            self.stdout.write(f"{level}  {probe:{widths[0]}}  {finding.subject:{widths[1]}}  {finding.message}")
