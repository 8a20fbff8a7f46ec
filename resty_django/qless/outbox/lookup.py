"""Jobs that are only in the outbox: whether they wait there, and their cancellation."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial

from resty_django.conf import conf
from resty_django.database.times import to_db
from resty_django.redis.errors import StoreError

from ..clients.client import Client
from ..clients.job import Job
from ..clients.replies import JobRecord
from ..clients.transport import Steps, SyncCall, batches
from ..errors import DependencyError
from ..models import OutboxEntry
from .entries import DISCARDED, MARKER_MARGIN_SECONDS, REFUSED, WAITING, commands_of, entries_with, names_in


def find(name: str) -> Steps[list[OutboxEntry]]:
    """Do the same as `entries_of`, for sync code and asyncio."""
    found: list[OutboxEntry] = yield SyncCall(partial(entries_of, name))
    return found


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
            given = dict(zip(options[::2], options[1::2], strict=True))
            record = JobRecord(
                **{"jid": jid, "klass": klass, "state": "waiting", "queue": queue, "worker": "", "expires": 0},
                **{"data": data, "tags": json.loads(given.get("tags", "[]")), "txid": given.get("txid")},
                priority=given.get("priority", 0),
                retries=(retries := given.get("retries", 5)),
                remaining=retries,
            )
            jobs.append(Job(client, record))
    return jobs


def revoke(client: Client, name: str, graph: bool) -> Steps[bool]:
    """Discard the entries that contain a job, and cancel it if the server knows it. Return whether there were any.

    Raises `DependencyError` if an entry contains other jobs, unless `graph` is set. Raises `StoreDown`: then the
    entries are discarded, but one that was just delivered has to be revoked again.
    """
    entries = yield from find(name)
    for entry in entries:
        if entry.jobs > 1 and not graph:
            raise DependencyError(
                f"{name} waits in the outbox with {entry.jobs - 1} other jobs. Use revoke(graph=True)."
            )
    yield SyncCall(partial(discard, client, entries))
    for entry in entries:
        yield from _cancel(entry)
    return bool(entries)


def discard(client: Client, entries: Collection[OutboxEntry]) -> int:
    """Mark entries as discarded; return how many had not been delivered.

    Raises `DependencyError` if other entries wait for their jobs: these would run, as if the jobs had succeeded.
    """
    ids = {name for entry in entries for name in names_in(entry.ids)}
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


def forget(client: Client, entries: Iterable[OutboxEntry]) -> None:
    """Make the core ignore the commands of discarded entries, which a process may be about to send."""
    with suppress(StoreError):
        for entry in entries:
            client.run(_cancel(entry))


def _cancel(entry: OutboxEntry) -> Steps[None]:
    seconds = int(conf.qless.outbox.keep) + MARKER_MARGIN_SECONDS
    for batch in batches(names_in(entry.ids)[: entry.jobs], 5000):
        yield "once", entry.key, 0, seconds, "cancel", *batch
