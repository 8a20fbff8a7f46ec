"""Coverage by workers: unserved queues, periodic tasks in unserved queues, and tasks that workers refuse."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .clients.client import Client
from .clients.replies import QueueCounts, WorkerLife
from .clients.serialization import as_list, texts
from .clients.transport import RedisCommand
from .job_classes import is_allowed
from .tasks.schedule import faults, scheduled


@dataclass(frozen=True, slots=True)
class UnservedWork:
    """Work that no worker does.

    `queues`: queues with jobs to run now, but without a worker. `periodic`: name and queue of periodic tasks whose
    queue has no worker of this package. `refused`: paths of tasks outside the modules from which jobs may come.
    `faults`: see `tasks.schedule.faults`.
    """

    queues: Sequence[str] = ()
    periodic: Sequence[tuple[str, str]] = ()
    refused: Sequence[str] = ()
    faults: Sequence[tuple[str, Exception]] = ()


def unserved_work(client: Client, counts: Iterable[QueueCounts], life: Sequence[WorkerLife]) -> UnservedWork:
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
    return UnservedWork(
        unserved,
        sorted(
            (name, task.queue) for name, task in scheduled.items() if task.queue not in served and is_allowed(task.path)
        ),
        sorted(task.path for task in list(all_tasks) if not is_allowed(task.path)),
        broken,
    )


def _foreign_workers_at_work(client: Client, own_workers: Collection[str]) -> bool:
    """Return whether workers that do not report their queues popped a job or sent a heartbeat in the last two minutes.

    Examines the latest 1000 workers.
    """
    since = repr(client.clock() - 120.0)
    command = ("ZREVRANGEBYSCORE", f"{client.prefix}workers", "+inf", since, "LIMIT", 0, 1000)
    return bool({*texts(client.perform(RedisCommand(command)))} - {*own_workers})
