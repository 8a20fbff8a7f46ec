"""Where the metrics come from: one source for each part, asked at every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from django.apps import apps

from resty_django import asking
from resty_django.conf import conf

from .families import Family, Sample, family


class Source(NamedTuple):
    """`ask` gives the families; `app` has to be installed; `database`: it asks the site's database."""

    name: str
    ask: Callable[[], Iterable[Family]]
    app: str = "resty_django"
    database: bool = False


_sources: dict[str, Source] = {}


def register(
    name: str, ask: Callable[[], Iterable[Family]], *, app: str = "resty_django", database: bool = False
) -> None:
    """Add a source; one of the same name is replaced."""
    _sources[name] = Source(name, ask, app, database)


def collected(seconds: float = asking.SECONDS) -> list[Family]:
    """All metrics. A source that fails or takes longer than `seconds` is 0 in `resty_source_up`; nothing is raised."""
    sources = [source for source in list(_sources.values()) if apps.is_installed(source.app)]
    questions = [asking.Question(f"metrics {source.name}", _listing(source), source.database) for source in sources]
    replies = asking.replies(questions, seconds)
    most = conf.metrics.max_labels
    up = Family(
        "resty_source_up",
        "gauge",
        "Whether a part of the package could tell its figures.",
        ("source",),
        [Sample((source.name,), float(not reply.error)) for source, reply in zip(sources, replies, strict=True)],
    )
    return [up, *(one.bounded(most) for reply in replies for one in reply.value or ())]


def _listing(source: Source) -> Callable[[], list[Family]]:
    return lambda: list(source.ask())


__all__ = ["Source", "collected", "family", "register"]
