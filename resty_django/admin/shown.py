"""Figures and foreign texts as the admin shows them."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from resty_django.printable import printable

NONE = "–"


def percent(share: float) -> str:
    """A share as text; never rounded up to 100 %, nor down to 0 %."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "99.9 %"
    return f"{share:.1%}".replace("%", " %")


def room(share: float, text: str, *, low: float = 0.0, high: float = 0.0) -> SafeString:
    """A bar of the `share` that is left, with `text` beside it. Below `high` and `low` the bar changes its colour."""
    return format_html(
        '<span class="resty-room"><meter min="0" max="1000" low="{}" high="{}" optimum="1000" value="{}">'
        '{}</meter> <span class="resty-number">{}</span></span>',
        round(1000 * low),
        round(1000 * high),
        round(1000 * share),
        percent(share),
        text,
    )


__all__ = ["NONE", "percent", "printable", "room"]
