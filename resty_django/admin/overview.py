"""Overview page of the admin: one tile for each panel that the user may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import NoReverseMatch, URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from resty_django import overview
from resty_django.models import Overview
from resty_django.overview import Answer, Figure, Tile, TileRow
from resty_django.text import printable

from .base import ReadOnlyAdmin, viewer_page
from .charts import Series, sparkline
from .formatting import NONE, duration, free_space_bar, number, percent

REFRESH_SECONDS: Final = 10
"""Seconds between automatic refreshes of the page."""
MAX_TEXT_CHARS: Final = 300
"""Maximum length of shown text from other programs, in characters."""


@dataclass(frozen=True, slots=True)
class FigureView:
    """A figure as text. `level_text` names levels other than ok, because colour alone is not accessible."""

    name: str
    label: str
    text: str | SafeString
    level: str
    note: str
    url: str = ""

    @property
    def level_text(self) -> str:
        return {"warning": _("Needs attention"), "error": _("Critical")}.get(self.level, "")


@dataclass(frozen=True, slots=True)
class RowView:
    subject: str
    figures: list[FigureView]
    error: str
    url: str = ""

    @property
    def alarm(self) -> bool:
        return bool(self.error) or any(figure.level_text for figure in self.figures)


@dataclass(frozen=True, slots=True)
class TileView:
    """A tile of the page; `url` is empty if the site does not have the panel's page."""

    name: str
    title: str
    url: str
    error: str
    figures: list[FigureView]
    rows: list[RowView]
    heads: list[str]
    chart: SafeString | str
    notes: list[str]
    more: int

    @property
    def alarm(self) -> bool:
        """Whether something in the tile needs attention."""
        return bool(self.error) or any(figure.level_text for figure in self.figures) or bool(self.alarms)

    @property
    def alarms(self) -> list[RowView]:
        """The rows that need attention."""
        return [row for row in self.rows if row.alarm]


def visible_tiles(request: HttpRequest, site_name: str = "admin") -> list[TileView]:
    """Return the tiles that the user may see, those that need attention first.

    There are none without the permission for the overview.
    """
    if not request.user.has_perm("resty_django.view_overview"):
        return []
    answers = overview.answers(overview.panels(request.user))
    tiles = [_tile(answer, site_name) for answer in answers if answer.tile or answer.error]
    return sorted(tiles, key=lambda tile: not tile.alarm)


def _tile(answer: Answer, site_name: str) -> TileView:
    panel, tile = answer.panel, answer.tile or Tile()
    heads = {figure.name: figure.label for row in tile.rows for figure in row.figures}
    url = page_url(site_name, panel.page)
    rows = [_row(row, list(heads), url) for row in tile.rows]
    return TileView(
        panel.name,
        str(panel.title),
        url,
        printable(answer.error, MAX_TEXT_CHARS),
        [figure_view(figure, page_url(site_name, figure.page) or url) for figure in tile.figures],
        rows,
        list(heads.values()),
        _chart(tile),
        [printable(note, MAX_TEXT_CHARS) for note in tile.notes],
        tile.more,
    )


def _chart(tile: Tile) -> SafeString | str:
    if not any(tile.bars):
        return ""
    return sparkline([Series("bar", tile.bars_label, tile.bars)], tile.bars_label, width=240, height=32)


def _row(row: TileRow, names: Sequence[str], url: str) -> RowView:
    """Return a row with one figure for each of the table's columns, empty if the row lacks it. `url`: of the tile."""
    figures = {figure.name: figure_view(figure) for figure in row.figures}
    return RowView(
        printable(row.subject, MAX_TEXT_CHARS),
        [figures.get(name) or FigureView(name, "", NONE, "ok", "") for name in names],
        printable(row.error, MAX_TEXT_CHARS),
        f"{url}?{row.query}" if url and row.query else "",
    )


def page_url(site_name: str, page: str) -> str:
    """Return the URL of a page of the admin, "" if the site does not have it. `page`: URL name, with a query."""
    name, mark, query = page.partition("?")
    try:
        return reverse(f"{site_name}:{name}") + mark + query if page else ""
    except NoReverseMatch:
        return ""


def figure_view(figure: Figure, url: str = "") -> FigureView:
    """Return a figure as the page shows it, with a link to `url`."""
    return FigureView(
        figure.name, figure.label, _text(figure), figure.level, printable(figure.note, MAX_TEXT_CHARS), url
    )


def _text(figure: Figure) -> str | SafeString:
    value = figure.value
    if value is None:
        return NONE
    if figure.unit == "share":
        return free_space_bar(value, percent(value), low=0.1, high=0.25) if figure.name == "room" else percent(value)
    if figure.unit == "bytes":
        return filesizeformat(value)
    if figure.unit == "seconds":
        return duration(value)
    return number(round(value, 1))


class OverviewAdmin(ReadOnlyAdmin[Overview]):
    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, "")]

    @method_decorator(never_cache)
    @viewer_page
    def changelist_view(self, request: HttpRequest) -> HttpResponse:
        context = {
            "title": capfirst(str(self.opts.verbose_name)),
            "tiles": visible_tiles(request, self.admin_site.name),
            "every": REFRESH_SECONDS,
        }
        return self.page(request, "admin/resty_django/overview/page.html", context)
