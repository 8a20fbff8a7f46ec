"""Figures and options of a cache for the admin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django.admin.chart_axes import TimeUnit, Unit, time_axis
from resty_django.admin.charts import Chart, Series, sparkline
from resty_django.admin.formatting import NONE, duration, local_time, number, percent
from resty_django.admin.statistics import KeyView, why
from resty_django.minute_series.records import PeriodCounts, summed
from resty_django.minute_series.top_keys import FrequentKey
from resty_django.shdict import SharedDict
from resty_django.text import printable

from ..backend.store import BackendStore
from ..broadcasts.events import EventChannel
from ..facts import CacheFacts
from ..inventory import CacheInfo
from ..mlcache.cache import MLCache
from ..statistics.counts import CacheHistory, CacheStats, Slow

LEVELS: Final = {
    "l1": (gettext_lazy("L1"), gettext_lazy("the memory of the process")),
    "l2": (gettext_lazy("L2"), gettext_lazy("the shared dictionary")),
    "stale": (gettext_lazy("Stale"), gettext_lazy("an expired value")),
    "l3": (gettext_lazy("Source"), gettext_lazy("the callback")),
    "misses": (gettext_lazy("Misses"), gettext_lazy("not found, without a callback")),
    "errors": (gettext_lazy("Errors"), gettext_lazy("the call raised")),
}
MISS_REASONS: Final = {
    "new": gettext_lazy("Never there"),
    "expired": gettext_lazy("Expired"),
    "invalidated": gettext_lazy("Invalidated"),
    "evicted": gettext_lazy("Evicted"),
}
CHART_PERIODS: Final = {"hour": gettext_lazy("Last hour"), "days": gettext_lazy("Last two days")}


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
    seconds: float

    @classmethod
    def of(cls, slow: Slow) -> SlowKey:
        key = KeyView.of(slow.key)
        return cls(
            key.text, token_of(slow.key), duration(slow.seconds), local_time(slow.when), slow.times, slow.seconds
        )


@dataclass(frozen=True, slots=True)
class MissedKey:
    """A key with the count of its callbacks, which is a range if the list was too short to count all keys."""

    text: str
    token: str
    count: str
    times: int

    @classmethod
    def of(cls, entry: FrequentKey) -> MissedKey:
        key = KeyView.of(entry.key)
        least = entry.times - entry.error
        count = f"{number(least)} – {number(entry.times)}" if entry.error else number(entry.times)
        return cls(key.text, token_of(entry.key), count, entry.times)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Figures of callbacks in a period. `saved`: calls that needed none; `saved_time`: what they would have taken."""

    label: str
    stats: CacheStats

    @property
    def mean(self) -> str:
        return mean(self.stats)

    @property
    def saved(self) -> str:
        return number(self.stats.saved)

    @property
    def saved_time(self) -> str:
        stats = self.stats
        return duration(stats.saved * stats.callback_seconds / stats.callbacks) if stats.callbacks else NONE


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """The state of a cache as texts and charts; `error` says why its counts are unavailable."""

    facts: CacheFacts

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def kind(self) -> str:
        return kind_of(self.facts.info)

    @property
    def where(self) -> str:
        return "" if self.facts.info.counter is None else dictionary_text(self.facts.info.counter.dictionary)

    @property
    def error(self) -> str:
        return why(self.facts.error) if self.facts.error else ""

    @property
    def history(self) -> CacheHistory:
        return self.facts.history

    @property
    def hour(self) -> CacheStats:
        return self.history.hour

    @property
    def calls(self) -> str:
        return number(self.hour.calls)

    @property
    def hits(self) -> str:
        return percent(self.hour.hit_ratio) if self.hour.calls else NONE

    @property
    def levels(self) -> list[Answered]:
        hour, total = self.hour, self.history.total
        return [
            Answered(
                kind,
                str(label),
                str(help),
                number(getattr(hour, kind)),
                share(hour, kind),
                number(getattr(total, kind)),
                share(total, kind),
            )
            for kind, (label, help) in LEVELS.items()
        ]

    @property
    def callbacks(self) -> list[Callbacks]:
        """Callback figures for the last hour and in total."""
        return [Callbacks(_("Last hour"), self.hour), Callbacks(_("All"), self.history.total)]

    @property
    def compression(self) -> str:
        """The shares saved by compression in the last hour and in total; "" if no value was to be compressed."""
        periods = ((_("in the last hour"), self.hour), (_("in total"), self.history.total))
        return ", ".join(
            f"{percent(stats.compression)} {period}" for period, stats in periods if stats.compressible_bytes
        )

    @property
    def words(self) -> str:
        if not self.hour.calls:
            return _("no calls in the last hour")
        parts = (
            f"{label} {share(self.hour, kind)}" for kind, (label, _help) in LEVELS.items() if getattr(self.hour, kind)
        )
        return _("%(calls)s calls in the last hour: %(levels)s") % {"calls": self.calls, "levels": ", ".join(parts)}

    @property
    def spark(self) -> SafeString:
        """The chart of the last hour for a row of the list."""
        return sparkline(levels_of(self.history.minutes), self.words)

    def charts(self, period: str) -> list[Chart]:
        """Misses by reason, hit ratio and calls of the last hour by minute, or of the last two days by hour."""
        if period == "hour":
            return span_charts(self.history.minutes, "minute", self.words)
        summary = _("%(calls)s calls in the last two days") % {"calls": number(self.history.days.calls)}
        return span_charts(self.history.hours, "hour", summary)

    @property
    def slow(self) -> list[SlowKey]:
        return [SlowKey.of(slow) for slow in self.history.slow]

    @property
    def missed(self) -> list[MissedKey]:
        """The keys with the most callbacks in this hour and the previous one."""
        return [MissedKey.of(entry) for entry in self.history.missed]


def token_of(key: str) -> str:
    """Return the token of a listed key; "" if it was shortened or changed."""
    return "" if key.endswith("…") or "\ufffd" in key else KeyView.of(key).token


def kind_of(info: CacheInfo) -> str:
    if isinstance(info.cache, BackendStore):
        return _("Django cache")
    return _("cache") if info.cache is not None else NONE if info.error else _("cache in other processes")


def dictionary_text(dictionary: SharedDict) -> str:
    return f"{dictionary.name} ({dictionary.engine})"


def levels_of(spans: Sequence[PeriodCounts[CacheStats]]) -> list[Series]:
    """Return the calls by level, as bars with errors at the bottom, so that even a few are visible."""
    return _bars(spans, {kind: label for kind, (label, _help) in LEVELS.items()})


def _bars(spans: Sequence[PeriodCounts[CacheStats]], labels: Mapping[str, Any]) -> list[Series]:
    return [Series(kind, str(label), [getattr(span.counts, kind) for span in spans]) for kind, label in labels.items()]


def span_charts(spans: Sequence[PeriodCounts[CacheStats]], unit: TimeUnit, summary: str) -> list[Chart]:
    """Return the charts of misses, hit ratio and calls for spans of a minute or an hour."""
    axis = time_axis([span.start for span in spans], unit)
    ratios = [span.counts.hit_ratio if span.counts.calls else None for span in spans]
    calls = [span.counts.calls for span in spans]
    by_minute = unit == "minute"
    callback_times = [
        span.counts.callback_seconds / span.counts.callbacks if span.counts.callbacks else None for span in spans
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    stats = summed((span.counts for span in spans), CacheStats())
    reasons = [(str(label), getattr(stats, kind)) for kind, label in MISS_REASONS.items()]
    missed = sum(count for _label, count in reasons)
    return [
        Chart(
            _("Misses by reason"),
            _bars(spans, MISS_REASONS),
            axis,
            y_label=_("misses per minute") if by_minute else _("misses per hour"),
            summary=", ".join(f"{label} {percent(count / missed)}" for label, count in reasons if count) or _("none"),
            height=80,
        ),
        Chart(
            _("Hit ratio"),
            [
                Series("hits", _("Hits"), ratios, "line"),
                Series("calls", _("Calls"), calls, "table", Unit.COUNT),
                Series("callbacks", _("Callbacks"), [span.counts.callbacks for span in spans], "table", Unit.COUNT),
                Series("callback", _("Mean time"), callback_times, "table", Unit.SECONDS),
            ],
            axis,
            y_label=_("calls answered by L1, L2 or a stale value"),
            unit=Unit.SHARE,
            summary=_("%(mean)s, lowest %(lowest)s") % {"mean": percent(stats.hit_ratio), "lowest": percent(min(known))}
            if known
            else _("no calls"),
            height=80,
        ),
        Chart(
            _("Calls"),
            [
                Series("calls", _("Calls"), calls, "table"),
                Series("hits", _("Hits"), ratios, "table", Unit.SHARE),
                *levels_of(spans),
            ],
            axis,
            y_label=_("calls per minute") if by_minute else _("calls per hour"),
            summary=summary,
            height=100,
            table_label=_("By minute") if by_minute else _("By hour"),
        ),
    ]


def share(stats: CacheStats, kind: str) -> str:
    return percent(getattr(stats, kind) / stats.calls) if stats.calls else NONE


def mean(stats: CacheStats) -> str:
    return duration(stats.callback_seconds / stats.callbacks) if stats.callbacks else NONE


def options(info: CacheInfo) -> list[tuple[str, str]]:
    """Return the cache's options as names and texts of at most 500 characters."""
    return [(name, printable(text, 500)) for name, text in _options(info.cache)]


def _options(cache: MLCache | BackendStore | None) -> Iterator[tuple[str, str]]:
    if cache is None:
        return
    if isinstance(cache, BackendStore):
        yield "LOCATION", dictionary_text(cache.dictionary)
        for name, value in cache.options._asdict().items():
            yield name.upper(), value_text(value)
        return
    yield "dictionary", dictionary_text(cache.dictionaries[0])
    for dictionary in cache.dictionaries[1:]:
        yield "shm_miss", dictionary_text(dictionary)
    yield "shm_locks", dictionary_text(cache.locks)
    yield "shm_stats", dictionary_text(cache.counter.dictionary)
    yield "lru_size", number(cache.lru.max_items)
    yield "ipc", "events" if isinstance(cache.channel, EventChannel) else value_text(cache.channel)
    for name, value in cache.setup.compression.items():
        yield name, value_text(value)
    for option in fields(cache.options):
        yield option.name, value_text(getattr(cache.options, option.name))


def value_text(value: Any) -> str:
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', repr(value))}"
    if isinstance(value, tuple):
        return ", ".join(map(value_text, value)) or _("none")
    return number(value) if type(value) is int else repr(value)
