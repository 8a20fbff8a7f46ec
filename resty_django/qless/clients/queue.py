"""A queue: putting jobs in, popping them, listing them, its statistics and options."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack, overload

import msgspec
from django.utils.translation import gettext as _

from resty_django.txid.context import current_ids

from ..errors import CannotTimeout, InvalidArgument, NoSuchJob, QueueNotEmpty
from .figures import KEPT_SPANS, Throughput
from .job import Job, job_list
from .put_options import (
    DEPENDS_PER_CALL,
    JobOptions,
    JobSpec,
    RecurringOptions,
    check_names,
    checked_options,
    class_name,
    list_text,
    options_of,
    outcome_fields,
)
from .replies import QUEUE_STATES, QueueCounts, QueueStats, StuckJob, StuckPage
from .serialization import LuaList, as_list, encode, read, read_latency, texts
from .transport import Steps, batches, checked, sync_and_async

if TYPE_CHECKING:
    from .client import Client

POPS_PER_CALL: Final = 50
"""Maximum number of jobs of one pop or peek. For each job, the call may also move a scheduled job and spawn another."""

JIDS_PER_CALL: Final = 1000
"""Maximum number of jids that one call returns."""

PAUSE_REASON, PAUSED_BY, PAUSED_SINCE = "pause-reason", "paused-by", "paused-since"
"""Options of a paused queue, after its name: texts, and the time in epoch seconds. Other clients do not set them."""


class _StuckPage(msgspec.Struct):
    jobs: LuaList[tuple[str, str, str]]
    cursor: str


class Queue:
    """A queue: `client.queues["name"]`. It is created when its first job is put."""

    __slots__ = ("client", "name")

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def jobs(self) -> QueueJobs:
        return QueueJobs(self.client, self.name)

    # --- putting jobs ---

    def _put(self, klass: object, data: object = None, **options: Unpack[JobOptions]) -> Steps[str]:
        """Put a job; return its jid.

        `klass`: a dotted path, or an importable class or function. `data`: JSON (see `encode`). `options`: see
        `JobOptions`. Raises `InvalidArgument`, `DependencyError`, `GroupError`, and `TypeError` for a value of the
        wrong type.

        More than 1000 jobs in `depends` are sent before the job, in batches; if that is interrupted, nothing is put.
        """
        check_names("put", options, JobOptions)
        spec = JobSpec(klass=klass, data=data, **options)
        name, given = class_name(klass), _checked(spec)
        jid, depends, is_staged = spec.jid, given["depends"] or [], False
        if len(depends) > DEPENDS_PER_CALL:
            jid = self.client.generate_jid() if jid is None else jid
            for batch in batches(depends, DEPENDS_PER_CALL):
                yield "stage", jid, *batch
            depends, is_staged = [], True
        arguments: tuple[object, ...] = ()
        if jid is not None or spec.priority is not None or given["tags"] or spec.retries is not None or depends:
            arguments = options_of(spec.priority, given["tags"], spec.retries, depends)
        if is_staged:
            arguments += ("staged", 1)
        arguments += (*itertools.chain(*current_ids().items()),)
        if spec.outcome:
            arguments += ("outcome", msgspec.json.encode(outcome_fields(spec.outcome)))
        if jid is None:
            jid = self.client.generate_jid()
        yield "put", self.client.worker_name, self.name, jid, name, encode(data), given["delay"] or 0, *arguments
        if is_staged:
            yield from self.client._tidy()
        return jid

    put, aput = sync_and_async(_put)

    def _put_many(self, jobs: Iterable[JobSpec | Mapping[str, Any]]) -> Steps[list[str]]:
        """Put many jobs, each a `JobSpec` or a dict of the arguments of `put`; return their jids.

        They are sent in batches of 100: if a job is refused, neither its batch nor any later batch is put.
        """
        specs = map(_job_spec, jobs)
        jids: list[str] = []
        ids = current_ids()
        while batch := list(itertools.islice(specs, 100)):
            arguments: list[object] = []
            digits = os.urandom(16 * len(batch)).hex()  # a call for each job would take longer than its JSON
            for first, spec in zip(range(0, len(digits), 32), batch, strict=True):
                options = _options_json(spec, ids)
                jid = spec.jid or digits[first : first + 32]
                jids.append(jid)
                arguments += (jid, class_name(spec.klass), encode(spec.data), spec.delay or 0, options)
            yield "put.many", self.client.worker_name, self.name, *arguments
        return jids

    put_many, aput_many = sync_and_async(_put_many)

    def _recur(self, klass: object, data: object, interval: float, **options: Unpack[RecurringOptions]) -> Steps[str]:
        """Put a job every `interval` seconds; return the jid of the recurring job.

        `options`: see `RecurringOptions`. Raises `InvalidArgument`, and `TypeError` for a value of the wrong type.
        """
        check_names("recur", options, RecurringOptions)
        defaults = {"jid": None, "offset": 0, "tags": (), "backlog": 0, "priority": 0, "retries": 5}
        given = checked_options(interval=interval, **(defaults | options))
        jid: str = self.client.generate_jid() if given["jid"] is None else given["jid"]
        arguments = [part for name in ("priority", "retries", "backlog") for part in (name, given[name])]
        yield (
            *("recur", self.name, jid, class_name(klass), encode(data), "interval", interval, given["offset"]),
            *("tags", list_text(given["tags"]), *arguments),
        )
        return jid

    recur, arecur = sync_and_async(_recur)

    # --- popping jobs ---

    def _pop(self, count: int) -> Steps[list[Job]]:
        jobs: list[Job] = []
        while True:
            size = min(count - len(jobs), POPS_PER_CALL)
            popped = job_list(self.client, (yield "pop", self.name, self.client.worker_name, size))
            jobs += popped
            if len(popped) < size or len(jobs) >= count:
                return jobs

    def _peek(self, count: int) -> Steps[list[Job]]:
        jobs = job_list(self.client, (yield "peek", self.name, min(count, POPS_PER_CALL)))
        if len(jobs) == POPS_PER_CALL < count:
            jids = yield from self.jobs._stalled(0, count)
            jids += yield from self.jobs._ready(0, count - len(jids))
            jobs = yield from self.client.jobs._multiget(*jids)
        return jobs

    @overload
    def pop(self, count: None = None) -> Job | None: ...
    @overload
    def pop(self, count: int) -> list[Job]: ...
    def pop(self, count: int | None = None) -> Any:
        """Return a job to run, or None; with `count` a list of at most that many. Locks them for this client's worker.

        More than 50 are popped in batches: if this process ends between two batches, the jobs already popped wait until
        their locks expire.
        """
        return _first_or_all(self.client.run(self._pop(1 if count is None else count)), count)

    @overload
    async def apop(self, count: None = None) -> Job | None: ...
    @overload
    async def apop(self, count: int) -> list[Job]: ...
    async def apop(self, count: int | None = None) -> Any:
        """Do the same for asyncio."""
        return _first_or_all(await self.client.arun(self._pop(1 if count is None else count)), count)

    @overload
    def peek(self, count: None = None) -> Job | None: ...
    @overload
    def peek(self, count: int) -> list[Job]: ...
    def peek(self, count: int | None = None) -> Any:
        """Return the job that a pop would return, or None; with `count` a list of at most that many."""
        return _first_or_all(self.client.run(self._peek(1 if count is None else count)), count)

    @overload
    async def apeek(self, count: None = None) -> Job | None: ...
    @overload
    async def apeek(self, count: int) -> list[Job]: ...
    async def apeek(self, count: int | None = None) -> Any:
        """Do the same for asyncio."""
        return _first_or_all(await self.client.arun(self._peek(1 if count is None else count)), count)

    # --- state and statistics ---

    def _counts(self) -> Steps[QueueCounts]:
        """Return the number of jobs by state."""
        return read((yield "queues", self.name), QueueCounts)

    counts, acounts = sync_and_async(_counts)

    def _length(self) -> Steps[int]:
        """Return the number of running, waiting and scheduled jobs."""
        return int((yield "length", self.name))

    length, alength = sync_and_async(_length)

    def _stats(self, date: float | None = None) -> Steps[QueueStats]:
        """Return the statistics of the day (UTC) that contains `date`, in seconds since the epoch; None: today."""
        return read((yield "stats", self.name, self.client.clock() if date is None else date), QueueStats)

    stats, astats = sync_and_async(_stats)

    def _latency(self) -> Steps[float | None]:
        """Return the age of the oldest runnable job in seconds; None if no job is runnable."""
        return read_latency((yield "latency", self.name)[0])

    latency, alatency = sync_and_async(_latency)

    def _throughput(self) -> Steps[Throughput]:
        """Return the number of jobs completed in each of the last minutes, hours and days."""
        counts = []
        for unit, count in KEPT_SPANS.items():
            spans = yield from self.client.figures._spans(unit, count, queue=self.name)
            counts.append([span.totals.completed for span in spans])
        return Throughput(*counts)

    throughput, athroughput = sync_and_async(_throughput)

    def _due(self) -> Steps[float | None]:
        """Return the earliest time at which a pop may find a job, in seconds since the epoch; None for an empty
        queue."""
        reply = yield "due", self.name
        return None if reply is None else float(reply)

    due, adue = sync_and_async(_due)

    def _stuck(self, cursor: str = "", count: int = 100) -> Steps[StuckPage]:
        """Return jobs that wait for something that will not end.

        Examines at most `count` (and at most 100) of the jobs that wait for others; pass the reply's `cursor` to
        continue.
        """
        page = read((yield "stuck", self.name, cursor, count), _StuckPage)
        jobs = [StuckJob(jid, self.name, other or None, reason) for jid, other, reason in as_list(page.jobs)]
        return StuckPage(jobs, page.cursor)

    stuck, astuck = sync_and_async(_stuck)

    def _paused(self) -> Steps[bool]:
        return (yield from self._counts()).paused

    paused, apaused = sync_and_async(_paused)

    def _pause(self, stop_jobs: bool = False, *, reason: str = "", by: str = "") -> Steps[None]:
        """Stop handing out jobs. `stop_jobs`: also take running jobs from their workers.

        `reason`, `by`: why, and the name of the user who does it; stored with the queue's options until `unpause`.
        """
        record = {PAUSE_REASON: reason}
        if not (yield from self._paused()):
            record |= {PAUSED_BY: by, PAUSED_SINCE: f"{self.client.clock():.3f}"}
        yield [
            ("config.set", f"{self.name}-{option}", value) if value else ("config.unset", f"{self.name}-{option}")
            for option, value in record.items()
        ]
        yield "pause", self.name
        if stop_jobs:
            running = yield from self.jobs._running(0, -1)
            jids = list(dict.fromkeys(running + (yield from self.jobs._stalled(0, -1))))
            for batch in batches(jids, POPS_PER_CALL):
                for outcome in (yield [("timeout", jid) for jid in batch]):
                    if not isinstance(outcome, CannotTimeout | NoSuchJob):  # over in the meantime
                        checked(outcome)

    pause, apause = sync_and_async(_pause)

    def _unpause(self) -> Steps[None]:
        """Resume handing out jobs."""
        yield "unpause", self.name
        yield [("config.unset", f"{self.name}-{option}") for option in (PAUSE_REASON, PAUSED_BY, PAUSED_SINCE)]

    unpause, aunpause = sync_and_async(_unpause)

    def _forget(self) -> Steps[None]:
        """Remove the queue from the list. Raises `QueueNotEmpty`."""
        counts = yield from self._counts()
        nonzero = {state: getattr(counts, state) for state in QUEUE_STATES if getattr(counts, state)}
        if nonzero:
            summary = ", ".join(f"{count} {state}" for state, count in nonzero.items())
            text = _("The queue %(queue)s has jobs: %(counts)s. Cancel or move them first.")
            raise QueueNotEmpty(text % {"queue": self.name, "counts": summary})
        yield "queue.forget", self.name

    forget, aforget = sync_and_async(_forget)

    # --- options ---

    def _config_get(self, option: str, default: Any = None) -> Steps[Any]:
        """Return the queue's own value of an option, such as `heartbeat`, else `default`."""
        return (yield from self.client.config._get(f"{self.name}-{option}", default))

    config_get, aconfig_get = sync_and_async(_config_get)

    def _config_set(self, option: str, value: str | float) -> Steps[None]:
        """Set an option of the queue."""
        yield from self.client.config._set(f"{self.name}-{option}", value)

    config_set, aconfig_set = sync_and_async(_config_set)

    def _get_heartbeat(self) -> Steps[float]:
        seconds = yield from self._config_get("heartbeat")
        return float((yield from self.client.config._get("heartbeat", 60)) if seconds is None else seconds)

    get_heartbeat, aget_heartbeat = sync_and_async(_get_heartbeat)

    @property
    def heartbeat(self) -> float:
        """The duration of a job's lock in seconds: the queue's own, else the global one. For asyncio:
        `aget_heartbeat`."""
        return self.get_heartbeat()

    @heartbeat.setter
    def heartbeat(self, seconds: float) -> None:
        self.config_set("heartbeat", seconds)

    def _get_max_concurrency(self) -> Steps[int]:
        return int((yield from self._config_get("max-concurrency", 0)))

    get_max_concurrency, aget_max_concurrency = sync_and_async(_get_max_concurrency)

    @property
    def max_concurrency(self) -> int:
        """The number of jobs that may run at once; 0: unlimited. For asyncio: `aget_max_concurrency`."""
        return self.get_max_concurrency()

    @max_concurrency.setter
    def max_concurrency(self, count: int) -> None:
        self.config_set("max-concurrency", count)


def _first_or_all(jobs: list[Job], count: int | None) -> list[Job] | Job | None:
    """Return all jobs if the caller passed a count, else the only one."""
    return jobs if count is not None else jobs[0] if jobs else None


def jids_in_pages(request: tuple[str, ...], offset: int, count: int) -> Steps[list[str]]:
    """Return at most `count` jids (-1: all), from `offset` on, of those that a command lists, fetched in pages."""
    jids: list[str] = []
    while count < 0 or len(jids) < count:
        size = JIDS_PER_CALL if count < 0 else min(JIDS_PER_CALL, count - len(jids))
        page = texts((yield *request, offset + len(jids), size))
        jids += page
        if len(page) < size:
            break
    return jids


class QueueJobs:
    """The jids of a queue's jobs by state: `queue.jobs.ready()`.

    Each method returns at most `count` jids after the first `offset`; a `count` of -1 means all. More than 1000 are
    fetched in several calls.
    """

    __slots__ = ("client", "name")

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def _in_state(self, state: str, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Return the jids in one of the states `waiting`, `running`, `stalled`, `scheduled`, `depends`, `recurring`.

        Raises `InvalidArgument` for any other state.
        """
        return (yield from jids_in_pages(("jobs", state, self.name), offset, count))

    def _ready(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Return waiting jobs in the order of pop. (The twin of a method `waiting` would be called `awaiting`.)"""
        return (yield from self._in_state("waiting", offset, count))

    def _running(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Return running jobs by the expiry of their locks, earliest first."""
        return (yield from self._in_state("running", offset, count))

    def _stalled(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Return running jobs whose lock has expired, longest expired first."""
        return (yield from self._in_state("stalled", offset, count))

    def _scheduled(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Return scheduled jobs, earliest due first."""
        return (yield from self._in_state("scheduled", offset, count))

    def _depends(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Return jobs that wait for other jobs, oldest first."""
        return (yield from self._in_state("depends", offset, count))

    def _recurring(self, offset: int = 0, count: int = 25) -> Steps[list[str]]:
        """Return recurring jobs, earliest due first."""
        return (yield from self._in_state("recurring", offset, count))

    in_state, ain_state = sync_and_async(_in_state)
    ready, aready = sync_and_async(_ready)
    running, arunning = sync_and_async(_running)
    stalled, astalled = sync_and_async(_stalled)
    scheduled, ascheduled = sync_and_async(_scheduled)
    depends, adepends = sync_and_async(_depends)
    recurring, arecurring = sync_and_async(_recurring)


def _job_spec(job: JobSpec | Mapping[str, Any]) -> JobSpec:
    if isinstance(job, JobSpec):
        return job
    try:
        return JobSpec(**job)  # faster than checks beforehand
    except TypeError:
        pass
    if not isinstance(job, Mapping):
        raise InvalidArgument(f"put_many() takes JobSpecs and dicts, not a {type(job).__qualname__}.")
    known = JobSpec.__annotations__
    unknown = sorted(job.keys() - known.keys())
    problem = f"got the unknown field {unknown[0]!r}" if unknown else "needs a klass for each job"
    raise InvalidArgument(f"put_many() {problem}. A job has {', '.join(sorted(known))}.")


def _checked(spec: JobSpec) -> dict[str, Any]:
    return checked_options(
        jid=spec.jid,
        delay=spec.delay,
        priority=spec.priority,
        tags=spec.tags,
        retries=spec.retries,
        depends=spec.depends,
    )


def _options_json(spec: JobSpec, ids: Mapping[str, str]) -> bytes:
    """Return the options of a job for the command `put.many`; empty if the core's defaults apply."""
    options: dict[str, Any] = {}
    values = (spec.jid, spec.delay, spec.priority, spec.tags, spec.retries, spec.depends, spec.outcome)
    if values.count(None) < len(values):
        given = _checked(spec)
        options = {
            "priority": given["priority"] or 0,
            "tags": given["tags"] or [],
            "retries": 5 if given["retries"] is None else given["retries"],
            "depends": given["depends"] or [],
        }
    options |= ids
    if spec.outcome:
        options["outcome"] = outcome_fields(spec.outcome)
    return msgspec.json.encode(options) if options else b""
