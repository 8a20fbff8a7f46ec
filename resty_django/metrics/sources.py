"""Registry of metric sources, one per component, which are queried at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from django.apps import apps

from resty_django import concurrency
from resty_django.conf import conf

from .families import Family, Sample


class MetricSource(NamedTuple):
    """A source: `ask` returns the families; `app` must be installed; `database`: it queries the site's database."""

    name: str
    ask: Callable[[], Iterable[Family]]
    app: str = "resty_django"
    database: bool = False


registry: dict[str, MetricSource] = {}


def register(
    name: str, ask: Callable[[], Iterable[Family]], *, app: str = "resty_django", database: bool = False
) -> None:
    """Add a source. It replaces one of the same name."""
    registry[name] = MetricSource(name, ask, app, database)


def collected(seconds: float = concurrency.TIME_LIMIT_SECONDS) -> list[Family]:
    """Return all metrics. `resty_source_up` is 0 for a source that fails or takes longer than `seconds`."""
    sources = [source for source in list(registry.values()) if apps.is_installed(source.app)]
    calls = [concurrency.TimedCall(f"metrics {source.name}", _listing(source), source.database) for source in sources]
    replies = concurrency.gather(calls, seconds)
    most = conf.metrics.max_labels
    up = Family(
        "resty_source_up",
        "gauge",
        "Whether the component's metrics were available (1) or not (0).",
        ("source",),
        [Sample((source.name,), float(not reply.error)) for source, reply in zip(sources, replies, strict=True)],
    )
    return [up, *(family.bounded(most) for reply in replies for family in reply.value or ())]


def _listing(source: MetricSource) -> Callable[[], list[Family]]:
    return lambda: list(source.ask())
