"""The state of the outbox, for checks, metrics and commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.db.models import Count, Min

from resty_django.conf import conf
from resty_django.database.times import from_db

from ..clients.client import Client
from ..models import OutboxEntry
from .entries import REFUSED, WAITING

LATE_SECONDS: Final = 120.0
"""Age from which an entry is late. A worker has delivered it after 15 seconds, a minutely cron job after 80."""


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """The state of the outbox over all its databases.

    - `waiting`: entries to be delivered, or to be marked as delivered. `age`: of the oldest one, in seconds; 0 without.
    - `refused`: entries that need a decision. `error`: the last error of one of these, or else of one that waits.
    """

    waiting: int
    age: float
    refused: int
    error: str

    @property
    def is_late(self) -> bool:
        return self.age > LATE_SECONDS

    @property
    def needs_attention(self) -> bool:
        return self.is_late or self.refused > 0


def status(client: Client) -> OutboxStatus:
    """Return the state of the outbox. Raises `django.db.DatabaseError`."""
    waiting = refused = 0
    oldest: list[float] = []
    error = ""
    for alias in conf.qless.outbox.database:
        entries = OutboxEntry.objects.using(alias).filter(state__in=(WAITING, REFUSED))
        for state, count, since in entries.values_list("state").annotate(Count("pk"), Min("waiting_since")):
            if state == WAITING:
                waiting += count
                oldest.append(from_db(since))
            else:
                refused += count
        with_error = entries.exclude(error="").order_by("state", "due_at").values_list("error", flat=True)
        error = error or (with_error.first() or "" if waiting or refused else "")
    age = max(0.0, client.clock() - min(oldest)) if oldest else 0.0
    return OutboxStatus(waiting, age, refused, error)
