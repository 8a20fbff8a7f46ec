"""The options of a cache that a call may replace."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from resty_django.lock import Lock

from .errors import BadOption


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Times are seconds, and 0 is for ever where not told otherwise.

    `ttl`: a value lives so long. `neg_ttl`: so long does None. `resurrect_ttl`: when the callback raises
    `SourceError`, an expired value is served for so long (None: not at all). `stale_while_revalidate`: so long after
    its time an expired value is served at once, while one process calls the callback in the background (0: not at
    all). `jitter`: `ttl` and `neg_ttl` are shortened by a random share of up to this, so that what was stored together
    does not expire together. `shm_set_tries`: attempts to store in L2 when it has no room. `l1_serializer`: function
    from the value to what L1 keeps and the call returns. `lock_options`: those of `resty_django.lock.Lock`.
    `failures`: exceptions of the callback that count as `SourceError`.
    """

    ttl: float = 30.0
    neg_ttl: float = 5.0
    resurrect_ttl: float | None = None
    stale_while_revalidate: float = 0.0
    jitter: float = 0.0
    shm_set_tries: int = 3
    l1_serializer: Callable[[Any], Any] | None = None
    lock_options: Mapping[str, float] = field(default_factory=dict)
    failures: tuple[type[Exception], ...] = ()

    def changed(self, given: Mapping[str, Any]) -> Options:
        """These options with some others. Raises `BadOption`."""
        check(given)
        return dataclasses.replace(self, **given) if given else self

    def life(self, value: Any) -> float:
        """Seconds that a value of the source lives, 0 for ever."""
        ttl = self.neg_ttl if value is None else self.ttl
        return ttl * (1 - self.jitter * random.random()) if self.jitter else ttl  # noqa: S311

    @property
    def uses_stale(self) -> bool:
        """Whether an expired value is of any use."""
        return self.resurrect_ttl is not None or self.stale_while_revalidate > 0


def check(given: Mapping[str, Any]) -> None:
    """Raises `BadOption` for the first that is wrong."""
    for name, value in given.items():
        if name not in _CHECKS:
            raise BadOption(f"{name} is not an option of a cache. There are {', '.join(_CHECKS)}.")
        fault = _CHECKS[name](value)
        if fault:
            raise BadOption(f"{name} must be {fault}, not {value!r}.")


def is_number(value: object) -> bool:
    """Whether it is a finite number, and not True or False."""
    kind = type(value)
    return (kind is float or kind is int) and math.isfinite(value)  # type: ignore[arg-type]


def _seconds(value: Any) -> str:
    return "" if is_number(value) and value >= 0 else "a number of seconds of at least 0"


def _seconds_or_none(value: Any) -> str:
    return "" if value is None or not _seconds(value) else "None or a number of seconds of at least 0"


def _share(value: Any) -> str:
    return "" if is_number(value) and 0 <= value < 1 else "a number of at least 0 and less than 1"


def _count(value: Any) -> str:
    return "" if type(value) is int and value >= 1 else "a whole number of at least 1"


def _function(value: Any) -> str:
    return "" if value is None or callable(value) else "None or a function"


def _lock_options(value: Any) -> str:
    try:
        Lock(**value)
    except (TypeError, ValueError) as error:
        return f"a dict of options of a lock ({error})"
    return ""


def _exceptions(value: Any) -> str:
    good = isinstance(value, tuple) and all(isinstance(one, type) and issubclass(one, Exception) for one in value)
    return "" if good else "a tuple of classes of exceptions"


_CHECKS: Final[Mapping[str, Callable[[Any], str]]] = {
    "ttl": _seconds,
    "neg_ttl": _seconds,
    "resurrect_ttl": _seconds_or_none,
    "stale_while_revalidate": _seconds,
    "jitter": _share,
    "shm_set_tries": _count,
    "l1_serializer": _function,
    "lock_options": _lock_options,
    "failures": _exceptions,
}

__all__ = ["Options", "check", "is_number"]
