"""Formatting of numbers, shares, durations, times and names, for all admin pages.

Numbers have the separators of the user's language. Times have its date format and the current time zone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from resty_django.text import printable

NONE: Final = "–"


def percent(share: float) -> str:
    """Return a share as text, such as "10 %". It is never rounded up to 100 % or down to 0 %."""
    if 0 < share < 0.001:
        return f"< {_localized(0.1, 1)} %"
    if 0.999 < share < 1:
        return f"{_localized(99.9, 1)} %"
    return f"{_rounded(100 * share)} %"


def number(value: float | None) -> str:
    """Return a number with thousands separators; two decimals only if it has a fraction."""
    if value is None:
        return NONE
    if isinstance(value, int):
        return str(number_format(value, 0, force_grouping=True))
    if not math.isfinite(value) or abs(value) >= 1e15:
        return f"{value:g}"
    return _localized(value, 0 if value == int(value) else 2)


def duration(value: float) -> str:
    """Return a duration in its one or two largest units: "2 min 5 s". Return a dash for infinity and NaN."""
    value = abs(value)
    if not value < 1e300:
        return NONE
    if value < 0.995:
        milliseconds = value * 1000
        digits = _rounded(milliseconds) if milliseconds < 10 else _localized(milliseconds, 0)
        return digits + " " + pgettext("unit of time", "ms")
    if value < 10:
        return f"{_rounded(value)} {pgettext('unit of time', 's')}"
    if value < 60:
        return f"{_localized(value, 0)} {pgettext('unit of time', 's')}"
    if value < 3600:
        return _in_units(value, 60, pgettext("unit of time", "min"), 1, pgettext("unit of time", "s"))
    if value < 86_400:
        return _in_units(value, 3600, pgettext("unit of time", "h"), 60, pgettext("unit of time", "min"))
    return _in_units(value, 86_400, pgettext("unit of time", "d"), 3600, pgettext("unit of time", "h"))


def _in_units(seconds: float, length: int, unit: str, lower_length: int, lower_unit: str) -> str:
    """Return a duration in a unit of `length` seconds and the next lower unit, which is left out if it is 0."""
    count, remainder = divmod(int(seconds), length)
    lower_count = remainder // lower_length
    text = f"{_localized(count, 0)} {unit}"
    return f"{text} {lower_count} {lower_unit}" if lower_count else text


def date(moment: datetime) -> str:
    """Return the date of a moment in its own time zone."""
    return str(date_format(moment, "DATE_FORMAT"))


def date_time(moment: datetime | float | None) -> str:
    """Return a datetime, or epoch seconds, as a date and a time with seconds, in the current time zone.

    The time zone of a naive datetime is not changed. Return a dash for None, and for seconds that are not a date.
    """
    if moment is None:
        return NONE
    try:
        if not isinstance(moment, datetime):
            moment = datetime.fromtimestamp(moment, UTC)
        local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    except (OverflowError, OSError, ValueError):
        return NONE
    return f"{date(local)}, {local:%H:%M:%S}"


def local_time(epoch: float) -> datetime:
    """Return epoch seconds in the current time zone.

    Stored numbers may have any size, so times before the year 2 or after the year 9998 become the nearest valid time.
    """
    bounded = min(max(-62_103_974_400.0, epoch), 253_370_678_400.0)
    return datetime.fromtimestamp(bounded, timezone.get_current_timezone())


def name(text: str, longest: int = 200) -> str:
    """Return an external string on one line, of at most `longest` characters."""
    return printable(text, longest).replace("\n", " ") or NONE


def breakable(text: str, longest: int = 200) -> SafeString | str:
    """Return an external string like `name`, with places for line breaks between its words.

    Without them, a class name such as `shop.notifications.SendInvoiceReminder` is as wide as a table. Texts of at most
    16 characters are not broken; words of more than 24 characters are broken anywhere.
    """
    shown = name(text, longest)
    if len(shown) <= 16:
        return shown
    parts = re.split(r"(?<=[-._:/@])(?=\w)|(?<=[a-z0-9])(?=[A-Z])", shown)
    return format_html_join(mark_safe("<wbr>"), "{}", ((piece,) for part in parts for piece in _pieces(part)))


def _pieces(part: str) -> Iterator[str]:
    """Yield a part of a text; in pieces of 24 characters if one of its words is longer."""
    longest_word = max(map(len, part.split()), default=0)
    step = 24 if longest_word > 24 else len(part)
    yield from (part[start : start + step] for start in range(0, len(part), step))


def _rounded(value: float) -> str:
    """Return a number with one decimal, or none if it would be 0."""
    text = f"{value:.1f}"
    return _localized(value, 0 if text.endswith(".0") else 1)


def _localized(value: float, decimals: int) -> str:
    return str(number_format(f"{value:.{decimals}f}", decimals, force_grouping=True))


def unavailable(error: str) -> SafeString:
    """Return the text in place of missing figures."""
    return format_html('<span class="resty-alarm">{}</span> {}', _("Unavailable:"), error)


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
