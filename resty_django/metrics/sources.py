"""Where the metrics come from: one source for each part, asked at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from django.apps import apps

from resty_django import concurrency
from resty_django.conf import conf

from .families import Family, Sample


class Source(NamedTuple):
    """`ask` gives the families; `app` has to be installed; `database`: it asks the site's database."""

    name: str
    ask: Callable[[], Iterable[Family]]
    app: str = "resty_django"
    database: bool = False


registry: dict[str, Source] = {}


def register(
    name: str, ask: Callable[[], Iterable[Family]], *, app: str = "resty_django", database: bool = False
) -> None:
    """Add a source; one of the same name is replaced."""
    registry[name] = Source(name, ask, app, database)


def collected(seconds: float = concurrency.SECONDS) -> list[Family]:
    """Return all metrics. A source that fails or takes longer than `seconds` is 0 in `resty_source_up`."""
    sources = [source for source in list(registry.values()) if apps.is_installed(source.app)]
    calls = [concurrency.Call(f"metrics {source.name}", _listing(source), source.database) for source in sources]
    replies = concurrency.gather(calls, seconds)
    most = conf.metrics.max_labels
    up = Family(
        "resty_source_up",
        "gauge",
        "Whether a part of the package could tell its figures.",
        ("source",),
        [Sample((source.name,), float(not reply.error)) for source, reply in zip(sources, replies, strict=True)],
    )
    return [up, *(family.bounded(most) for reply in replies for family in reply.value or ())]


def _listing(source: Source) -> Callable[[], list[Family]]:
    return lambda: list(source.ask())
