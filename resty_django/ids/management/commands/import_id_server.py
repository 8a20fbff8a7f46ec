"""`manage.py import_id_server CONFIG`: import rules and counters from id_server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from resty_django.ids.legacy import Plan, PlannedRule, Refused, make_plan, read_config, read_rows
from resty_django.text import one_line


class Command(BaseCommand):
    help = (
        "Import the rules of an id_server configuration and, with --database, the counters of its table, all or "
        "nothing. Stop id_server first and wait until it has exited: IDs that it issues after the import would be "
        "issued twice. Use --dry-run to preview the import."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("config", type=Path, metavar="CONFIG", help="The configuration file (JSON).")
        parser.add_argument(
            "--database", metavar="ALIAS", help="The alias in DATABASES of the database with the counter table."
        )
        parser.add_argument("--table", default="counter", help="The name of the counter table (default: counter).")
        parser.add_argument(
            "--lua-dir",
            type=Path,
            metavar="DIR",
            help="The folder for relative paths of scripts: the one in which id_server was started. Default: the "
            "folder of the configuration, or else the folder above it.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Print the changes without making them.")
        parser.add_argument("--update", action="store_true", help="Replace existing rules; counters never decrease.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            config = read_config(options["config"], options["lua_dir"])
            alias = options["database"]
            rows = read_rows(alias, options["table"]) if alias else None
            plan = make_plan(config, rows, update=options["update"])
            self._table(plan)
            for notice in plan.notices:
                self.stdout.write(self.style.WARNING(one_line(notice)))
            if rows is None:
                where = f" ({one_line(config.database)})" if config.database else ""
                self.stdout.write(
                    self.style.WARNING(
                        f"Counters are not imported. To import them, name the alias of their database{where} with "
                        "--database. Without them, numbers start from the beginning and are issued twice."
                    )
                )
            if options["dry_run"]:
                self.stdout.write("Nothing was written (--dry-run).")
                return
            plan.apply()
        except Refused as error:
            raise CommandError(f"{one_line(error)} Nothing was written.") from error
        counters = sum(len(planned.counters) for planned in plan.rules)
        self.stdout.write(self.style.SUCCESS(f"{len(plan.rules)} rules and {counters} counters were imported."))

    def _table(self, plan: Plan) -> None:
        head = ("rule", "", "numbers", "reset", "segment", "counters", "continue", "highest next")
        rows = [head, *(_cells(planned) for planned in plan.rules)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cells(planned: PlannedRule) -> tuple[str, ...]:
    rule, counters = planned.rule, planned.counters
    going = [standing for standing in counters if standing.goes_on]
    return (
        one_line(rule.name, 100),
        "new" if planned.is_new else "replaced",
        f"{rule.min_counter} to {rule.max_counter}",
        f"each {rule.reset_seconds} s" if rule.reset_seconds else "never",
        str(rule.segment_size),
        str(len(counters)),
        str(len(going)),
        str(max(standing.bound for standing in going)) if going else "-",
    )
