"""The overview of the whole package in the admin: one tile for each part that the user may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import NoReverseMatch, URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from resty_django import overview
from resty_django.models import Overview
from resty_django.overview import Answer, Figure, Row, Tile

from .bars import bars
from .base import ShownAdmin
from .shown import NONE, percent, printable, room

EVERY: Final = 10
"""Seconds between two looks of a page with JavaScript."""
LONGEST: Final = 300
"""Characters of a text that other programs wrote."""
LOW, HIGH = 0.1, 0.25
PERMISSION: Final = "resty_django.view_overview"


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure as text. `words` tells of a level other than ok, since a colour alone would tell nobody."""

    name: str
    label: str
    text: str | SafeString
    level: str
    note: str

    @property
    def words(self) -> str:
        return {"warning": _("Look at this"), "error": _("In trouble")}.get(self.level, "")


@dataclass(frozen=True, slots=True)
class ShownRow:
    subject: str
    figures: list[Shown]
    error: str


@dataclass(frozen=True, slots=True)
class ShownTile:
    """A tile of the page; `url` is empty where the site has no such page."""

    name: str
    title: str
    url: str
    error: str
    figures: list[Shown]
    rows: list[ShownRow]
    heads: list[str]
    chart: SafeString | str
    notes: list[str]
    more: int


def shown_tiles(request: HttpRequest, site_name: str = "admin") -> list[ShownTile]:
    """The tiles that the user may see; none without the permission to see the overview."""
    if not request.user.has_perm(PERMISSION):
        return []
    return [_tile(answer, site_name) for answer in overview.answers(overview.panels(request.user))]


def _tile(answer: Answer, site_name: str) -> ShownTile:
    panel, tile = answer.panel, answer.tile or Tile()
    rows = [_row(row) for row in tile.rows]
    return ShownTile(
        panel.name,
        str(panel.title),
        _url(site_name, panel.page),
        printable(answer.error, LONGEST),
        [shown(figure) for figure in tile.figures],
        rows,
        next(([figure.label for figure in row.figures] for row in rows if row.figures), []),
        _chart(tile),
        [printable(note, LONGEST) for note in tile.notes],
        tile.more,
    )


def _chart(tile: Tile) -> SafeString | str:
    columns = [[("bar", count)] for count in tile.bars]
    return bars(columns, width=240, height=32, words=tile.bars_label) if any(tile.bars) else ""


def _row(row: Row) -> ShownRow:
    return ShownRow(
        printable(row.subject, LONGEST), [shown(figure) for figure in row.figures], printable(row.error, LONGEST)
    )


def _url(site_name: str, page: str) -> str:
    try:
        return reverse(f"{site_name}:{page}") if page else ""
    except NoReverseMatch:
        return ""


def shown(figure: Figure) -> Shown:
    """A figure as the page has it."""
    return Shown(figure.name, figure.label, _text(figure), figure.level, printable(figure.note, LONGEST))


def _text(figure: Figure) -> str | SafeString:
    value = figure.value
    if value is None:
        return NONE
    if figure.unit == "share":
        return room(value, percent(value), low=LOW, high=HIGH) if figure.name == "room" else percent(value)
    if figure.unit == "bytes":
        return filesizeformat(value)
    if figure.unit == "seconds":
        return f"{value * 1000:,.1f} ms" if value < 1 else f"{value:,.1f} s"
    return f"{value:,.1f}" if value != int(value) else f"{int(value):,}"


class OverviewAdmin(ShownAdmin[Overview]):
    class Media:
        js = ("resty_django/live.js",)

    def get_urls(self) -> list[URLPattern]:
        return [self.page_url("changelist", self.changelist_view, "")]

    @method_decorator([require_safe, never_cache])
    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            "title": capfirst(str(self.opts.verbose_name)),
            "tiles": shown_tiles(request, self.admin_site.name),
            "every": EVERY,
        }
        return self.page(request, "admin/resty_django/overview/page.html", context)
