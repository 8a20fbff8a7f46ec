"""Explanations of database failures: cause and remedy."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps

_NO_TABLE: Final = (1146, 1054, "42P01", "42703")
"""Error codes for an unknown table or column, in MariaDB and MySQL and in PostgreSQL."""
_READ_ONLY: Final = "The database is read-only. Allow writes, or connect to the primary server."
_FULL: Final = "The disk of the database, or its quota, is full. Free space, or raise the quota."
_DENIED: Final = (
    "The database user may not use the tables of the ID service. Grant it SELECT, INSERT, UPDATE and DELETE."
)
_CODES: Final[dict[object, str]] = {
    **dict.fromkeys((1290, 1792, 1836, "25006"), _READ_ONLY),
    **dict.fromkeys((1021, 1114, "53100"), _FULL),
    **dict.fromkeys((1044, 1142, 1143, "42501"), _DENIED),
}
"""Explanations by error code of MariaDB and MySQL (numbers) and PostgreSQL (SQLSTATE)."""
LOCKED: Final = "Another connection holds SQLite's write lock. Keep write transactions short, and try again."
_SQLITE: Final = {"readonly database": _READ_ONLY, "disk is full": _FULL, "is locked": LOCKED}
"""Explanations by a part of SQLite's message."""


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
    if vendor == "sqlite":
        return next((reason for part, reason in _SQLITE.items() if part in text), "")
    return _CODES.get(code, "")
