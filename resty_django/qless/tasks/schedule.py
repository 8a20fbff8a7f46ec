"""Periodic tasks: at an interval, or by cron.

Each worker process schedules the tasks of its queues. A task with an interval has a recurring job, which a worker
declares if it is missing or differs. For a task with cron, the next jobs are put ahead of time, under IDs that contain
the time. So any number of workers can schedule the same task, and a worker that is down at that minute delays a job but
does not lose it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Final

from django.utils import timezone

from resty_django import extras
from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ..clients.client import Client
from ..clients.job import Job
from ..clients.put_options import checked_options, list_text
from ..clients.recurring import RecurringJob
from ..clients.serialization import encode, scores
from ..clients.transport import RedisCommand, Steps, checked, skipping_refusals
from ..errors import QlessError
from ..job_classes import discover_once, is_allowed
from .canvas import consequences_of
from .eager import DEFAULT_RETRIES
from .message import data_of
from .options import NO_OPTIONS

if TYPE_CHECKING:
    from .base import Task

log = logger("resty_django.qless.tasks.schedule")

DECLARE_SECONDS: Final = 20.0
"""Interval between two declarations. Shorter than a minute, cron's unit, so that the next job exists in time."""
AHEAD: Final = 2
"""Number of jobs of a cron task that are put ahead of time."""
EVERY: Final = "every-"
"""Prefix of a recurring job's jid; the name of the task follows."""
CRON: Final = "cron-"
"""Prefix of the jids of a cron task's jobs; the name of the task and the time follow."""
CRON_PAUSED: Final = "-cron-paused"
"""Suffix of the option that pauses a cron task, after its name. Its value is when it was paused."""
DECLARED: Final = "declared"
"""The key of a sorted set: the jids of recurring jobs that tasks declare, and when a worker last did so."""

scheduled: Final[dict[str, Task[..., Any]]] = {}
"""The tasks with a schedule, by name."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of a task: either `every`, an interval in seconds, or `cron`, five fields."""

    every: float | None = None
    cron: str | None = None

    @classmethod
    def of(cls, task: Task[..., Any]) -> Schedule | None:
        """Return the schedule of a task and register the task; return None if it has no schedule.

        Raises `TypeError`, `ValueError`, `MissingExtra`.
        """
        every, cron = task.options.every, task.options.cron
        if every is None and cron is None:
            scheduled.pop(task.name, None)
            return None
        if every is not None and cron is not None:
            raise TypeError(f"{task.path} has both every= and cron=. Remove one of them.")
        checked_options(f"{task.path}: ", every=every, cron=cron)
        if cron is not None:
            if len(cron.split()) != 5:
                raise ValueError(f"{task.path}: cron= needs five fields, minute hour day month weekday, not {cron!r}.")
            next(occurrences(cron, 0.0, UTC), None)
        callbacks = {*task.options.reactions} - {"if_failed"}
        if every is not None and callbacks:
            raise TypeError(
                f"{task.path}: recurring jobs have no callbacks. With {min(callbacks)}=, use cron= instead of every=."
            )
        task.parameters.check((), {})
        scheduled[task.name] = task
        return cls(every, cron)


def occurrences(cron: str, after: float, zone: tzinfo) -> Iterator[float]:
    """Yield the times of a cron expression after `after`, in seconds since the epoch.

    Follows Debian's cron when clocks change: a time in the skipped hour moves to the end of that hour; a time in the
    repeated hour occurs once. If the minute or the hour field begins with `*`, elapsed time counts instead. Raises
    `ValueError`, `MissingExtra`.
    """
    with extras.needed("cron= needs"):
        from cronsim import CronSim, CronSimError
    try:
        moments = CronSim(cron, datetime.fromtimestamp(after, zone))
    except CronSimError as error:
        raise ValueError(
            f"{cron!r} is not a cron expression: {error}. Its fields are minute hour day month weekday."
        ) from None
    last = after
    for at in moments:
        if (
            at.timestamp() > last
        ):  # the clock may be in the second of two equal hours, which cronsim mistakes for the first
            last = at.timestamp()
            yield last


def declare(client: Client, queues: Collection[str] | None = None, now: float | None = None) -> int:
    """Declare the periodic tasks of these queues (None: of all), and return their number.

    A task that is refused is logged, and the others are declared. Idempotent, and safe in any number of processes.
    Raises `StoreError`.
    """
    tasks = [
        task for task in list(scheduled.values()) if (queues is None or task.queue in queues) and is_allowed(task.path)
    ]
    for task in tasks:
        with skipping_refusals(
            log, "periodic task %s could not be declared; next attempt in %.0f s", task.path, DECLARE_SECONDS
        ):
            if task.schedule is not None and task.schedule.every is not None:
                _withdraw_recurring(client, task)
                _declare_recurring(client, task, task.schedule.every)
            elif task.schedule is not None and task.schedule.cron is not None and not is_cron_paused(client, task.name):
                _put_next(client, task, task.schedule.cron, client.clock() if now is None else now)
    return len(tasks)


def faults(client: Client) -> list[tuple[str, Exception]]:
    """Return the modules that workers cannot import, and the periodic tasks that they cannot declare, with the errors.

    Imports the modules of all tasks, once. Asks no server.
    """
    found = [*discover_once().items()]
    for task in list(scheduled.values()):
        if is_allowed(task.path):
            try:
                consequences_of(task, NO_OPTIONS, client)
            except Exception as error:
                found.append((task.path, error))
    return found


def _declare_recurring(client: Client, task: Task[..., Any], every: float) -> None:
    jid = f"{EVERY}{task.name}"
    data, options = data_of([], {}), _options(task)
    job = client.jobs.get(jid)
    if isinstance(job, RecurringJob) and (job.queue_name, job.klass, float(job.interval), job.data, job.tags) == (
        *(task.queue, task.name, float(every), data, task.options.tags),
    ):
        job.update(priority=options["priority"], retries=options["retries"])
    else:
        paused = isinstance(job, RecurringJob) and job.paused()
        client.queues[task.queue].recur(
            task.name, data, every, jid=jid, offset=every, tags=task.options.tags, backlog=1, **options
        )
        if paused and isinstance(declared := client.jobs.get(jid), RecurringJob):
            declared.pause()
    # the core deletes this record when anyone declares, changes or cancels it
    client.perform(RedisCommand(("ZADD", client.prefix + DECLARED, repr(client.clock()), jid)))


def _withdraw_recurring(client: Client, task: Task[..., Any]) -> None:
    """Cancel the recurring jobs that workers declared under earlier names of the task, or it would run for each."""
    jids = [f"{EVERY}{name}" for name in _earlier_names(task)]
    declared = client.run(declared_at(client)) if jids else {}
    for jid in jids:
        if jid in declared and isinstance(job := client.jobs.get(jid), RecurringJob):
            job.cancel()


def _earlier_names(task: Task[..., Any]) -> list[str]:
    return [name for name in dict.fromkeys((task.path, *task.options.aliases)) if name != task.name]


def declared_at(client: Client) -> Steps[dict[str, float]]:
    """Return when workers last declared recurring jobs, in seconds since the epoch by jid."""
    return scores((yield RedisCommand(("ZRANGE", client.prefix + DECLARED, 0, -1, "WITHSCORES"))))


def _put_next(client: Client, task: Task[..., Any], cron: str, now: float) -> None:
    options = _options(task)
    tags = ("tags", list_text(task.options.tags)) if task.options.tags else ()
    consequences = consequences_of(task, NO_OPTIONS, client)
    outcome = () if consequences is None else ("outcome", encode(consequences.texts()))
    requests = []
    for at, _ in zip(occurrences(cron, now, timezone.get_default_timezone()), range(AHEAD), strict=False):
        jid = _cron_jid(task.name, at)
        for name in _earlier_names(task):
            earlier = client.jobs.get(_cron_jid(name, at))
            if isinstance(earlier, Job) and earlier.state == "scheduled":
                earlier.cancel()
        requests.append(
            (
                *("put", client.worker_name, task.queue, jid, task.name),
                *(encode(data_of([], {})), max(0.0, at - now), "unique", "ever"),
                *("priority", options["priority"], "retries", options["retries"], *tags, *outcome),
            )
        )
    for reply in client.call_many(requests):
        checked(reply)


def is_cron_paused(client: Client, name: str) -> bool:
    """Return whether the cron task of this name is paused."""
    return client.config.get(f"{name}{CRON_PAUSED}") is not None


def pause_cron(client: Client, name: str) -> int:
    """Put no more jobs of a cron task, and cancel those that are scheduled; return their number."""
    client.config.set(f"{name}{CRON_PAUSED}", f"{client.clock():.0f}")
    canceled = 0
    for at in next_times(name, client.clock(), AHEAD):
        job = client.jobs.get(_cron_jid(name, at))
        if isinstance(job, Job) and job.state == "scheduled":
            job.cancel()
            canceled += 1
    return canceled


def resume_cron(client: Client, name: str) -> None:
    """Put jobs of a cron task again, from its next time on."""
    client.config.unset(f"{name}{CRON_PAUSED}")
    task = scheduled.get(name)
    if task is not None and task.schedule is not None and task.schedule.cron is not None:
        _put_next(client, task, task.schedule.cron, client.clock())


def next_times(name: str, now: float, count: int) -> list[float]:
    """Return the next times of a cron task."""
    cron = _cron_of(name)
    if cron is None:
        return []
    return list(itertools.islice(occurrences(cron, now, timezone.get_default_timezone()), count))


def latest_jids(name: str, now: float, count: int) -> list[str]:
    """Return the jids of the latest jobs of a cron task, newest first; the jobs may have expired."""
    cron = _cron_of(name)
    if cron is None:
        return []
    with extras.needed("cron= needs"):
        from cronsim import CronSim
    zone = timezone.get_default_timezone()
    moments = CronSim(cron, datetime.fromtimestamp(now, zone), reverse=True)
    return [_cron_jid(name, at.timestamp()) for at in itertools.islice(moments, count)]


def _cron_of(name: str) -> str | None:
    task = scheduled.get(name)
    return None if task is None or task.schedule is None else task.schedule.cron


def _cron_jid(name: str, at: float) -> str:
    return f"{CRON}{name}-{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%MZ}"


def _options(task: Task[..., Any]) -> dict[str, Any]:
    return {
        "priority": task.options.priority,
        "retries": DEFAULT_RETRIES if task.options.retries is None else task.options.retries,
    }


class Scheduler:
    """A thread that declares the periodic tasks of its queues every `DECLARE_SECONDS`, until stopped."""

    def __init__(self, client: Client, queues: Collection[str]) -> None:
        self._client = client
        self._queues = frozenset(queues)
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="qless-schedule", daemon=True)

    def start(self) -> None:
        """Start the thread if one of the queues has a periodic task."""
        if any(task.queue in self._queues for task in scheduled.values()):
            self.thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                declare(self._client, self._queues)
            except (QlessError, StoreError) as error:
                log.warning("periodic tasks could not be declared; next attempt in %.0f s: %s", DECLARE_SECONDS, error)
            except Exception:
                log.exception("periodic tasks could not be declared; next attempt in %.0f s", DECLARE_SECONDS)
            self._stopped.wait(DECLARE_SECONDS)
