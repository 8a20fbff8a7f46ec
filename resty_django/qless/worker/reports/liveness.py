"""The thread that reports that a worker process is alive, which queues it serves, and its state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from resty_django.redis import StoreError
from resty_django.text import logger

from ...clients.transport import checked
from ...errors import QlessError

if TYPE_CHECKING:
    from ...clients.client import Client
    from .remote_control import RemoteControl

log = logger("resty_django.qless.worker")

REPORT_SECONDS: Final = 10.0
"""Interval between two reports."""


class LivenessReporter:
    """Reports every 10 seconds, and whenever `wake` is called, in its own thread.

    `dead`: workers that died, to be deregistered. `control`: if set, each report contains the worker's state, and the
    requests that the server returns are given to it.
    """

    def __init__(self, client: Client, name: str, queues: Sequence[str], dead: Iterable[str] = ()) -> None:
        self._client = client
        self._name = name
        self._queues = tuple(queues)
        self._dead = tuple(dead)
        self.control: RemoteControl | None = None
        self.on_round: Callable[[float], object] = lambda now: None
        """Called with the time (monotonic clock) before each report, also while the server is down."""
        self._stopped = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qless-liveness", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Report now. Callable from any thread."""
        self._woken.set()

    def stop(self) -> None:
        """End the thread and deregister the worker."""
        self._stopped.set()
        self._woken.set()
        self._thread.join(5.0)  # a report may be being sent
        try:
            self._client.deregister_workers([self._name])
        except (QlessError, StoreError) as error:
            log.warning("worker %s could not be deregistered: %s", self._name, error)

    def _run(self) -> None:
        failing = False
        while not self._stopped.is_set():
            self._woken.clear()
            self.on_round(time.monotonic())
            try:
                self._client.deregister_workers(self._dead)  # with their requests
                self._dead = ()
                self._report()
                failing = False
            except (QlessError, StoreError) as error:
                if not failing:
                    log.warning("worker %s could not report that it is alive: %s", self._name, error)
                failing = True
            except Exception:  # a fault in a report must not end the signs of life
                log.exception("worker %s could not report its state", self._name)
            if not self._stopped.wait(0.05):  # also if the server announces many requests
                self._woken.wait(REPORT_SECONDS)

    def _report(self) -> None:
        if self.control is None:
            self._client.call("worker.alive", self._name, *self._queues)
            return
        confirmed = self.control.confirmations()
        alive, requests = self._client.call_many(
            [
                ("worker.alive", self._name, *self._queues),
                ("worker.report", self._name, self.control.report(), *confirmed),
            ]
        )
        checked(alive)
        checked(requests)
        self.control.on_confirmed(confirmed)
        self.control.follow(requests)
