"""Registry of contributors to the page "What happened". Apps register them in `AppConfig.ready()`.

    timeline.register(Contributor("jobs", _("Jobs"), story, permissions=("resty_qless.view_job",)))

A contributor takes a `Span` and returns a `Story`: entries, a chart, and notes. If it raises or does not respond in
time, the page says so; the others are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from django.apps import apps
from django.utils.functional import Promise

from resty_django import concurrency
from resty_django.health import Level
from resty_django.overview import Viewer

MOST_ENTRIES: Final = 200
"""Maximum number of entries of a contributor."""
MINUTE, HOUR = 60, 3600
LONGEST_BY_MINUTE: Final = 2 * HOUR
"""The longest span that is divided into minutes; longer ones are divided into hours."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time range in epoch seconds, and who asks. `now`: the current time."""

    start: float
    end: float
    now: float
    viewer: Viewer | None = None

    @property
    def step(self) -> int:
        """The seconds of a column of a chart: a minute or an hour."""
        return MINUTE if self.end - self.start <= LONGEST_BY_MINUTE else HOUR

    def columns(self, step: int = 0) -> list[int]:
        """Return the starts of all minutes or hours that the span touches."""
        seconds = step or self.step
        first = int(self.start // seconds) * seconds
        return list(range(first, max(first + 1, int(-(-self.end // 1))), seconds))

    def contains(self, at: float, until: float | None = None) -> bool:
        """Return whether a moment, or a part of the time from `at` to `until`, is in the span."""
        return at < self.end and (at if until is None else until) >= self.start


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened at `at` (epoch seconds), or from then `until`.

    `title` and `text` may contain external text; the page escapes it. `url`: a URL name in the admin's namespace and
    its arguments.
    """

    at: float
    title: str
    text: str = ""
    until: float | None = None
    level: Level = "ok"
    url: tuple[str, Sequence[str | int]] | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """A series of a chart: a CSS class, a label, and one count per column (None: not known)."""

    kind: str
    label: str
    counts: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Story:
    """A contributor's reply for a span. `starts` and `step`: the columns of `bars`, in epoch seconds.

    `notes`: sentences on what is not known, such as the resolution of stored figures. `more`: omitted entries.
    """

    entries: Sequence[Entry] = ()
    starts: Sequence[float] = ()
    step: int = MINUTE
    bars: Sequence[Bars] = ()
    y_label: str = ""
    notes: Sequence[str] = ()
    more: int = 0


def story(entries: Sequence[Entry], **options: object) -> Story:
    """Return a story with the first entries, in the order of time."""
    ordered = sorted(entries, key=lambda entry: entry.at)
    more = max(0, len(ordered) - MOST_ENTRIES)
    return Story(ordered[:MOST_ENTRIES], more=more, **options)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Contributor:
    """A part of the site that contributes. See `resty_django.overview.Panel` for the fields."""

    name: str
    title: str | Promise
    ask: Callable[[Span], Story]
    permissions: Collection[str]
    page: str = ""
    app: str = "resty_django"
    database: bool = False
    order: int = 100


@dataclass(frozen=True, slots=True)
class Chapter:
    """The result of a contributor: a `story`, or an `error` message."""

    contributor: Contributor
    story: Story
    error: str = ""


registry: dict[str, Contributor] = {}


def register(contributor: Contributor) -> None:
    """Add a contributor. It replaces one of the same name."""
    registry[contributor.name] = contributor


def contributors(viewer: Viewer) -> list[Contributor]:
    """Return the contributors of installed apps that the viewer may see, in display order."""
    return [
        contributor
        for contributor in sorted(registry.values(), key=lambda contributor: contributor.order)
        if apps.is_installed(contributor.app) and any(map(viewer.has_perm, contributor.permissions))
    ]


def chapters(
    contributors_to_ask: Iterable[Contributor], span: Span, seconds: float = concurrency.SECONDS
) -> list[Chapter]:
    """Return what the contributors know, asked concurrently. Never raise."""
    listed = list(contributors_to_ask)
    calls = [
        concurrency.Call(f"timeline {contributor.name}", _asking(contributor, span), contributor.database)
        for contributor in listed
    ]
    replies = concurrency.gather(calls, seconds)
    return [
        Chapter(contributor, reply.value or Story(), reply.error)
        for contributor, reply in zip(listed, replies, strict=True)
    ]


def _asking(contributor: Contributor, span: Span) -> Callable[[], Story]:
    return lambda: contributor.ask(span)
