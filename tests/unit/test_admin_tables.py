"""Tables of admin pages: sorted and filtered by the URL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import RequestFactory

from resty_django.admin.tables import Column, Listing, Row, SortOrder, filter_form, listing, sort, table

COLUMNS = (
    Column("name", "Name"),
    Column("calls", "Calls", number=True, of="stats.calls"),
    Column("when", "When", of=lambda row: row.at),
    Column("help", "Help", sorts=False),
)


@dataclass(frozen=True)
class Thing:
    name: str
    stats: Any
    at: datetime | None = None
    help: str = ""


THINGS = [
    Thing("b", SimpleNamespace(calls=10), datetime(2026, 1, 2, tzinfo=UTC), "the second"),
    Thing("A", SimpleNamespace(calls=9), datetime(2026, 1, 3, tzinfo=UTC), "the first"),
    Thing("c", None),
]


def listed(query: str, **options: Any) -> Listing[Thing]:
    return listing(RequestFactory().get(f"/?{query}"), COLUMNS, THINGS, **options)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", "bAc"),
        ("o=name", "Abc"),
        ("o=-name", "cbA"),
        ("o=calls", "Abc"),
        ("o=-calls", "bAc"),
        ("o=when", "bAc"),
        ("o=-when", "Abc"),
        ("o=help", "bAc"),
        ("o=nonsense", "bAc"),
        ("o=--name", "bAc"),
        ("o-other=name", "bAc"),
    ],
)
def test_the_url_sorts_objects_and_those_without_a_value_come_last(query: str, names: str) -> None:
    assert "".join(thing.name for thing in listed(query)) == names


def test_a_table_has_its_own_parameter() -> None:
    things = listed("o-things=name&o=-name", name="things")
    assert [thing.name for thing in things] == ["A", "b", "c"]
    assert things.heads[0].url == "?o=-name&o-things=-name"


def test_the_url_filters_by_the_texts_of_all_columns() -> None:
    assert [thing.name for thing in listed("find=SECOND")] == ["b"]
    assert [thing.name for thing in listed("find=a")] == ["A"]
    assert not listed("find=10")
    assert (len(listed("find=10")), listed("find=10").total) == (0, 3)
    assert len(listed("find=10", find="")) == 3


def test_heads_lead_to_the_other_direction_and_keep_other_parameters() -> None:
    heads = listed("o=calls&find=e&p=3&page=2").heads
    assert [head.url for head in heads] == ["?find=e&o=name", "?find=e&o=-calls", "?find=e&o=when", ""]
    assert [head.sorted for head in heads] == ["", "ascending", "", ""]
    assert listed("").heads[1].url == "?o=-calls"
    assert listed("o=-calls").heads[1].url == "?o=calls"


def test_the_default_order_is_marked_and_can_be_reversed() -> None:
    head = listed("", default="-calls").heads[1]
    assert (head.sorted, head.url) == ("descending", "?o=calls")


def test_the_filter_form_keeps_other_parameters_but_no_page() -> None:
    form = filter_form(RequestFactory().get("/?find=x&o=name&p=2&page=3&cursor=4&a=1&a=2"))
    assert (form.find, form.hidden) == ("x", [("o", "name"), ("a", "1"), ("a", "2")])


def test_rows_are_sorted_numbers_first() -> None:
    rows = [Row({}, {"x": value}) for value in ("b", None, 2, "A", 1.5, "")]
    assert [row.values["x"] for row in sort(rows, SortOrder("x"))] == [1.5, 2, "A", "b", None, ""]
    assert [row.values["x"] for row in sort(rows, SortOrder("x", descending=True))] == ["b", "A", 2, 1.5, None, ""]


@pytest.mark.parametrize(
    ("sorts", "names"), [(None, ["a", "b"]), (("name",), ["a", "b"]), ((), ["b", "a"]), ([], ["b", "a"])]
)
def test_the_url_does_not_sort_a_table_without_columns_that_sort(sorts: Any, names: list[str]) -> None:
    rows = [Row({}, {"name": name}) for name in "ba"]
    shown = table(RequestFactory().get("/?o=name"), COLUMNS, rows, caption="", empty="", sorts=sorts)
    assert [row.values["name"] for row, _ in shown.rows] == names


def test_a_table_can_be_sorted_only_by_what_the_caller_says() -> None:
    request = RequestFactory().get("/?o=name")
    heads = table(
        request, COLUMNS, [], caption="", empty="", sorts=("calls",), order=SortOrder("calls", descending=True)
    ).heads
    assert [(head.url, head.sorted) for head in heads] == [("", ""), ("?o=calls", "descending"), ("", ""), ("", "")]
