"""Renewal of connections to other servers that may have broken since the last job."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from resty_django.text import logger

from .job import WorkerJob

log = logger("resty_django.qless.worker")


class Reconnect:
    """Calls `alive(connection)` for each connection before a job; if it raises or is false, calls `renew(connection)`.

    The defaults call `connection.ping()` and `connection.close()`. They suit redis-py and similar clients, which
    reconnect on their next call. For sync jobs.
    """

    def __init__(
        self,
        *connections: Any,
        alive: Callable[[Any], object] = lambda connection: connection.ping(),
        renew: Callable[[Any], object] = lambda connection: connection.close(),
    ) -> None:
        self.connections = connections
        self.alive, self.renew = alive, renew

    def __call__(self, job: WorkerJob) -> Generator[None, None, None]:
        for connection in self.connections:
            try:
                is_alive = self.alive(connection)
            except Exception as error:
                log.info("renewing a connection before job %s: %s", job.jid, error)
                is_alive = False
            if not is_alive:
                self.renew(connection)
        yield
