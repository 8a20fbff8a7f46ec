"""Outages of the server of the job queue, as a worker sees them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeGuard

from resty_django.redis.errors import StoreError
from resty_django.text import logger

from ..clients.transport import is_refusal

log = logger("resty_django.qless.worker")


class ServerOutage:
    """Whether the server fails to answer, and the pauses between calls: 0.1 seconds, then twice as long, up to 5."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._pause = 0.0

    @property
    def is_ongoing(self) -> bool:
        return self._since is not None

    def on_error(self, error: StoreError) -> float:
        """Return when to call the server again."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            log.error("the job queue's server cannot be used; running jobs continue, calls are retried: %s", error)
        self._pause = min(self._pause * 2 or 0.1, 5.0)
        return now + self._pause

    def on_success(self) -> None:
        if self._since is not None:
            log.warning("the job queue's server can be used again after %.1f s", time.monotonic() - self._since)
            self._since, self._pause = None, 0.0


def is_outage(reply: object) -> TypeGuard[StoreError]:
    """Return whether a reply is an error that any call would get now, not a refusal of this call."""
    return isinstance(reply, StoreError) and not is_refusal(reply)


def raise_outage(replies: Sequence[object]) -> None:
    """Raise the first reply that shows an outage."""
    for reply in replies:
        if is_outage(reply):
            raise reply
