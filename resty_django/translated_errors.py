"""The messages of errors in the user's language, of errors that modules without Django raise in English."""

from __future__ import annotations

from django.utils.translation import gettext

from .durations import BadText


def translated(error: Exception) -> str:
    """Return the message of an error in the active language if it is a `BadText`, else as it is."""
    if not isinstance(error, BadText) or not error.values:
        return str(error)
    return gettext(error.template) % error.values
