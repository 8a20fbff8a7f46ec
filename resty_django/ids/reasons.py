"""Explanations of database failures: cause and remedy."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps

_NO_TABLE: Final = (1146, 1054, "42P01", "42703")
"""Error codes for an unknown table or column, in MariaDB and MySQL and in PostgreSQL."""
LOCKED: Final = "Another connection holds SQLite's write lock. Keep write transactions short, and try again."


def reason_of(error: BaseException, vendor: str) -> str:
    """Return the cause of a database failure and what to do about it, or "" if unknown."""
    code: Any = getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "pgcode", None)
    code = code or (error.args[0] if error.args else None)
    text = str(error)
    if not apps.is_installed("resty_django.ids"):
        return (
            'The app "resty_django.ids" is not in INSTALLED_APPS. Add it, or everything by resty_django.ALL_APPS, and '
            "run manage.py migrate."
        )
    if code in _NO_TABLE or (vendor == "sqlite" and text.startswith(("no such table", "no such column"))):
        return "The tables of the ID service are missing or out of date. Run manage.py migrate."
    if vendor == "sqlite" and "is locked" in text:
        return LOCKED
    return ""
