"""`manage.py resty_alerts`: evaluate the rules of the alerts, once for cron, or repeatedly."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from resty_django.alerts import store
from resty_django.alerts.delivery import channels, send_notices
from resty_django.alerts.incidents import Notice
from resty_django.alerts.rules import BadRule, parse_rules
from resty_django.alerts.runner import Runner, run_once
from resty_django.conf import conf
from resty_django.shdict import SharedDictError
from resty_django.text import one_line

EXIT_ERROR = 2


class Command(BaseCommand):
    help = (
        "Evaluate the rules of RESTY_DJANGO['ALERTS'], send new alerts, and list current incidents. Exit code: 2 if "
        "the rules cannot be evaluated, or if an alert cannot be sent; it is then retried by the next run."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--loop", action="store_true", help="Evaluate at the interval of the settings.")
        group.add_argument("--test", action="store_true", help="Send a test mail to the recipients instead.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            rules = parse_rules(conf.alerts.rules)
        except BadRule as error:
            raise CommandError(str(error), returncode=EXIT_ERROR) from None
        if options["test"]:
            self._test()
            return
        if options["loop"]:
            self.stdout.write(f"Evaluating {len(rules)} rules every {conf.alerts.interval:g} s.")
            Runner().run()
            return
        try:
            errors = run_once()
            active = [incident for incident in store.load().active if incident.fired is not None]
        except SharedDictError as error:
            raise CommandError(f"The rules cannot be evaluated: {error}", returncode=EXIT_ERROR) from None
        for incident in active:
            self.stdout.write(one_line(f"{incident.rule}  {incident.subject}  {incident.value:g}", 300))
        self.stdout.write(f"{len(rules)} rules evaluated, {len(active)} incidents.")
        if errors:
            raise CommandError(f"An alert could not be sent: {one_line(errors[0], 500)}", returncode=EXIT_ERROR)

    def _test(self) -> None:
        if "mail" not in channels():
            raise CommandError("Nobody receives mails. Set ADMINS, or TO in ALERTS.", returncode=EXIT_ERROR)
        now = time.time()
        notice = Notice(
            rule="test",
            title=_("Test"),
            subject="",
            state="firing",
            value=1.0,
            threshold=0.0,
            is_above=True,
            unit="",
            since=now,
            at=now,
        )
        try:
            send_notices((notice,))
        except Exception as error:
            raise CommandError(f"The mail could not be sent: {error}", returncode=EXIT_ERROR) from None
        self.stdout.write("The test mail was sent.")
