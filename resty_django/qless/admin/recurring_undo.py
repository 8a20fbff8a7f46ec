"""Keeps a recurring job as it was before a change, so that the change can be undone.

The record stays on the server, since arguments may be secret and do not belong in an undo's URL.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any, Final

from django.utils.translation import gettext as _

from ..clients.recurring import FIELDS, RecurringJob, is_paused, next_due, of_reply
from ..clients.transport import RedisCommand, Steps
from ..errors import QlessError
from .operations import UNDO_SECONDS

KEPT: Final = "undo:recur:"
"""The key of a record, followed by a random ID: the time of the next job and the reply of `recur.get`."""


def keep(job: RecurringJob) -> str:
    """Store a recurring job as it is for `UNDO_SECONDS`, and return the ID of its record."""
    record_id = uuid.uuid4().hex

    def steps() -> Steps[None]:
        reply = yield "recur.get", job.jid
        due = yield RedisCommand(("ZSCORE", _schedule_key(job), job.jid))
        if reply is not None and due is not None:
            record = repr(float(due)).encode() + b"\n" + reply
            yield RedisCommand(("SET", job.client.prefix + KEPT + record_id, record, "EX", UNDO_SECONDS))

    job.client.run(steps())
    return record_id


def digest_of(job: RecurringJob) -> str:
    """Return a digest of what an edit changes, to find out whether somebody has changed it since."""
    values = [getattr(job, "queue_name" if name == "queue" else name) for name in sorted(FIELDS)]
    return hashlib.blake2b(repr(values).encode(errors="backslashreplace"), digest_size=12).hexdigest()


def restore(client: Any, jid: str, record_id: str, written: str = "") -> None:
    """Reset the options of a recurring job, or create it again if it was canceled.

    `written`: the digest of the job after the edit; "" after a cancel. A pause, the number of jobs and the rhythm of a
    canceled one are restored, too. Raise `QlessError` if the record has expired, or the job was changed since.
    """

    def steps() -> Steps[Any]:
        return (yield RedisCommand(("GET", client.prefix + KEPT + record_id)))

    record: bytes | None = client.run(steps())
    due, _newline, reply = (record or b"").partition(b"\n")
    old = of_reply(client, reply or None)
    if old is None or old.jid != jid:
        raise QlessError(_("This can no longer be undone."))
    current = client.jobs.get(jid)
    if not isinstance(current, RecurringJob):
        if written:
            raise QlessError(_("It was canceled since then."))
        _create(old, float(due))
    elif not written:
        raise QlessError(_("It exists again since then."))
    elif digest_of(current) != written:
        raise QlessError(_("It was changed again since then."))
    else:
        _reset(current, old)


def _reset(current: RecurringJob, old: RecurringJob) -> None:
    names = {name: "queue_name" if name == "queue" else name for name in FIELDS}
    changes = {
        name: getattr(old, attribute)
        for name, attribute in names.items()
        if getattr(current, attribute) != getattr(old, attribute)
    }
    if changes:
        current.update(**changes)


def _create(old: RecurringJob, due: float) -> None:
    client, now, paused = old.client, old.client.clock(), is_paused(due)
    later = now + old.interval if paused else next_due(due, old.interval, now)

    def count() -> Steps[None]:
        """The core continues from the count of a hash that exists, so that no job of the past is overwritten."""
        yield RedisCommand(("HSET", f"{client.prefix}r:{old.jid}", "count", old.count))

    client.run(count())
    client.queues[old.queue_name].recur(
        old.klass,
        old.data,
        old.interval,
        jid=old.jid,
        offset=later - now,
        priority=old.priority,
        tags=old.tags,
        retries=old.retries,
        backlog=old.backlog,
    )
    if paused and isinstance(created := client.jobs.get(old.jid), RecurringJob):
        created.pause()


def _schedule_key(job: RecurringJob) -> str:
    return f"{job.client.prefix}q:{job.queue_name}-recur"
