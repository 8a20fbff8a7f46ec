"""Formatting of figures for the admin."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

NONE = "–"


def percent(share: float) -> str:
    """Return a share as text; it is never rounded up to 100 % or down to 0 %."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "99.9 %"
    return f"{share:.1%}".replace("%", " %")


def free_space_bar(share: float, text: str, *, low: float = 0.0, high: float = 0.0) -> SafeString:
    """Return a bar of the free `share`, followed by `text`. Below `high` and `low` the bar changes its colour."""
    return format_html(
        '<span class="resty-room"><meter min="0" max="1000" low="{}" high="{}" optimum="1000" value="{}">'
        '{}</meter> <span class="resty-number">{}</span></span>',
        round(1000 * low),
        round(1000 * high),
        round(1000 * share),
        percent(share),
        text,
    )
