"""Registry of overview panels. Apps register them in `AppConfig.ready()`; the admin shows them.

    overview.register(Panel("jobs", _("Jobs"), panel, permissions=("resty_qless.view_queue",),
                            page="resty_qless_queue_changelist"))

A panel takes no arguments and returns a `Tile`, or None if it has nothing to show. If it raises or does not respond in
time, its tile shows the error; the other tiles are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from django.apps import apps
from django.utils.functional import Promise

from resty_django import concurrency
from resty_django.health import Level

Unit = Literal["", "per minute", "share", "bytes", "seconds"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `name` is a stable identifier for programs, `label` is for people; `value` None: unknown.

    `level` marks values that need attention, `note` explains the value in a sentence. Shares are from 0 to 1. `page`:
    URL name of the page it links to, in the admin's namespace, with a query if it needs one; "": the tile's page.
    """

    name: str
    label: str
    value: float | None
    unit: Unit = ""
    level: Level = "ok"
    note: str = ""
    page: str = ""


@dataclass(frozen=True, slots=True)
class TileRow:
    """The figures of one thing, such as a queue. A row with an `error` has no figures.

    `query`: the URL query that finds it on the tile's page, such as "q=mail".
    """

    subject: str
    figures: Sequence[Figure] = ()
    error: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """The contents of a panel: the main figures, and one row of figures per thing. All rows have the same figures.

    `bars`: one number per minute, the current minute last; `bars_label` describes them. `notes` are sentences. `more`
    is the number of omitted rows.
    """

    figures: Sequence[Figure] = ()
    rows: Sequence[TileRow] = ()
    bars: Sequence[int] = ()
    bars_label: str = ""
    notes: Sequence[str] = ()
    more: int = 0


def tile(
    figures: Sequence[Figure],
    rows: Sequence[TileRow] = (),
    *,
    bars: Sequence[int] = (),
    bars_label: str = "",
    notes: Sequence[str] = (),
) -> Tile:
    """Return a tile with the figures and the first eight rows; the linked page shows all of them."""
    return Tile(figures, rows[:8], bars, bars_label, notes, more=max(0, len(rows) - 8))


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the overview.

    `permissions`: users with any of these see the panel. `page`: URL name of the page it links to, in the admin's
    namespace; no link if this is "" or the site lacks that page. `database`: the panel queries the site's database, so
    it runs on the request's connection. `app`: the app that must be installed. `order`: lower numbers come first.
    """

    name: str
    title: str | Promise
    ask: Callable[[], Tile | None]
    permissions: Collection[str]
    page: str = ""
    app: str = "resty_django"
    database: bool = False
    order: int = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a panel: a `tile`, or an `error` message; neither if the panel has nothing to show."""

    panel: Panel
    tile: Tile | None = None
    error: str = ""


class Viewer(Protocol):
    """The user of a request, reduced to the permission check."""

    def has_perm(self, perm: str, obj: Any = None) -> bool: ...


registry: dict[str, Panel] = {}


def register(panel: Panel) -> None:
    """Add a panel. It replaces one of the same name, at the same position."""
    registry[panel.name] = panel


def panels(user: Viewer | None = None) -> list[Panel]:
    """Return the panels of installed apps that `user` may see (None: all), in display order."""
    return [
        panel
        for panel in sorted(registry.values(), key=lambda panel: panel.order)
        if apps.is_installed(panel.app) and (user is None or any(map(user.has_perm, panel.permissions)))
    ]


def answers(panels_to_ask: Iterable[Panel], seconds: float = concurrency.TIME_LIMIT_SECONDS) -> list[Answer]:
    """Return the panels' results, computed concurrently. Never raise. `seconds` limits all but database panels."""
    listed = list(panels_to_ask)
    calls = [concurrency.TimedCall(f"panel {panel.name}", panel.ask, panel.database) for panel in listed]
    return [
        Answer(panel, reply.value, reply.error)
        for panel, reply in zip(listed, concurrency.gather(calls, seconds), strict=True)
    ]
