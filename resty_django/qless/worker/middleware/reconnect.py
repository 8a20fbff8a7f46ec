"""Renewal of connections to other servers that may have broken since the last job."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from resty_django.text import logger

log = logger("resty_django.qless.worker")


class Reconnect:
    """Calls `alive(connection)` for each before a job; where that raises or is false, calls `renew(connection)`.

    Without functions they are `connection.ping()` and `connection.close()`, which suits clients of redis-py and the
    like: their next call connects again. For sync jobs.
    """

    def __init__(
        self,
        *connections: Any,
        alive: Callable[[Any], object] = lambda connection: connection.ping(),
        renew: Callable[[Any], object] = lambda connection: connection.close(),
    ) -> None:
        self.connections = connections
        self.alive, self.renew = alive, renew

    def __call__(self, job: Any) -> Generator[None, None, None]:
        for connection in self.connections:
            try:
                is_alive = self.alive(connection)
            except Exception as error:
                log.info("a connection is renewed before job %s: %s", job.jid, error)
                is_alive = False
            if not is_alive:
                self.renew(connection)
        yield
