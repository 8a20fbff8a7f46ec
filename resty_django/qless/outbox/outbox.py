"""The outbox of a process: it writes entries, and delivers its own ones after the commit."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from django.db import Error, connections, transaction

from resty_django import circuit_breaker
from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING
from resty_django.health import described
from resty_django.processes.forks import after_fork
from resty_django.redis.errors import StoreDown
from resty_django.text import logger

from ..clients.client import Client
from ..clients.default import default_client
from ..clients.transport import is_refusal
from ..errors import InvalidArgument
from ..models import OutboxEntry
from .delivery import FAULTS, Deliverer
from .entries import OWNER_GRACE_SECONDS, Call

log = logger("resty_django.qless.outbox")

MARKS_PER_UPDATE: Final = 50
"""Number of delivered entries that a process marks together: an UPDATE for each would double the cost of a call. A
worker marks what is left when it finds that the core knows it."""


class _Breaker(circuit_breaker.CircuitBreaker):
    """The state of the job queue's server in this process. `calls`: entries left to workers."""

    def log_failure(self, error: Exception) -> None:
        log.error("The server of jobs does not answer; jobs wait in the outbox: %s", error)

    def log_recovery(self, seconds: float) -> None:
        log.warning(
            "The server of jobs answers again after %.1f s; %d entries were left to workers.", seconds, self.calls
        )


@dataclass(slots=True)
class _Transaction:
    """The entries of one transaction: the key of the first one, and whether one of them could not be delivered."""

    key: str = ""
    is_interrupted: bool = False


@dataclass(slots=True)
class _AfterCommit:
    """Delivers an entry after the commit. An object, so that the next entry finds the `transaction` again."""

    outbox: Outbox
    entry: OutboxEntry
    transaction: _Transaction

    is_discarded: bool = False

    def run(self) -> None:  # not `__call__`: Django logs the name of what has failed
        if not self.transaction.is_interrupted and not self.is_discarded:
            self.transaction.is_interrupted = not self.outbox.deliver(self.entry)


def after_commits(alias: str) -> Iterator[_AfterCommit]:
    """Return the deliveries that wait for the commit of the open transaction, the last one first."""
    for hook in reversed(connections[alias].run_on_commit):
        after_commit = getattr(hook[1], "__self__", None)
        if isinstance(after_commit, _AfterCommit):
            yield after_commit


@dataclass
class Outbox:
    """The outbox of a job queue in this process."""

    client: Client
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _delivered: dict[str, dict[int, float]] = field(default_factory=dict)
    """Entries by database that were delivered, but not marked by this process, and when, in monotonic seconds."""

    @cached_property
    def _breaker(self) -> _Breaker:
        return _Breaker(self.client.name)

    def write(self, call: Call, using: str | None = None) -> None:
        """Write what a call enqueues. After the commit, deliver it, unless the server is down.

        `using`: the database of the transaction. None: the first one in DATABASE. Raises `InvalidArgument` for one that
        is not in this setting, and `django.db.DatabaseError`.
        """
        databases = conf.qless.outbox.database
        alias = databases[0] if using is None else using
        if alias not in databases:
            raise InvalidArgument(
                f'using={alias!r} is not among the databases of the outbox. Add it to DATABASE in QLESS["OUTBOX"].'
            )
        connection = connections[alias]
        in_transaction = None
        if connection.in_atomic_block:
            last = next(after_commits(alias), None)
            in_transaction = _Transaction() if last is None else last.transaction
        entry = call.entry(self.client.clock(), None if in_transaction is None else in_transaction.key)
        if in_transaction is not None and not in_transaction.key:
            in_transaction.key = entry.key
        if self._breaker.down:
            entry.due_at = entry.waiting_since  # workers need not wait for this process
        entry.save(using=alias, force_insert=True)
        after_commit = _AfterCommit(self, entry, in_transaction or _Transaction())
        if in_transaction is not None:
            transaction.on_commit(after_commit.run, using=alias, robust=True)
        elif connection.get_autocommit():  # else only workers learn of the commit
            after_commit.run()

    def deliver(self, entry: OutboxEntry) -> bool:
        """Deliver an entry that this process has written. Return False if that is left to workers."""
        if self._breaker.down and self._breaker.is_open():
            self._breaker.calls += 1
            return False
        try:
            return self._deliver(entry)
        except FAULTS as error:  # the caller's data are committed, and a worker tries again
            log.exception("The outbox entry of job %s is left to workers: %s", entry, described(error))
            return False

    def _deliver(self, entry: OutboxEntry) -> bool:
        alias = str(entry._state.db)
        deliverer = Deliverer(self.client, alias)
        # workers mark older ones; they may wait for their redelivery, after the server has lost them
        since = time.monotonic() - OWNER_GRACE_SECONDS
        delivered = {pk for pk, at in [*self._delivered.get(alias, {}).items()] if at > since}
        needed = deliverer.needed([entry]).get(entry.pk, set()) - delivered
        # entries of other processes, too: they may be delivered, but not marked, and sending them again does no harm
        before = list(deliverer.entries.filter(pk__in=needed).order_by("pk")) if needed else []
        deliveries = deliverer.send([*before, entry], in_order=bool(before), delivered=delivered)
        for delivery in deliveries:
            if isinstance(delivery.error, StoreDown):
                self._breaker.record_failure(delivery.error)
                if delivery.error.timed_out:
                    self._breaker.retry_at += OWNER_GRACE_SECONDS  # a request that tries again would wait as long
                deliverer.settle(deliveries)  # workers need not wait for this process
                return False
        self._breaker.reset()
        deliverer.settle([delivery for delivery in deliveries if delivery.error is not None])
        self._mark_later(deliverer, [delivery.entry.pk for delivery in deliveries if delivery.error is None])
        return any(sent.pk == entry.pk and (error is None or is_refusal(error)) for sent, error, _is_new in deliveries)

    def _mark_later(self, deliverer: Deliverer, ids: Collection[int]) -> None:
        with self._lock:
            delivered = self._delivered.setdefault(deliverer.alias, {})
            delivered |= dict.fromkeys(ids, time.monotonic())
            if len(delivered) < MARKS_PER_UPDATE:
                return
            self._delivered[deliverer.alias] = {}
        with suppress(Error):  # a worker marks them
            deliverer.mark([*delivered], late=True)


@functools.cache
def default_outbox() -> Outbox:
    """Return the outbox of this process. It is created again when a setting changes, and after a fork."""
    return Outbox(default_client())


on_change(default_outbox.cache_clear, SETTING, "CACHES")
after_fork(default_outbox.cache_clear)


def deliver_all(client: Client) -> Counter[str]:
    """Deliver all entries of all databases of the outbox, as a worker does when they are due. Return the outcomes."""
    total: Counter[str] = Counter()
    while True:
        runs = (Deliverer(client, alias).run(all_waiting=True) for alias in conf.qless.outbox.database)
        counts = sum(runs, Counter[str]())
        total += counts
        if not (counts["delivered"] and counts["blocked"]):  # else some may have waited for others of another database
            return total
