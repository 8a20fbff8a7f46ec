"""What the job queue tells, as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from .job import Job


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue by state; `stalled` are running ones whose lock has expired, which `running` has not."""

    name: str
    waiting: int
    running: int
    stalled: int
    scheduled: int
    depends: int
    recurring: int
    paused: bool


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a worker runs, and of how many its lock has expired."""

    name: str
    jobs: int
    stalled: int


class WorkerJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The jids of both, latest expiry first."""

    jobs: list[str]
    stalled: list[str]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds. `histogram` has 148 counts: 0 to 59 s, 1 to 59 minutes, 1 to 23 hours, 1 to 6 days."""

    count: int
    mean: float
    std: float
    histogram: list[float]


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """A queue on one day: how long jobs waited and ran; `failed` are those of `failures` that still are."""

    retries: int
    failed: int
    failures: int
    wait: Series
    run: Series


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs completed in each of the last 60 minutes, 48 hours and 30 days, the present one last."""

    minutes: list[int]
    hours: list[int]
    days: list[int]


class Jids(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list: how many there are, and the jids asked for."""

    total: int
    jobs: list[str]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search has found so far; an empty `cursor` is the end."""

    jobs: list[str]
    cursor: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has told: `result` once it is complete, `progress` (a number) with `message`, at the time `at`."""

    jid: str
    state: str
    result: Any
    progress: float | None
    message: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed jobs of a group, newest first: how many there are, and those asked for."""

    total: int
    jobs: list[Job]


@dataclass(frozen=True, slots=True)
class Tracked:
    """The tracked jobs, oldest tracked first, and the jids of those that are gone."""

    jobs: list[Job]
    expired: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job for `put_many`: the arguments of `put`."""

    klass: Any
    data: Any = None
    jid: str | None = None
    delay: float = 0
    priority: float | None = None
    tags: list[str] | tuple[str, ...] | None = None
    retries: int | None = None
    depends: list[str] | tuple[str, ...] | None = None


class JobRecord(msgspec.Struct, kw_only=True):
    """A job as the core shows it."""

    jid: str
    klass: str
    state: str
    queue: str
    worker: str
    priority: int | float
    retries: int | float
    remaining: int | float
    expires: float
    data: str
    tags: list[Any] | dict[str, Any]
    history: list[Any] | dict[str, Any] = []
    failure: Any = None
    dependents: list[str] | dict[str, Any] = {}
    dependencies: list[str] | dict[str, Any] = {}
    tracked: bool = False
    spawned_from_jid: str | bool = False
    txid: str | None = None


class RecurringRecord(msgspec.Struct, kw_only=True):
    """A recurring job as the core shows it."""

    jid: str
    klass: str
    state: str
    queue: str
    priority: int | float
    interval: int | float
    retries: int | float
    count: int
    data: str
    tags: list[Any] | dict[str, Any]
    backlog: int | float


__all__ = [
    "Failures",
    "Found",
    "Jids",
    "JobRecord",
    "JobSpec",
    "QueueCounts",
    "QueueStats",
    "RecurringRecord",
    "Result",
    "Series",
    "Throughput",
    "Tracked",
    "WorkerCounts",
    "WorkerJobs",
]
