"""Delivery of the outbox: claims, commands to the core, marks, and deletion."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from django.db import Error, connections, transaction
from django.db.models import F, Q, QuerySet

from resty_django.conf import conf
from resty_django.database.times import to_db
from resty_django.health import described
from resty_django.redis.errors import StoreDown, StoreError
from resty_django.text import logger

from ..clients.client import Client
from ..clients.transport import MAX_REQUESTS_PER_BATCH, Request, is_refusal
from ..errors import QlessError
from ..models import OutboxEntry
from .entries import DELIVERED, DISCARDED, REFUSED, WAITING, entries_with, ids_of, names_in, requests_of

log = logger("resty_django.qless.outbox")

MAX_ENTRIES: Final = 100
"""Maximum number of entries that a process claims at once."""
LEASE_SECONDS: Final = 60.0
"""Time after which other processes may deliver a claimed entry."""
MAX_BACKOFF_SECONDS: Final = 60.0
FAULTS: Final = (StoreError, QlessError, Error, ValueError, TypeError, LookupError, AttributeError)
"""Errors of a delivery, also of rows that somebody has edited. Interruptions of a job that enqueues go on."""
OTHER_DATABASE: Final = 0
"""Stands for the primary key of an entry of another database."""
MAX_ROWS_PER_STATEMENT: Final = 1000
"""Maximum number of rows that a statement changes or deletes."""


class Delivery(NamedTuple):
    """The result of sending an entry. `error`: None if the core has carried out its commands, now or before."""

    entry: OutboxEntry
    error: Exception | None = None
    is_new: bool = False
    """Whether any of its commands was carried out now."""

    @property
    def is_refused(self) -> bool:
        """Whether the core would refuse the entry again."""
        return self.error is not None and is_refusal(self.error)


@dataclass(slots=True)
class Deliverer:
    """Delivers the entries of one database.

    The steps `claim`, `send` and `settle` may each be the last one of a process: another one repeats what is missing.
    """

    client: Client
    alias: str
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def entries(self) -> QuerySet[OutboxEntry]:
        return OutboxEntry.objects.using(self.alias)

    def run(self, *, all_waiting: bool = False) -> Counter[str]:
        """Deliver what is due at the start; entries that others hold up are left to the next run.

        `all_waiting`: also what is not due: new entries, which belong to their processes, and claimed ones.

        Return the number of entries by outcome: `delivered`, of which `repeated` were known to the core; `refused`;
        `blocked`, by others that come first. Raises `StoreDown` and `django.db.DatabaseError`.
        """
        counts: Counter[str] = Counter()
        start, after = self.client.clock(), 0 if all_waiting else None
        while claimed := self.claim(start, after=after):
            after = None if after is None else claimed[-1].pk
            deliveries = self.send(claimed)
            self.settle(deliveries)
            sent = {delivery.entry.pk for delivery in deliveries}
            blocked = [entry for entry in claimed if entry.pk not in sent]
            self._release(blocked, 1.0)
            counts["delivered"] += sum(delivery.error is None for delivery in deliveries)
            counts["repeated"] += sum(delivery.error is None and not delivery.is_new for delivery in deliveries)
            counts["refused"] += sum(delivery.is_refused for delivery in deliveries)
            counts["blocked"] += len(blocked)
            for delivery in deliveries:
                if isinstance(delivery.error, StoreDown):
                    raise delivery.error
        return +counts

    # --- steps ---

    def claim(self, until: float | None = None, *, after: int | None = None) -> list[OutboxEntry]:
        """Claim entries that are due, and return them in their order.

        `until`: the latest time at which they became due, in epoch seconds; None: now. `after`: instead, those that
        follow this primary key, due or not.
        """
        now = self.client.clock()
        latest = now if until is None else until
        oldest = to_db(now - conf.qless.outbox.keep)  # `tidy` refuses older ones: the core may have lost their markers
        waiting = self.entries.filter(state=WAITING, waiting_since__gte=oldest)
        if after is None:
            # times further in the future are from before the clock was set back
            is_due = Q(due_at__lte=to_db(latest)) | Q(due_at__gt=to_db(now + 2 * LEASE_SECONDS))
            waiting = waiting.filter(is_due)
            ids = list(waiting.order_by("due_at", "pk").values_list("pk", flat=True)[:MAX_ENTRIES])
        else:
            ids = list(waiting.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:MAX_ENTRIES])
        if not ids:
            return []
        with transaction.atomic(using=self.alias):
            rows = waiting.filter(pk__in=ids)
            if connections[self.alias].features.has_select_for_update_skip_locked:
                free = rows.select_for_update(skip_locked=True).values_list("pk", flat=True)
                rows = waiting.filter(pk__in=list(free))
            rows.update(claim=self.token, due_at=to_db(now + LEASE_SECONDS))
        return list(self.entries.filter(pk__in=ids, claim=self.token, state=WAITING).order_by("pk"))

    def send(
        self, entries: Sequence[OutboxEntry], *, in_order: bool = True, delivered: Collection[int] = ()
    ) -> list[Delivery]:
        """Send entries to the core, in order, and return the results, without entries that must wait for others.

        `in_order`: whether an entry waits for earlier ones of its transaction. `delivered`: the primary keys of entries
        that were delivered, but are not marked.
        """
        deliveries: dict[int, Delivery] = {}
        earlier, needed = self._earlier(entries) if in_order else {}, self.needed(entries)
        batch: dict[int, OutboxEntry] = {}
        for entry in entries:
            needs = needed.get(entry.pk, set())
            if needs & batch.keys():
                deliveries |= self._send([*batch.values()])
                batch = {}
            ended = {*delivered} | {pk for pk, delivery in deliveries.items() if delivery.error is None}
            refused = {pk for pk, delivery in deliveries.items() if delivery.is_refused}
            if needs <= ended and earlier.get(entry.pk, set()) <= ended | refused | batch.keys():
                batch[entry.pk] = entry
        if batch:
            deliveries |= self._send([*batch.values()])
        return list(deliveries.values())

    def _send(self, entries: Sequence[OutboxEntry]) -> dict[int, Delivery]:
        now, keep = self.client.clock(), conf.qless.outbox.keep
        requests: list[Request] = []
        ends: list[int] = []
        try:
            for entry in entries:
                requests += requests_of(entry, now, keep)
                ends.append(len(requests))
            replies = []
            for first in range(0, len(requests), MAX_REQUESTS_PER_BATCH):
                replies += self.client.call_many(requests[first : first + MAX_REQUESTS_PER_BATCH])
        except FAULTS as fault:
            if len(entries) > 1 and not isinstance(fault, StoreError):  # one of them cannot be sent
                return {pk: delivery for entry in entries for pk, delivery in self._send([entry]).items()}
            return {entry.pk: Delivery(entry, fault) for entry in entries}
        deliveries, first = {}, 0
        for entry, end in zip(entries, ends, strict=True):
            own, first = replies[first:end], end
            error = next((reply for reply in own if isinstance(reply, Exception)), None)
            deliveries[entry.pk] = Delivery(entry, error, any(reply is not None for reply in own))
        return deliveries

    def settle(self, deliveries: Sequence[Delivery]) -> None:
        """Record the results in the rows."""
        self.mark([delivery.entry.pk for delivery in deliveries if delivery.error is None])
        now = self.client.clock()
        for entry, error, _is_new in deliveries:
            if error is None:
                continue
            state = REFUSED if is_refusal(error) else WAITING
            # after an outage of the server, the process pauses instead of the entry
            is_down = isinstance(error, StoreDown)
            backoff = 0.0 if is_down else min(2.0 ** min(entry.attempts, 10), MAX_BACKOFF_SECONDS)
            self._claimed([entry.pk]).update(
                state=state, error=described(error), attempts=F("attempts") + 1, claim="", due_at=to_db(now + backoff)
            )
            if state == REFUSED:
                log.error("The outbox entry of job %s was refused: %s", entry, described(error))

    def mark(self, ids: Sequence[int], *, late: bool = False) -> None:
        """Mark entries as delivered, unless they are discarded.

        `late`: not those that were marked before, and wait for their redelivery.
        """
        if ids:
            now = self.client.clock()
            end = to_db(now + conf.qless.outbox.keep)
            waiting = self.entries.filter(pk__in=ids, state__in=(WAITING, REFUSED))
            waiting = waiting.filter(delivered_at=None) if late else waiting
            waiting.update(state=DELIVERED, delivered_at=to_db(now), due_at=end, claim="", error="")

    def _release(self, entries: Sequence[OutboxEntry], seconds: float) -> None:
        if entries:
            due_at = to_db(self.client.clock() + seconds)
            self._claimed([entry.pk for entry in entries]).update(claim="", due_at=due_at)

    def _claimed(self, ids: Sequence[int]) -> QuerySet[OutboxEntry]:
        return self.entries.filter(pk__in=ids, claim__in=("", self.token), state=WAITING)

    # --- order ---

    def _earlier(self, entries: Sequence[OutboxEntry]) -> dict[int, set[int]]:
        """Return by entry the earlier ones of its transaction that wait, if there are any.

        Those with dependencies do not count: their jobs run after others in any case.
        """
        keys = {entry.transaction for entry in entries if entry.transaction}
        if not keys:
            return {}
        waiting = list(
            self.entries.filter(state=WAITING, transaction__in=keys, depends="").values_list("pk", "transaction")
        )
        return {
            entry.pk: {pk for pk, key in waiting if key == entry.transaction and pk < entry.pk} for entry in entries
        }

    def needed(self, entries: Sequence[OutboxEntry]) -> dict[int, set[int]]:
        """Return by entry those that have to be delivered before it, if there are any.

        They contain jobs or groups for which it waits: the core takes an unknown ID for one that is done.
        `OTHER_DATABASE` stands for entries of other databases.
        """
        depends = {entry.pk: {*names_in(entry.depends)} for entry in entries if entry.depends}
        needed: dict[int, set[int]] = {pk: set() for pk in depends}
        for alias in conf.qless.outbox.database if depends else ():
            candidates = OutboxEntry.objects.using(alias).defer("commands")
            for other in entries_with(candidates, set().union(*depends.values())):
                ids = {*ids_of(other)}
                for pk, names in depends.items():
                    if names & ids:
                        needed[pk].add(other.pk if alias == self.alias else OTHER_DATABASE)
        return needed

    # --- maintenance ---

    def tidy(self) -> int:
        """Refuse entries that have waited for KEEP, and delete expired ones. Return the number of deletions."""
        now, keep = self.client.clock(), conf.qless.outbox.keep
        late = self.entries.filter(state=WAITING, waiting_since__lt=to_db(now - keep))
        while ids := list(late.values_list("pk", flat=True)[:MAX_ROWS_PER_STATEMENT]):
            error = f"Not delivered within {keep:,.0f} s (KEEP). Deliver it now, or discard it."
            self.entries.filter(pk__in=ids, state=WAITING).update(state=REFUSED, error=error, claim="")
            log.error("%d outbox entries of %r were not delivered in time.", len(ids), self.alias)
        deleted = 0
        ended = self.entries.filter(state__in=(DELIVERED, DISCARDED), due_at__lt=to_db(now))
        while ids := list(ended.values_list("pk", flat=True)[:MAX_ROWS_PER_STATEMENT]):
            deleted += ended.filter(pk__in=ids).delete()[0]
        return deleted

    def redeliver(self, since: float) -> int:
        """Let all entries wait again that were delivered since a time, in epoch seconds. Return their number.

        The core carries out only commands that it does not know any more: Redis was emptied, or restored from a backup.
        """
        changed = 0
        delivered = self.entries.filter(state=DELIVERED, delivered_at__gte=to_db(since))
        due_at = to_db(self.client.clock())
        while ids := list(delivered.values_list("pk", flat=True)[:MAX_ROWS_PER_STATEMENT]):
            rows = self.entries.filter(pk__in=ids, state=DELIVERED)
            changed += rows.update(state=WAITING, waiting_since=F("delivered_at"), due_at=due_at, attempts=0)
        return changed
