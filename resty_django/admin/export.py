"""Exports of tables as CSV or JSON, under the URL of the page that shows them.

    return self.page(request, template, {"exports": [listing.sheet("bans")], **context})

`?export=csv&of=bans`, added to the page's own parameters, returns the sheet `bans`. The view has checked the page's
permissions by then. Rows are streamed, at most `MAX_ROWS` of them.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Final, TypeVar

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, QueryDict, StreamingHttpResponse
from django.utils import timezone
from django.utils.html import strip_tags
from django.utils.http import urlencode
from django.utils.text import slugify

from resty_django.text import printable

T = TypeVar("T")

MAX_ROWS: Final = 10_000
"""Maximum number of rows of an export."""
FORMATS: Final = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
PARAMETERS: Final = ("export", "of")
PAGING: Final = ("p", "page", "cursor")
"""URL parameters of positions in lists, which exports ignore: they begin with the first row."""
CUT: Final = f"Only the first {MAX_ROWS:,} rows are exported."


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows to export. `name`: in the URL and the file name; `columns`: the names of the values of a row.

    `rows` is called once, when the sheet is exported. Values are numbers, texts, datetimes, None, or lists and objects
    of them.
    """

    name: str
    columns: Sequence[str]
    rows: Callable[[], Iterable[Sequence[object]]]


def requested_format(request: HttpRequest) -> str:
    """Return "csv" or "json" if the request asks for an export, else ""."""
    format = request.GET.get("export", "") if request.method in ("GET", "HEAD") else ""
    return format if format in FORMATS else ""


def export_links(request: HttpRequest, name: str) -> list[tuple[str, str]]:
    """Return names and URL queries of the formats of the sheet `name`, with the filters of the requested page."""
    query = query_without(request, *PARAMETERS, *PAGING).urlencode()
    extra = {format: urlencode({"export": format, "of": name}) for format in FORMATS}
    return [(format.upper(), f"?{query}&{own}" if query else f"?{own}") for format, own in extra.items()]


def query_without(request: HttpRequest, *names: str) -> QueryDict:
    """Return a copy of the URL query without the parameters `names`."""
    query: QueryDict = request.GET.copy()
    for name in names:
        query.pop(name, None)
    return query


def export_response(request: HttpRequest, exports: Iterable[Sheet], title: object = "") -> StreamingHttpResponse | None:
    """Return the requested export, or None if the request does not ask for one.

    `title`: of the page, for the file name. Raise `Http404` if the page does not have the requested sheet, and the
    errors of its first rows.
    """
    format = requested_format(request)
    if not format:
        return None
    by_name = {sheet.name: sheet for sheet in exports}
    name = request.GET.get("of") or next(iter(by_name), "")
    if name not in by_name:
        raise Http404("This page has no such table.")
    return sheet_response(request, by_name[name], format, title)


def sheet_response(request: HttpRequest, sheet: Sheet, format: str, title: object = "") -> StreamingHttpResponse:
    """Return a sheet as a file. Raise the errors of its first rows."""
    chunks = (_csv_chunks if format == "csv" else _json_chunks)(sheet)
    chunks = chain([next(chunks)], chunks)  # an error of the store shows before the status is sent
    streamed = _awaited(chunks) if isinstance(request, ASGIRequest) else chunks
    response = StreamingHttpResponse(streamed, content_type=FORMATS[format])
    stem = "-".join(filter(None, (slugify(str(title))[:60], sheet.name, f"{datetime.now(UTC):%Y%m%dT%H%MZ}")))
    response["Content-Disposition"] = f'attachment; filename="{stem}.{format}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def plain_text(cell: object) -> str:
    """Return the text of a cell that may be HTML."""
    if not hasattr(cell, "__html__"):
        return str(cell)
    text = strip_tags(str(cell))
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'"), ("&amp;", "&")):
        text = text.replace(entity, character)
    return " ".join(text.split())


def moment(epoch: float | None) -> datetime | None:
    """Return epoch seconds as a time in UTC; None if there is no such time."""
    try:
        return datetime.fromtimestamp(epoch, UTC) if epoch else None
    except (OverflowError, OSError, ValueError):
        return None


def _csv_chunks(sheet: Sheet) -> Iterator[bytes]:
    rows = iter(sheet.rows())
    cells = (map(_csv_cell, row) for row in islice(rows, MAX_ROWS))
    yield from map(_csv_text, _chunks(chain([sheet.columns], cells)))
    if next(rows, None) is not None:
        yield _csv_text([[CUT]])


def _csv_text(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue().encode(errors="backslashreplace")


def _csv_cell(value: object) -> object:
    """Return a value as a cell. In texts, put an apostrophe before everything that a spreadsheet would evaluate."""
    value = _plain(value)
    if isinstance(value, list) and not any(isinstance(member, list | dict) for member in value):
        value = ", ".join(map(str, value))
    elif isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return value
    # The start of the cell, or a separator at which a spreadsheet may split it, and the first character of a formula
    formula = r"""((?:^|[;,\t\r\n])[;,"\s]*+)([=+\-@＝＋－＠])?"""
    text = printable(value, 100_000)  # characters
    return re.sub(formula, lambda match: f"{match[1]}'{match[2]}" if match[2] else match[1], text)


def _json_chunks(sheet: Sheet) -> Iterator[bytes]:
    rows = iter(sheet.rows())
    head = json.dumps({"name": sheet.name, "columns": list(sheet.columns)})[:-1] + ', "rows": [\n'
    for chunk in _chunks(islice(rows, MAX_ROWS)):
        objects = [json.dumps(dict(zip(sheet.columns, map(_plain, row), strict=True))) for row in chunk]
        yield (head + ",\n".join(objects)).encode()
        head = ",\n"
    tail = "" if head == ",\n" else head
    complete = json.dumps(next(rows, None) is None)
    yield f'{tail}\n], "complete": {complete}}}\n'.encode()


def _plain(value: object) -> object:
    """Return a value for JSON: times as texts in UTC, and None for numbers that are not finite."""
    if isinstance(value, datetime):
        aware = value if timezone.is_aware(value) else timezone.make_aware(value)
        return aware.astimezone(UTC).isoformat(timespec="seconds")
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    if isinstance(value, dict):
        return {str(key): _plain(member) for key, member in value.items()}
    return value if value is None or isinstance(value, bool | int) else str(value)


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(values)
    while chunk := list(islice(iterator, 50)):  # rows
        yield chunk


async def _awaited(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks; they are made in a thread."""
    while (chunk := await sync_to_async(lambda: next(chunks, None))()) is not None:
        yield chunk
