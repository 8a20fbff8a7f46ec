"""Options of a worker: the settings, overridden by the command line."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from resty_django.conf import conf

from ..clients.worker_reports import MAX_SLOTS
from .reservers import RESERVERS, Reserver


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of a worker.

    `interval`, `grace`: seconds. `interrupt`: whether sync jobs are interrupted when they are lost and when the grace
    period ends. `name`: prefix of the worker names. `via`: with "celery", Celery's workers run the jobs. `pool`:
    "threads" or "processes". `kill_after`: seconds until a process is killed that a lost or timed-out job still uses.
    `burst`: whether a process ends when no job is ready. `max_jobs`: number of jobs after which a process is replaced.
    """

    queues: tuple[str, ...]
    reserver: str
    concurrency: int
    processes: int
    interval: float
    grace: float
    interrupt: bool
    name: str
    via: str = ""
    pool: str = "threads"
    kill_after: float = 1.0
    burst: bool = False
    max_jobs: int | None = None

    @property
    def max_slots(self) -> int:
        """The number of slots to which operators may scale a process: four times as many, at least 64."""
        return max(self.concurrency, min(MAX_SLOTS, max(64, 4 * self.concurrency)))

    def make_reserver(self) -> Reserver:
        """Return a new reserver of the queues. Raises `ImproperlyConfigured`."""
        make: Callable[[Sequence[str]], Reserver]
        try:
            make = RESERVERS.get(self.reserver) or import_string(self.reserver)
        except ImportError as error:
            names = ", ".join(RESERVERS)
            raise ImproperlyConfigured(
                f"Unknown reserver {self.reserver!r}. Use one of {names}, or the dotted path of a class: {error}"
            ) from error
        return make(self.queues)


def options(**overrides: Any) -> WorkerOptions:
    """Return the options from the settings, updated with all `overrides` that are not None.

    Raises `ImproperlyConfigured`.
    """
    worker = conf.qless.worker
    values: dict[str, Any] = {name: getattr(worker, name) for name in WorkerOptions.__slots__ if hasattr(worker, name)}
    values["name"] = conf.qless.worker_name or socket.gethostname()
    return WorkerOptions(**values | {name: value for name, value in overrides.items() if value is not None})
