"""Rows of the outbox: the commands of a call, as text, and back."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from django.db.models import QuerySet

from resty_django.database.times import to_db

from ..clients.transport import Request
from ..errors import InvalidArgument
from ..models import OutboxEntry, name_of, token

OWNER_GRACE_SECONDS: Final = 10.0
"""Time for which an entry is left to its owner, the process that has written it."""
MARKER_MARGIN_SECONDS: Final = 86_400
"""Time for which the core's marker of an entry outlives the last automatic delivery."""
DELAY: Final = 6
"""The position in the command `put` of the delay; in an entry it is the time of the start, or 0."""
WAITING, REFUSED, DELIVERED, DISCARDED = OutboxEntry.State


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The commands, jobs and groups of a call, in order.

    - `commands`: `put`, with the time of the start in place of the delay, `group.open` and `group.close`.
    - `jids`, `groups`: the IDs of its jobs and groups. `depends`: jids and groups for which they wait.
    - `klass`, `queue`: of its first job; empty for a group without jobs.
    """

    commands: Sequence[Request]
    jids: Sequence[str]
    groups: Sequence[str] = ()
    depends: Sequence[str] = ()
    klass: str = ""
    queue: str = ""

    def entry(self, now: float, transaction: str | None) -> OutboxEntry:
        """Return the row, not saved. `transaction`: the key of the first entry in the transaction; empty: this one.

        Raises `InvalidArgument` for a jid that is too long.
        """
        ids = [*self.jids, *self.groups]
        key, first = secrets.token_hex(16), token(ids[0])
        if len(first) > 255:  # what the column holds
            raise InvalidArgument(f"The ID of a job in the outbox has at most 255 characters, not {len(first)}.")
        moment = to_db(now)
        return OutboxEntry(
            key=key,
            jid=first,
            klass=token(self.klass)[:255],
            queue=token(self.queue)[:255],
            jobs=len(self.jids),
            ids=_lines(ids) if len(ids) > 1 else "",
            depends=_lines({*self.depends} - {*ids}),
            transaction=key if transaction == "" else transaction,
            commands=json.dumps([[_plain(argument) for argument in command] for command in self.commands]),
            waiting_since=moment,
            due_at=to_db(now + OWNER_GRACE_SECONDS),
        )


def _lines(names: Any) -> str:
    """Return names as a text in which `"\\n<token>\\n"` finds one."""
    return "".join(f"\n{token(name)}\n" for name in names)


def ids_of(entry: OutboxEntry) -> list[str]:
    """Return the jobs of an entry, and then its groups."""
    return names_in(entry.ids) or [name_of(entry.jid)]


def names_in(lines: str) -> list[str]:
    return [name_of(line) for line in lines.split("\n") if line]


def _plain(argument: object) -> object:
    return argument.decode("utf-8", "surrogateescape") if isinstance(argument, bytes) else argument


def commands_of(entry: OutboxEntry) -> list[list[Any]]:
    """Return the commands of an entry."""
    commands: list[list[Any]] = json.loads(entry.commands)
    return commands


def requests_of(entry: OutboxEntry, now: float, keep: float) -> list[Request]:
    """Return the commands of an entry for the core, each to be carried out once.

    `now`: epoch seconds, from which delays count. `keep`: seconds after the call in which it may be delivered.
    """
    seconds = int(keep) + MARKER_MARGIN_SECONDS
    requests: list[Request] = []
    for number, command in enumerate(commands_of(entry), 1):
        if command[0] == "put":
            command[DELAY] = max(0.0, command[DELAY] - now)
        requests.append(("once", entry.key, number, seconds, *command))
    return requests


def entries_with(entries: QuerySet[OutboxEntry], names: Collection[str]) -> list[OutboxEntry]:
    """Return the entries that wait or were refused, and contain one of these jobs and groups, oldest first."""
    wanted = {token(name) for name in names}
    undelivered = entries.filter(state__in=(WAITING, REFUSED))
    graphs = undelivered.exclude(ids="")  # few
    if len(wanted) == 1:
        graphs = graphs.filter(ids__contains=f"\n{next(iter(wanted))}\n")
    containing = [entry for entry in graphs if not wanted.isdisjoint(entry.ids.split("\n"))]
    return sorted([*undelivered.filter(ids="", jid__in=wanted), *containing], key=attrgetter("pk"))
