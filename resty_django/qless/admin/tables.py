"""One table for all lists: columns that sort, pages and filters, all of it in the address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.http import HttpRequest, QueryDict

PAGE: Final = 25
"""Rows of a page."""


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    label: Any
    number: bool = False
    sorts: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """`cells`: what is shown, by column, escaped; `values`: what is sorted by. `pick`: the value of its check box."""

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
    """"ascending", "descending" or empty, as aria-sort has it."""


@dataclass(frozen=True, slots=True)
class Pager:
    """Where the page is in the list. Without `total` only the next page is known, by a cursor."""

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
        return f"{self.first:,}"

    @property
    def shown_last(self) -> str:
        return f"{self.last:,}"

    @property
    def shown_total(self) -> str:
        return f"{self.total or 0:,}"


@dataclass(frozen=True, slots=True)
class Table:
    heads: Sequence[Head]
    rows: Sequence[tuple[Row, Sequence[tuple[Any, bool]]]]
    pager: Pager
    caption: str
    empty: str
    picks: bool = False


def page_of(request: HttpRequest, key: str = "p") -> int:
    text = request.GET.get(key, "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else 1


def changed(request: HttpRequest, **changes: Any) -> str:
    """The address of this page with other parameters; None takes one away."""
    query: QueryDict = request.GET.copy()
    for key, value in changes.items():
        query.pop(key, None)
        if value is not None:
            query[key] = str(value)
    return f"?{query.urlencode()}"


def pager(request: HttpRequest, total: int, size: int = PAGE, key: str = "p") -> Pager:
    """Of a list whose length is known."""
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


def order_of(request: HttpRequest, columns: Sequence[Column]) -> tuple[str, bool]:
    """The column that the address asks to sort by, and whether downwards; an empty text: as it comes."""
    asked = request.GET.get("o", "")
    key = asked.removeprefix("-")
    return (key, asked.startswith("-")) if any(each.key == key and each.sorts for each in columns) else ("", False)


def sort(rows: Sequence[Row], key: str, down: bool) -> list[Row]:
    """Numbers before texts, and what has no value last."""

    def rank(row: Row) -> tuple[int, float, str]:
        value = row.values.get(key)
        return (0, value, "") if isinstance(value, int | float) else (1, 0, str(value).casefold())

    known = [row for row in rows if row.values.get(key) not in (None, "")]
    return [*sorted(known, key=rank, reverse=down), *(row for row in rows if row.values.get(key) in (None, ""))]


def table(
    request: HttpRequest,
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    caption: str,
    empty: str,
    at: Pager | None = None,
    sortable: bool = True,
    picks: bool = False,
) -> Table:
    """A table of `rows`: all of a list, or with `at` one page of it, sorted where it can be."""
    key, down = order_of(request, columns) if sortable else ("", False)
    shown = list(rows)
    if at is None:
        if key:
            shown = sort(shown, key, down)
        at = pager(request, len(shown))
        shown = shown[max(0, at.first - 1) : at.last]
    heads = []
    for column in columns:
        if not sortable or not column.sorts:
            heads.append(Head(column.label, column.number))
            continue
        direction = ("descending" if down else "ascending") if column.key == key else ""
        # Numbers are looked at from the largest one on.
        first = f"-{column.key}" if column.number else column.key
        other = column.key if column.number else f"-{column.key}"
        wanted = other if request.GET.get("o") == first else first
        heads.append(Head(column.label, column.number, changed(request, o=wanted, p=None, cursor=None), direction))
    made = [(row, [(row.cells.get(column.key, ""), column.number) for column in columns]) for row in shown]
    return Table(heads, made, at, caption, empty, picks and any(row.pick for row in shown))


__all__ = ["PAGE", "Column", "Pager", "Row", "Table", "changed", "order_of", "page_of", "pager", "sort", "table"]
