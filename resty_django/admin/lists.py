"""The context of the page that shows a list (`listing.html`), and of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from django import forms
from django.utils.functional import Promise

from .charts import Chart
from .operations import Operation
from .tables import Filter, Table


@dataclass(frozen=True, slots=True)
class Tab:
    """A link to another tab or period of a page. `count`: the number of rows on the tab, as text; "": not shown."""

    url: str
    label: str | Promise
    is_current: bool
    count: str = ""


@dataclass(frozen=True, slots=True)
class FigureTile:
    """A figure in a tile above a list. `alarm`: the figure needs attention. `url`: of the page that explains it."""

    label: str | Promise
    value: object
    alarm: bool = False
    url: str = ""


class BulkContext(TypedDict, total=False):
    """The context of `bulk.html`: check boxes in a table, and operations on the selected rows."""

    bulk: str
    """The URL of bulk operations on the list."""
    selection_label: str
    """The label of the operations."""
    operations: Sequence[Operation[Any]]
    select_all: int | None
    """The number of rows if an operation may select all of the list."""


class ListContext(BulkContext, total=False):
    """The context of `listing.html`, except its table. Links are pairs of URL and text."""

    title: str
    object: object
    on_object: bool
    """Whether this is the page of `object`: the breadcrumbs do not link to it."""
    filters: Mapping[str, str]
    """`q`: the text in the search field."""
    form: forms.Form
    """The filters; `hidden_filters`: names and values of hidden fields."""
    hidden_filters: Sequence[tuple[str, str]]
    filter: Filter
    """A filter by a text in any column; `filter_label`: the label of its field."""
    filter_label: str
    search: Mapping[str, object]
    """The search box: completions, examples and the error of its text."""
    live: bool
    """Whether the page updates itself. `error`: why there is no table."""
    error: str
    tiles: Sequence[FigureTile]
    notes: Sequence[str]
    shortcuts: Sequence[tuple[str, str | Promise]]
    hints: Sequence[tuple[str, str | Promise]]
    facts: Sequence[tuple[str | Promise, object]]
    """Labels and values."""
    extra_tables: Sequence[Table]
    periods: Sequence[Tab]
    """Links to other periods of the charts."""
    charts: Sequence[Chart]
    actions: Sequence[tuple[str, str | Promise, bool]]
    """URL and text of a link, and whether it is dangerous."""
    selection_url: str
    """The URL of operations on selected rows, if it is not `bulk`."""
    quick_operations: Sequence[tuple[str, str, bool]]
    """Name, text and danger of operations on all of the list; `quick_links`: others, on their own pages."""
    quick_links: Sequence[tuple[str, str | Promise]]
