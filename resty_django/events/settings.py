"""Settings for events: `RESTY_DJANGO["EVENTS"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import above, at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    """Events between processes.

    `dict`: the shared dictionary for events. `interval`: polling interval in seconds (0: no background polling), not
    needed with Redis, which notifies listeners. `timeout`: seconds during which a unique value is claimed.
    `retries`: retries of `post` while the dictionary is full. `keep`: approximate number of events in a Redis stream.
    `autostart`: whether a web worker's first request starts the listener.
    """

    dict: str = setting("events", check=validators.known_dict)
    interval: float = setting(0.01, check=at_least(0))
    timeout: float = setting(2.0, check=above(0))
    retries: int = setting(999, check=at_least(0))
    keep: int = setting(10_000, check=at_least(100))
    autostart: bool = setting(True)
