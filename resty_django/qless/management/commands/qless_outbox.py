"""`manage.py qless_outbox`: deliver the outbox, and enqueue jobs again that Redis has lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error as DatabaseError
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from resty_django.conf import conf
from resty_django.health import described
from resty_django.redis.errors import StoreError
from resty_django.text.durations import parse_duration

from ...clients.default import default_client
from ...errors import QlessError
from ...outbox.delivery import Deliverer
from ...outbox.runner import OutboxRunner
from ...outbox.status import status
from ...tasks.options import timestamp
from ..tables import EXIT_DOWN


class Command(BaseCommand):
    help = (
        "Deliver the jobs that wait in the outbox, until stopped. Workers do the same. Exit code: 0; 1 if entries were "
        "refused or are late; 2 if Redis or a database does not answer."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="Deliver what is due, and end: for cron.")
        parser.add_argument("--status", action="store_true", help="Only show the state of the outbox.")
        parser.add_argument(
            "--redeliver-since",
            metavar="TIME",
            help="After Redis was emptied or restored: repeat the entries delivered since this time whose jobs it does "
            'not know, and end. TIME: an age such as "2h", or a time such as "2026-11-30 12:00", in the time zone of '
            "the site. Jobs that had run may run again.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not conf.qless.outbox.is_used:
            raise CommandError('There is no outbox. Set "OUTBOX": True in QLESS.')
        try:
            client = default_client()
            deliverers = [Deliverer(client, alias) for alias in conf.qless.outbox.database]
            if options["redeliver_since"] is not None:
                since = _since(options["redeliver_since"], client.clock())
                self._redeliver(deliverers, since)
            elif options["once"]:
                counts = self._deliver(deliverers)
                self.stdout.write(f"{counts['delivered']:,} entries delivered, {counts['blocked']:,} wait for others.")
            elif not options["status"]:
                OutboxRunner(client).run()
            outbox = status(client)
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=EXIT_DOWN) from error
        except (StoreError, QlessError, DatabaseError) as error:
            raise CommandError(f"The outbox cannot be delivered: {described(error)}", returncode=EXIT_DOWN) from error
        except KeyboardInterrupt:
            return
        self.stdout.write(
            f"{outbox.waiting:,} entries wait, the oldest for {outbox.age:,.0f} s; {outbox.refused:,} were refused."
        )
        if outbox.needs_attention:
            raise CommandError("Entries were refused or are late. See the admin of the outbox.", returncode=1)

    def _deliver(self, deliverers: list[Deliverer], *, all_waiting: bool = False) -> Counter[str]:
        counts: Counter[str] = Counter()
        for deliverer in deliverers:
            counts += deliverer.run(all_waiting=all_waiting)
            deliverer.tidy()
        return counts

    def _redeliver(self, deliverers: list[Deliverer], since: float) -> None:
        entries = sum(deliverer.redeliver(since) for deliverer in deliverers)
        # also what is not due: its process may have delivered it before, and mark it later
        counts = self._deliver(deliverers, all_waiting=True)
        missing = counts["delivered"] - counts["repeated"]
        self.stdout.write(
            f"{entries:,} entries were delivered since then. Redis did not know {missing:,} of those that wait now; "
            "their jobs are enqueued again."
        )


def _since(text: str, now: float) -> float:
    """Return the time in the option, in epoch seconds. Raises `CommandError`."""
    try:
        moment = parse_datetime(text)
        return max(0.0, now - parse_duration(text) if moment is None else timestamp(moment))
    except (ValueError, OverflowError) as error:
        example = f"{timezone.localtime():%Y-%m-%d %H:%M}"
        raise CommandError(f'--redeliver-since: {error} Write an age such as "2h", or "{example}".') from None
