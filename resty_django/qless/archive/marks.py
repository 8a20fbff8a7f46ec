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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from resty_django.conf import conf

from ..clients.client import Client
from ..clients.serialization import scores, text, texts
from ..clients.transport import RedisCommand

KEY: Final = "archive"
CANCELED: Final = "canceled"
COMPLETED: Final = "completed"
LIFE: Final = 30 * 86_400
"""Seconds after which the marks of an archive that was switched off expire."""
SILENT: Final = 600.0
"""Seconds without a pass after which the archive counts as stopped."""
LOSS_SHOWN: Final = 86_400.0
"""Seconds for which a loss is reported as a problem."""
BEHIND_SHARE: Final = 0.5
"""The share of what Redis keeps (of time or jobs) at which the archive counts as late."""


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """The state of the archive.

    - `at`: the time of the last pass (None: never); `silent`: the seconds since then.
    - `behind`: the number of complete jobs in Redis that are not archived yet; `lag`: the age of the oldest one in
      seconds.
    - `canceled`: the number of canceled jobs to be archived.
    - `loses`: whether jobs were lost in the last day.
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
        return self.enabled and (self.at is None or self.silent > SILENT)

    @property
    def late(self) -> bool:
        """Whether Redis may soon delete jobs that are not archived."""
        return self.enabled and (self.lag > BEHIND_SHARE * self.keeps or self.behind > max(BEHIND_SHARE * self.kept, 1))


def command(client: Client, name: str, key: str, *args: Any) -> Any:
    """Run a Redis command on a key of the job queue."""
    return client.perform(RedisCommand((name, client.prefix + key, *args)))


def read_marks(client: Client) -> dict[str, float]:
    reply = command(client, "HGETALL", KEY)
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {text(name): float(value) for name, value in pairs}


def set_marks(client: Client, **marks: float) -> None:
    command(client, "HSET", KEY, *(part for name, value in marks.items() for part in (name, repr(value))))


def add(client: Client, **numbers: int) -> None:
    for name, number in numbers.items():
        if number:
            command(client, "HINCRBY", KEY, name, number)


def redis_limits(client: Client) -> tuple[float, int]:
    """Return for how many seconds Redis keeps complete jobs, and how many."""
    return float(client.config.get("jobs-history", 604_800)), int(client.config.get("jobs-history-count", 50_000))


def status(client: Client) -> ArchiveStatus:
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
        loses="lost-at" in marks and now - marks["lost-at"] < LOSS_SHOWN,
        keeps=keeps,
        kept=kept,
    )


def members(client: Client, name: str, key: str, *args: Any) -> list[str]:
    """Return the texts of a list or set."""
    return texts(list(command(client, name, key, *args)))
