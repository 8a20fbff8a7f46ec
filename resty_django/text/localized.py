"""Numbers and messages of errors in the user's language."""

from __future__ import annotations

from django.utils.formats import number_format
from django.utils.translation import gettext

from .durations import BadText


def grouped(count: int, *, sign: bool = False) -> str:
    """Return a whole number with the thousands separators of the active language; `sign`: with a plus if it has one."""
    return ("+" if sign and count > 0 else "") + str(number_format(count, force_grouping=True))


def translated(error: Exception) -> str:
    """Return the message of an error, in the active language if the error is a `BadText`."""
    if not isinstance(error, BadText) or not error.values:
        return str(error)
    return gettext(error.template) % error.values
