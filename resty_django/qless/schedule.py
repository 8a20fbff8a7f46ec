"""Tasks that come by themselves: at an interval, or as cron says.

Each worker process looks after the tasks of its queues. At an interval: a recurring job, which is declared where it is
not there as it should be. Cron: the next jobs are put ahead of their time, under IDs that tell the time, so that it
makes no difference how many workers do it, and a worker that is down at that minute delays a job but loses none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.utils import timezone
from django.utils.module_loading import module_has_submodule

from resty_django.conf import conf
from resty_django.redis import StoreError

from .call import Plain, Steps
from .classes import IN_APPS
from .clients import Client
from .errors import QlessError
from .message import data_of
from .options import list_text
from .recurring import RecurringJob
from .texts import encode

if TYPE_CHECKING:
    from .task import Task

log = logging.getLogger("resty_django.qless.schedule")

LOOK: Final = 20.0
"""Seconds between two looks. Less than the minute of cron, so that the next job is there in time."""
AHEAD: Final = 2
"""Jobs of a task that are put ahead of their time."""
BACKLOG: Final = 1
EVERY: Final = "every-"
"""What the jid of a recurring job begins with; then comes the path of the task."""
DECLARED: Final = "declared"
"""The key of a sorted set: the jids of recurring jobs that tasks have declared, and when a worker did so last."""

scheduled: Final[dict[str, Task[..., Any]]] = {}
"""The tasks that have a schedule, by their path."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`every`: seconds; or `cron`: five fields."""

    every: float | None = None
    cron: str | None = None

    @classmethod
    def of(cls, task: Task[..., Any], every: float | None, cron: str | None) -> Schedule | None:
        """That of a task, which is noted; None: it has none. Raises `TypeError`, `ValueError`, `ImportError`."""
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
    """The times of a cron expression after one, in seconds since the epoch. Raises `ValueError` where it is none.

    As cron of Debian does it: what falls into the hour that is left out when daylight saving begins comes right after
    it; what falls into the hour that comes twice when it ends comes once. But where minute or hour begin with `*` real
    time counts.
    """
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ImportError("cron= needs the package cronsim. Install resty-django[cron].") from error
    try:
        found = CronSim(cron, datetime.fromtimestamp(after, zone))
    except CronSimError as error:
        raise ValueError(f"{cron!r} is no cron expression: {error}.") from None
    last = after
    for at in found:
        if (
            at.timestamp() > last
        ):  # the clock may be in the second of two equal hours, which cronsim takes for the first
            last = at.timestamp()
            yield last


def discover() -> None:
    """Import the modules in which tasks may be, so that those with a schedule are known. What fails is logged."""
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
            log.exception("%s cannot be imported: its tasks do not come by themselves", module)


def declare(client: Client, queues: Collection[str] | None = None, now: float | None = None) -> int:
    """See to it that the scheduled tasks of these queues (None: of all) come; gives how many there are.

    May be called as often as one likes, by as many processes. Raises `QlessError`, `StoreDown`.
    """
    wanted = [task for task in list(scheduled.values()) if queues is None or task.queue in queues]
    for task in wanted:
        if task.schedule is not None and task.schedule.every is not None:
            _declare_recurring(client, task, task.schedule.every)
        elif task.schedule is not None and task.schedule.cron is not None:
            _put_next(client, task, task.schedule.cron, client.clock() if now is None else now)
    return len(wanted)


def _declare_recurring(client: Client, task: Task[..., Any], every: float) -> None:
    jid = f"{EVERY}{task.path}"
    data, options = data_of([], {}, None, None), _options(task)
    there = client.jobs.get(jid)
    known = there if isinstance(there, RecurringJob) else None
    if known is not None and (known.queue_name, known.klass, float(known.interval), known.data, known.tags) == (
        *(task.queue, task.path, float(every), data, task.tags),
    ):
        known.update(priority=options["priority"], retries=options["retries"])
    else:
        client.queues[task.queue].recur(
            task.path, data, every, jid=jid, offset=every, tags=task.tags, backlog=BACKLOG, **options
        )
    client.run(_note(client, jid))


def _note(client: Client, jid: str) -> Steps[None]:
    """That a worker has declared it; the core forgets that where others declare, change or cancel it."""
    yield Plain(("ZADD", client.prefix + DECLARED, repr(client.clock()), jid))


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
    usual = dict(zip(task._options[::2], task._options[1::2], strict=True))
    return {"priority": usual.get("priority", 0), "retries": usual.get("retries", 5)}


class Scheduler:
    """Declares again and again, in a thread of its own, until stopped."""

    def __init__(self, client: Client, queues: Collection[str]) -> None:
        self._client = client
        self._queues = frozenset(queues)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qless-schedule", daemon=True)

    def start(self) -> None:
        """Import all tasks; begin if one of the queues has one with a schedule."""
        discover()
        if any(task.queue in self._queues for task in scheduled.values()):
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                declare(self._client, self._queues)
            except (QlessError, StoreError) as error:
                log.warning("scheduled tasks could not be declared, again in %.0f s: %s", LOOK, error)
            except Exception:
                log.exception("scheduled tasks could not be declared, again in %.0f s", LOOK)
            self._stopped.wait(LOOK)


__all__ = ["Schedule", "Scheduler", "declare", "discover", "occurrences", "scheduled"]
