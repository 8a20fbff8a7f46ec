"""`manage.py txid`: generate txids, and parse them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from resty_django.text import one_line
from resty_django.txid import InvalidTxid, parse, txid, txid_max, txid_min
from resty_django.txid.codec import milliseconds


class Command(BaseCommand):
    help = (
        "Generate and parse transaction IDs. make [TIME...]: an ID for the current time, or for each TIME. "
        "batch COUNT: many IDs for the current time. parse ID...: the time and the random bits of each ID. "
        "min TIME..., max TIME...: the smallest and the largest ID of a millisecond. A TIME is a number of "
        "milliseconds since 1970 or an ISO 8601 string; without an offset it is in TIME_ZONE."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        actions = ["make", "batch", "parse", "min", "max"]
        parser.add_argument("action", choices=actions, nargs="?", default="make", help=f"Action: {', '.join(actions)}.")
        parser.add_argument(
            "values", nargs="*", metavar="value", help="Times, IDs or the count, depending on the action."
        )
        parser.add_argument("--json", action="store_true", help="parse: print one JSON object per ID.")

    def handle(self, *args: object, **options: Any) -> None:
        action, values = options["action"], options["values"]
        if options["json"] and action != "parse":
            raise CommandError(f"--json is only supported by parse; {action} prints IDs. Remove --json.")
        if action == "make":
            self._print([txid(self._time(value)) for value in values] if values else [txid()])
        elif action == "batch":
            self._batch(values)
        elif not values:
            raise CommandError(f"txid {action} needs at least one {'ID' if action == 'parse' else 'time'}.")
        elif action == "parse":
            self._parse(values, options["json"])
        else:
            bound = txid_min if action == "min" else txid_max
            self._print(bound(self._time(value)) for value in values)

    def _print(self, lines: Iterable[str]) -> None:
        self.stdout.write("\n".join(lines))

    def _batch(self, values: list[str]) -> None:
        if len(values) != 1 or not values[0].isdecimal():
            raise CommandError("txid batch needs one whole number, the count of IDs.")
        remaining = int(values[0])
        max_lines = 1000  # written at a time
        while remaining > 0:
            self._print(txid() for _ in range(min(remaining, max_lines)))
            remaining -= max_lines

    def _parse(self, values: list[str], as_json: bool) -> None:
        for value in values:
            try:
                parsed = parse(value)
            except InvalidTxid as error:
                raise CommandError(one_line(error)) from None
            time = parsed.time.astimezone(timezone.get_default_timezone()).isoformat(timespec="milliseconds")
            if as_json:
                row = {"txid": parsed.txid, "time": time, "ms": parsed.ms, "random": f"{parsed.random:#016x}"}
                self._print([json.dumps(row)])
            else:
                self._print([f"{parsed.txid}  {time}  {parsed.ms} ms  random {parsed.random:#016x}"])

    def _time(self, text: str) -> float | datetime:
        for kind in (int, float):
            try:
                return milliseconds(kind(text))
            except ValueError:
                continue
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise CommandError(
                f"{text!r} is not a time. Use milliseconds since 1970, or a string such as 2026-11-21T14:05:09+01:00."
            ) from None
        return timezone.make_aware(time, timezone.get_default_timezone()) if timezone.is_naive(time) else time
