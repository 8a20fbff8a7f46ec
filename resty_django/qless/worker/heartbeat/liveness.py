"""The thread that reports that a worker process is alive, and which queues it serves."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from resty_django.redis import StoreError
from resty_django.text import logger

from ...errors import QlessError

if TYPE_CHECKING:
    from ...clients.client import Client

log = logger("resty_django.qless.worker")

INTERVAL: Final = 10.0
"""Seconds between two reports."""
JOIN_TIMEOUT: Final = 5.0
"""Seconds that `stop` waits for a report that is being sent."""


class LivenessReporter:
    """Reports every `INTERVAL` seconds, in its own thread. `dead`: workers that died, to be deregistered."""

    def __init__(self, client: Client, name: str, queues: Sequence[str], dead: Iterable[str] = ()) -> None:
        self._client = client
        self._name = name
        self._queues = tuple(queues)
        self._dead = tuple(dead)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qless-liveness", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and deregister the worker."""
        self._stopped.set()
        self._thread.join(JOIN_TIMEOUT)
        try:
            self._client.deregister_workers([self._name])
        except (QlessError, StoreError) as error:
            log.warning("worker %s could not be deregistered: %s", self._name, error)

    def _run(self) -> None:
        failing = False
        while not self._stopped.is_set():
            try:
                self._client.deregister_workers(self._dead)
                self._dead = ()
                self._client.call("worker.alive", self._name, *self._queues)
                failing = False
            except (QlessError, StoreError) as error:
                if not failing:
                    log.warning("worker %s could not report that it is alive: %s", self._name, error)
                failing = True
            self._stopped.wait(INTERVAL)
