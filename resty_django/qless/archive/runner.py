"""The thread of a worker that writes the archive, and how long it waits between passes."""

from __future__ import annotations

import threading
import time

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


class Archiver:
    """A thread that writes the archive until stopped. While the database is down, it retries ever less often."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qless-archive", daemon=True)
        self._batch_start = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(5)

    def _pause(self) -> bool:
        # pauses as long as it works, so that it slows down jobs little
        self._stopped.wait(min(MIN_PASS_SECONDS, time.monotonic() - self._batch_start))
        self._batch_start = time.monotonic()
        return not self._stopped.is_set()

    def _run(self) -> None:
        writer, failures, last = ArchiveWriter(self._client, self._pause), 0, time.monotonic()
        while not self._stopped.is_set():
            try:
                limit_connection(router.db_for_write(ArchivedJob), seconds=10)
                start = self._batch_start = time.monotonic()
                outcome = writer.run()
                rate = outcome.new_complete / max(1.0, start - last)
                last, failures = start, 0
                interval = next_interval(*redis_limits(self._client), rate)
            except Exception as error:  # the worker's jobs go on, whatever happens to the archive
                failures += 1
                if failures == 1:
                    log.warning("Jobs could not be archived; retrying: %s", described(error))
                interval = retry_interval(failures)
            finally:
                connections.close_all()
            self._stopped.wait(interval)


def start_in_worker(client: Client) -> Archiver | None:
    """Start the thread in a worker process if the site has an archive that workers write. Return what to stop."""
    settings = conf.qless.archive
    if not settings.enabled or not settings.workers:
        return None
    archiver = Archiver(client)
    archiver.start()
    return archiver
