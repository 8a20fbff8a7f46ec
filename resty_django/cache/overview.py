"""What the overview and the metrics tell of the caches."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resty_django import metrics, overview
from resty_django.events.steps import run
from resty_django.health import described
from resty_django.metrics import Family, Sample
from resty_django.overview import Figure, Panel, Row, Tile

from .counts import History, Stats, summed
from .known import known

LEVELS = ("l1", "l2", "l3", "stale", "misses", "errors")


def histories() -> Iterator[tuple[str, History | Exception]]:
    """What was counted of each cache that this process knows of, or why that cannot be had."""
    for name, one in known().items():
        try:
            if one.error is not None:
                raise one.error
            assert one.counter is not None  # noqa: S101
            yield name, run(one.counter.history())
        except Exception as error:  # one cache that cannot be used hides no other
            yield name, error


def panel() -> Tile:
    """The calls of the last hour, and the share of them that each level answered."""
    rows, whole, busy = [], Stats(), []
    for name, found in histories():
        if isinstance(found, Exception):
            rows.append((0, Row(name, error=described(found))))
            continue
        hour = summed(found.minutes)
        whole = whole.plus(hour)
        busy.append([span.stats.calls for span in found.minutes])
        rows.append((-hour.calls, Row(name, _figures(hour))))
    rows.sort(key=lambda row: (row[0], row[1].subject))
    return overview.tile(
        _figures(whole),
        [row for _calls, row in rows],
        bars=[sum(column) for column in zip(*busy, strict=True)],
        bars_label=_("Calls by minute, the last hour"),
        notes=[_("Of the last hour.")],
    )


def _figures(stats: Stats) -> list[Figure]:
    def share(count: int) -> float | None:
        return count / stats.calls if stats.calls else None

    return [
        Figure("calls", _("Calls"), stats.calls),
        Figure("l1", _("Memory (L1)"), share(stats.l1), "share"),
        Figure("l2", _("Shared (L2)"), share(stats.l2), "share"),
        Figure("l3", _("Source (L3)"), share(stats.l3), "share"),
        Figure("stale", _("Stale"), share(stats.stale), "share"),
        Figure("errors", _("Errors"), stats.errors, level="warning" if stats.errors else "ok"),
    ]


def families() -> Iterator[Family]:
    """The metrics of the caches."""
    found = [(name, one.total) for name, one in histories() if isinstance(one, History)]
    yield Family(
        "resty_cache_calls",
        "counter",
        "Calls by who answered: l1 (memory), l2 (shared dictionary), l3 (the source), stale, misses, errors.",
        ("cache", "level"),
        [Sample((name, level), getattr(one, level)) for name, one in found for level in LEVELS],
    )
    yield Family(
        "resty_cache_callback_seconds",
        "summary",
        "Callbacks that asked the source, and the seconds that they took.",
        ("cache",),
        [Sample((name,), one.callback_seconds, one.callbacks) for name, one in found],
    )
    yield Family(
        "resty_cache_callback_errors",
        "counter",
        "Callbacks that failed.",
        ("cache",),
        [Sample((name,), one.callback_errors) for name, one in found],
    )


def register() -> None:
    """Register the panel `cache` and the metrics."""
    app = "resty_django.cache"
    overview.register(
        Panel(
            "cache",
            gettext_lazy("Caches"),
            panel,
            permissions=("resty_cache.view_cache",),
            page="resty_cache_cache_changelist",
            app=app,
            order=30,
        )
    )
    metrics.register("cache", families, app=app)


__all__ = ["families", "histories", "panel", "register"]
