"""Replies of the core as typed values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from .serialization import LuaList, read

if TYPE_CHECKING:
    from .job import Job

T = TypeVar("T")


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


QUEUE_STATES: Final = ("waiting", "running", "stalled", "scheduled", "depends", "recurring")
"""The states that `QueueCounts` counts."""
SILENT_SECONDS: Final = 30.0
"""Time without a report after which a worker counts as silent. Workers report every 10 seconds."""
GONE_SECONDS: Final = 120.0
"""Time without a report after which a worker counts as gone. The core drops it after 600 seconds."""


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs of a worker, and how many of them have an expired lock."""

    name: str
    jobs: int
    stalled: int


class WorkerJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The jids of a worker's running and stalled jobs, latest expiry first."""

    jobs: list[str]
    stalled: list[str]


class Page(msgspec.Struct, Generic[T]):
    """A page of a list of the core. `cursor` is for the next page, empty on the last."""

    items: T
    cursor: str


class DurationStatistics(msgspec.Struct, frozen=True, kw_only=True):
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
    wait: DurationStatistics
    run: DurationStatistics


class WorkerLife(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that reports in. `age`: seconds since its last report; `queues`: the queues that it serves."""

    name: str
    age: float
    queues: LuaList[str]

    @property
    def state(self) -> str:
        """Either `alive`; `silent` (blocked, stopped, or cut off from the server); or `gone` (soon removed from the
        list)."""
        return "alive" if self.age < SILENT_SECONDS else "silent" if self.age < GONE_SECONDS else "gone"


class JidPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jids, and the total number."""

    total: int
    jobs: list[str]


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a search; an empty `cursor` marks the last."""

    jobs: list[str]
    cursor: str


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
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


JobStates: TypeAlias = list[tuple[str, str | None]]
"""Pairs of jid and state; state None: the job does not exist any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of jobs.

    `state`: `open` (members are added), `running`, `complete` or `failed`. `total`: number of members, of which `done`,
    `failed`, `skipped` and `canceled` have ended so, and `left` have not ended. `reason`: the jid of the member that
    failed first. `incomplete`: its client did not finish adding members. `created_at`, `ended_at`: seconds since the
    epoch.
    """

    id: str
    name: str
    state: str
    total: int
    done: int
    failed: int
    skipped: int
    canceled: int
    left: int
    reason: str | None
    incomplete: bool
    created_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class GroupList:
    """A page of groups, newest first, and the total number."""

    total: int
    groups: list[Group]


@dataclass(frozen=True, slots=True)
class StuckJob:
    """A job that waits for something that will not end.

    `reason`: `failed` (the job or group `other` has failed, and the policy is to wait), `gone` (`other` does not
    exist), `complete` (`other` is complete, but did not release it), `itself` (it waits for itself, or for a group of
    which it is a member), or `nothing` (it waits for no job).
    """

    jid: str
    queue: str
    other: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class StuckPage:
    """A page of stuck jobs; an empty `cursor` marks the last."""

    jobs: list[StuckJob]
    cursor: str


class GroupRecord(msgspec.Struct):
    """A group in the core's JSON."""

    group: str
    name: str
    state: str
    total: int
    done: int
    failed: int
    skipped: int
    canceled: int
    left: int
    reason: str | bool
    incomplete: bool
    at: float
    ended: float


def group_of(reply: bytes) -> Group:
    """Return the group in a reply of `group.get`. Raises `UnreadableReply`."""
    return group_of_record(read(reply, GroupRecord))


def group_of_record(record: GroupRecord) -> Group:
    names = ("name", "state", "total", "done", "failed", "skipped", "canceled", "left", "incomplete")
    values = {name: getattr(record, name) for name in names}
    reason = record.reason if isinstance(record.reason, str) else None
    return Group(id=record.group, reason=reason, created_at=record.at, ended_at=record.ended or None, **values)


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
    tags: LuaList[object]
    history: LuaList[dict[str, Any]] = []
    failure: Any = None
    dependents: LuaList[str] = {}
    dependencies: LuaList[str] = {}
    tracked: bool = False
    spawned_from_jid: str | bool = False
    txid: str | None = None
    request_id: str | None = None


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
    tags: LuaList[object]
    backlog: int | float
