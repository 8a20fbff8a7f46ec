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

    @staticmethod
    def is_wanted() -> bool:
        return conf.qless.outbox.is_used and conf.qless.outbox.workers

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
