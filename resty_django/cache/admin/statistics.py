"""Figures and options of a cache for the admin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final

from django.utils import timezone
from django.utils.safestring import SafeString

from resty_django.admin.formatting import NONE, percent
from resty_django.admin.statistics import Key, why
from resty_django.admin.svg import Column, bars, peak
from resty_django.sansio import run
from resty_django.shdict import SharedDict
from resty_django.text import printable

from ..backend.store import Store
from ..invalidation.events import EventChannel
from ..inventory import CacheInfo
from ..mlcache.cache import MLCache
from ..statistics.counts import History, Slow, Span, Stats, summed

LEVELS: Final = {
    "l1": ("L1", "the memory of the process"),
    "l2": ("L2", "the shared dictionary"),
    "stale": ("Stale", "an expired value"),
    "l3": ("Source", "the callback"),
    "misses": ("Misses", "not found, without a callback"),
    "errors": ("Errors", "the call raised"),
}
UPWARDS: Final = ("errors", "l3", "misses", "stale", "l2", "l1")
"""The parts of a bar from bottom to top. Errors come first, so that even a few are visible."""
LONGEST_OPTION: Final = 500


@dataclass(frozen=True, slots=True)
class Answered:
    """The calls answered by one level, in the last hour and in total."""

    kind: str
    label: str
    help: str
    hour: str
    hour_share: str
    total: str
    total_share: str


@dataclass(frozen=True, slots=True)
class SlowKey:
    """A key with its longest callback. `token` identifies it in a URL; "" if the key was shortened."""

    text: str
    token: str
    took: str
    when: datetime
    times: int

    @classmethod
    def of(cls, slow: Slow) -> SlowKey:
        key = Key.of(slow.key)
        token = "" if slow.key.endswith("…") or "\ufffd" in slow.key else key.token
        return cls(key.text, token, seconds(slow.seconds), moment(slow.when), slow.times)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Figures of callbacks in a period. `saved`: calls that needed none; `saved_time`: what they would have taken."""

    label: str
    stats: Stats

    @property
    def mean(self) -> str:
        return mean(self.stats)

    @property
    def saved(self) -> str:
        return f"{self.stats.saved:,}"

    @property
    def saved_time(self) -> str:
        stats = self.stats
        return duration(stats.saved * stats.callback_seconds / stats.callbacks) if stats.callbacks else NONE


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a cache; `error` says why they are unavailable."""

    name: str
    kind: str
    where: str = ""
    error: str = ""
    history: History = field(default_factory=History)
    hour: Stats = field(default_factory=Stats)

    @property
    def calls(self) -> str:
        return f"{self.hour.calls:,}"

    @property
    def hits(self) -> str:
        return percent(self.hour.hit_ratio) if self.hour.calls else NONE

    @property
    def levels(self) -> list[Answered]:
        hour, total = self.hour, self.history.total
        return [
            Answered(
                kind,
                label,
                help,
                f"{getattr(hour, kind):,}",
                share(hour, kind),
                f"{getattr(total, kind):,}",
                share(total, kind),
            )
            for kind, (label, help) in LEVELS.items()
        ]

    @property
    def callbacks(self) -> list[Callbacks]:
        """Callback figures for the last hour and in total."""
        return [Callbacks("Last hour", self.hour), Callbacks("All", self.history.total)]

    @property
    def compression(self) -> str:
        """The shares saved by compression in the last hour and in total; "" if no value was to be compressed."""
        periods = (("in the last hour", self.hour), ("in total", self.history.total))
        return ", ".join(
            f"{percent(stats.compression)} {period}" for period, stats in periods if stats.compressible_bytes
        )

    @property
    def words(self) -> str:
        if not self.hour.calls:
            return "no calls in the last hour"
        parts = (f"{label} {share(self.hour, kind)}" for kind, (label, _) in LEVELS.items() if getattr(self.hour, kind))
        return f"{self.calls} calls in the last hour: {', '.join(parts)}"

    @property
    def spark(self) -> SafeString:
        """The chart of the last hour for a row of the list."""
        return bars(columns(self.history.minutes), width=150, height=18, label=self.words)

    @property
    def hour_chart(self) -> SafeString:
        return bars(columns(self.history.minutes), width=720, height=160, label=self.words)

    @property
    def days_chart(self) -> SafeString:
        stats = summed(self.history.hours)
        summary = f"{stats.calls:,} calls in the last two days, {percent(stats.hit_ratio)} of them from L1 or L2"
        return bars(columns(self.history.hours), width=720, height=120, label=summary)

    @property
    def minute_peak(self) -> str:
        return f"{peak(columns(self.history.minutes)):,}"

    @property
    def hour_peak(self) -> str:
        return f"{peak(columns(self.history.hours)):,}"

    @property
    def minute_rows(self) -> list[tuple[datetime, Stats, str]]:
        return rows(self.history.minutes)

    @property
    def hour_rows(self) -> list[tuple[datetime, Stats, str]]:
        return rows(self.history.hours)

    @property
    def slow(self) -> list[SlowKey]:
        return [SlowKey.of(slow) for slow in self.history.slow]


def figures(info: CacheInfo) -> Figures:
    """Return the figures of a cache. Never raise."""
    kind = kind_of(info)
    if info.counter is None:
        return Figures(info.name, kind, error=why(info.error) if info.error else "")
    where = dictionary_text(info.counter.dictionary)
    try:
        history = run(info.counter.history())
    except Exception as error:  # the page must load despite any error
        return Figures(info.name, kind, where, error=why(error))
    return Figures(info.name, kind, where, history=history, hour=summed(history.minutes))


def kind_of(info: CacheInfo) -> str:
    if isinstance(info.cache, Store):
        return "Django cache"
    return "cache" if info.cache is not None else NONE if info.error else "cache in other processes"


def dictionary_text(dictionary: SharedDict) -> str:
    return f"{dictionary.name} ({dictionary.engine})"


def columns(spans: Sequence[Span]) -> list[Column]:
    return [[(kind, getattr(span.stats, kind)) for kind in UPWARDS] for span in spans]


def rows(spans: Sequence[Span]) -> list[tuple[datetime, Stats, str]]:
    """Return the spans with calls, latest first, each with the share of hits."""
    return [
        (moment(span.start), span.stats, percent(span.stats.hit_ratio)) for span in reversed(spans) if span.stats.calls
    ]


def share(stats: Stats, kind: str) -> str:
    return percent(getattr(stats, kind) / stats.calls) if stats.calls else NONE


def mean(stats: Stats) -> str:
    return seconds(stats.callback_seconds / stats.callbacks) if stats.callbacks else NONE


def seconds(time: float) -> str:
    return f"{time:,.2f} s" if time >= 1 else f"{time * 1000:.1f} ms"


def duration(time: float) -> str:
    """Return a long duration in its largest unit."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if time >= 2 * length:
            return f"{time / length:,.0f} {unit}"
    return seconds(time)


def moment(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, tz=timezone.get_current_timezone())


def options(info: CacheInfo) -> list[tuple[str, str]]:
    """Return the cache's options as names and texts."""
    return [(name, printable(text, LONGEST_OPTION)) for name, text in _options(info.cache)]


def _options(cache: MLCache | Store | None) -> Iterator[tuple[str, str]]:
    if cache is None:
        return
    if isinstance(cache, Store):
        yield "LOCATION", dictionary_text(cache.dictionary)
        for name, value in cache.options._asdict().items():
            yield name.upper(), value_text(value)
        return
    yield "dictionary", dictionary_text(cache.dictionaries[0])
    for dictionary in cache.dictionaries[1:]:
        yield "shm_miss", dictionary_text(dictionary)
    yield "shm_locks", dictionary_text(cache.locks)
    yield "shm_stats", dictionary_text(cache.counter.dictionary)
    yield "lru_size", f"{cache.lru.max_items:,}"
    yield "ipc", "events" if isinstance(cache.channel, EventChannel) else value_text(cache.channel)
    for name, value in cache.compression.items():
        yield name, value_text(value)
    for option in fields(cache.options):
        yield option.name, value_text(getattr(cache.options, option.name))


def value_text(value: Any) -> str:
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', repr(value))}"
    if isinstance(value, tuple):
        return ", ".join(map(value_text, value)) or "none"
    return repr(value)
