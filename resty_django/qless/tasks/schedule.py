"""Periodic tasks: at an interval, or by cron.

Each worker process takes care of the tasks of its queues. At an interval: a recurring job, which is declared where it
is missing or differs. Cron: the next jobs are put ahead of their time, under IDs that contain the time, so that any
number of workers may do it, and a worker that is down at that minute delays a job but loses none.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.utils import timezone
from django.utils.module_loading import module_has_submodule

from resty_django import extras
from resty_django.conf import conf
from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ..clients.client import Client
from ..clients.put_options import list_text
from ..clients.recurring import RecurringJob
from ..clients.serialization import encode
from ..clients.transport import RedisCommand, Steps
from ..errors import QlessError
from .eager import DEFAULT_RETRIES
from .message import data_of
from .registry import IN_APPS, is_allowed

if TYPE_CHECKING:
    from .base import Task

log = logger("resty_django.qless.tasks.schedule")

INTERVAL: Final = 20.0
"""Seconds between two declarations. Less than the minute of cron, so that the next job exists in time."""
AHEAD: Final = 2
"""Jobs of a task that are put ahead of their time."""
BACKLOG: Final = 1
EVERY: Final = "every-"
"""The prefix of the jid of a recurring job; the path of the task follows."""
DECLARED: Final = "declared"
"""The key of a sorted set: the jids of recurring jobs that tasks declare, and when a worker last did so."""

scheduled: Final[dict[str, Task[..., Any]]] = {}
"""The tasks that have a schedule, by their path."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`every`: seconds; or `cron`: five fields."""

    every: float | None = None
    cron: str | None = None

    @classmethod
    def of(cls, task: Task[..., Any], every: float | None, cron: str | None) -> Schedule | None:
        """Return the schedule of a task, and register the task; None: it has none.

        Raises `TypeError`, `ValueError`, `MissingExtra`.
        """
        if every is None and cron is None:
            scheduled.pop(task.path, None)
            return None
        if every is not None and cron is not None:
            raise TypeError(f"{task.path} has every= and cron=. Take one of them away.")
        if every is not None and not every > 0:
            raise ValueError(f"{task.path}: every= is seconds, more than 0.")
        if cron is not None:
            if len(cron.split()) != 5:
                raise ValueError(f"{task.path}: cron= has five fields, minute hour day month weekday, not {cron!r}.")
            next(occurrences(cron, 0.0, UTC), None)
        task.parameters.check((), {})
        scheduled[task.path] = task
        return cls(every, cron)


def occurrences(cron: str, after: float, zone: tzinfo) -> Iterator[float]:
    """Yield the times of a cron expression after `after`, in seconds since the epoch.

    As cron of Debian: a time in the hour that daylight saving skips comes right after that hour; a time in the hour
    that occurs twice when it ends comes once. Where minute or hour begin with `*`, real time counts. Raises
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
        ):  # the clock may be in the second of two equal hours, which cronsim takes for the first
            last = at.timestamp()
            yield last


def discover() -> None:
    """Import the modules that may have tasks, so that those with a schedule register. Errors are logged."""
    of_apps = (
        f"{config.name}.{name}"
        for config in apps.get_app_configs()
        for name in IN_APPS
        if module_has_submodule(config.module, name)
    )
    for module in (*of_apps, *conf.qless.modules):
        try:
            import_module(module)
        except Exception:
            log.exception("%s cannot be imported: its periodic tasks do not run", module)


def declare(client: Client, queues: Collection[str] | None = None, now: float | None = None) -> int:
    """Declare the periodic tasks of these queues (None: of all), and return how many they are.

    Idempotent, from any number of processes. Raises `QlessError`, `StoreDown`.
    """
    tasks = [
        task for task in list(scheduled.values()) if (queues is None or task.queue in queues) and is_allowed(task.path)
    ]
    for task in tasks:
        if task.schedule is not None and task.schedule.every is not None:
            _declare_recurring(client, task, task.schedule.every)
        elif task.schedule is not None and task.schedule.cron is not None:
            _put_next(client, task, task.schedule.cron, client.clock() if now is None else now)
    return len(tasks)


def _declare_recurring(client: Client, task: Task[..., Any], every: float) -> None:
    jid = f"{EVERY}{task.path}"
    data, options = data_of([], {}, None, None), _options(task)
    job = client.jobs.get(jid)
    if isinstance(job, RecurringJob) and (job.queue_name, job.klass, float(job.interval), job.data, job.tags) == (
        *(task.queue, task.path, float(every), data, task.tags),
    ):
        job.update(priority=options["priority"], retries=options["retries"])
    else:
        client.queues[task.queue].recur(
            task.path, data, every, jid=jid, offset=every, tags=task.tags, backlog=BACKLOG, **options
        )
    client.run(_note(client, jid))


def _note(client: Client, jid: str) -> Steps[None]:
    """Note that a worker has declared it; the core drops the note where others declare, change or cancel it."""
    yield RedisCommand(("ZADD", client.prefix + DECLARED, repr(client.clock()), jid))


def _put_next(client: Client, task: Task[..., Any], cron: str, now: float) -> None:
    options = _options(task)
    tags = ("tags", list_text("tags", task.tags)) if task.tags else ()
    requests = []
    for at, _ in zip(occurrences(cron, now, timezone.get_default_timezone()), range(AHEAD), strict=False):
        jid = f"cron-{task.path}-{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%MZ}"
        requests.append(
            (
                *("put", client.worker_name, task.queue, jid, task.path),
                *(encode(data_of([], {}, None, None)), max(0.0, at - now), "unique", "ever"),
                *("priority", options["priority"], "retries", options["retries"], *tags),
            )
        )
    for reply in client.call_many(requests):
        if isinstance(reply, Exception):
            raise reply


def _options(task: Task[..., Any]) -> dict[str, Any]:
    return {
        "priority": task.put_options.priority or 0,
        "retries": DEFAULT_RETRIES if task.retries is None else task.retries,
    }


class Scheduler:
    """A thread that declares the periodic tasks of its queues every `INTERVAL` seconds, until stopped."""

    def __init__(self, client: Client, queues: Collection[str]) -> None:
        self._client = client
        self._queues = frozenset(queues)
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="qless-schedule", daemon=True)

    def start(self) -> None:
        """Import all tasks, and start the thread if one of the queues has a periodic one."""
        discover()
        if any(task.queue in self._queues for task in scheduled.values()):
            self.thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                declare(self._client, self._queues)
            except (QlessError, StoreError) as error:
                log.warning("scheduled tasks could not be declared, again in %.0f s: %s", INTERVAL, error)
            except Exception:
                log.exception("scheduled tasks could not be declared, again in %.0f s", INTERVAL)
            self._stopped.wait(INTERVAL)
