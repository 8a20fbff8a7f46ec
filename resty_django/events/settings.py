"""The settings of events: `RESTY_DJANGO["EVENTS"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import above, at_least, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    """Events between processes.

    `dict`: the shared dictionary that carries them. `interval`: seconds between two looks for events (0: none in the
    background); Redis announces them by itself. `timeout`: seconds for which a unique value is taken. `wait_interval`
    and `wait_max`: seconds between two looks for an event whose data is missing, and until it is dropped. `retries`:
    further attempts to post where the dictionary is full. `keep`: about how many events a stream in Redis holds.
    `autostart`: the first request of a web worker starts it.
    """

    dict: str = setting("events", check=validators.known_dict)
    interval: float = setting(0.05, check=at_least(0))
    timeout: float = setting(2.0, check=above(0))
    wait_interval: float = setting(0.01, check=at_least(0))
    wait_max: float = setting(0.5, check=at_least(0))
    retries: int = setting(999, check=at_least(0))
    keep: int = setting(10_000, check=at_least(100))
    autostart: bool = setting(True)
