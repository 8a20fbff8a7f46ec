"""The thread that receives notifications of new jobs and lost locks, on one connection to the server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from resty_django.text import logger

if TYPE_CHECKING:
    from ..clients.client import Client

log = logger("resty_django.qless.worker")


class JobListener:
    """Calls `on_job_available(queue)`, `on_lock_lost(jid)`, `on_request()` when an operator has sent a request, and
    `on_reconnect()` after messages may have been missed.

    The functions are called in the listener's thread. A queue is reported only once until `rearm(queue)` is called, so
    that a flood of puts costs a busy worker little.
    """

    def __init__(
        self,
        client: Client,
        queues: Sequence[str],
        worker: str,
        *,
        on_job_available: Callable[[str], None],
        on_lock_lost: Callable[[str], None],
        on_reconnect: Callable[[], None],
        on_request: Callable[[], None] = lambda: None,
    ) -> None:
        self._queues = {f"wake:{queue}": queue for queue in queues}
        self._worker_channel = f"w:{worker}"
        self.on_job_available, self.on_lock_lost, self.on_reconnect = on_job_available, on_lock_lost, on_reconnect
        self.on_request = on_request
        self._reported: set[str] = set()
        self.rearm: Final = self._reported.discard
        """Takes a queue, and reports it again at its next message. Call this before polling the queue."""
        self._stopped = threading.Event()
        self._events = client.events()
        self._events.on_ready(self._on_ready)
        self.thread = threading.Thread(target=self._run, name="qless-listener", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._events.stop()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._events.listen([self._worker_channel, *self._queues], self._on_message)
            except Exception as error:  # the worker continues, and polls
                log.error("no notifications of new jobs; polling the queues instead: %s", error)
                self._stopped.wait(5.0)

    def _on_ready(self) -> None:
        self._reported.clear()
        self.on_reconnect()
        self.on_request()

    def _on_message(self, channel: str, message: str) -> None:
        queue = self._queues.get(channel)
        if queue is None:
            event = json.loads(message)
            if event.get("event") == "request":
                self.on_request()
            else:
                self.on_lock_lost(str(event["jid"]))
        elif queue not in self._reported:
            self._reported.add(queue)
            self.on_job_available(queue)
