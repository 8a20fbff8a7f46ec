"""Threads of a worker that repeat a pass: they write the archive, delete old jobs, deliver the outbox."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import ClassVar, Final

from django.db import connections, router

from resty_django.database import limit_connection
from resty_django.health import described
from resty_django.text import logger

from .clients.client import Client
from .models import ArchivedJob

MIN_PASS_SECONDS: Final = 2.0
"""Time until the first attempt after an error, and the maximum of a pause between two steps of a pass."""
MAX_PASS_SECONDS: Final = 60.0


def retry_interval(failures: int, most: float = MAX_PASS_SECONDS) -> float:
    """Return the seconds until the next attempt after a number of failed ones."""
    return min(most, MIN_PASS_SECONDS * 2.0 ** (min(failures, 10) - 1))


class MaintenanceThread(ABC):
    """A thread of a worker that makes passes until stopped. After errors, it retries ever less often."""

    name: ClassVar[str]
    failure: ClassVar[str]
    """The text that is logged with the first error."""
    log_name: ClassVar[str]
    pause_ratio: ClassVar[float] = 1.0
    """How much longer it pauses than it works, so that it slows down jobs little."""
    max_retry_seconds: ClassVar[float] = MAX_PASS_SECONDS

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)
        self._step_start = 0.0

    @staticmethod
    @abstractmethod
    def is_wanted() -> bool:
        """Return whether the settings of the site ask for these passes."""

    @abstractmethod
    def run_pass(self) -> float:
        """Make one pass. Return the seconds until the next one."""

    def databases(self) -> list[str]:
        """Return the aliases of the databases that a pass uses."""
        return [router.db_for_write(ArchivedJob)]

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

    def run(self) -> None:
        """Make passes until another thread calls `stop`."""
        failures = 0
        while not self._stopped.is_set():
            self._step_start = time.monotonic()
            try:
                for alias in self.databases():
                    limit_connection(alias, seconds=10)
                interval = self.run_pass()
                failures = 0
            except Exception as error:  # the worker's jobs go on, whatever happens here
                failures += 1
                if failures == 1:
                    logger(self.log_name).warning("%s; retrying: %s", self.failure, described(error))
                interval = retry_interval(failures, self.max_retry_seconds)
            finally:
                connections.close_all()
            self._stopped.wait(interval)
