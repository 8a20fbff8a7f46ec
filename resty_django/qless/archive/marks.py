"""How far the archive has come, in the hash `archive` next to the jobs:

    until    the score in `completed` up to which all jobs are in the database
    failed   the time up to which all failed jobs are
    swept    the time of the last pass over all complete jobs
    pruned   the time of the last pass that deleted old rows
    at       the time of the last pass; if it is recent, the core saves canceled jobs in the list `canceled`
    written, skipped    numbers of rows written, and of jobs that the database rejected
    lost     the number of jobs that the core has deleted before they were archived, the latest ones at `lost-at`

Marks move only after the rows are committed, so a writer that dies repeats its last batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from resty_django.conf import conf
from resty_django.redis.errors import StoreFull

from ..clients.client import Client
from ..clients.serialization import scores, text, texts
from ..clients.transport import RedisCommand

CANCELED: Final = "canceled"
COMPLETED: Final = "completed"
LOCK_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """The state of the archive.

    - `at`: the time of the last pass (None: never); `silent`: the seconds since then.
    - `behind`: the number of complete jobs in Redis that are not archived yet; `lag`: the age of the oldest one in
      seconds.
    - `canceled`: the number of canceled jobs to be archived.
    - `lost`: the number of jobs that Redis deleted before they were archived; `loses`: whether any
      were in the last day.
    - `keeps`, `kept`: for how many seconds Redis keeps complete jobs, and how many.
    """

    enabled: bool
    at: float | None
    silent: float
    behind: int
    lag: float
    canceled: int
    written: int
    skipped: int
    lost: int
    loses: bool
    keeps: float
    kept: int

    @property
    def stopped(self) -> bool:
        """Whether no pass has taken place for ten minutes."""
        return self.enabled and (self.at is None or self.silent > 600)

    @property
    def late(self) -> bool:
        """Whether Redis may soon delete jobs that are not archived: they use half of its time or of its number."""
        return self.enabled and (self.lag > 0.5 * self.keeps or self.behind > max(0.5 * self.kept, 1))


def command(client: Client, name: str, key: str, *args: object) -> Any:
    """Run a Redis command on a key of the job queue."""
    return client.perform(RedisCommand((name, client.prefix + key, *args)))


def read_marks(client: Client, key: str = "archive") -> dict[str, float]:
    reply = command(client, "HGETALL", key)
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {text(name): float(value) for name, value in pairs}


def set_marks(client: Client, **marks: float) -> None:
    command(client, "HSET", "archive", *(part for name, value in marks.items() for part in (name, repr(value))))


def begin_pass(client: Client, now: float) -> None:
    """Record the time of a pass. The marks expire 30 days after the last one."""
    set_marks(client, at=now)
    command(client, "EXPIRE", "archive", 30 * 86_400)


def add(client: Client, **numbers: int) -> None:
    """Increase counts among the marks: `add(client, written=5)`."""
    for name, number in numbers.items():
        if number:
            command(client, "HINCRBY", "archive", name, number)


@contextmanager
def exclusive_lock(client: Client, key: str) -> Iterator[bool]:
    """Hold a lock of this name for a minute; extend it with `extend_lock`. Yields whether no other process holds it."""
    token = secrets.token_bytes(8)
    try:
        held = bool(command(client, "SET", key, token, "NX", "EX", LOCK_SECONDS))
    except StoreFull:  # but deletions work, and two processes may do the same
        held = True
    try:
        yield held
    finally:
        if held and command(client, "GET", key) == token:
            command(client, "DEL", key)


def extend_lock(client: Client, key: str) -> None:
    """Extend a lock that this process holds."""
    command(client, "EXPIRE", key, LOCK_SECONDS)


def redis_limits(client: Client) -> tuple[float, int]:
    """Return for how many seconds Redis keeps complete jobs, and how many."""
    return float(client.config.get("jobs-history", 604_800)), int(client.config.get("jobs-history-count", 50_000))


def status(client: Client) -> ArchiveStatus:
    """Return how far the archive has come. Raises `QlessError`, `StoreError`."""
    marks: Mapping[str, float] = read_marks(client)
    now, until = client.clock(), marks.get("until")
    after = "-inf" if until is None else f"({until!r}"
    first = scores(command(client, "ZRANGEBYSCORE", COMPLETED, after, "+inf", "WITHSCORES", "LIMIT", 0, 1))
    keeps, kept = redis_limits(client)
    return ArchiveStatus(
        enabled=conf.qless.archive.enabled,
        at=marks.get("at"),
        silent=max(0.0, now - marks.get("at", now)),
        behind=int(command(client, "ZCOUNT", COMPLETED, after, "+inf")),
        lag=max(0.0, now - min(first.values(), default=now)),
        canceled=int(command(client, "LLEN", CANCELED)),
        written=int(marks.get("written", 0)),
        skipped=int(marks.get("skipped", 0)),
        lost=int(marks.get("lost", 0)),
        loses="lost-at" in marks and now - marks["lost-at"] < 86_400,
        keeps=keeps,
        kept=kept,
    )


def members(client: Client, name: str, key: str, *args: object) -> list[str]:
    """Return the texts of a list or set."""
    return texts(list(command(client, name, key, *args)))
