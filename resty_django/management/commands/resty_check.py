"""`manage.py resty_check`: report the health of every configured component, for people and for monitoring."""

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
        "Check the health of every configured component. Exit code: 0 if all is well, 2 for errors, and with "
        "--fail-on warning 1 if there are only warnings (the exit codes of Nagios plug-ins)."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of a table.")
        parser.add_argument(
            "--fail-on",
            choices=["error", "warning"],
            default="error",
            help="The lowest level that makes the exit code non-zero (default: error).",
        )
        parser.add_argument("--only", action="append", metavar="PROBE", help="Run only this probe; may be repeated.")

    def handle(self, *args: object, **options: Any) -> None:
        only: list[str] | None = options["only"]
        unknown = sorted(set(only or ()) - set(health.names()))
        if unknown:
            raise CommandError(
                f"--only {one_line(unknown[0])}: unknown probe. Choose from: {', '.join(health.names())}.",
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
            exit_code = EXIT_ERROR if errors else EXIT_WARNING
            raise CommandError(f"{errors} in error, {warnings} with a warning.", returncode=exit_code)

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
