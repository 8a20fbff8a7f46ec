"""The thread of a worker that delivers the outbox."""

from __future__ import annotations

from typing import Final

from resty_django.conf import conf

from ..clients.client import Client
from ..passes import MaintenanceThread
from .delivery import Deliverer

PASS_SECONDS: Final = 2.0
"""Seconds between two looks for entries that are due."""


class OutboxRunner(MaintenanceThread):
    """Delivers the outbox."""

    name = "qless-outbox"
    failure = "The outbox could not be delivered"
    log_name = "resty_django.qless.outbox"
    max_retry_seconds = 15.0

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._deliverers = [Deliverer(client, alias) for alias in conf.qless.outbox.database]

    def databases(self) -> list[str]:
        return [deliverer.alias for deliverer in self._deliverers]

    def run_pass(self) -> float:
        for deliverer in self._deliverers:
            deliverer.run()
            deliverer.tidy()
        return PASS_SECONDS


def start_in_worker(client: Client) -> OutboxRunner | None:
    """Start the thread in a worker process if the site has an outbox that workers deliver. Return what to stop."""
    settings = conf.qless.outbox
    if not settings.is_used or not settings.workers:
        return None
    runner = OutboxRunner(client)
    runner.start()
    return runner
