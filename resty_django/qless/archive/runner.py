"""The thread of a worker that writes the archive, and how long it waits between passes."""

from __future__ import annotations

import time

from django.db import router

from resty_django.conf import conf
from resty_django.text import logger

from ..clients.client import Client
from ..models import ArchivedJob
from ..passes import BackgroundPasses
from .marks import redis_limits
from .writer import ArchiveWriter

MIN_PASS_SECONDS, MAX_PASS_SECONDS = 2.0, 60.0
"""Minimum and maximum time between two passes. Canceled jobs wait in Redis until the next one."""


def next_interval(keeps: float, kept: int, per_second: float) -> float:
    """Return the seconds until the next pass: a tenth of the time after which Redis deletes the jobs that end now.

    Redis keeps complete jobs for `keeps` seconds and at most `kept` of them; `per_second`: how many complete now.
    """
    horizon = max(0.0, keeps)
    if per_second > 0 and kept >= 0:
        horizon = min(horizon, kept / per_second)
    return max(MIN_PASS_SECONDS, min(MAX_PASS_SECONDS, 0.1 * horizon))


class Archiver(BackgroundPasses):
    """A thread that writes the archive until stopped."""

    name = "qless-archive"
    failure = "Jobs could not be archived"
    log = logger("resty_django.qless.archive")
    min_seconds, max_seconds = MIN_PASS_SECONDS, MAX_PASS_SECONDS

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self._writer = ArchiveWriter(client, self._pause)
        self._batch_start = self._last = time.monotonic()

    def databases(self) -> list[str]:
        return [router.db_for_write(ArchivedJob)]

    def pass_once(self) -> float:
        start = self._batch_start = time.monotonic()
        outcome = self._writer.run()
        rate = outcome.new_complete / max(1.0, start - self._last)
        self._last = start
        return next_interval(*redis_limits(self._client), rate)

    def _pause(self) -> bool:
        # pauses as long as it works, so that it slows down jobs little
        self.stopped.wait(min(MIN_PASS_SECONDS, time.monotonic() - self._batch_start))
        self._batch_start = time.monotonic()
        return not self.stopped.is_set()


def start_in_worker(client: Client) -> Archiver | None:
    """Start the thread in a worker process if the site has an archive that workers write. Return what to stop."""
    settings = conf.qless.archive
    if not settings.enabled or not settings.workers:
        return None
    archiver = Archiver(client)
    archiver.start()
    return archiver
