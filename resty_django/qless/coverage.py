"""Coverage by workers: unserved queues, periodic tasks in unserved queues, and tasks that workers refuse."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from .clients.client import Client
from .clients.replies import QueueCounts, WorkerLife
from .clients.serialization import as_list, texts
from .clients.transport import RedisCommand, Steps
from .job_classes import is_allowed
from .tasks.schedule import faults, scheduled

RECENT: Final = 120.0
"""Seconds within which workers of other clients, which do not report their queues, pop or send a heartbeat."""
MOST_WORKERS: Final = 1000


@dataclass(frozen=True, slots=True)
class Coverage:
    """Work that no worker does.

    `queues`: queues with jobs to run now, but without a worker. `periodic`: name and queue of periodic tasks whose
    queue has no worker of this package. `refused`: paths of tasks outside the modules from which jobs may come.
    `faults`: see `tasks.schedule.faults`.
    """

    queues: Sequence[str] = ()
    periodic: Sequence[tuple[str, str]] = ()
    refused: Sequence[str] = ()
    faults: Sequence[tuple[str, Exception]] = ()


def coverage(client: Client, counts: Iterable[QueueCounts], life: Sequence[WorkerLife]) -> Coverage:
    """Return the work that no worker does now. Imports the modules of all tasks, once. Raises `StoreError`."""
    from .tasks.base import all_tasks

    broken = faults(client)
    served = {str(queue) for worker in life if worker.state != "gone" for queue in as_list(worker.queues)}
    unserved = [
        queue.name
        for queue in counts
        if (queue.waiting or queue.stalled) and not queue.paused and queue.name not in served
    ]
    if unserved and _foreign_workers_at_work(client, {worker.name for worker in life}):
        unserved = []  # these workers may serve any queue
    return Coverage(
        unserved,
        sorted(
            (name, task.queue) for name, task in scheduled.items() if task.queue not in served and is_allowed(task.path)
        ),
        sorted(task.path for task in list(all_tasks) if not is_allowed(task.path)),
        broken,
    )


def _foreign_workers_at_work(client: Client, own_workers: Collection[str]) -> bool:
    """Return whether workers that do not report in have been seen recently."""
    return bool({*client.run(_recent_workers(client))} - {*own_workers})


def _recent_workers(client: Client) -> Steps[list[str]]:
    since = client.clock() - RECENT
    command = ("ZREVRANGEBYSCORE", client.prefix + "workers", "+inf", repr(since), "LIMIT", 0, MOST_WORKERS)
    return texts((yield RedisCommand(command)))
