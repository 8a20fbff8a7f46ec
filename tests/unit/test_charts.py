"""Charts and their axes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from django.utils import timezone

from resty_django.admin.chart_axes import (
    Axis,
    Scale,
    Unit,
    axis_number,
    axis_top,
    time_axis,
    time_marks,
)
from resty_django.admin.charts import Chart, Series, sparkline

START = 1_700_000_040
"""22:14 UTC."""


def rects(svg: str) -> list[tuple[str, float, float, float, float]]:
    """Kind, x, y, width and height of each bar."""
    matches = re.findall(r'<rect class="resty-(\w+)" x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)"/>', svg)
    return [(kind, float(x), float(y), float(width), float(height)) for kind, x, y, width, height in matches]


def chart(*series: Series, unit: Unit = Unit.COUNT, labels: Sequence[str] = ("a", "b", "c")) -> Chart:
    return Chart("<Title>", series, Axis(labels, [(1, "<b>")], "From"), "<calls>", unit, "<summary>", height=100)


def test_sparkline_stacks_the_last_series_at_the_bottom() -> None:
    svg = sparkline(
        [Series("refused", "", [2, 0, 0]), Series("passed", "", [6, 0, 4])],
        "words",
        width=80,
        height=81,
    )
    assert rects(svg) == [("passed", 0, 20, 9, 60), ("refused", 0, 0, 9, 20), ("passed", 20, 40, 9, 40)]
    assert 'viewBox="0 0 80 81"' in svg
    assert svg.count("<title>") == 1


def test_sparkline_shows_small_counts() -> None:
    svg = sparkline([Series("bar", "", [0.001, 1000.5, -1])], "", width=30, height=21)
    assert [rect[4] for rect in rects(svg)] == [1, 20]


def test_sparkline_has_room() -> None:
    svg = sparkline([Series("bar", "", [1, 2])], "<words>", width=80, height=20)
    assert [rect[1] for rect in rects(svg)] == [0, 10]
    assert "<title>&lt;words&gt;</title>" in svg
    assert 'viewBox="0 0 80 20"' in svg
    assert "style" not in svg


def test_sparkline_without_values_is_a_line() -> None:
    for empty in ([], [Series("bar", "", [])]):
        svg = sparkline(empty, "none", width=10, height=10)
        assert rects(svg) == []
        assert "resty-base" in svg


def test_chart_draws_failures_over_completions() -> None:
    svg = chart(Series("failed", "Failed", [1, 0, 0]), Series("completed", "Completed", [3, 4, None])).svg
    assert rects(svg) == [
        ("completed", 0, 25, 81.5, 75),
        ("failed", 0, 0, 81.5, 25),
        ("completed", 82.5, 0, 81.5, 100),
    ]


def test_chart_escapes_its_texts_and_has_axes() -> None:
    svg = chart(Series("passed", "Passed", [30, 0, 0])).svg
    assert "&lt;calls&gt;" in svg
    assert 'aria-label="&lt;Title&gt;: &lt;summary&gt;"' in svg
    assert "<desc>&lt;summary&gt;</desc>" in svg
    assert re.findall(r'text-anchor="end">([^<]*)<', svg) == ["0", "20", "40"]
    assert re.findall(r'text-anchor="middle">([^<]*)<', svg) == ["&lt;b&gt;"]
    assert "style" not in svg


def test_narrow_screens_label_every_other_of_many_marks() -> None:
    axis = Axis([*"abcdefg"], [(number, f"m{number}") for number in range(7)], "From")
    svg = Chart("Title", [Series("passed", "Passed", [1] * 7)], axis, "calls", Unit.COUNT, "", height=100).svg
    assert re.findall(r'class="resty-minor-mark"[^>]*>([^<]*)<', svg) == ["m1", "m3", "m5"]


def test_lines_have_gaps_and_single_points_are_dots() -> None:
    svg = chart(Series("hits", "Hits", [1.0, 0.5, None, 0.0]), unit=Unit.SHARE, labels="abcd").svg
    assert "resty-line" not in svg
    line = Series("hits", "Hits", [1.0, 0.5, None, 0.0], "line")
    svg = chart(line, unit=Unit.SHARE, labels="abcd").svg
    assert re.findall(r'resty-line resty-hits" d="([^"]*)"', svg) == ["M41.25 0L123.75 50M288.75 100"]
    assert re.findall(r'resty-dot resty-hits" cx="([\d.]+)" cy="([\d.]+)"', svg) == [("288.75", "100")]
    assert re.findall(r'text-anchor="end">([^<]*)<', svg) == ["0", "50 %", "100 %"]


def test_columns_have_tooltips_with_the_drawn_values() -> None:
    series = [
        Series("p50", "p50", [90.0, None, 0.25], "line"),
        Series("p95", "p95", [3600.0, None, 1.5], "line"),
        Series("jobs", "Jobs", [5, 0, 2], "table", Unit.COUNT),
    ]
    texts = re.findall(r"<title>([^<]*)</title></rect>", chart(*series, unit=Unit.SECONDS).svg)
    assert texts == ["a\np50: 1 min 30 s\np95: 1 h", "b\np50: –\np95: –", "c\np50: 250 ms\np95: 1.5 s"]
    single = chart(Series("bar", "Jobs", [1, 2, 3])).svg
    assert re.findall(r"<title>([^<]*)</title></rect>", single) == ["a: 1", "b: 2", "c: 3"]


def test_figure_has_a_legend_and_a_table_of_columns_with_values() -> None:
    html = str(
        chart(
            Series("p50", "<p50>", [90.0, None, 0.25], "line"),
            Series("p95", "p95", [3600.0, None, 1.5], "line"),
            Series("jobs", "Jobs", [5, 0, 2], "table", Unit.COUNT),
            unit=Unit.SECONDS,
        )
    )
    assert re.findall(r"resty-is-(\w+)", html) == ["p50", "p95"]
    assert re.findall(r'<th scope="(?:col|row)"[^>]*>([^<]*)</th>', html) == [
        *("From", "&lt;p50&gt;", "p95", "Jobs"),
        *("c", "a"),
    ]
    assert re.findall(r'<td class="resty-number">([^<]*)</td>', html) == [
        "250 ms",
        "1.5 s",
        "2",
        "1 min 30 s",
        "1 h",
        "5",
    ]
    assert "style=" not in html
    assert "<script" not in html


def test_chart_without_values_has_neither_legend_nor_table() -> None:
    html = str(chart(Series("bar", "Jobs", [0, 0, 0])))
    assert "resty-legend" not in html
    assert "<details" not in html
    assert str(Chart("Empty", [Series("bar", "Jobs", [])], Axis([]))).count("<svg") == 1


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 4), (4, 4), (5, 10), (11, 20), (21, 40), (41, 100), (3999, 4000), (4001, 10_000)]
)
def test_top_of_an_axis_is_a_round_number(highest: float, top: float) -> None:
    assert axis_top(highest) == top


@pytest.mark.parametrize(
    ("highest", "labels"),
    [
        (0, ["0", "5 ms", "10 ms"]),
        (3, ["0", "2 s", "4 s"]),
        (90, ["0", "1 min", "2 min"]),
        (9 * 86_400, ["0", "5 d", "10 d"]),
    ],
)
def test_scales_of_durations_are_round(highest: float, labels: list[str]) -> None:
    scale = Scale.of(Unit.SECONDS, highest)
    assert [scale.label(scale.top * half / 2) for half in range(3)] == labels


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (2.5, "2.5"), (999, "999"), (1500, "1.5k"), (4e6, "4M")])
def test_numbers_of_an_axis_are_short(value: float, text: str) -> None:
    assert axis_number(value) == text


def test_time_axis_has_marks_at_round_times_that_fit() -> None:
    minutes = [START + 60 * number for number in range(60)]
    with timezone.override("UTC"):
        assert time_marks(minutes, 900) == [(16, "22:30"), (31, "22:45"), (46, "23:00")]
    with timezone.override("Asia/Kathmandu"):  # 5:45 ahead
        assert time_marks(minutes, 1800) == [(31, "04:30")]
    assert time_marks([], 900) == []


def test_time_axis_is_in_the_current_time_zone() -> None:
    hours = [START - START % 3600 + 3600 * number for number in range(48)]
    with timezone.override("UTC"):
        assert time_axis(hours, "hour").labels[0] == "Nov. 14, 2023, 22:00"
        assert [text for _index, text in time_axis(hours, "hour").marks][:3] == ["15 Nov", "06:00", "12:00"]
    with timezone.override("Asia/Tokyo"):
        assert time_axis(hours, "hour").labels[0] == "Nov. 15, 2023, 07:00"
        assert time_axis([START], "minute").labels == ["07:14"]
        days = time_axis([START - START % 86_400 + 86_400 * number for number in range(30)], "day")
        assert (days.labels[0], days.heading) == ("Nov. 14, 2023", "Day (UTC)")
        assert 4 <= len(days.marks) <= 6
