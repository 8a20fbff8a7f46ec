"""Counts over time as bars in SVG. Without scripts or styles of their own, for a strict content security policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

Column = Sequence[tuple[str, int]]
"""The parts of a bar, the lowest first: the kind, which gives the CSS class `resty-<kind>`, and the count."""


def bars(columns: Sequence[Column], *, width: int, height: int, words: str) -> SafeString:
    """One bar for each column, its parts one upon the other, as an image of `width` and `height` pixels that `words`
    tell of. Colours come from the style sheet."""
    highest = peak(columns)
    step = width / max(1, len(columns))
    return format_html(
        '<svg class="resty-bars" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">'
        '<title>{}</title>{}<path class="resty-base" d="M0 {}H{}"/></svg>',
        width,
        height,
        width,
        height,
        words,
        words,
        format_html_join(
            "",
            '<rect class="resty-{}" x="{}" y="{}" width="{}" height="{}"/>',
            _parts(columns, highest, step, height - 1),
        ),
        f"{height - 0.5:g}",
        width,
    )


def peak(columns: Sequence[Column]) -> int:
    """The count of the highest bar."""
    return max((sum(count for _, count in column) for column in columns), default=0)


def _parts(columns: Sequence[Column], highest: int, step: float, height: float) -> Iterator[tuple[str, ...]]:
    for number, column in enumerate(columns):
        top = height
        for kind, count in column:
            if count:
                tall = max(1.0, height * count / highest)
                top = max(0.0, top - tall)
                numbers = (number * step, top, max(1.0, step - 1), tall)
                yield (kind, *(f"{value:.2f}".rstrip("0").rstrip(".") for value in numbers))


__all__ = ["Column", "bars", "peak"]
