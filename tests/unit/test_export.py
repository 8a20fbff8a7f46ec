"""Exports of tables as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.http import Http404, StreamingHttpResponse
from django.test import AsyncRequestFactory, RequestFactory
from django.utils.html import format_html
from hypothesis import given
from hypothesis import strategies as st

from resty_django.admin.export import CUT, MAX_ROWS, Sheet, export_links, export_response, plain_text


def sheet(*rows: Any, name: str = "bans", columns: tuple[str, ...] = ("key", "count")) -> Sheet:
    return Sheet(name, columns, lambda: rows)


def response_of(query: str, *sheets: Any, title: str = "") -> StreamingHttpResponse:
    response = export_response(RequestFactory().get(f"/{query}"), sheets, title)
    assert response is not None
    return response


def csv_of(*sheets: Any, query: str = "?export=csv") -> list[list[str]]:
    return list(csv.reader(io.StringIO(response_of(query, *sheets).getvalue().decode())))


def json_of(*sheets: Any, query: str = "?export=json") -> Any:
    return json.loads(response_of(query, *sheets).getvalue())


def test_a_sheet_becomes_csv_and_json() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=1)))
    rows = [('é, "x"\nnext', 1.5), (when, None), (["a", "b"], {"x": [1]}), (True, float("nan"))]
    assert csv_of(sheet(*rows)) == [
        ["key", "count"],
        ['é, "x"\nnext', "1.5"],
        ["2026-01-02T02:04:05+00:00", ""],
        ["a, b", '{"x": [1]}'],
        ["True", ""],
    ]
    assert json_of(sheet(*rows)) == {
        "name": "bans",
        "columns": ["key", "count"],
        "rows": [
            {"key": 'é, "x"\nnext', "count": 1.5},
            {"key": "2026-01-02T02:04:05+00:00", "count": None},
            {"key": ["a", "b"], "count": {"x": [1]}},
            {"key": True, "count": None},
        ],
        "complete": True,
    }


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        *((f"{sign}1", f"'{sign}1") for sign in "=+-@＝＋－＠"),
        ("\t=1", "\t'=1"),
        (" \n =1", " \n '=1"),
        (";" * 40_000 + "\n" * 40_000 + "=", ";" * 40_000 + "\n" * 40_000 + "'="),
        ("\r=1", "\\r=1"),
        ("a;=1", "a;'=1"),
        ('a; "=1', "a; \"'=1"),
        ("a,b\n@x", "a,b\n'@x"),
        ("1-1=0;a - b", "1-1=0;a - b"),
    ],
)
def test_an_apostrophe_stands_before_all_that_spreadsheets_would_evaluate(text: str, cell: str) -> None:
    assert csv_of(sheet((text, -1), (-1.5, 2)))[1:] == [[cell, "-1"], ["-1.5", "2"]]  # numbers are not texts
    assert json_of(sheet((text, -1)))["rows"][0]["key"] == text
    assert csv_of(sheet(([text, "b"], 1)))[1][0] == f"{cell}, b"


@given(st.lists(st.text("=+-@＝＋－＠ ;,\t\r\n\"'a1", max_size=12), min_size=2, max_size=2))
def test_no_part_of_a_cell_is_a_formula(texts: list[str]) -> None:
    content = response_of("?export=csv", sheet(texts)).getvalue().decode()
    for part in re.split(r"[;,\t\r\n]", content):
        assert not re.match(r'["\s]*[=+\-@＝＋－＠]', part), content
    fields = re.sub(r"'(?=[=+\-@＝＋－＠])", "", content)  # without apostrophes, the texts are complete
    expected = [re.sub(r"'(?=[=+\-@＝＋－＠])", "", text.replace("\r", "\\r")) for text in texts]
    assert list(csv.reader(io.StringIO(fields, newline="")))[1:] == [expected]


def test_hostile_texts_can_be_exported() -> None:
    text = "\u202e\x00\ud800"
    assert csv_of(sheet((text, 1)))[1][0] == "\\u202e\\x00\\ud800"
    assert json_of(sheet((text, 1)))["rows"][0]["key"] == text


def test_the_response_is_a_file() -> None:
    response = response_of("?export=csv", sheet(), title="Bans of <shop>")
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"].startswith('attachment; filename="bans-of-shop-bans-')
    assert response["Content-Disposition"].endswith('Z.csv"')
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response_of("?export=json", sheet())["Content-Type"] == "application/json"


def test_a_request_chooses_one_of_the_sheets_of_a_page() -> None:
    sheets = (sheet(("a", 1)), sheet(("b", 2), name="keys"))
    assert csv_of(*sheets)[1:] == [["a", "1"]]
    assert csv_of(*sheets, query="?export=csv&of=keys")[1:] == [["b", "2"]]
    with pytest.raises(Http404):
        response_of("?export=csv&of=other", *sheets)
    for query in ("", "?of=keys", "?export=xml"):
        assert export_response(RequestFactory().get(f"/{query}"), sheets) is None
    assert export_response(RequestFactory().post("/?export=csv"), sheets) is None


def test_rows_are_streamed_and_bounded() -> None:
    read = 0

    def rows() -> Iterator[tuple[str, int]]:
        nonlocal read
        while True:
            read += 1
            yield "key", read

    endless = Sheet("keys", ("key", "count"), rows)
    response = response_of("?export=csv", endless)
    assert read < 200
    lines = response.getvalue().decode().splitlines()
    assert lines[-2:] == [f'"key","{MAX_ROWS}"', f'"{CUT}"']
    read = 0
    exported = json_of(endless)
    assert exported["complete"] is False
    assert len(exported["rows"]) == MAX_ROWS
    full = Sheet("keys", ("key", "count"), lambda: [("key", 1)] * MAX_ROWS)
    assert json_of(full)["complete"] is True
    assert len(csv_of(full)) == MAX_ROWS + 1


def test_an_error_of_the_first_rows_is_raised_before_the_response() -> None:
    def rows() -> Iterator[tuple[str, int]]:
        raise ConnectionError
        yield "key", 1

    for format in ("csv", "json"):
        with pytest.raises(ConnectionError):
            response_of(f"?export={format}", Sheet("keys", ("key", "count"), rows))


@pytest.mark.asyncio
async def test_a_response_is_streamed_under_asgi() -> None:
    response = export_response(AsyncRequestFactory().get("/?export=csv"), [sheet(("a", 1))])
    assert response is not None
    assert b"".join([chunk async for chunk in response]) == b'"key","count"\r\n"a","1"\r\n'  # type: ignore[union-attr]


def test_the_address_keeps_the_filters_of_the_page() -> None:
    request = RequestFactory().get("/?q=a%26b&p=3&cursor=7&export=json&of=x")
    assert export_links(request, "bans")[0] == ("CSV", "?q=a%26b&export=csv&of=bans")


def test_html_of_a_cell_becomes_plain_text() -> None:
    assert plain_text(format_html('<a href="/">{}</a> <b>x</b>', "<i>'\"&amp;")) == "<i>'\"&amp; x"
    assert plain_text("<b>") == "<b>"
