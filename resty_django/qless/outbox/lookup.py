"""Jobs that are only in the outbox: whether they wait there, and their cancellation."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import partial

from django.db import connections, transaction

from resty_django.conf import conf
from resty_django.database.times import to_db
from resty_django.redis.errors import StoreError

from ..clients.client import Client
from ..clients.job import Job
from ..clients.replies import JobRecord
from ..clients.transport import Steps, SyncCall, batches
from ..errors import DependencyError, QlessError
from ..models import OutboxEntry
from .entries import DISCARDED, MARKER_MARGIN_SECONDS, REFUSED, WAITING, commands_of, entries_with, ids_of, names_in
from .outbox import after_commits


def find(name: str) -> Steps[list[OutboxEntry]]:
    """Do the same as `entries_of`, for sync code and asyncio."""
    entries: list[OutboxEntry] = yield SyncCall(partial(entries_of, name))
    return entries


def entries_of(name: str) -> list[OutboxEntry]:
    """Return the entries that contain a job or group and are not delivered."""
    aliases = conf.qless.outbox.database
    return [entry for alias in aliases for entry in entries_with(OutboxEntry.objects.using(alias), [name])]


def jobs_of(client: Client, entry: OutboxEntry) -> list[Job]:
    """Return the jobs of an entry as they will be: waiting."""
    jobs = []
    for name, *arguments in commands_of(entry):
        if name == "put":
            _worker, queue, jid, klass, data, _start, *options = arguments
            job_options = dict(zip(options[::2], options[1::2], strict=True))
            record = JobRecord(
                **{"jid": jid, "klass": klass, "state": "waiting", "queue": queue, "worker": "", "expires": 0},
                **{"data": data, "tags": json.loads(job_options.get("tags", "[]")), "txid": job_options.get("txid")},
                request_id=job_options.get("request_id"),
                priority=job_options.get("priority", 0),
                retries=(retries := job_options.get("retries", 5)),
                remaining=retries,
            )
            jobs.append(Job(client, record))
    return jobs


def revoke(client: Client, name: str, graph: bool) -> Steps[bool]:
    """Discard the entries that contain a job or group, and cancel what the server knows of them.

    Return whether there were any. In a transaction, the server learns of it after the commit.

    Raises `DependencyError` if an entry contains other jobs, unless `graph` is set, or if others need its jobs. Raises
    `StoreDown`: then the entries are discarded, but one that was just delivered has to be revoked again.
    """
    entries = yield from find(name)
    for entry in entries:
        if entry.jobs > 1 and not graph:
            others = entry.jobs - 1
            raise DependencyError(f"{name} waits in the outbox with {others} other jobs. Use revoke(graph=True).")
    yield SyncCall(partial(discard, client, entries))
    for entry in entries:
        if (yield SyncCall(partial(_is_in_transaction, client, entry))):
            continue
        yield from _cancel(entry)
    return bool(entries)


def _is_in_transaction(client: Client, entry: OutboxEntry) -> bool:
    """Return whether a transaction is open that discards the entry. If so, cancel its jobs after the commit."""
    alias = str(entry._state.db)
    if not connections[alias].in_atomic_block:
        return False
    for after_commit in after_commits(alias):
        if after_commit.entry.pk == entry.pk:
            after_commit.is_discarded = True
    transaction.on_commit(lambda: forget(client, [entry]), using=alias, robust=True)
    return True


def discard(client: Client, entries: Collection[OutboxEntry]) -> int:
    """Mark entries as discarded; return how many had not been delivered.

    Raises `DependencyError` if other entries wait for their jobs: these would run, as if the jobs had succeeded.
    """
    ids = {name for entry in entries for name in ids_of(entry)}
    for alias in {entry._state.db for entry in entries}:
        waiting = OutboxEntry.objects.using(alias).filter(state__in=(WAITING, REFUSED)).exclude(depends="")
        for other in waiting.exclude(pk__in=[entry.pk for entry in entries]).only("jid", "depends"):
            if ids & {*names_in(other.depends)}:
                raise DependencyError(
                    f"{other} waits in the outbox for one of these jobs. Discard both, or deliver them."
                )
    due_at = to_db(client.clock() + conf.qless.outbox.keep)
    discarded = 0
    for entry in entries:
        waiting = OutboxEntry.objects.using(entry._state.db).filter(pk=entry.pk, state__in=(WAITING, REFUSED))
        discarded += waiting.update(state=DISCARDED, due_at=due_at, claim="")
    return discarded


def forget(client: Client, entries: Iterable[OutboxEntry]) -> bool:
    """Make the core ignore the commands of discarded entries, which a process may be about to send.

    Return False if the server does not answer. Raises `QlessError` if others need jobs of an entry.
    """
    try:
        for entry in entries:
            client.run(_cancel(entry))
    except StoreError:
        return False
    return True


def _cancel(entry: OutboxEntry) -> Steps[None]:
    seconds = int(conf.qless.outbox.keep) + MARKER_MARGIN_SECONDS
    try:
        for batch in batches(ids_of(entry)[: max(entry.jobs, 1)], 5000):  # of a group without jobs, its ID
            yield "once", entry.key, 0, seconds, "cancel", *batch
    except QlessError:  # the server has the jobs, and others need them
        discarded = OutboxEntry.objects.using(entry._state.db).filter(pk=entry.pk, state=DISCARDED)
        yield SyncCall(partial(discarded.update, state=WAITING, due_at=entry.due_at))
        raise
