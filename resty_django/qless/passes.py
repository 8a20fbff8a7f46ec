"""A thread that repeats a pass over a database, in the background of a process."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from django.db import connections

from resty_django.database import limit_connection
from resty_django.health import described


class BackgroundPasses(ABC):
    """A thread that repeats a pass until it is stopped. After an error it tries again, ever less often.

    - `name`: of the thread. `failure`: begins the line in `log` about the first error.
    - `min_seconds`, `max_seconds`: the shortest and the longest time until the next attempt after an error.
    """

    name: str
    failure: str
    log: logging.Logger
    min_seconds = 2.0
    max_seconds = 60.0

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)

    @abstractmethod
    def pass_once(self) -> float:
        """Do one pass; return the seconds until the next one."""

    @abstractmethod
    def databases(self) -> Sequence[str]:
        """Return the aliases of the databases that passes use."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopped.set()
        if self._thread.ident is not None:
            self._thread.join(5)

    def run(self) -> None:
        """Repeat passes until `stop` is called in another thread."""
        failures = 0
        while not self.stopped.is_set():
            try:
                for alias in self.databases():
                    limit_connection(alias, seconds=10)
                interval = self.pass_once()
                failures = 0
            except Exception as error:  # the process goes on, whatever happens to this thread
                failures += 1
                if failures == 1:
                    self.log.warning("%s; retrying: %s", self.failure, described(error))
                interval = min(self.max_seconds, self.min_seconds * 2.0 ** (min(failures, 10) - 1))
            finally:
                connections.close_all()
            self.stopped.wait(interval)
