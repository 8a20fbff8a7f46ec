"""The overview of the whole package: apps register a panel in `AppConfig.ready()`, pages and the API show them.

    overview.register(Panel("jobs", _("Jobs"), panel, permissions=("resty_qless.view_queue",),
                            page="resty_qless_queue_changelist"))

A panel takes no arguments and gives a `Tile`. It may raise, or not answer at all: its tile then says so, and the others
are shown.
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
    """One number. `name` is a stable word for programs, `label` is for people; `value` None: not known.

    `level` shows whether it is as it should be, `note` says more in a sentence. A share is 0 to 1.
    """

    name: str
    label: str
    value: float | None
    unit: Unit = ""
    level: Level = "ok"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one thing, such as a queue. With `error` it has none."""

    subject: str
    figures: Sequence[Figure] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """The contents of a panel: the main figures, and those of each thing; all rows have the same figures.

    `bars`: a number for each minute, the present one last; `bars_label` says of what. `notes` are sentences. `more` is
    how many rows were left out.
    """

    figures: Sequence[Figure] = ()
    rows: Sequence[Row] = ()
    bars: Sequence[int] = ()
    bars_label: str = ""
    notes: Sequence[str] = ()
    more: int = 0


MOST_ROWS = 8
"""Rows that a tile has at most; the page behind it has all of them."""


def tile(
    figures: Sequence[Figure],
    rows: Sequence[Row] = (),
    *,
    bars: Sequence[int] = (),
    bars_label: str = "",
    notes: Sequence[str] = (),
) -> Tile:
    """Return a tile with the first rows of those given."""
    return Tile(figures, rows[:MOST_ROWS], bars, bars_label, notes, max(0, len(rows) - MOST_ROWS))


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the overview.

    `permissions`: users with any of these see it. `page`: the name of the page that it links to, in the admin's
    namespace (""; or a page that the site does not have: no link). `database`: it asks the site's database, so it runs
    on the connection of the request. `app`: the app that has to be installed.
    `order`: those with lower numbers come first.
    """

    name: str
    title: str | Promise
    ask: Callable[[], Tile]
    permissions: Collection[str]
    page: str = ""
    app: str = "resty_django"
    database: bool = False
    order: int = 100


@dataclass(frozen=True, slots=True)
class Answer:
    """The reply of a panel; without `tile`, `error` says why."""

    panel: Panel
    tile: Tile | None = None
    error: str = ""


class Viewer(Protocol):
    """The user of a request, as far as it matters here."""

    def has_perm(self, perm: str, obj: Any = None) -> bool: ...


registry: dict[str, Panel] = {}


def register(panel: Panel) -> None:
    """Add a panel; one of the same name is replaced, in its place."""
    registry[panel.name] = panel


def panels(user: Viewer | None = None) -> list[Panel]:
    """Return the panels of the installed apps that `user` may see (None: all), in their order."""
    return [
        panel
        for panel in sorted(registry.values(), key=lambda panel: panel.order)
        if apps.is_installed(panel.app) and (user is None or any(map(user.has_perm, panel.permissions)))
    ]


def answers(panels_to_ask: Iterable[Panel], seconds: float = concurrency.SECONDS) -> list[Answer]:
    """Ask these panels, all at once. Never raises; `seconds` limits the time, except for the database."""
    listed = list(panels_to_ask)
    calls = [concurrency.Call(f"panel {panel.name}", panel.ask, panel.database) for panel in listed]
    return [
        Answer(panel, reply.value, reply.error)
        for panel, reply in zip(listed, concurrency.gather(calls, seconds), strict=True)
    ]
