"""Threads of a worker that make passes over its jobs; the one that writes the archive, and its interval."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

from django.db import connections, router

from resty_django.conf import conf
from resty_django.database import limit_connection
from resty_django.health import described
from resty_django.text import logger

from ..clients.client import Client
from ..models import ArchivedJob
from .marks import redis_limits
from .writer import ArchiveWriter

log = logger("resty_django.qless.archive")

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


def retry_interval(failures: int) -> float:
    """Return the seconds until the next attempt after a number of failed ones."""
    return min(MAX_PASS_SECONDS, MIN_PASS_SECONDS * 2.0 ** (min(failures, 10) - 1))


class MaintenanceThread:
    """A thread of a worker that makes passes until stopped. After errors, it retries ever less often."""

    name: ClassVar[str]
    failure: ClassVar[str]
    """The text that is logged with the first error."""
    pause_ratio: ClassVar[float] = 1.0
    """How much longer it pauses than it works, so that it slows down jobs little."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._step_start = 0.0

    def run_pass(self) -> float:
        """Make one pass. Return the seconds until the next one."""
        raise NotImplementedError

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(5)

    def pause(self) -> bool:
        """Pause after a step; return whether to continue."""
        self._stopped.wait(min(MIN_PASS_SECONDS, self.pause_ratio * (time.monotonic() - self._step_start)))
        self._step_start = time.monotonic()
        return not self._stopped.is_set()

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            self._step_start = time.monotonic()
            try:
                limit_connection(router.db_for_write(ArchivedJob), seconds=10)
                interval = self.run_pass()
                failures = 0
            except Exception as error:  # the worker's jobs go on, whatever happens here
                failures += 1
                if failures == 1:
                    log.warning("%s; retrying: %s", self.failure, described(error))
                interval = retry_interval(failures)
            finally:
                connections.close_all()
            self._stopped.wait(interval)


class Archiver(MaintenanceThread):
    """Writes the archive."""

    name = "qless-archive"
    failure = "Jobs could not be archived"

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


def start_in_worker(client: Client) -> Archiver | None:
    """Start the thread in a worker process if the site has an archive that workers write. Return what to stop."""
    settings = conf.qless.archive
    if not settings.enabled or not settings.workers:
        return None
    archiver = Archiver(client)
    archiver.start()
    return archiver
