"""The statistics record of a cache: totals, counts per minute and hour, and the slowest and most missed keys. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from resty_django.minute_series import records
from resty_django.minute_series.records import Counts
from resty_django.minute_series.top_keys import FrequentKey, merged

MAX_SLOW_KEYS: Final = 20
"""Number of slowest keys that are listed."""
MAX_MISSED_KEYS: Final = 20
"""Number of most missed keys that are listed."""
MAX_LISTED_KEY_LENGTH: Final = 200
"""Maximum length of a listed key in characters; longer keys are shortened."""


@dataclass(slots=True)
class CacheStats:
    """Calls by level, and callback figures."""

    l1: int = 0
    """Calls that L1 answered."""
    l2: int = 0
    """Calls that L2 answered."""
    l3: int = 0
    """Calls that the callback answered."""
    stale: int = 0
    """Calls that a stale value answered."""
    misses: int = 0
    """Calls without a value and without a callback."""
    errors: int = 0
    """Calls that raised an error."""
    callbacks: int = 0
    """Callbacks that ran."""
    callback_seconds: float = 0.0
    """The time that callbacks took."""
    callback_errors: int = 0
    """Callbacks that failed."""
    storeless: int = 0
    """Reads and writes without L2, because its store was down. Reads are also counted by level."""
    compressible_bytes: int = 0
    """The size of the values to compress before compression."""
    compressed_bytes: int = 0
    """Their size after compression."""
    expired: int = 0
    """Calls of `l3` and `misses` whose value had expired."""
    invalidated: int = 0
    """The same for values that a tag, a deletion or a purge invalidated."""
    evicted: int = 0
    """The same for values that were evicted for lack of space."""
    new: int = 0
    """The same for keys that the process has not seen before."""

    @property
    def calls(self) -> int:
        return self.l1 + self.l2 + self.l3 + self.stale + self.misses + self.errors

    @property
    def hit_ratio(self) -> float:
        """Return the share of calls answered by L1 or L2; 0 without calls."""
        return self.saved / self.calls if self.calls else 0.0

    @property
    def compression(self) -> float:
        """Return the share of bytes saved by compression; 0 without values to compress."""
        return 1 - self.compressed_bytes / self.compressible_bytes if self.compressible_bytes else 0.0

    @property
    def saved(self) -> int:
        """Return the number of calls that needed no callback."""
        return self.l1 + self.l2 + self.stale

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self.__slots__)

    def reset(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)


class Slow(NamedTuple):
    """A key's longest callback: its duration in seconds, its end in epoch seconds, and the number of runs."""

    key: str
    seconds: float
    when: float
    times: int = 1

    def plus(self, same_key: Slow) -> Slow:
        slower = max(self, same_key, key=_seconds)
        return Slow(self.key, slower.seconds, slower.when, self.times + same_key.times)


class CacheHistory(records.CountHistory[CacheStats]):
    """The counts of all processes, the slowest keys of the last two days, and the keys with the most callbacks in this
    hour and the previous one."""

    @property
    def slow(self) -> list[Slow]:
        return _slow(self.stored, self.now)

    @property
    def missed(self) -> list[FrequentKey]:
        by_hour, hour = missed_by_hour(self.stored), int(self.now // 3600)
        return merged(by_hour.get(hour, ()), by_hour.get(hour - 1, ()), MAX_MISSED_KEYS)


def added(
    stored: object, news: Counts, now: float, slow: Iterable[Slow] = (), missed: Iterable[FrequentKey] = ()
) -> dict[str, Any]:
    """Return the record with a process's new counts, slowest and most missed keys added at `now` (epoch seconds)."""
    keys = {slow_key.key: slow_key for slow_key in _slow(stored, now)}
    for slow_key in slow:
        key = slow_key.key
        keys[key] = slow_key.plus(keys[key]) if key in keys else slow_key
    record = records.added(stored, news, now, hours=True)
    hour = int(now // 3600)
    by_hour = {at: rows for at, rows in missed_by_hour(stored).items() if abs(at - hour) <= 1}
    by_hour[hour] = merged(by_hour.get(hour, ()), missed, MAX_MISSED_KEYS)
    return {
        **record,
        "slow": [list(slow_key) for slow_key in slowest(keys.values())],
        "missed": [[at, *entry] for at, entries in sorted(by_hour.items()) for entry in entries],
    }


def history(stored: object, now: float) -> CacheHistory:
    """Return the history in a record as of `now`; an empty one if it is not a record."""
    return CacheHistory(stored, CacheStats(), now)


def shortened(key: str) -> str:
    """Return a key for the list. A lone surrogate becomes U+FFFD, because a dictionary cannot store it."""
    text = key if len(key) <= MAX_LISTED_KEY_LENGTH else key[: MAX_LISTED_KEY_LENGTH - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode(errors="replace")


def _slow(stored: Any, now: float) -> list[Slow]:
    oldest = now - records.HOURS * 3600  # the end of the longest callback of a listed key
    try:
        return [slow_key for slow_key in (Slow(*row) for row in stored["slow"]) if slow_key.when > oldest]
    except (KeyError, TypeError, ValueError):
        return []


def missed_by_hour(stored: Any) -> dict[int, list[FrequentKey]]:
    """Return the keys with the most callbacks in a record, by hour since the epoch."""
    by_hour: dict[int, list[FrequentKey]] = {}
    try:
        for at, key, times, error in stored["missed"]:
            by_hour.setdefault(int(at), []).append(FrequentKey(str(key), int(times), int(error)))
    except (KeyError, TypeError, ValueError):
        return {}
    return by_hour


def slowest(keys: Iterable[Slow]) -> list[Slow]:
    return sorted(keys, key=_seconds, reverse=True)[:MAX_SLOW_KEYS]


def _seconds(slow_key: Slow) -> float:
    return slow_key.seconds
