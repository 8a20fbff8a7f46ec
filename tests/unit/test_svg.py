"""Bars in SVG, for the charts of all apps."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone

from resty_django.admin.svg import axis_number, axis_top, bars, chart, peak, time_marks


def rects(svg: str) -> list[tuple[str, float, float, float, float]]:
    """Kind, x, y, width and height of each part."""
    matches = re.findall(r'<rect class="resty-(\w+)" x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)">', svg)
    return [(kind, float(x), float(y), float(width), float(height)) for kind, x, y, width, height in matches]


def test_parts_stand_one_upon_the_other() -> None:
    svg = bars([[("passed", 6), ("refused", 2)], [("passed", 0)], [("passed", 4)]], width=30, height=81, label="words")
    assert rects(svg) == [("passed", 0, 20, 9, 60), ("refused", 0, 0, 9, 20), ("passed", 20, 40, 9, 40)]
    assert 'viewBox="0 0 30 81"' in svg
    assert svg.count("<title>") == 1


def test_a_count_however_small_is_seen() -> None:
    svg = bars([[("bar", 0.001)], [("bar", 1000.5)], [("bar", -1)]], width=30, height=21, label="")
    assert [rect[4] for rect in rects(svg)] == [1, 20]


def test_bars_have_room_titles_and_marks() -> None:
    svg = bars(
        [[("bar", 1)], [("bar", 2)]],
        width=80,
        height=20,
        label="<words>",
        titles=["one", "<two>"],
        marks=[(0, "0"), (1, "<1>")],
        min_bars=8,
    )
    assert [rect[1] for rect in rects(svg)] == [0, 10]
    assert re.findall(r"<title>([^<]*)</title>", svg) == ["&lt;words&gt;", "one", "&lt;two&gt;"]
    assert re.findall(r'<text x="(\d+)" y="(\d+)">([^<]*)</text>', svg) == [("0", "32", "0"), ("10", "32", "&lt;1&gt;")]
    assert 'viewBox="0 0 80 36"' in svg
    assert "style" not in svg


def test_nothing_is_a_line() -> None:
    assert peak([]) == peak([[]]) == 0
    svg = bars([], width=10, height=10, label="none")
    assert rects(svg) == []
    assert "resty-base" in svg


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 4), (4, 4), (5, 10), (11, 20), (21, 40), (41, 100), (3999, 4000), (4001, 10_000)]
)
def test_the_top_of_an_axis_is_a_round_number(highest: float, top: float) -> None:
    assert axis_top(highest) == top


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (2.5, "2.5"), (999, "999"), (1500, "1.5k"), (4e6, "4M")])
def test_numbers_of_an_axis_are_short(value: float, text: str) -> None:
    assert axis_number(value) == text


def test_a_chart_has_two_axes() -> None:
    svg = chart([[("passed", 30)], []], width=660, height=100, label="words", unit="<calls>", marks=[(1, "<12:00>")])
    assert "&lt;calls&gt;" in svg
    assert re.findall(r'text-anchor="end">([^<]*)<', svg) == ["0", "20", "40"]
    assert re.findall(r'text-anchor="middle">([^<]*)<', svg) == ["&lt;12:00&gt;"]
    assert rects(svg) == [("passed", 0, 25, 329, 75)]
    assert "style" not in svg


def test_a_time_axis_has_marks_at_round_times_that_fit() -> None:
    start = 1_700_000_040  # 22:14 UTC
    minutes = [start + 60 * number for number in range(60)]
    with timezone.override("UTC"):
        assert time_marks(minutes, 900, "%H:%M") == [(16, "22:30"), (31, "22:45"), (46, "23:00")]
    with timezone.override("Asia/Kathmandu"):  # 5:45 ahead
        assert time_marks(minutes, 1800, "%H:%M") == [(31, "04:30")]
    assert time_marks([], 900, "%H:%M") == []
