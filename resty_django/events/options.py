"""Options of `configure`. Pure."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Final

from resty_django.conf.sections.core import EventsSettings

from .errors import BadOption

_ABOVE_ZERO: Final = frozenset({"timeout"})
_WHOLE: Final = frozenset({"retries"})


@dataclass(frozen=True, slots=True)
class EventOptions:
    """The options have the same meaning as the settings; all but `retries` are in seconds."""

    timeout: float
    interval: float
    retries: int

    @classmethod
    def of(cls, settings: EventsSettings) -> EventOptions:
        return cls(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(cls)})

    def changed(self, **changes: object) -> EventOptions:
        """Return a copy with some options changed; None keeps a value. Raise `BadOption`."""
        changes = {name: value for name, value in changes.items() if value is not None}
        for name, value in changes.items():
            _check(name, value)
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


def _check(name: str, value: object) -> None:
    kind = "a whole number" if name in _WHOLE else "a number"
    kinds = int if name in _WHOLE else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not math.isfinite(value):
        raise BadOption(f"{name} must be {kind}, not {value!r}.")
    if value < 0 or (value == 0 and name in _ABOVE_ZERO):
        bound = "greater than 0" if name in _ABOVE_ZERO else "at least 0"
        raise BadOption(f"{name} must be {bound}, not {value!r}.")
