"""Charts for all admin pages: bars and lines as SVG, drawn on the server, without inline scripts or styles.

series = [Series("completed", "Completed", counts)]
chart = Chart("Completed", series, time_axis(starts, "minute"), y_label="jobs per minute")

{{ chart }} in a template is a figure with a legend, a description and a table. Colours come from chart.css; chart.js
adds a cursor with the values of a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from .chart_axes import Axis, Scale, Unit, text_of

PLOT_WIDTH: Final = 660
"""Width of the plot in pixels, without the labels of its axes."""
LEFT_MARGIN: Final = 64
"""Width in pixels of the labels of the y axis."""
TOP_MARGIN: Final = 38
"""Height in pixels of the line with the name of the y axis."""
MIN_COLUMNS: Final = 8
"""Number of columns that always fit, so that a single bar is not as wide as the chart."""


@dataclass(frozen=True, slots=True)
class Series:
    """One value for each column; None: not known. `kind`: the CSS class is `resty-<kind>`.

    `shape`: "bar", stacked on the bars of the series after it; "line"; or "table", which only the table shows.
    """

    kind: str
    label: str
    values: Sequence[float | None]
    shape: Literal["bar", "line", "table"] = "bar"
    unit: Unit | None = None
    """The unit of the values if it is not the chart's."""


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A row of a chart's table: the text of the column, and the values as text."""

    label: str
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `summary`: its content in one sentence, the text alternative. `y_label`: the name of the y axis.

    `note`: a sentence below it. `table_label`: the label of its table, whose rows are the columns with values, the
    last one first. `height`: of the plot, in pixels.
    """

    title: str
    series: Sequence[Series]
    axis: Axis
    y_label: str = ""
    unit: Unit = Unit.COUNT
    summary: str = ""
    note: str = ""
    table_label: str = ""
    height: int = 160

    def __str__(self) -> SafeString:
        return render_to_string("admin/resty_django/chart.html", {"chart": self})

    __html__ = __str__

    @property
    def legend(self) -> list[Series]:
        """The series that are drawn; a single one needs no legend."""
        drawn = [series for series in self.series if series.shape != "table"]
        return drawn if len(drawn) > 1 else []

    @property
    def heads(self) -> list[str]:
        return [series.label for series in self.series]

    @property
    def rows(self) -> list[ChartRow]:
        """The columns in which a series has a value other than 0."""
        rows = [
            ChartRow(label, [text_of(series.unit or self.unit, series.values[index]) for series in self.series])
            for index, label in enumerate(self.axis.labels)
            if any(series.values[index] for series in self.series)
        ]
        return rows[::-1]

    @property
    def table_caption(self) -> str:
        return self.table_label or _("As a table")

    @property
    def description(self) -> str:
        return f"{self.title}: {self.summary}" if self.summary else self.title

    @property
    def svg(self) -> SafeString:
        """The drawing, with its axes and a tooltip for each column."""
        stacked = [series for series in reversed(self.series) if series.shape == "bar"]
        lines = [series for series in self.series if series.shape == "line"]
        highest = max([peak(stacked), *(_highest(series.values) for series in lines)], default=0)
        scale = Scale.of(self.unit, highest)
        width, height = LEFT_MARGIN + PLOT_WIDTH, TOP_MARGIN + self.height + 26  # with the marks of the x axis
        step = PLOT_WIDTH / max(MIN_COLUMNS, len(self.axis.labels))
        return format_html(
            '<svg class="resty-bars resty-axes" viewBox="0 0 {} {}" width="{}" height="{}" role="img" direction="ltr"'
            ' aria-label="{}"><title>{}</title><desc>{}</desc><text x="0" y="18">{}</text>{}{}'
            '<g class="resty-plot" transform="translate({} {})" data-height="{}">{}{}{}</g></svg>',
            *(width, height, width, height, self.description, self.title, self.summary, self.y_label),
            _y_axis(scale, self.height),
            _x_axis(self.axis.marks, step, self.height),
            *(LEFT_MARGIN, TOP_MARGIN, self.height),
            _rectangles(stacked, scale.top, step, self.height),
            SafeString("".join(_line(series, scale.top, step, self.height) for series in lines)),
            self._columns(step),
        )

    def _columns(self, step: float) -> SafeString:
        """Return a transparent rectangle with a tooltip over each column: the values that are drawn."""
        drawn = [series for series in self.series if series.shape != "table"]
        return format_html_join(
            "",
            '<rect class="resty-column" x="{}" y="0" width="{}" height="{}"><title>{}</title></rect>',
            (
                (_digits(index * step), _digits(step), self.height, _tooltip(label, drawn, index, self.unit))
                for index, label in enumerate(self.axis.labels)
            ),
        )


def sparkline(series: Sequence[Series], label: str, *, width: int = 150, height: int = 18) -> SafeString:
    """Return stacked bars without axes, for a cell of a table or a tile, with the text alternative `label`.
    The last series is at the bottom."""
    count = max((len(bars.values) for bars in series), default=0)
    step = width / max(MIN_COLUMNS, count)
    return format_html(
        '<svg class="resty-bars" viewBox="0 0 {} {}" width="{}" height="{}" role="img" direction="ltr" aria-label="{}">'
        '<title>{}</title>{}<path class="resty-base" d="M0 {}H{}"/></svg>',
        *(width, height, width, height, label, label),
        _rectangles(series[::-1], peak(series), step, height - 1),
        *(f"{height - 0.5:g}", width),
    )


def peak(series: Iterable[Series]) -> float:
    """Return the height of the highest stack of bars."""
    return max((sum(value or 0 for value in column) for column in _stacks(series)), default=0)


def _stacks(series: Iterable[Series]) -> Iterator[tuple[float | None, ...]]:
    return zip(*(bars.values for bars in series), strict=True)


def _highest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0)


def _rectangles(series: Sequence[Series], top: float, step: float, height: float) -> SafeString:
    return format_html_join(
        "",
        '<rect class="resty-{}" x="{}" y="{}" width="{}" height="{}"/>',
        _rectangle_values(series, top, step, height),
    )


def _rectangle_values(series: Sequence[Series], top: float, step: float, height: float) -> Iterator[tuple[str, ...]]:
    """Yield kind, x, y, width and height of each bar; the first series is at the bottom.

    Even a small count is one pixel high.
    """
    for index, stack in enumerate(_stacks(series)):
        y = height
        for bars, value in zip(series, stack, strict=True):
            if value and value > 0:
                bar_height = min(height, max(1.0, height * value / top))
                y = max(0.0, y - bar_height)
                yield (bars.kind, *map(_digits, (index * step, y, max(1.0, step - 1), bar_height)))


def _line(series: Series, top: float, step: float, height: float) -> SafeString:
    """Return a line through the middles of the columns, with gaps where values are not known."""
    path, dots, pen_down = [], [], False
    values = series.values
    for index, value in enumerate(values):
        if value is None:
            pen_down = False
            continue
        x, y = _digits((index + 0.5) * step), _digits(max(0.0, height - height * value / top))
        path.append(f"{'L' if pen_down else 'M'}{x} {y}")
        ends = index + 1 == len(values) or values[index + 1] is None
        if ends and not pen_down:
            dots.append((series.kind, x, y))
        pen_down = True
    return format_html(
        '<path class="resty-line resty-{}" d="{}"/>{}',
        series.kind,
        "".join(path) or "M0 0",
        format_html_join("", '<circle class="resty-dot resty-{}" cx="{}" cy="{}" r="2"/>', dots),
    )


def _y_axis(scale: Scale, height: int) -> SafeString:
    levels = [(scale.top * half / 2, TOP_MARGIN + height * (1 - half / 2)) for half in (0, 1, 2)]
    return format_html_join(
        "",
        '<path class="resty-base" d="M{} {}H{}"/><text x="{}" y="{}" text-anchor="end">{}</text>',
        (
            (LEFT_MARGIN, _digits(y), LEFT_MARGIN + PLOT_WIDTH, LEFT_MARGIN - 6, _digits(y + 4), scale.label(level))
            for level, y in levels
        ),
    )


def _x_axis(marks: Sequence[tuple[int, str]], step: float, height: int) -> SafeString:
    """Return the marks. If there are more than five, narrow screens show every other text."""
    base = TOP_MARGIN + height
    kinds = ("mark", "minor-mark") if len(marks) > 5 else ("mark", "mark")
    places = [_digits(LEFT_MARGIN + (index + 0.5) * step) for index, _text in marks]
    return format_html_join(
        "",
        '<path class="resty-base" d="M{} {}v5"/><text class="resty-{}" x="{}" y="{}" text-anchor="middle">{}</text>',
        (
            (x, base, kinds[number % 2], x, base + 20, text)
            for number, (x, (_index, text)) in enumerate(zip(places, marks, strict=True))
        ),
    )


def _tooltip(label: str, drawn: Sequence[Series], index: int, unit: Unit) -> str:
    parts = [(series.label, text_of(series.unit or unit, series.values[index])) for series in drawn]
    if len(parts) == 1:
        return f"{label}: {parts[0][1]}"
    return "\n".join([label, *(f"{name}: {value}" for name, value in parts)])


def _digits(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
