"""The thread of a worker that writes the archive, and how long it waits between passes."""

from __future__ import annotations

import time

from resty_django.conf import conf

from ..clients.client import Client
from ..passes import MAX_PASS_SECONDS, MIN_PASS_SECONDS, MaintenanceThread
from .marks import redis_limits
from .writer import ArchiveWriter


def next_interval(keeps: float, kept: int, per_second: float) -> float:
    """Return the seconds until the next pass: a tenth of the time after which Redis deletes the jobs that end now.

    Redis keeps complete jobs for `keeps` seconds and at most `kept` of them; `per_second`: how many complete now.
    """
    horizon = max(0.0, keeps)
    if per_second > 0 and kept >= 0:
        horizon = min(horizon, kept / per_second)
    return max(MIN_PASS_SECONDS, min(MAX_PASS_SECONDS, 0.1 * horizon))


class Archiver(MaintenanceThread):
    """Writes the archive."""

    name = "qless-archive"
    failure = "Jobs could not be archived"
    log_name = "resty_django.qless.archive"

    @staticmethod
    def is_wanted() -> bool:
        return conf.qless.archive.enabled and conf.qless.archive.workers

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._writer = ArchiveWriter(client, self.pause)
        self._last = time.monotonic()

    def run_pass(self) -> float:
        start = time.monotonic()
        outcome = self._writer.run()
        rate = outcome.new_complete / max(1.0, start - self._last)
        self._last = start
        return next_interval(*redis_limits(self._client), rate)
