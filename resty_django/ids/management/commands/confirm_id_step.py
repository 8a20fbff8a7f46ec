"""`manage.py confirm_id_step`: change counters to a new step."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from resty_django.conf import conf
from resty_django.ids.errors import IdError
from resty_django.ids.models import IdCounter
from resty_django.ids.operations import Refused, confirm_step, highest_bound
from resty_django.ids.store import database
from resty_django.text import one_line


class Command(BaseCommand):
    help = (
        "List the counters whose step differs from RESTY_DJANGO['IDS']['STEP']. With --floor and --rule, change the "
        "counters of one rule to that step. The floor must be above every number that any node, on this database or "
        "another, has issued in this cycle. Before you confirm, stop all nodes and check their counters."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--floor",
            type=int,
            metavar="N",
            help="Every node continues at its first number not below N; requires --rule. Without --floor: list.",
        )
        parser.add_argument("--rule", help="Only counters of this rule; required with --floor.")
        parser.add_argument("--app", help="Only counters with this application name, which may be empty.")
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(self, *args: Any, **options: Any) -> None:
        step, floor = conf.ids.step, options["floor"]
        if floor is not None and floor < 0:
            raise CommandError(f"--floor is {floor}. It must be at least 0.")
        if floor is not None and options["rule"] is None:
            raise CommandError("--floor applies to one rule. Name the rule with --rule.")
        families = self._families(options["rule"], options["app"])
        if not families:
            self.stdout.write(f"All counters have STEP {step}; there is nothing to confirm.")
            return
        try:
            self._list(families, step)
            if floor is None:
                self.stdout.write(
                    "To change the counters of a rule, run this again with --rule NAME --floor N, where N is above "
                    "all numbers that any node has issued."
                )
                return
            if not options["yes"]:
                self._ask(floor)
            done = self._confirm(families, floor)
        except IdError as error:
            raise CommandError(f"{one_line(error)} Nothing was changed.") from error
        for counter in done:
            self.stdout.write(
                f"{one_line(counter.rule.name)}/{one_line(counter.app_name)}: "
                f"node {counter.node_offset} continues at {counter.bound}"
            )
        self.stdout.write(self.style.SUCCESS(f"All nodes of {len(done)} names now have step {step}."))

    @staticmethod
    def _families(rule: str | None, app: str | None) -> list[IdCounter]:
        """Return one counter for each rule and application name with a different step."""
        counters = IdCounter.objects.using(database()).exclude(step=conf.ids.step).select_related("rule")
        if rule is not None:
            counters = counters.filter(rule__name=rule)
        if app is not None:
            counters = counters.filter(app_name=app)
        families: dict[tuple[int, str], IdCounter] = {}
        for counter in counters.order_by("rule__name", "app_name", "node_offset"):
            families.setdefault((counter.rule_id, counter.app_name), counter)
        return list(families.values())

    def _list(self, families: list[IdCounter], step: int) -> None:
        self.stdout.write(f"Counters with a step other than {step} (STEP):")
        for counter in families:
            self.stdout.write(
                f"  {one_line(counter.rule.name)}/{one_line(counter.app_name)}: step {counter.step}; "
                f"all numbers reserved here are below {highest_bound(counter)}"
            )

    def _ask(self, floor: int) -> None:
        self.stdout.write(
            f"No node may have issued the number {floor} or a higher one in this cycle. "
            "If the floor is too low, IDs are issued twice."
        )
        try:
            typed = input(f"Type the floor ({floor}) to confirm: ")
        except EOFError:
            raise CommandError(
                "Cannot ask for confirmation without a terminal. Use --yes. Nothing was changed."
            ) from None
        if typed.strip() != str(floor):
            raise CommandError("The number is not the floor. Nothing was changed.")

    @staticmethod
    def _confirm(families: list[IdCounter], floor: int) -> list[IdCounter]:
        with transaction.atomic(using=database()):
            done = []
            for counter in families:
                try:
                    done.append(confirm_step(counter, floor=floor))
                except Refused as error:
                    raise Refused(f"{one_line(counter.rule.name)}/{one_line(counter.app_name)}: {error}") from error
            return done
