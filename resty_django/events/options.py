"""Options of `configure`. Pure."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from resty_django.conf.sections.core import EventsSettings

from .errors import BadOption


@dataclass(frozen=True, slots=True)
class EventOptions:
    """Options with the same meaning as the settings; all but `retries` are in seconds."""

    timeout: float
    interval: float
    retries: int

    @classmethod
    def of(cls, settings: EventsSettings) -> EventOptions:
        return cls(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(cls)})

    def changed(self, timeout: object = None, interval: object = None, retries: object = None) -> EventOptions:
        """Return a copy with some options changed; None keeps a value. Raise `BadOption`."""
        if retries is not None and (not isinstance(retries, int) or isinstance(retries, bool)):
            raise BadOption(f"retries must be a whole number, not {retries!r}.")
        changed = EventOptions(
            self.timeout if timeout is None else _number("timeout", timeout),
            self.interval if interval is None else _number("interval", interval),
            self.retries if retries is None else retries,
        )
        if not changed.timeout > 0:
            raise BadOption(f"timeout must be greater than 0, not {timeout!r}.")
        for name, value in (("interval", changed.interval), ("retries", changed.retries)):
            if value < 0:
                raise BadOption(f"{name} must be at least 0, not {value!r}.")
        return changed


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise BadOption(f"{name} must be a number, not {value!r}.")
    return value
