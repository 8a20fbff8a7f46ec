"""Entries in the admin's history for operations on stores, also for those made through an API.

An operation on a store cannot be rolled back, and operators may need it while the database is read-only or full. So the
entry follows the operation. If the database rejects the entry, the log repeats it, and the page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import Error as DatabaseError
from django.db import models, router, transaction

from resty_django.text import logger, printable

log = logger("resty_django.admin")

MAX_MESSAGE_CHARS: Final = 2000
"""Maximum length of an entry."""


def add_entries(user: object, rows: Sequence[models.Model], text: str, flag: int | None = None) -> str:
    """Add an entry for each of `rows`. Return "", or the error of a database that rejects them, which is also logged.

    `flag`: `ADDITION`, `CHANGE` (default) or `DELETION` of `django.contrib.admin.models`. Nothing is added on sites
    without `django.contrib.admin`, or for callers without a row in the user table, such as anonymous users.
    """
    if not rows or not apps.is_installed("django.contrib.admin"):
        return ""
    from django.contrib.admin.models import CHANGE, LogEntry

    user_model, database = get_user_model(), router.db_for_write(LogEntry)
    try:
        with transaction.atomic(using=database):
            if isinstance(user, user_model) and user_model._base_manager.using(database).filter(pk=user.pk).exists():
                LogEntry.objects.log_actions(user.pk, rows, flag or CHANGE, printable(text, MAX_MESSAGE_CHARS))
    except DatabaseError as error:
        objects = ", ".join(f"{row._meta.label_lower} {str(row)!r} ({row.pk})" for row in rows)
        log.warning("Done, but not in the history: %s: %s By %s. %s", objects, text, username(user), error)
        return printable(str(error), MAX_MESSAGE_CHARS)
    return ""


def username(user: object) -> str:
    """Return the name of a user of any type, or "an unknown user"."""
    get_username = getattr(user, "get_username", None)
    return str((get_username() if callable(get_username) else user) or "an unknown user")
