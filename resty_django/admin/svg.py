"""Bar charts as SVG, without inline scripts or styles, for a strict content security policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

Column = Sequence[tuple[str, float]]
"""The parts of a bar from bottom to top: the kind, for the CSS class `resty-<kind>`, and the count."""
BELOW = 16
"""Height in pixels of the line of marks below the bars."""
LEFT: Final = 64
"""Width in pixels of the labels of a y axis."""
ABOVE: Final = 38
"""Height in pixels of the line with the unit of a y axis."""
BELOW_AXES: Final = 26
"""Height in pixels of the marks of a time axis, which narrow screens show in a larger font."""


def bars(
    columns: Sequence[Column],
    *,
    width: int,
    height: int,
    label: str,
    titles: Sequence[str] = (),
    marks: Sequence[tuple[int, str]] = (),
    min_bars: int = 1,
) -> SafeString:
    """Return one bar for each column, its parts stacked, as an image of `width` and `height` pixels with the
    text alternative `label`. Colours come from the style sheet.

    `titles`: the tooltip of each bar. `marks`: pairs of a bar's index and the text below it. `min_bars`: the
    number of bars that always fit, so that a single bar is not as wide as the image.
    """
    step = width / max(min_bars, len(columns))
    below = height + (BELOW if marks else 0)
    return format_html(
        '<svg class="resty-bars" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">'
        '<title>{}</title>{}<path class="resty-base" d="M0 {}H{}"/>{}</svg>',
        width,
        below,
        width,
        below,
        label,
        label,
        format_html_join(
            "",
            '<rect class="resty-{}" x="{}" y="{}" width="{}" height="{}">{}</rect>',
            _parts(columns, peak(columns), step, height - 1, titles),
        ),
        f"{height - 0.5:g}",
        width,
        format_html_join(
            "", '<text x="{}" y="{}">{}</text>', ((_number(index * step), height + 12, text) for index, text in marks)
        ),
    )


def chart(
    columns: Sequence[Column],
    *,
    width: int,
    height: int,
    label: str,
    unit: str,
    titles: Sequence[str] = (),
    marks: Sequence[tuple[int, str]] = (),
) -> SafeString:
    """Return bars as in `bars`, with a y axis in `unit`, such as "requests/min", and the `marks` of a time axis.

    `width`, `height`: the size of the bars alone, in pixels.
    """
    top = axis_top(peak(columns))
    step = width / max(1, len(columns))
    full_width, full_height = LEFT + width, ABOVE + height + BELOW_AXES
    levels = [(top * quarters / 4, ABOVE + height * (1 - quarters / 4)) for quarters in (0, 2, 4)]
    return format_html(
        '<svg class="resty-bars resty-axes" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">'
        '<title>{}</title><text x="0" y="18">{}</text>{}{}{}<g transform="translate({} {})">{}</g></svg>',
        full_width,
        full_height,
        full_width,
        full_height,
        label,
        label,
        unit,
        format_html_join(
            "",
            '<path class="resty-base" d="M{} {}H{}"/>',
            ((LEFT, _number(y), full_width) for _, y in levels),
        ),
        format_html_join(
            "",
            '<text x="{}" y="{}" text-anchor="end">{}</text>',
            ((LEFT - 6, _number(y + 4), axis_number(level)) for level, y in levels),
        ),
        format_html_join(
            "",
            '<path class="resty-base" d="M{} {}v5"/><text x="{}" y="{}" text-anchor="middle">{}</text>',
            (
                (x, ABOVE + height, x, ABOVE + height + 20, text)
                for x, text in ((_number(LEFT + index * step), text) for index, text in marks)
            ),
        ),
        LEFT,
        ABOVE,
        format_html_join(
            "",
            '<rect class="resty-{}" x="{}" y="{}" width="{}" height="{}">{}</rect>',
            _parts(columns, top, step, height, titles),
        ),
    )


def axis_top(highest: float) -> float:
    """Return the top of a y axis: 4, 10, 20, 40, 100 and so on, the lowest that is not below `highest`."""
    top = 4.0
    while top < highest:
        top *= 2.5 if str(top).startswith("4") else 2
    return top


def axis_number(value: float) -> str:
    """Return a number in at most five characters: 40, 2k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def time_marks(starts: Sequence[int], every: int, date_format: str) -> list[tuple[int, str]]:
    """Return the marks of a time axis for spans that begin at `starts` (epoch seconds).

    `every`: the seconds between two marks, which are at multiples of it since midnight, in the current time zone. Marks
    at the ends, where their text has no room, are left out.
    """
    marks = []
    for index, start in enumerate(starts):
        moment = datetime.fromtimestamp(start, tz=timezone.get_current_timezone())
        seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
        if seconds % every == 0 and 0.03 <= index / len(starts) <= 0.97:
            marks.append((index, moment.strftime(date_format)))
    return marks


def peak(columns: Sequence[Column]) -> float:
    """Return the count of the highest bar."""
    return max((sum(count for _, count in column) for column in columns), default=0)


def _parts(
    columns: Sequence[Column], highest: float, step: float, height: float, titles: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    for index, column in enumerate(columns):
        title = format_html("<title>{}</title>", titles[index]) if titles else ""
        top = height
        for kind, count in column:
            if count > 0:
                bar_height = max(1.0, height * count / highest)
                top = max(0.0, top - bar_height)
                yield (kind, *map(_number, (index * step, top, max(1.0, step - 1), bar_height)), title)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
