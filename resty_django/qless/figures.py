"""How the job queue is doing, as pages, metrics and commands tell it: all queues in two round trips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .clients import Client
from .errors import UnreadableReply
from .texts import as_list, read, reader
from .values import QueueCounts, QueueStats, Throughput, WorkerCounts

MOST_QUEUES: Final = 500
"""Queues whose statistics are asked for; the others have counts alone."""
STATES: Final = ("waiting", "running", "stalled", "scheduled", "depends", "recurring")

_QUEUES: Final = reader(list[QueueCounts] | dict[str, int])  # type: ignore[arg-type]
_WORKERS: Final = reader(list[WorkerCounts] | dict[str, int])  # type: ignore[arg-type]
_GROUPS: Final = reader(dict[str, int])
_STATS: Final = reader(QueueStats)
_THROUGHPUT: Final = reader(Throughput)


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """A queue: its jobs by state, the statistics of today (UTC), and what was completed. Those two are None where they
    were not asked for."""

    counts: QueueCounts
    stats: QueueStats | None = None
    throughput: Throughput | None = None

    @property
    def name(self) -> str:
        return self.counts.name

    @property
    def minutes(self) -> Sequence[int]:
        """Jobs completed in each of the last 60 minutes, the present one last."""
        return self.throughput.minutes if self.throughput is not None else ()

    @property
    def per_minute(self) -> float:
        """Jobs completed a minute: the mean of the last five that are over."""
        return sum(self.minutes[-6:-1]) / 5


@dataclass(frozen=True, slots=True)
class JobFigures:
    """All queues; failed jobs by group, the largest first; workers, those seen last first."""

    queues: list[QueueFigures] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    workers: list[WorkerCounts] = field(default_factory=list)

    def total(self, state: str) -> int:
        """The jobs of all queues in one of `STATES`."""
        return sum(getattr(queue.counts, state) for queue in self.queues)

    @property
    def minutes(self) -> list[int]:
        """Jobs completed in all queues, by minute."""
        return [sum(column) for column in zip(*(queue.minutes for queue in self.queues if queue.minutes), strict=True)]


def figures(client: Client, only: Iterable[str] = ()) -> JobFigures:
    """The figures of all queues, or of those named in `only`. Raises `QlessError`, `StoreDown`, `StoreError`."""
    counts, failed, workers = map(_raised, client.call_many([("queues",), ("failed",), ("workers",)]))
    wanted = set(only)
    queues = [one for one in _listed(counts, _QUEUES) if not wanted or one.name in wanted]
    asked = queues[:MOST_QUEUES]
    now = client.clock()
    replies = (
        client.call_many([request for one in asked for request in (("stats", one.name, now), ("throughput", one.name))])
        if asked
        else []
    )
    told = [
        QueueFigures(one, read(_raised(stats), _STATS), read(_raised(throughput), _THROUGHPUT))
        for one, stats, throughput in zip(asked, replies[::2], replies[1::2], strict=True)
    ]
    groups = read(_raised(failed), _GROUPS)
    return JobFigures(
        [*told, *map(QueueFigures, queues[MOST_QUEUES:])],
        dict(sorted(groups.items(), key=lambda item: (-item[1], item[0]))),
        _listed(workers, _WORKERS),
    )


def _listed(reply: Any, decoder: Any) -> list[Any]:
    return as_list(read(reply, decoder))


def _raised(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    if reply is None:
        raise UnreadableReply("The core replied nothing.")
    return reply


__all__ = ["STATES", "JobFigures", "QueueFigures", "figures"]
