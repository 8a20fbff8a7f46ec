"""What a worker is told: by the settings, and by the command line over them."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from resty_django.conf import conf

from .reservers import RESERVERS, Reserver


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`interval`, `grace`: seconds. `interrupt`: whether sync jobs are interrupted when they are lost, and when the
    grace time ends. `name`: what the names of the processes begin with. `via`: "celery": others run the jobs."""

    queues: tuple[str, ...]
    reserver: str
    concurrency: int
    processes: int
    interval: float
    grace: float
    interrupt: bool
    name: str
    via: str = ""

    def make_reserver(self) -> Reserver:
        """Raises `ImproperlyConfigured`."""
        made: Any = RESERVERS.get(self.reserver)
        if made is None:
            try:
                made = import_string(self.reserver)
            except ImportError as error:
                names = ", ".join(RESERVERS)
                raise ImproperlyConfigured(
                    f"The reserver {self.reserver!r} is none of {names}, and no path of a class either: {error}"
                ) from error
        return made(self.queues)  # type: ignore[no-any-return]


def options(**given: Any) -> Options:
    """Those of the settings; what is given and not None takes their place. Raises `ImproperlyConfigured`."""
    worker = conf.qless.worker
    values: dict[str, Any] = {
        "queues": worker.queues,
        "reserver": worker.reserver,
        "concurrency": worker.concurrency,
        "processes": worker.processes,
        "interval": worker.interval,
        "grace": worker.grace,
        "interrupt": worker.interrupt,
        "name": conf.qless.worker_name or socket.gethostname(),
    }
    values.update({name: value for name, value in given.items() if value is not None})
    return Options(**values)


__all__ = ["Options", "options"]
