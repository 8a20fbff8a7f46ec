"""Hears of new jobs and of lost locks: one connection to the server, in a thread of its own."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..clients import Client

log = logging.getLogger("resty_django.qless.worker")

PAUSE: Final = 5.0
"""Seconds until it is tried again where the server refuses the channels."""


class Listener:
    """Calls `woken(queue)`, `lost(jid)`, and `subscribed()` each time that messages may have been missed before.

    The functions are called in the listener's thread. A queue that was told is not told again before `again(queue)`, so
    that a flood of puts costs a busy worker little.
    """

    def __init__(
        self,
        client: Client,
        queues: Sequence[str],
        worker: str,
        *,
        woken: Callable[[str], None],
        lost: Callable[[str], None],
        subscribed: Callable[[], None],
    ) -> None:
        self._queues = {f"wake:{queue}": queue for queue in queues}
        self._own = f"w:{worker}"
        self._woken, self._lost, self._subscribed = woken, lost, subscribed
        self._told: set[str] = set()
        self._ended = threading.Event()
        self._events = client.events()
        self._events.on_ready(self._ready)
        self._thread = threading.Thread(target=self._run, name="qless-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def again(self, queue: str) -> None:
        """To be called before a queue is asked."""
        self._told.discard(queue)

    def stop(self) -> None:
        self._ended.set()
        self._events.stop()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._events.listen([self._own, *self._queues], self._take)
            except Exception as error:  # the worker goes on, and looks for jobs by itself
                log.error("the server does not tell of new jobs, which are looked for instead: %s", error)
                self._ended.wait(PAUSE)

    def _ready(self) -> None:
        self._told.clear()
        self._subscribed()

    def _take(self, channel: str, message: str) -> None:
        queue = self._queues.get(channel)
        if queue is None:
            self._lost(str(json.loads(message)["jid"]))
        elif queue not in self._told:
            self._told.add(queue)
            self._woken(queue)


__all__ = ["Listener"]
