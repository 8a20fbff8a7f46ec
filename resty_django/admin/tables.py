"""Tables of all lists: sorting, pages and filters, all in the URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from django.http import HttpRequest, QueryDict

from resty_django.admin.export import Sheet, moment, plain_text
from resty_django.admin.formatting import number

PAGE_SIZE: Final = 25
"""Rows per page."""


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    label: Any
    number: bool = False
    sorts: bool = True
    time: bool = False
    """Whether the sort keys are epoch seconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row. `cells`: escaped content by column; `values`: sort keys by column; `pick`: the value of its check box."""

    cells: Mapping[str, Any]
    values: Mapping[str, Any] = field(default_factory=dict)
    pick: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    label: Any
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
    def shown_first(self) -> str:
        return number(self.first)

    @property
    def shown_last(self) -> str:
        return number(self.last)

    @property
    def shown_total(self) -> str:
        return number(self.total or 0)


@dataclass(frozen=True, slots=True)
class Table:
    heads: Sequence[Head]
    rows: Sequence[tuple[Row, Sequence[tuple[Any, bool]]]]
    pager: Pager
    caption: str
    empty: str
    picks: bool = False
    export: Sheet | None = None
    summary: str = ""
    """A text above the table, such as the number of all rows."""
    choices: Sequence[tuple[Column, bool]] = ()
    """Columns to choose from, and whether each is shown; the form's other URL parameters are `parameters`."""
    parameters: Sequence[tuple[str, str]] = ()


def page_of(request: HttpRequest, key: str = "p") -> int:
    return max(1, number_of(request, key))


def number_of(request: HttpRequest, key: str) -> int:
    """Return a whole number from the URL; 0 if there is none."""
    text = request.GET.get(key, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def changed(request: HttpRequest, **changes: Any) -> str:
    """Return the page's URL query with other parameters; None removes one."""
    query: QueryDict = request.GET.copy()
    for key, value in changes.items():
        query.pop(key, None)
        if value is not None:
            query[key] = str(value)
    return f"?{query.urlencode()}"


def pager(request: HttpRequest, total: int, size: int = PAGE_SIZE, key: str = "p") -> Pager:
    """Return the position in a list of known length."""
    pages = max(1, -(-total // size))
    page = min(page_of(request, key), pages)
    return Pager(
        first=min(total, (page - 1) * size + 1),
        last=min(total, page * size),
        total=total,
        page=page,
        pages=pages,
        previous=changed(request, **{key: page - 1 if page > 2 else None}) if page > 1 else "",
        next=changed(request, **{key: page + 1}) if page < pages else "",
    )


def columns_of(request: HttpRequest, columns: Sequence[Column], default: Sequence[Column]) -> Sequence[Column]:
    """Return the columns that the URL parameters `col` choose, besides the first one; without any, the default."""
    keys = set(request.GET.getlist("col"))
    chosen = [column for column in columns if column.key in keys]
    return [columns[0], *(column for column in chosen if column != columns[0])] if chosen else default


def with_choices(request: HttpRequest, made: Table, columns: Sequence[Column], shown: Sequence[Column]) -> Table:
    """Return a table with the form that chooses its columns; the first column is always shown."""
    omitted = ("col", "p", "cursor", "examined")
    parameters = [(key, value) for key in request.GET if key not in omitted for value in request.GET.getlist(key)]
    return replace(made, choices=[(column, column in shown) for column in columns[1:]], parameters=parameters)


def order_of(request: HttpRequest, columns: Sequence[Column]) -> tuple[str, bool]:
    """Return the column to sort by, and whether descending; an empty string means unsorted."""
    order = request.GET.get("o", "")
    key = order.removeprefix("-")
    return (
        (key, order.startswith("-")) if any(column.key == key and column.sorts for column in columns) else ("", False)
    )


def sort(rows: Sequence[Row], key: str, descending: bool) -> list[Row]:
    """Sort rows: numbers before texts, rows without a value last."""

    def rank(row: Row) -> tuple[int, float, str]:
        value = row.values.get(key)
        return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value).casefold())

    with_value = [row for row in rows if row.values.get(key) not in (None, "")]
    return [
        *sorted(with_value, key=rank, reverse=descending),
        *(row for row in rows if row.values.get(key) in (None, "")),
    ]


def table(
    request: HttpRequest,
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    caption: str,
    empty: str,
    position: Pager | None = None,
    sortable: bool = True,
    picks: bool = False,
    export: str | Sheet = "",
) -> Table:
    """Return a table of all rows of a list or, with `position`, of one page.

    `export`: the name under which all of `rows` can be exported, or the sheet to export.
    """
    key, descending = order_of(request, columns) if sortable else ("", False)
    page_rows = all_rows = list(rows)
    if position is None:
        if key:
            page_rows = all_rows = sort(page_rows, key, descending)
        position = pager(request, len(page_rows))
        page_rows = page_rows[max(0, position.first - 1) : position.last]
    heads = []
    for column in columns:
        if not sortable or not column.sorts:
            heads.append(Head(column.label, column.number))
            continue
        direction = ("descending" if descending else "ascending") if column.key == key else ""
        # The first click on a number column sorts the largest number first.
        first = f"-{column.key}" if column.number else column.key
        reverse = column.key if column.number else f"-{column.key}"
        order = reverse if request.GET.get("o") == first else first
        heads.append(Head(column.label, column.number, changed(request, o=order, p=None, cursor=None), direction))
    cells = [(row, [(row.cells.get(column.key, ""), column.number) for column in columns]) for row in page_rows]
    sheet = export if isinstance(export, Sheet) else sheet_of(export, columns, lambda: all_rows) if export else None
    return Table(heads, cells, position, caption, empty, picks and any(row.pick for row in page_rows), sheet)


def sheet_of(name: str, columns: Sequence[Column], rows: Callable[[], Iterable[Row]]) -> Sheet:
    """Return the export of rows: their sort keys, or the text of cells without one. `rows` is called if needed."""
    return Sheet(
        name,
        [column.key for column in columns],
        lambda: ([_exported(row, column) for column in columns] for row in rows()),
    )


def _exported(row: Row, column: Column) -> Any:
    if column.key not in row.values:
        return plain_text(row.cells.get(column.key, ""))
    value = row.values[column.key]
    return moment(value) if column.time else value
