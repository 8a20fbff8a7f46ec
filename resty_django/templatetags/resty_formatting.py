"""Template filters of the admin pages, with the functions of `resty_django.admin.formatting`.

{% load resty_formatting %}
{{ ban.until|resty_time }}, {{ delay|resty_duration }}, {{ count|resty_number }}, {{ limit.name|resty_breakable }}
"""

# Django imports template libraries at startup, so the functions are imported by the filters.

from __future__ import annotations

from typing import Any

from django import template
from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def resty_time(value: Any) -> str:
    """Return a datetime or epoch seconds as date and time of day; "" for None and ""."""
    from resty_django.admin.formatting import date_time

    return "" if value in (None, "") else date_time(value)


@register.filter
def resty_duration(value: Any) -> str:
    """Return seconds as a duration; "" for None and ""."""
    from resty_django.admin.formatting import duration

    return "" if value in (None, "") else duration(value)


@register.filter
def resty_number(value: Any) -> str:
    """Return a number with thousands separators; a dash for None."""
    from resty_django.admin.formatting import number

    return number(value)


@register.filter
def resty_breakable(text: str) -> SafeString | str:
    """Return a name with places for line breaks between its words."""
    from resty_django.admin.formatting import breakable

    return breakable(text)
