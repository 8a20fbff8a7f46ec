"""Bars in SVG, for the charts of all apps."""

from __future__ import annotations

import re

from resty_django.admin.svg import bars, peak


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
