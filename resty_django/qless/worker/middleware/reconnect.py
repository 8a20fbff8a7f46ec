"""Connections to other servers that may have broken since the last job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any

log = logging.getLogger("resty_django.qless.worker")


class Reconnect:
    """Before each job asks `alive(connection)` of each; where that raises or is false, calls `renew(connection)`.

    Without functions they are `connection.ping()` and `connection.close()`, which suits clients of redis-py and the
    like: their next call connects anew. For sync jobs.
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
                fine = self.alive(connection)
            except Exception as error:
                log.info("a connection is renewed before job %s: %s", job.jid, error)
                fine = False
            if not fine:
                self.renew(connection)
        yield


__all__ = ["Reconnect"]
