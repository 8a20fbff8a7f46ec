"""Tables of all pages: sorting, pages and filters, all in the URL.

    queues = table(request, COLUMNS, rows, caption="Queues", empty="No queues.", export="queues")
    return self.list_page(request, queues)

A page makes a `Row` for each object and calls `table`; if a template writes the rows, it calls `listing` instead.

The URL parameter `o` is the column to sort by, with "-" for descending; further tables of a page have parameters
`o-<name>`. `p` is the number of the page. `find` is a text that the rows have to contain. Unknown columns are ignored,
as by Django's lists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from django.http import HttpRequest, QueryDict
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from resty_django.admin.export import Sheet, moment, plain_text

T = TypeVar("T")

PAGE_SIZE: Final = 25
"""Rows per page."""
MAX_SORTED: Final = 250
"""Maximum length of a list in a store that is read and sorted as a whole."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `time`: the sort keys are epoch seconds.

    `of`: the sort key of an object, as a function or as the path of an attribute; by default, the attribute `key`.
    """

    key: str
    label: str | Promise
    number: bool = False
    sorts: bool = True
    time: bool = False
    of: str | Callable[[Any], object] = ""

    def value(self, obj: object) -> Any:
        """Return the sort key of an object; None if it has no such attribute."""
        if callable(self.of):
            return self.of(obj)
        try:
            return attrgetter(self.of or self.key)(obj)
        except AttributeError:
            return None


@dataclass(frozen=True, slots=True)
class Row:
    """A row. `cells`: escaped content by column; `values`: sort keys by column; `pick`: the value of its check box."""

    cells: Mapping[str, object]
    values: Mapping[str, Any] = field(default_factory=dict)
    pick: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The order of a table: the key of a column, or "" if the rows stay as they are. `parameter`: its URL parameter."""

    key: str = ""
    descending: bool = False
    parameter: str = "o"

    def __bool__(self) -> bool:
        return bool(self.key)

    @property
    def page_parameter(self) -> str:
        """The URL parameter of the page number: `p`, or `p-<name>` for a further table of a page."""
        return f"p{self.parameter[1:]}"


@dataclass(frozen=True, slots=True)
class ColumnHead:
    label: str | Promise
    number: bool
    url: str = ""
    sorted: str = ""
    """"ascending", "descending" or empty, as in aria-sort."""


@dataclass(frozen=True, slots=True)
class Pager:
    """The position of a page in its list. Without `total`, only the cursor of the next page is known."""

    first: int = 0
    last: int = 0
    total: int | None = None
    page: int = 1
    pages: int = 1
    previous: str = ""
    next: str = ""
    note: str = ""

    @property
    def start(self) -> int:
        """The index of the first row of the page."""
        return max(0, self.first - 1)

    @property
    def count(self) -> int:
        """The number of rows of the page."""
        return self.last - self.start

    def rows_of(self, rows: Sequence[T]) -> Sequence[T]:
        """Return the page's part of all rows."""
        return rows[self.start : self.last]


@dataclass(frozen=True, slots=True)
class Table:
    """The context of `table.html`. `rows`: each with its cells, as pairs of content and whether it is a number."""

    heads: Sequence[ColumnHead]
    rows: Sequence[tuple[Row, Sequence[tuple[object, bool]]]]
    pager: Pager
    caption: str
    empty: str | Promise
    check_boxes: bool = False
    export: Sheet | None = None
    summary: str = ""
    """A text above the table, such as the number of all rows."""
    order: str | Promise = ""
    """The order of the rows in words; `order_links`: pairs of URL and text."""
    order_links: Sequence[tuple[str, str | Promise]] = ()
    note: str = ""
    """A remark below the table."""
    shared: Sequence[tuple[str | Promise, object]] = ()
    """Labels and values that all rows have in common, which stand above the table."""


def number_of(request: HttpRequest, key: str) -> int:
    """Return a whole number from the URL; 0 if there is none."""
    text = request.GET.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def changed(request: HttpRequest, **changes: object) -> str:
    """Return the page's URL query with other parameters; None removes one."""
    query: QueryDict = request.GET.copy()
    for key, value in changes.items():
        query.pop(key, None)
        if value is not None:
            query[key] = str(value)
    return f"?{query.urlencode()}"


def pager(request: HttpRequest, total: int, size: int = PAGE_SIZE, key: str = "p", anchor: str = "") -> Pager:
    """Return the position in a list of known length. `anchor`: the place in the page that its links lead to."""
    pages = max(1, -(-total // size))
    page = min(max(1, number_of(request, key)), pages)
    return Pager(
        first=min(total, (page - 1) * size + 1),
        last=min(total, page * size),
        total=total,
        page=page,
        pages=pages,
        previous=changed(request, **{key: page - 1 if page > 2 else None}) + anchor if page > 1 else "",
        next=changed(request, **{key: page + 1}) + anchor if page < pages else "",
    )


def order_of(request: HttpRequest, columns: Sequence[Column], parameter: str = "o") -> SortOrder:
    """Return the order in the URL; an empty one if the URL names no column that sorts."""
    text = request.GET.get(parameter, "")
    key = text.removeprefix("-")
    if not any(column.key == key and column.sorts for column in columns):
        return SortOrder(parameter=parameter)
    return SortOrder(key, text.startswith("-"), parameter)


def sort(rows: Sequence[Row], order: SortOrder) -> list[Row]:
    """Sort rows: numbers before texts, rows without a value last. An empty order leaves them as they are."""
    if not order:
        return list(rows)
    return _sorted(rows, lambda row: row.values.get(order.key), order.descending)


def _sorted(objects: Sequence[T], value_of: Callable[[T], Any], descending: bool) -> list[T]:
    def rank(pair: tuple[Any, T]) -> tuple[int, float, str]:
        value = pair[0].timestamp() if isinstance(pair[0], datetime) else pair[0]
        return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value).casefold())

    pairs = [(value_of(obj), obj) for obj in objects]
    with_value = [pair for pair in pairs if pair[0] not in (None, "")]
    return [
        *(obj for _value, obj in sorted(with_value, key=rank, reverse=descending)),
        *(obj for value, obj in pairs if value in (None, "")),
    ]


def heads_of(
    request: HttpRequest, columns: Sequence[Column], order: SortOrder, sorts: Collection[str] | None = None
) -> list[ColumnHead]:
    """Return the heads of the columns, with links that sort. `order`: the current one.

    `sorts`: the columns that can be sorted; None: those with `Column.sorts`. The first click on a number column sorts
    the largest number first.
    """
    heads = []
    for column in columns:
        if not (column.sorts if sorts is None else column.key in sorts):
            heads.append(ColumnHead(column.label, column.number))
            continue
        is_current = column.key == order.key
        descending = not order.descending if is_current else column.number
        changes = {
            order.parameter: f"-{column.key}" if descending else column.key,
            **dict.fromkeys((order.page_parameter, "page", "cursor")),
        }
        direction = ("descending" if order.descending else "ascending") if is_current else ""
        heads.append(ColumnHead(column.label, column.number, changed(request, **changes), direction))
    return heads


def filter_of(request: HttpRequest, parameter: str = "find") -> str:
    """Return the text of the filter in the URL, at most 200 characters."""
    return request.GET.get(parameter, "").strip()[:200]  # characters


@dataclass(frozen=True, slots=True)
class Filter:
    """The form that filters the tables of a page by a text.

    `hidden`: the page's other URL parameters; `show_all`: its URL query without the filter.
    """

    find: str
    hidden: Sequence[tuple[str, str]]
    show_all: str


def filter_form(request: HttpRequest) -> Filter:
    omitted = ("find", "p", "page", "cursor")
    return Filter(
        filter_of(request),
        [(key, value) for key in request.GET if key not in omitted for value in request.GET.getlist(key)],
        changed(request, **dict.fromkeys(omitted)),
    )


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """The objects of a table whose rows a template writes, sorted and filtered as the URL says.

    `find`: the text of the filter; `total`: the number of objects without it.
    """

    columns: Sequence[Column]
    rows: Sequence[T]
    heads: Sequence[ColumnHead]
    find: str
    total: int
    pager: Pager = field(default_factory=Pager)

    def __iter__(self) -> Iterator[T]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def sheet(self, name: str) -> Sheet:
        """Return the export of all rows: the sort keys of their columns."""
        return Sheet(
            name,
            [column.key for column in self.columns],
            lambda: ([_value(column, column.value(obj)) for column in self.columns] for obj in self.rows),
        )


def listing(
    request: HttpRequest,
    columns: Sequence[Column],
    objects: Iterable[T],
    *,
    name: str = "",
    find: str | None = None,
    default: str = "",
    size: int = 0,
) -> Listing[T]:
    """Return a listing of objects. A filter searches the texts in all columns.

    - `name`: the table's name in URL parameters, if the page has further tables.
    - `find`: the text of the filter; None: the one in the URL.
    - `default`: the order of `objects` if a column has it, such as "-count".
    - `size`: the number of rows of a page; 0: all rows on one page.
    """
    all_objects = list(objects)
    text = filter_of(request) if find is None else find
    rows = [obj for obj in all_objects if _contains(obj, columns, text.casefold())] if text else all_objects
    order = order_of(request, columns, f"o-{name}" if name else "o")
    if order:
        column = next(column for column in columns if column.key == order.key)
        rows = _sorted(rows, column.value, order.descending)
    else:
        order = SortOrder(default.removeprefix("-"), default.startswith("-"), order.parameter)
    heads = heads_of(request, columns, order)
    position = pager(request, len(rows), size or len(rows) or 1, order.page_parameter, f"#{name}")
    return Listing(columns, position.rows_of(rows), heads, text, len(all_objects), position)


def _contains(obj: object, columns: Sequence[Column], text: str) -> bool:
    values = (column.value(obj) for column in columns if not column.number and not column.time)
    return any(text in str(value).casefold() for value in values if value and not isinstance(value, datetime))


def table(
    request: HttpRequest,
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    caption: str | Promise,
    empty: str | Promise,
    position: Pager | None = None,
    sorts: Collection[str] | None = None,
    order: SortOrder | None = None,
    check_boxes: bool = False,
    export: str | Sheet = "",
) -> Table:
    """Return a table of all rows of a list or, with `position`, of one page, which the caller has sorted.

    - `caption`: names the table for screen readers. `empty`: the text in place of a table without rows.
    - `sorts`: the keys of the columns that can be sorted; None: those with `Column.sorts`.
    - `order`: the current order, by default the one in the URL.
    - `check_boxes`: whether rows with a `pick` have one.
    - `export`: the name under which all of `rows` can be exported, or the sheet to export.
    """
    if order is None:
        order = order_of(request, columns) if sorts is None or sorts else SortOrder()
    page_rows = all_rows = list(rows)
    if position is None:
        all_rows = sort(all_rows, order)
        position = pager(request, len(all_rows), key=order.page_parameter)
        page_rows = list(position.rows_of(all_rows))
    heads = heads_of(request, columns, order, sorts)
    sheet = export if isinstance(export, Sheet) else sheet_of(export, columns, lambda: all_rows) if export else None
    has_check_boxes = check_boxes and any(row.pick for row in page_rows)
    return Table(heads, _cells(columns, page_rows), position, str(caption), empty, has_check_boxes, sheet)


def listed_table(
    listing: Listing[T],
    row: Callable[[T], Row],
    *,
    caption: str | Promise,
    export: str,
    empty: str = "",
    most: int | None = None,
    check_boxes: bool = False,
    note: str = "",
) -> Table:
    """Return a listing as a table without pages. `most`: the maximum number of rows; the export has all of them."""
    rows = [row(obj) for obj in listing.rows[:most]]
    empty = empty or _("No rows match. Change your search.")
    cells, sheet = _cells(listing.columns, rows), listing.sheet(export)
    return Table(listing.heads, cells, Pager(), str(caption), empty, check_boxes and bool(rows), sheet, note=note)


def _cells(columns: Sequence[Column], rows: Sequence[Row]) -> list[tuple[Row, list[tuple[object, bool]]]]:
    return [(row, [(row.cells.get(column.key, ""), column.number) for column in columns]) for row in rows]


def sheet_of(name: str, columns: Sequence[Column], rows: Callable[[], Iterable[Row]]) -> Sheet:
    """Return the export of rows: their sort keys, or the text of cells without one. `rows` is called if needed."""
    return Sheet(
        name,
        [column.key for column in columns],
        lambda: ([_exported(row, column) for column in columns] for row in rows()),
    )


def _exported(row: Row, column: Column) -> object:
    if column.key not in row.values:
        return plain_text(row.cells.get(column.key, ""))
    return _value(column, row.values[column.key])


def _value(column: Column, value: object) -> object:
    """Return a sort key for an export."""
    return moment(value) if column.time and isinstance(value, int | float) else value
