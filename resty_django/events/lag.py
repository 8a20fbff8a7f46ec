"""How far this process is behind the last event."""

from __future__ import annotations

import time
from typing import NamedTuple

from . import process
from .service import UNKNOWN


class Lag(NamedTuple):
    """`waiting`: events that this process has not heard yet, as far as they are kept (None: it does not listen).
    `seconds`: what it took to ask for the last one."""

    waiting: int | None
    seconds: float

    @property
    def listening(self) -> bool:
        return self.waiting is not None


def lag() -> Lag:
    """The lag of this process. Raises `SharedDictError`."""
    channel, _ = process.of_site()
    started = time.perf_counter()
    last = channel.last()
    seconds = time.perf_counter() - started
    service = process.service()
    if service.channel is None or service.handled is UNKNOWN:
        return Lag(None, seconds)
    return Lag(service.channel.between(service.handled, last), seconds)


__all__ = ["Lag", "lag"]
