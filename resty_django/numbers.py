"""Whole numbers in texts for people."""

from __future__ import annotations

from django.utils.formats import number_format


def grouped(count: int, *, sign: bool = False) -> str:
    """Return a whole number with the thousands separators of the active language; `sign`: with a plus if it has one."""
    return ("+" if sign and count > 0 else "") + str(number_format(count, force_grouping=True))
