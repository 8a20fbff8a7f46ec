"""Bar charts as SVG, without inline scripts or styles, for a strict content security policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

Column = Sequence[tuple[str, float]]
"""The parts of a bar from bottom to top: the kind, for the CSS class `resty-<kind>`, and the count."""
BELOW = 16
"""Height in pixels of the line of marks below the bars."""


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
