"""Formatting of figures for the admin."""

from __future__ import annotations

import math

from django.utils.html import format_html
from django.utils.safestring import SafeString

NONE = "–"


def percent(share: float) -> str:
    """Return a share as text, such as "10 %" or "99.9 %"; it is never rounded up to 100 % or down to 0 %."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "99.9 %"
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def number(value: float | None) -> str:
    """Return a number with thousands separators; two decimals only if it has a fraction."""
    if value is None:
        return NONE
    if not math.isfinite(value) or abs(value) >= 1e15:
        return f"{value:g}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def duration(value: float) -> str:
    """Return a duration in its one or two largest units: "2 min 5 s"."""
    value = abs(value)
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 10:
        return f"{value:.1f}".removesuffix(".0") + " s"
    for unit, length, lower_unit, lower_length in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if value >= length:
            count, remainder = divmod(int(value), length)
            return f"{count:,} {unit}" + (
                f" {remainder // lower_length} {lower_unit}" if remainder // lower_length else ""
            )
    return f"{value:.0f} s"


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
