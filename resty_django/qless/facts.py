"""The state of the job queue, for its tile, its metrics, its health probe and the list of queues in the admin."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from .clients.client import Client
from .clients.figures import KEPT_SPANS, TimeSpan, completed_by_queue
from .clients.queue import PAUSE_REASON, PAUSED_BY, PAUSED_SINCE
from .clients.replies import QueueCounts, QueueStats, WorkerCounts, WorkerLife
from .clients.serialization import read, read_latency, text
from .clients.transport import batches, checked

MAX_QUEUES_PER_CALL: Final = 50
"""Queues whose figures one round trip requests; more would block the server for too long."""


@dataclass(frozen=True, slots=True)
class QueuePause:
    """The time of a pause (epoch seconds), the user and the reason; unknown if another client paused the queue."""

    since: float | None = None
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue. All but the counts may be missing.

    `counts`: its jobs by state. `stats`: today's statistics (UTC). `minutes`: the jobs completed in each of the last 60
    minutes, the current one last. `latency`: the age of its oldest runnable job in seconds.
    """

    counts: QueueCounts
    stats: QueueStats | None = None
    minutes: Sequence[int] = ()
    latency: float | None = None
    pause: QueuePause | None = None

    @property
    def name(self) -> str:
        return self.counts.name

    def is_paused_longer_than(self, seconds: float | None, now: float) -> bool:
        """Return whether jobs have waited for the end of a pause for longer than `seconds`; None: never.

        If the start of the pause is unknown, the oldest job's age counts.
        """
        if seconds is None or self.pause is None or not self.counts.waiting:
            return False
        return (self.latency or 0.0 if self.pause.since is None else now - self.pause.since) > seconds

    @property
    def per_minute(self) -> float:
        """Jobs completed per minute: the mean of the last five complete minutes."""
        return sum(self.minutes[-6:-1]) / 5


@dataclass(frozen=True, slots=True)
class JobQueueFacts:
    """The state of the job queue.

    `failed`: failed jobs by group, the largest first. `workers`: most recently seen first; `worker_lives`: their
    liveness reports. `spans`: the figures of the last hour by minute. `seconds`: the response time of the server.
    """

    queues: list[QueueFacts] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    workers: list[WorkerCounts] = field(default_factory=list)
    worker_lives: list[WorkerLife] = field(default_factory=list)
    spans: Sequence[TimeSpan] = ()
    seconds: float = 0.0

    @property
    def counts(self) -> list[QueueCounts]:
        return [queue.counts for queue in self.queues]

    def total(self, state: str) -> int:
        """Return the number of jobs of all queues in one of `QUEUE_STATES`."""
        return sum(getattr(queue.counts, state) for queue in self.queues)

    @property
    def latency(self) -> float | None:
        """The age of the oldest runnable job of the queues that are not paused, in seconds; None without such a job."""
        ages = [queue.latency for queue in self.queues if queue.latency is not None and not queue.counts.paused]
        return max(ages, default=None)

    @property
    def states(self) -> dict[str, str]:
        """The states `alive`, `silent` or `gone` by worker name, for workers that report in."""
        return {worker.name: worker.state for worker in self.worker_lives}

    @property
    def alive(self) -> int:
        """The number of workers that are not silent or gone. Workers that never report in count as alive."""
        states = self.states
        return sum(states.get(worker.name, "alive") == "alive" for worker in self.workers)

    @property
    def silent_with_jobs(self) -> int:
        """The number of workers that have stopped reporting in while they hold jobs."""
        holders = [worker.name for worker in self.workers if worker.jobs or worker.stalled]
        states = self.states
        return sum(states.get(name, "alive") != "alive" for name in holders)

    @property
    def minutes(self) -> list[int]:
        """Jobs completed in all queues, by minute."""
        return [sum(column) for column in zip(*(queue.minutes for queue in self.queues if queue.minutes), strict=True)]


def job_queue_facts(client: Client, *, of_today: bool = False, detailed: int | None = 500) -> JobQueueFacts:
    """Return the state of all queues. `of_today`: also today's `stats`. `detailed`: the number of queues for which more
    than the counts are fetched; None: all.

    Raises `QlessError`, `StoreDown`, `StoreError`.
    """
    start = time.perf_counter()
    queues = client.queues.counts()
    seconds = time.perf_counter() - start
    names = [queue.name for queue in queues[:detailed]]
    stats = _stats_of_today(client, names) if of_today else {}
    spans = client.figures.spans("minute", KEPT_SPANS["minute"])
    minutes = completed_by_queue(spans, names)
    ages = _latencies(client, names)
    pauses = pauses_of(client, [queue.name for queue in queues if queue.paused])
    return JobQueueFacts(
        queues=[
            QueueFacts(
                counts=counts,
                stats=stats.get(counts.name),
                minutes=minutes.get(counts.name, ()),
                latency=ages.get(counts.name),
                pause=pauses.get(counts.name),
            )
            for counts in queues
        ],
        failed=dict(sorted(client.jobs.failed().items(), key=lambda item: (-item[1], item[0]))),
        workers=client.workers.counts(),
        worker_lives=client.workers.alive(),
        spans=spans,
        seconds=seconds,
    )


def _latencies(client: Client, names: Sequence[str]) -> dict[str, float]:
    """Return the age of the oldest runnable job in seconds, by queue, for the queues that have one."""
    replies = client.call_many([("latency", *batch) for batch in batches(names, MAX_QUEUES_PER_CALL)]) if names else []
    ages = [read_latency(age) for reply in replies for age in checked(reply)]
    return {name: age for name, age in zip(names, ages, strict=True) if age is not None}


def pauses_of(client: Client, names: Sequence[str]) -> dict[str, QueuePause]:
    """Return the pauses of paused queues. Raises `StoreError`."""
    options = (PAUSED_SINCE, PAUSED_BY, PAUSE_REASON)
    requests = [("config.get", f"{name}-{option}") for name in names for option in options]
    replies = client.call_many(requests) if names else []
    values = iter(text(reply) if isinstance(reply, bytes) else "" for reply in replies)
    return {name: QueuePause(since=_moment(next(values)), by=next(values), reason=next(values)) for name in names}


def _moment(value: str) -> float | None:
    """Return epoch seconds; None if another program wrote something else."""
    try:
        return float(value) if 0 < float(value) < 1e10 else None
    except ValueError:
        return None


def _stats_of_today(client: Client, names: Sequence[str]) -> dict[str, QueueStats]:
    now = client.clock()
    return {
        name: read(checked(reply), QueueStats)
        for batch in batches(names, MAX_QUEUES_PER_CALL)
        for name, reply in zip(batch, client.call_many([("stats", name, now) for name in batch]), strict=True)
    }
