"""Options of a cache: `CacheOptions`, which a call may override, and `CacheSetup`, which is fixed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from resty_django import extras
from resty_django.lock import Lock
from resty_django.shdict import SharedDict
from resty_django.text.durations import DURATION, Duration, is_number, parse_duration, seconds_of
from resty_django.text.suggestions import did_you_mean

from ..broadcasts.channel import InvalidationChannel
from ..errors import BadOption
from ..storage.compression import ALGORITHMS, COMPRESS_ABOVE_BYTES, MAX_DECOMPRESSED_BYTES, option_faults
from ..tags.names import Tags
from ..tags.names import fault as tags_fault
from .results import Serializer


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """The options of a cache or of one call. Times are in seconds; `changed` also takes timedeltas and texts ("10m").

    `ttl`, `neg_ttl`: the time to live of a value and of None (0: forever). `error_ttl`: the time for which an error of
    the callback is raised again in all processes, in place of calling it (0: not at all). `resurrect_ttl`: the time to
    live of an expired value that is served because the callback raised `SourceError` (0: forever; None: none is
    served).
    `stale_while_revalidate`: the time after its expiry during which a value is served at once, while one process calls
    the callback in the background (0: none). `jitter`: `ttl` and `neg_ttl` are shortened by a random share of up to
    this, so that values stored together do not expire together. `shm_set_tries`: attempts to store in L2 when it is
    full. `l1_serializer`: a function that converts a value to the object that L1 stores and the call returns.
    `lock_options`: the options of `resty_django.lock.Lock`. `failures`: exceptions of the callback that count as
    `SourceError`. `tags`: tags of the value, or a function that takes the callback's arguments and returns them.
    `on_error`: while the store of L2 is down, "source" serves L1 and calls the callback, "raise" raises
    `resty_django.shdict.Unavailable`. `outage_ttl`: the time to live, in L1 alone, of a value that is stored meanwhile.
    `stale_if_outage`: the time after its expiry during which a value in L1 is served meanwhile. `early`: the factor
    beta of probabilistic early recomputation (1.0: as in its paper; 0 or None: none).
    """

    ttl: float = 30.0
    neg_ttl: float = 5.0
    error_ttl: float = 0.0
    resurrect_ttl: float | None = None
    stale_while_revalidate: float = 0.0
    jitter: float = 0.0
    shm_set_tries: int = 3
    l1_serializer: Callable[[Any], object] | None = None
    lock_options: Mapping[str, float] = field(default_factory=dict)
    failures: tuple[type[Exception], ...] = ()
    tags: Tags = ()
    on_error: str = "source"
    outage_ttl: float = 5.0
    stale_if_outage: float = 60.0
    early: float | None = None

    def changed(self, changes: Mapping[str, object]) -> CacheOptions:
        """Return a copy with some options changed. Raise `BadOption`."""
        return dataclasses.replace(self, **checked(changes)) if changes else self


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSetup:
    """The options that are fixed when a cache is created; see `MLCache`. Raise `BadOption` and `MissingExtra`."""

    name: str
    lru_size: int = 100
    shm_miss: SharedDict | str | None = None
    shm_locks: SharedDict | str | None = None
    shm_stats: SharedDict | str | None = None
    ipc: InvalidationChannel | Literal["events"] | None = "events"
    serializer: Serializer | None = None
    compress: Literal["zlib", "zstd"] | None = None
    compress_above: int = COMPRESS_ABOVE_BYTES
    decompress_limit: int = MAX_DECOMPRESSED_BYTES

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or ":" in self.name:
            raise BadOption(f"name must be a non-empty string without a colon, not {self.name!r}.")
        if self.ipc is not None and self.ipc != "events" and not callable(getattr(self.ipc, "broadcast", None)):
            raise BadOption(
                f'ipc must be "events", None, or have register_listeners() and broadcast(), not {self.ipc!r}.'
            )
        if self.serializer is not None and not all(hasattr(self.serializer, name) for name in ("encode", "decode")):
            raise BadOption(f"serializer must be an object with encode() and decode(), not {self.serializer!r}.")
        for fault in option_faults(self.compression):
            raise BadOption(fault)
        if self.compress is not None:
            extras.require(f'compress="{self.compress}" needs', *ALGORITHMS[self.compress].modules)

    @property
    def compression(self) -> dict[str, object]:
        """The options of the compression by name."""
        return {name: getattr(self, name) for name in ("compress", "compress_above", "decompress_limit")}


class ViewOptions(TypedDict, total=False):
    """Keyword arguments of `cache_view`: fields of `CacheOptions`."""

    neg_ttl: Duration
    resurrect_ttl: Duration | None
    stale_while_revalidate: Duration
    jitter: float
    shm_set_tries: int
    lock_options: Mapping[str, float]
    failures: tuple[type[Exception], ...]
    tags: Tags
    on_error: str
    outage_ttl: Duration
    stale_if_outage: Duration
    early: float | None


class CallOptions(ViewOptions, total=False):
    """Keyword arguments of a cache's calls: the fields of `CacheOptions`."""

    ttl: Duration
    error_ttl: Duration
    l1_serializer: Callable[[Any], object] | None


class MLCacheOptions(CallOptions, total=False):
    """Keyword arguments of `MLCache`: the fields of `CacheSetup` and `CacheOptions`."""

    lru_size: int
    shm_miss: SharedDict | str | None
    shm_locks: SharedDict | str | None
    shm_stats: SharedDict | str | None
    ipc: InvalidationChannel | Literal["events"] | None
    serializer: Serializer | None
    compress: Literal["zlib", "zstd"] | None
    compress_above: int
    decompress_limit: int


def checked(options: Mapping[str, object]) -> dict[str, Any]:
    """Return the options with times in seconds. Raise `BadOption` as `check`."""
    check(options)
    return {
        name: parse_duration(value) if name in _DURATIONS and isinstance(value, str | timedelta) else value
        for name, value in options.items()
    }


def check(options: Mapping[str, object]) -> None:
    """Raise `BadOption` for the first option that is unknown or invalid."""
    for name, value in options.items():
        if name not in _CHECKS:
            hint = did_you_mean(name, _CHECKS, f"Options: {', '.join(_CHECKS)}.", quote="")
            raise BadOption(f"{name} is not an option of a cache. {hint}")
        fault = _CHECKS[name](value)
        if fault:
            raise BadOption(f"{name} must be {fault}, not {value!r}.")


def _seconds(value: object) -> str:
    seconds = seconds_of(value)
    return "" if seconds is not None and seconds >= 0 else f"{DURATION} of at least 0"


def _seconds_or_none(value: object) -> str:
    return "" if value is None or not _seconds(value) else f"None, or {DURATION} of at least 0"


def _positive(value: object) -> str:
    seconds = seconds_of(value)
    return "" if seconds is not None and seconds > 0 else f"{DURATION} greater than 0"


def _on_error(value: object) -> str:
    return "" if type(value) is str and value in ("source", "raise") else "'source' or 'raise'"


def _share(value: object) -> str:
    return "" if is_number(value) and 0 <= value < 1 else "a number of at least 0 and less than 1"


def _factor(value: object) -> str:
    return "" if value is None or (is_number(value) and value >= 0) else "None or a number of at least 0"


def _count(value: object) -> str:
    return "" if type(value) is int and value >= 1 else "an integer of at least 1"


def _function(value: object) -> str:
    return "" if value is None or callable(value) else "None or a function"


def _lock_options(value: Any) -> str:
    try:
        Lock(**value)
    except (TypeError, ValueError) as error:
        return f"a dict of lock options ({error})"
    return ""


def _exceptions(value: object) -> str:
    valid = isinstance(value, tuple) and all(isinstance(kind, type) and issubclass(kind, Exception) for kind in value)
    return "" if valid else "a tuple of exception classes"


_DURATIONS: Final[Mapping[str, Callable[[object], str]]] = {
    "ttl": _seconds,
    "neg_ttl": _seconds,
    "error_ttl": _seconds,
    "resurrect_ttl": _seconds_or_none,
    "stale_while_revalidate": _seconds,
    "outage_ttl": _positive,
    "stale_if_outage": _seconds,
}
_CHECKS: Final[Mapping[str, Callable[[object], str]]] = {
    **_DURATIONS,
    "jitter": _share,
    "shm_set_tries": _count,
    "l1_serializer": _function,
    "lock_options": _lock_options,
    "failures": _exceptions,
    "tags": tags_fault,
    "on_error": _on_error,
    "early": _factor,
}
"""By option, a function that returns what its value must be; "" if it is valid."""
