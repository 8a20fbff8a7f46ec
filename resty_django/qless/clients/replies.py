"""Replies of the core as typed values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from .job import Job


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs of a queue by state. `stalled`: running jobs with an expired lock, not counted in
    `running`."""

    name: str
    waiting: int
    running: int
    stalled: int
    scheduled: int
    depends: int
    recurring: int
    paused: bool


SILENT: Final = 30.0
"""Seconds without a report after which a worker counts as silent. Workers report every 10 seconds."""
GONE: Final = 120.0
"""Seconds without a report after which a worker counts as gone. The core drops it after 600."""


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs of a worker, and how many of them have an expired lock."""

    name: str
    jobs: int
    stalled: int


class WorkerJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The jids of a worker's running and stalled jobs, latest expiry first."""

    jobs: list[str]
    stalled: list[str]


class QueuesPage(msgspec.Struct):
    """A page of queues. `cursor` is for the next page, empty on the last."""

    items: list[QueueCounts] | dict[str, int]
    cursor: str


class WorkersPage(msgspec.Struct):
    """A page of workers."""

    items: list[WorkerCounts] | dict[str, int]
    cursor: str


class GroupsPage(msgspec.Struct):
    """A page of failure groups, with the number of jobs in each."""

    items: dict[str, int]
    cursor: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds. `histogram` has 148 counts: 0 to 59 s, 1 to 59 minutes, 1 to 23 hours, 1 to 6 days."""

    count: int
    mean: float
    std: float
    histogram: list[float]


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a queue on one day: waiting and running times. `failed`: how many of the `failures` are still
    failed."""

    retries: int
    failed: int
    failures: int
    wait: Series
    run: Series


class WorkerLife(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that reports in. `age`: seconds since its last report; `queues`: the queues that it serves."""

    name: str
    age: float
    queues: list[str] | dict[str, Any]

    @property
    def state(self) -> str:
        """Either `alive`; `silent` (blocked, stopped, or cut off from the server); or `gone` (soon removed from the
        list)."""
        return "alive" if self.age < SILENT else "silent" if self.age < GONE else "gone"


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs completed in each of the last 60 minutes, 48 hours and 30 days, the current one last."""

    minutes: list[int]
    hours: list[int]
    days: list[int]


class JidPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jids, and the total number."""

    total: int
    jobs: list[str]


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a search; an empty `cursor` marks the last."""

    jobs: list[str]
    cursor: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a complete job, and its latest progress: a number and a message, reported at the time `at`."""

    jid: str
    state: str
    result: Any
    progress: float | None
    message: str
    at: float | None


@dataclass(frozen=True, slots=True)
class Failures:
    """A page of failed jobs of a group, newest first, and the total number."""

    total: int
    jobs: list[Job]


@dataclass(frozen=True, slots=True)
class Tracked:
    """The tracked jobs, oldest tracking first, and the jids of tracked jobs that no longer exist."""

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
    """A job in the core's JSON."""

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
    """A recurring job in the core's JSON."""

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
