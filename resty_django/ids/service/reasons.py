"""Explanations of database failures: cause and remedy."""

from __future__ import annotations

from typing import Final

from django.apps import apps

LOCKED: Final = "Another connection holds SQLite's write lock. Keep write transactions short, and try again."


def reason_of(error: BaseException, vendor: str) -> str:
    """Return the cause of a database failure and what to do about it, or "" if unknown."""
    if not apps.is_installed("resty_django.ids"):
        return (
            'The app "resty_django.ids" is not in INSTALLED_APPS. Add it, or everything by resty_django.ALL_APPS, and '
            "run manage.py migrate."
        )
    missing = "The tables of the ID service are missing or out of date. Run manage.py migrate."
    read_only = "The database is read-only. Allow writes, or connect to the primary server."
    full = "The disk of the database, or its quota, is full. Free space, or raise the quota."
    if vendor == "sqlite":
        reasons = {
            "no such table": missing,
            "no such column": missing,
            "readonly database": read_only,
            "disk is full": full,
            "is locked": LOCKED,
        }
        return next((reason for part, reason in reasons.items() if part in str(error)), "")
    sqlstate = getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "pgcode", None)
    match sqlstate or next(iter(error.args), None):  # of PostgreSQL, or a number of MariaDB and MySQL
        case 1146 | 1054 | "42P01" | "42703":
            return missing
        case 1290 | 1792 | 1836 | "25006":
            return read_only
        case 1021 | 1114 | "53100":
            return full
        case 1044 | 1142 | 1143 | "42501":
            return (
                "The database user may not use the tables of the ID service. "
                "Grant it SELECT, INSERT, UPDATE and DELETE."
            )
        case _:
            return ""
